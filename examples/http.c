/* Objects of a web server: item i is URL/i. A worker has 16 requests under way, each in a thread
   with a connection that stays open. A request that fails is tried 3 times more, with a pause that
   doubles; an object that is not there then ends the pipe.

     http URL ITEMS [workers]
     cc -O2 http.c -lcurl -lpthread

   dlpipe_s3.h has the same for S3, without a library and without a thread for each request. */
#define DLPIPE_IMPLEMENTATION
#include "../dlpipe.h"
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 65536 }; /* bytes of an object */

static pthread_key_t handle; /* of each thread */

static size_t take(char *bytes, size_t one, size_t n, void *user) {
    dlp_item *item = user;
    if (n > MOST - item->length[0]) return 0; /* curl then fails: too large */
    memcpy((char *)item->data[0] + item->length[0], bytes, one * n);
    item->length[0] += n;
    return n;
}

static int fetch(void *url, dlp_item *item) {
    char at[2048], why[CURL_ERROR_SIZE] = "";
    CURL *c = pthread_getspecific(handle);
    if (c == NULL && (c = curl_easy_init()) != NULL) pthread_setspecific(handle, c);
    if (c == NULL) return DLP_ERR_MEMORY;
    item->length[0] = 0;
    snprintf(at, sizeof at, "%s/%llu", (char *)url, (unsigned long long)item->index);
    curl_easy_setopt(c, CURLOPT_URL, at);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* there are threads */
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 30L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, item);
    if (curl_easy_perform(c) != CURLE_OK) return dlp_fail(item->call, 0, "%s: %s", at, why);
    return 0;
}

int main(int argc, char **argv) {
    const dlp_field bytes = {
        .name = "bytes", .dtype = DLP_U8, .ndim = 1, .shape = {MOST}, .ragged = 1};
    dlp_pipe *pipe = NULL;
    dlp_batch *batch = NULL;
    dlp_error err;
    uint64_t sum = 0, items = 0;
    int code;
    if (argc < 3) return puts("http URL ITEMS [workers]"), 2;
    const dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = strtoull(argv[2], NULL, 10)}},
        {.name = "get",
         .verb = DLP_FETCH,
         .fetch =
             {.fetch = fetch, .user = argv[1], .fields = &bytes, .n_fields = 1, .in_flight = 16},
         .workers = {.num_workers = argc > 3 ? atoi(argv[3]) : 1,
                     .retries = 3,
                     .retry_backoff_ms = 20}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 32}},
    };
    if (curl_global_init(CURL_GLOBAL_ALL) != 0 || pthread_key_create(&handle, curl_easy_cleanup))
        return puts("no curl"), 1;
    if (dlp_pipe_open(&pipe, DLP_NODES(nodes), NULL, &err)) return puts(err.message), 1;
    while ((code = dlp_pipe_next(pipe, &batch)) == DLP_OK) {
        for (uint32_t i = 0; i < batch->count; i++) sum += batch->fields[0].lengths[i];
        items += batch->count;
        dlp_pipe_release(pipe, batch);
    }
    if (code != DLP_END) puts(dlp_pipe_error(pipe)->message);
    printf("%llu items, %llu bytes\n", (unsigned long long)items, (unsigned long long)sum);
    return dlp_pipe_close(pipe) == DLP_OK && code == DLP_END ? 0 : 1;
}
