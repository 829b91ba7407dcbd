/* The version that the library tells is that of the header, in words and in numbers. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../rig/check.h"

static void version__of_header_and_library__one(void) {
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", DLPIPE_VERSION_MAJOR, DLPIPE_VERSION_MINOR,
             DLPIPE_VERSION_PATCH);
    CHECK(strcmp(dlp_version(), numbers) == 0);
    CHECK(strcmp(dlp_version(), DLPIPE_VERSION) == 0);
    CHECK(dlp_version() == dlp_version()); /* static */
}

int main(void) {
    version__of_header_and_library__one();
    return test_end("version");
}
