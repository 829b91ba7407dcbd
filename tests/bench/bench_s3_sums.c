/* Processor time of dlpipe's S3 client for an object of 100 KB: its checksum compared, in each way
   to compute it, and not asked for. The server is a child that answers any request at once with the
   same object and its CRC-64/NVME; only the asking thread's time counts.

   bench_s3_sums [-o lines.jsonl] */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_s3.h"

#include "bench_rig.h"

enum { OBJECT_BYTES = 100000, MOST_IN_FLIGHT = 64, MOST_PEERS = 1024 };

static char answer[OBJECT_BYTES + 512], bodies[MOST_IN_FLIGHT][OBJECT_BYTES], url[64];
static size_t answer_n;

/* ---- the server ------------------------------------------------------------------------------ */

static void answer_make(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static unsigned char object[OBJECT_BYTES];
    char text[13] = "";
    uint64_t crc;
    for (size_t i = 0; i < sizeof object; i++) object[i] = (unsigned char)(i * 31 + i / 777);
    crc = dlpi_s3_crc_add(DLPI_S3_CRC64NVME, 0, object, sizeof object);
    for (int i = 0; i < 11; i++) text[i] = digits[(i < 10 ? crc >> (58 - 6 * i) : crc << 2) & 63];
    text[11] = '=';
    answer_n =
        (size_t)snprintf(answer, 512,
                         "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nx-amz-checksum-crc64nvme: %s\r\n"
                         "x-amz-checksum-type: FULL_OBJECT\r\nContent-Length: %zu\r\n\r\n",
                         text, sizeof object);
    memcpy(answer + answer_n, object, sizeof object);
    answer_n += sizeof object;
}

/* What is left to send to each peer, and how much of a request's end has come. */
static struct peer { size_t left, ends; } peers[MOST_PEERS];

static void serve_peer(int fd) {
    struct peer *p = &peers[fd];
    char in[8192];
    ssize_t n;
    while ((n = read(fd, in, sizeof in)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            p->ends = in[i] == "\r\n\r\n"[p->ends] ? p->ends + 1 : in[i] == '\r';
            if (p->ends < 4) { continue; }
            p->ends = 0;
            p->left = answer_n;
        }
    }
    if (n == 0) {
        close(fd);
        return;
    }
    while (p->left > 0) {
        n = send(fd, answer + answer_n - p->left, p->left, MSG_NOSIGNAL);
        if (n <= 0) { return; }
        p->left -= (size_t)n;
    }
}

static void serve(int listener) {
    int set = epoll_create1(EPOLL_CLOEXEC), one = 1;
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, came[64];
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(set, came, 64, -1);
        for (int i = 0; i < n; i++) {
            if (came[i].data.fd != listener) {
                serve_peer(came[i].data.fd);
                continue;
            }
            e.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (e.data.fd < 0 || e.data.fd >= MOST_PEERS) { _exit(1); }
            setsockopt(e.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            peers[e.data.fd] = (struct peer){0, 0};
            e.events = EPOLLIN | EPOLLOUT | EPOLLET;
            epoll_ctl(set, EPOLL_CTL_ADD, e.data.fd, &e);
        }
    }
}

static pid_t server_begin(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;
    if (bind(listener, (struct sockaddr *)&at, n) != 0 || listen(listener, 256) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &n) != 0)
        return -1;
    snprintf(url, sizeof url, "http://127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    pid = fork();
    if (pid == 0) { serve(listener); }
    close(listener);
    return pid;
}

/* ---- the client ------------------------------------------------------------------------------ */

struct way {
    int in_flight, checksums, way;
};

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool ask(dlp_s3_io *io, dlp_s3_request *r) {
    void *body = r->body;
    *r = (dlp_s3_request){.bucket = "many", .key = "one", .body = body, .capacity = OBJECT_BYTES};
    return dlp_s3_submit(io, r) == DLP_OK;
}

/* Milliseconds of the thread for an object. */
static double sample(void *arg) {
    static dlp_s3_request requests[MOST_IN_FLIGHT];
    const struct way *w = arg;
    int n = quick ? 1000 : 3000, begun = 0, over = 0;
    dlp_s3_desc d = {.endpoint = url,
                     .access_key = "AKIDEXAMPLE",
                     .secret_key = "secret",
                     .checksums = w->checksums,
                     .hedge_percent = -1};
    dlp_s3 *s3 = NULL;
    dlp_s3_io *io = NULL;
    dlp_s3_request *done[MOST_IN_FLIGHT];
    dlp_s3_error err;
    bool good = dlp_s3_open(&s3, &d, &err) == DLP_OK && dlp_s3_io_open(&io, s3, &err) == DLP_OK;
    double begin = thread_seconds();
    dlpi_s3_crc_tables[DLPI_S3_CRC64NVME].way = w->way;
    for (; good && begun < w->in_flight; begun++) {
        requests[begun].body = bodies[begun];
        good = ask(io, &requests[begun]);
    }
    while (good && over < n) {
        int got = dlp_s3_reap(io, done, MOST_IN_FLIGHT, 0);
        good = got > 0;
        for (int i = 0; i < got; i++) {
            good = good && done[i]->code == DLP_OK && done[i]->received == OBJECT_BYTES;
            if (begun < n) {
                begun++;
                good = good && ask(io, done[i]);
            }
        }
        over += got;
    }
    begin = thread_seconds() - begin;
    dlp_s3_io_close(io);
    dlp_s3_close(s3);
    return good ? 1e3 * begin / n : NAN;
}

static void measure_at(int in_flight, int rounds) {
    static const char *const names[] = {"tables", "128 bits", "256 bits"};
    static struct way ways[4];
    struct series s = {.any_distance = true};
    char name[64];
    int best = dlpi_s3_crc_way();
    ways[3] = (struct way){in_flight, -1, 0};
    compete(&s, "not asked for", "", sample, &ways[3]);
    for (int way = best; way >= 0; way--) {
        ways[way] = (struct way){in_flight, 1, way};
        compete(&s, names[way], "", sample, &ways[way]);
    }
    snprintf(name, sizeof name, "s3_sums_c%d", in_flight);
    run_rounds(&s, name, rounds);
    for (int i = 1; i <= best + 1; i++) {
        struct measure m = {.bench = name, .unit = "ms", .lower_is_better = true};
        snprintf(m.extra, sizeof m.extra, ",\"by\":\"%s\"", s.who[i].name);
        put(&m, &s, i, 0);
        for (int r = 0; r < s.n_rounds; r++) failures += isnan(s.value[i][r]) != 0;
    }
}

int main(int argc, char **argv) {
    const char *lines = NULL;
    pid_t pid;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "-o") == 0) { lines = argv[++i]; }
    quick = asked_for("QUICK");
    if (lines != NULL && !lines_to(lines, "w")) { return 1; }
    dlpi_s3_crc_begin();
    answer_make();
    pid = server_begin();
    if (pid < 0) { return 1; }
    measure_at(16, quick ? 3 : 9);
    measure_at(64, quick ? 3 : 9);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return failures != 0;
}
