/* A server that does nothing but list a bucket of so many keys, each page so many milliseconds
   late.

     lists KEYS DELAY_MS -- COMMAND..

   COMMAND runs with the server's endpoint and keys in its environment, and its exit code is the
   server's. The bucket is "many"; its keys are k000000000, k000000001, .. */
#define _GNU_SOURCE
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe_s3.h"

#include "../rig/s3_mock.h"
#include "../rig/s3_listing.h"

static char (*names)[16];
static const char **keys;

static bool make_keys(int n) {
    names = malloc((size_t)n * sizeof *names + 1);
    keys = malloc((size_t)n * sizeof *keys + 1);
    for (int i = 0; names && keys && i < n; i++) {
        snprintf(names[i], sizeof names[i], "k%09d", i);
        keys[i] = names[i];
    }
    return names && keys;
}

int main(int argc, char **argv) {
    s3_listing room = {0};
    s3_mock *mock;
    int status = 0;
    pid_t pid;
    if (argc < 5 || strcmp(argv[3], "--") != 0 || atoi(argv[1]) < 0) {
        fputs("lists KEYS DELAY_MS -- COMMAND..\n", stderr);
        return 2;
    }
    room.n = atoi(argv[1]);
    room.delay_ms = atoi(argv[2]);
    if (!make_keys(room.n)) return 1;
    room.keys = keys;
    room.server = "AmazonS3";
    mock = s3_mock_start();
    mock->script = s3_listing_serve, mock->user = &room;
    setenv("AWS_ENDPOINT_URL", mock->url, 1);
    setenv("AWS_ENDPOINT_URL_S3", mock->url, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_DEFAULT_REGION", "us-east-1", 1);
    pid = fork();
    if (pid == 0) {
        execvp(argv[4], argv + 4);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) status = 1 << 8;
    s3_mock_stop(mock);
    free(room.page);
    free(keys);
    free(names);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
