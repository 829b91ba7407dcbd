/* needs: parts pack */
/* The one cu_seqlens of a batch, out of those of its rows: batches written by hand, and the
   segments that they are said to have. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/pipe_rig.h"

enum { T = 10, S = 3, MOST = 8 };

typedef struct made { /* a batch, as pack writes it */
    dlp_batch batch;
    dlp_tensor fields[3];
    int32_t bounds[MOST][S + 1], places[MOST][T];
    uint16_t tokens[MOST][T];
    uint8_t valid[MOST];
} made;

static made m;

static void init(uint32_t rows) {
    memset(&m, 0, sizeof m);
    m.batch = (dlp_batch){.count = rows, .n_fields = 3, .fields = m.fields, .valid = m.valid};
    m.fields[0] = (dlp_tensor){
        .name = "tokens", .data = m.tokens, .dtype = DLP_U16, .ndim = 2, .shape = {rows, T}};
    m.fields[1] = (dlp_tensor){.name = "cu_seqlens",
                               .data = m.bounds,
                               .dtype = DLP_I32,
                               .ndim = 2,
                               .shape = {rows, S + 1}};
    m.fields[2] = (dlp_tensor){
        .name = "position_ids", .data = m.places, .dtype = DLP_I32, .ndim = 2, .shape = {rows, T}};
}

static void row(uint32_t r, int32_t one, int32_t two, int32_t three) {
    const int32_t bounds[] = {0, one, two, three};
    memcpy(m.bounds[r], bounds, sizeof bounds);
    m.valid[r] = 1;
}

/* Is it these, of n segments, with nothing written behind them? */
static int is(int n, const int32_t *bounds, int32_t longest) {
    int32_t got[MOST * (S + 1) + 2], most = -1;
    memset(got, 0xee, sizeof got);
    if (dlp_pack_flatten(&m.batch, got, (uint32_t)n + 1, &most) != n || most != longest) return 0;
    if (memcmp(got, bounds, (size_t)(n + 1) * sizeof *got) != 0) return 0;
    return got[n + 1] == (int32_t)0xeeeeeeee;
}

static void flatten__full_and_padded_rows__bounds_of_all(void) {
    init(4);
    row(0, 10, 10, 10); /* one segment */
    row(1, 3, 7, 10);   /* as many as there may be, full */
    row(2, 4, 9, 9);    /* padding is one more */
    row(3, 1, 2, 3);    /* of as many as there may be, too */
    CHECK(is(11, (int32_t[]){0, 10, 13, 17, 20, 24, 29, 30, 31, 32, 33, 40}, 10));
    row(0, 5, 10, 10);
    CHECK(is(12, (int32_t[]){0, 5, 10, 13, 17, 20, 24, 29, 30, 31, 32, 33, 40}, 7));
    CHECK(dlp_pack_flatten(&m.batch, (int32_t[13]){0}, 13, NULL) == 12);
}

static void flatten__rows_that_are_none__padding(void) {
    init(3);
    row(1, 6, 10, 10);
    CHECK(is(4, (int32_t[]){0, 10, 16, 20, 30}, 10));
    m.valid[1] = 0; /* left out, whatever it has */
    CHECK(is(3, (int32_t[]){0, 10, 20, 30}, 10));
    init(0);
    CHECK(is(0, (int32_t[]){0}, 0));
}

static void flatten__most_segments__in_what_always_suffices(void) {
    int32_t got[MOST * (S + 1) + 1];
    init(MOST);
    for (uint32_t r = 0; r < MOST; r++) row(r, 1, 2, 3);
    CHECK(dlp_pack_flatten(&m.batch, got, MOST * (S + 1) + 1, NULL) == MOST * (S + 1));
}

/* Refused, and nothing is written. */
static int refused(int code, uint32_t capacity) {
    int32_t got[16], longest = -1;
    memset(got, 0xee, sizeof got);
    if (dlp_pack_flatten(&m.batch, got, capacity, &longest) != code || longest != -1) return 0;
    for (int i = 0; i < 16; i++)
        if (got[i] != (int32_t)0xeeeeeeee) return 0;
    return 1;
}

static void flatten__capacity_too_small__refused(void) {
    init(2);
    row(0, 4, 10, 10);
    row(1, 4, 9, 9); /* 5 segments */
    for (uint32_t capacity = 0; capacity < 6; capacity++) CHECK(refused(DLP_ERR_LIMIT, capacity));
    CHECK(is(5, (int32_t[]){0, 4, 10, 14, 19, 20}, 6));
}

static void flatten__what_is_no_such_batch__refused(void) {
    int32_t got[16];
#define REFUSED(change, code) \
    init(2), row(0, 4, 10, 10), row(1, 4, 9, 9), change; \
    CHECK(refused(code, 16))
    REFUSED(m.fields[1].name = "other", DLP_ERR_ARG);
    REFUSED(m.fields[2].name = "other", DLP_ERR_ARG);
    REFUSED(m.fields[1].dtype = DLP_U16, DLP_ERR_ARG);
    REFUSED(m.fields[1].ndim = 1, DLP_ERR_ARG);
    REFUSED(m.fields[2].shape[0] = 1, DLP_ERR_ARG);
    REFUSED(m.bounds[1][1] = 11, DLP_ERR_ARG);
    REFUSED(m.bounds[1][2] = 3, DLP_ERR_ARG);
    REFUSED(m.bounds[1][0] = -1, DLP_ERR_ARG);
    REFUSED(m.bounds[1][3] = INT32_MIN, DLP_ERR_ARG);
    REFUSED(m.fields[2].shape[1] = 1 << 30, DLP_ERR_LIMIT); /* of two rows: 2^31 */
    REFUSED(m.fields[2].shape[1] = -1, DLP_ERR_LIMIT);
    CHECK(dlp_pack_flatten(NULL, got, 16, NULL) == DLP_ERR_ARG);
    CHECK(dlp_pack_flatten(&m.batch, NULL, 0, NULL) == DLP_ERR_ARG);
}

int main(void) {
    flatten__full_and_padded_rows__bounds_of_all();
    flatten__rows_that_are_none__padding();
    flatten__most_segments__in_what_always_suffices();
    flatten__capacity_too_small__refused();
    flatten__what_is_no_such_batch__refused();
    return test_end("pack_flatten");
}
