/* A stranger's program: one object, of a server that is not there. Compiled by tests/compile/matrix
   in many ways, also with no flags at all. USER_ONLY: the implementation is in another file. */
#ifndef USER_ONLY
#define DLPIPE_IMPLEMENTATION
#endif
#ifdef __has_include
#if __has_include("dlpipe_s3.h")
#include "dlpipe_s3.h"
#else
#include "../../dlpipe_s3.h"
#endif
#else
#include "dlpipe_s3.h"
#endif
#include <stdio.h>
#include <string.h>

int main(void) {
    dlp_s3_desc desc = {.endpoint = "http://127.0.0.1:1", .anonymous = 1, .max_attempts = 1};
    dlp_s3 *s3 = NULL;
    dlp_s3_io *io = NULL;
    dlp_s3_error err;
    uint64_t received = 0;
    char body[64], line[1024];
    if (dlp_s3_open(&s3, &desc, &err) != DLP_OK || dlp_s3_io_open(&io, s3, &err) != DLP_OK) {
        printf("open: %s\n", err.message);
        return 1;
    }
    if (dlp_s3_get(io, "bucket", "a/key", body, sizeof body, &received, &err) == DLP_OK) return 1;
    dlp_s3_error_format(&err, line, sizeof line);
    dlp_s3_io_close(io);
    if (strstr(line, "bucket") && strstr(line, "a/key") && dlp_s3_close(s3) == DLP_OK) return 0;
    printf("it says: %s\n", line);
    return 1;
}
