/* Numbers of a CSV: a million random texts round as strtof rounds them in the C locale, also at the
   midpoints between floats; each odd column is told by its number. Arguments: seed (default 1).
   SOAK=1: 50 times as many texts. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"
#include "../../rig/check.h"

#include <float.h>
#include <locale.h>
#include <math.h>

static uint64_t state = 1;

static uint64_t draw(uint64_t below) { return dlp_hash(state++, 0, 0, 0) % below; }

/* ---- values ---- */

/* The text alone, as a line. A number above all floats is a failure here. */
static int same_as_strtof(const char *text) {
    float got = 7, want = strtof(text, NULL);
    uint32_t a, b;
    const int rc = dlp_csv_floats(text, strlen(text), &got, 1, NULL);
    if (isinf(want)) return rc == DLP_ERR_CALLBACK;
    memcpy(&a, &got, sizeof a), memcpy(&b, &want, sizeof b);
    return rc == DLP_OK && a == b;
}

static char *some_digits(char *to, uint64_t n) {
    while (n-- > 0) *to++ = (char)('0' + draw(10));
    return to;
}

/* Any sign, digits, point and exponent, mostly near the range of a float. */
static void random_text(char *to) {
    const uint64_t most = draw(50) == 0 ? 160 : draw(3) == 0 ? 25 : 9;
    if (draw(3) == 0) *to++ = draw(2) ? '-' : '+';
    if (draw(8) == 0)
        for (uint64_t n = draw(60); n > 0; n--) *to++ = '0';
    const uint64_t before = draw(most), behind = draw(most) + (before == 0);
    to = some_digits(to, before);
    if (behind > 0 || draw(4) == 0) {
        *to++ = '.';
        if (draw(8) == 0)
            for (uint64_t n = draw(60); n > 0; n--) *to++ = '0';
        to = some_digits(to, behind);
    }
    if (draw(2)) {
        const int e = draw(50) == 0 ? (int)draw(1000000) - 500000 : (int)draw(100) - 60;
        to += sprintf(to, draw(2) ? "e%+d" : "E%d", e);
    }
    *to = '\0';
}

static void values__random_texts__those_of_strtof(void) {
    char text[512];
    int bad = 0;
    for (int i = 0; i < (getenv("SOAK") ? 50000000 : 900000) && bad < 5; i++) {
        random_text(text);
        if (same_as_strtof(text)) continue;
        printf("%s: strtof says %a\n", text, (double)strtof(text, NULL));
        bad++;
    }
    CHECK(bad == 0);
}

/* Exact decimals of midpoints, and texts that differ from them in the last digit alone, or far
   behind. The bits of the float: any, denormals, the largest. */
static void values__midpoints__those_of_strtof(void) {
    char text[512];
    int bad = 0;
    for (int i = 0; i < (getenv("SOAK") ? 2000000 : 25000) && bad < 5; i++) {
        const uint64_t kind = draw(4);
        uint32_t bits = (uint32_t)(kind == 0   ? draw(0x800000)
                                   : kind == 1 ? draw(8)
                                   : kind == 2 ? 0x7f7fffff - draw(3)
                                               : draw(0x7f800000));
        float low;
#ifdef _WIN32 /* strtof of mingw-w64 makes midpoints of denormals 2^-126 */
        if (bits < 0x800000) continue;
#endif
        memcpy(&low, &bits, sizeof low);
        const double high = bits == 0x7f7fffff ? 0x1p128 : (double)nextafterf(low, INFINITY);
        int n = sprintf(text, "%.*e", (int)(115 + draw(20)), ((double)low + high) / 2);
        bad += !same_as_strtof(text);
        char *at = strchr(text, 'e'), exponent[16];
        snprintf(exponent, sizeof exponent, "%s", at);
        sprintf(at, "%0*d%s", (int)(1 + draw(150)), 1, exponent); /* a little more */
        bad += !same_as_strtof(text);
        for (at = text + n - 5; *at == '0' || *at == 'e' || *at == '.'; at--) continue;
        if (*at >= '1' && *at <= '9') *at -= 1; /* a little less */
        bad += !same_as_strtof(text);
        sprintf(text, "%.9g", (double)low); /* and back */
        bad += !same_as_strtof(text);
        if (bad) printf("%s\n", text);
    }
    CHECK(bad == 0);
}

static void values__odd_forms__those_of_strtof(void) {
    static const char *const texts[] = {"0",
                                        "-0",
                                        "+0",
                                        "000",
                                        "0.",
                                        ".0",
                                        "-.5",
                                        "5.",
                                        "1e0",
                                        "1E+0",
                                        "1e-0",
                                        "0e999999999999",
                                        "0.0000000000000000000000000000000000000000000001",
                                        "1e-46",
                                        "7e-46",
                                        "7.1e-46",
                                        "1.4012984643e-45",
                                        "1.1754943e-38",
                                        "1.17549435e-38",
                                        "3.4028234e38",
                                        "3.4028235e38",
                                        "3.40282356e38",
                                        "3.4028235677973366e38",
                                        "3.5e38",
                                        "1e39",
                                        "1e99999999999999999999",
                                        "1e-99999999999999999999",
                                        "16777217",
                                        "16777217.0000000000000000000000000000000000001",
                                        "16777219",
                                        "9007199254740993",
                                        "340282346638528859811704183484516925440",
                                        "340282356779733661637539395458142568447",
                                        "340282356779733661637539395458142568448"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK(same_as_strtof(texts[i]));
        if (test_failures) printf("%s\n", texts[i]);
    }
    char text[4000]; /* zeros that an exponent takes back */
    sprintf(text, "0.%02000d15e2001", 0);
    CHECK(same_as_strtof(text));
    sprintf(text, "15%02000de-2001", 0);
    CHECK(same_as_strtof(text));
}

static void values__columns_and_blanks__each_in_its_place(void) {
    static const char line[] = " 1.5,-2 ,\t3e2\t,.25;";
    float x[5] = {9, 9, 9, 9, 9};
    CHECK(dlp_csv_floats(line, sizeof line - 2, x, 4, NULL) == DLP_OK); /* not to the end */
    CHECK(x[0] == 1.5f && x[1] == -2 && x[2] == 300 && x[3] == 0.25f && x[4] == 9);
}

/* Where a comma is the point, if this system has such a locale. */
static void values__locale_with_comma__the_same(void) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    float x[2];
    size_t i = 0;
    while (i < 4 && setlocale(LC_ALL, names[i]) == NULL) i++;
    CHECK(dlp_csv_floats("1.5,2.25", 8, x, 2, NULL) == DLP_OK && x[0] == 1.5f && x[1] == 2.25f);
    setlocale(LC_ALL, "C");
    if (i == 4) printf("no locale with another point: the C locale alone\n");
}

/* ---- failures ---- */

typedef struct odd {
    const char *line, *says;
} odd;

static int fetch(void *user, dlp_item *item) {
    const odd *o = user;
    return dlp_csv_floats(o->line, strlen(o->line), item->data[0], 3, item->call);
}

static void failures__each__names_the_column(void) {
    static const odd odds[] = {
        {"1,,3", "column 2 of 3: \"\" is empty; it must be a number"},
        {"", "column 1 of 3: \"\" is empty; it must be a number"},
        {"1,2,", "column 3 of 3: \"\" is empty; it must be a number"},
        {"1,2, \t", "column 3 of 3: \"\" is empty; it must be a number"},
        {"1,2", "column 3: missing; the line must have 3 columns"},
        {"1", "column 2: missing; the line must have 3 columns"},
        {"1,2,3,4", "column 4: surplus; the line must have 3 columns"},
        {"1,2,3,", "column 4: surplus; the line must have 3 columns"},
        {"1,nan,3", "column 2 of 3: \"nan\" is no number"},
        {"1,2,-inf", "column 3 of 3: \"-inf\" is no number"},
        {"1,2,1e39", "column 3 of 3: \"1e39\" is above all floats"},
        {"-3.4028236e38,2,3", "column 1 of 3: \"-3.4028236e38\" is above all floats"},
        {"1,0x10,3", "column 2 of 3: \"0x10\" is no number"},
        {"1,2e,3", "column 2 of 3: \"2e\" is no number"},
        {"1,2e+,3", "column 2 of 3: \"2e+\" is no number"},
        {"1,.,3", "column 2 of 3: \".\" is no number"},
        {"1,-,3", "column 2 of 3: \"-\" is no number"},
        {"1,+-1,3", "column 2 of 3: \"+-1\" is no number"},
        {"1,1.2.3,3", "column 2 of 3: \"1.2.3\" is no number"},
        {"1,1 2,3", "column 2 of 3: \"1 2\" is no number"},
        {"1,2,3\r", "column 3 of 3: \"3\r\" is no number"},
        {"\"1\",2,3", "column 1 of 3: \"\"1\"\" is no number"},
        {"a23456789012345678901234567890123456789012345,2,3",
         "column 1 of 3: \"a234567890123456789012345678901234567890\" is no number"}};
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        dlp_field x = {.name = "x", .dtype = DLP_F32, .ndim = 1, .shape = {3}};
        odd o = odds[i];
        dlp_loader_desc d = {
            .dataset = {.n_items = 1, .fields = &x, .n_fields = 1, .fetch = fetch, .user = &o},
            .batch_size = 1,
            .num_workers = 1};
        dlp_pipe *p = NULL;
        dlp_batch *batch;
        float none[3];
        dlp_error err = {0};
        CHECK(dlp_csv_floats(o.line, strlen(o.line), none, 3, NULL) == DLP_ERR_CALLBACK);
        CHECK(dlp_loader_open(&p, &d, &err) == DLP_OK);
        CHECK(dlp_pipe_next(p, &batch) == DLP_ERR_CALLBACK);
        CHECK(strcmp(dlp_pipe_error(p)->message, o.says) == 0);
        if (strcmp(dlp_pipe_error(p)->message, o.says) != 0)
            printf("%s: %s\n", o.line, dlp_pipe_error(p)->message);
        CHECK(dlp_pipe_close(p) == DLP_OK);
    }
}

/* Any bytes, in memory of their length: nothing behind them is read. */
static void lines__any_bytes__no_byte_behind_is_read(void) {
    static const char some[] = "0123456789.,-+eE \tx\0";
    float x[4];
    for (int i = 0; i < 20000; i++) {
        const size_t n = (size_t)draw(12);
        char *line = malloc(n + 1); /* a sanitizer watches what lies behind it */
        if (line == NULL) exit(1);
        char *end = line + 1 + n;
        for (char *at = end - n; at < end; at++) *at = some[draw(sizeof some - 1)];
        const int rc = dlp_csv_floats(end - n, n, x, (uint32_t)draw(4) + 1, NULL);
        CHECK(rc == DLP_OK || rc == DLP_ERR_CALLBACK);
        free(line);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) state = strtoull(argv[1], NULL, 0) << 40;
    values__odd_forms__those_of_strtof();
    values__columns_and_blanks__each_in_its_place();
    values__locale_with_comma__the_same();
    values__midpoints__those_of_strtof();
    values__random_texts__those_of_strtof();
    failures__each__names_the_column();
    lines__any_bytes__no_byte_behind_is_read();
    return test_end("csv_floats");
}
