/* Fields of a batch by name and dtype: dlp_f32 and its kin, and what they say of a wrong name, a
   wrong dtype, and a device of handles. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include <string.h>

#define N_TYPES 13

/* A pointer of each type must be what its call returns. */
#define READS(name, dtype, type) \
    static void *read_##name(const dlp_batch *b, const char *field) { \
        type *at = dlp_##name(b, field); \
        return at; \
    }
READS(u8, DLP_U8, uint8_t)
READS(u16, DLP_U16, uint16_t)
READS(u32, DLP_U32, uint32_t)
READS(u64, DLP_U64, uint64_t)
READS(i8, DLP_I8, int8_t)
READS(i16, DLP_I16, int16_t)
READS(i32, DLP_I32, int32_t)
READS(i64, DLP_I64, int64_t)
READS(f16, DLP_F16, uint16_t)
READS(f32, DLP_F32, float)
READS(f64, DLP_F64, double)
READS(bf16, DLP_BF16, uint16_t)
READS(bool, DLP_BOOL, uint8_t)
static const struct {
    const char *name;
    dlp_dtype dtype;
    void *(*read)(const dlp_batch *b, const char *field);
} types[N_TYPES] = {
    {"u8", DLP_U8, read_u8},       {"u16", DLP_U16, read_u16}, {"u32", DLP_U32, read_u32},
    {"u64", DLP_U64, read_u64},    {"i8", DLP_I8, read_i8},    {"i16", DLP_I16, read_i16},
    {"i32", DLP_I32, read_i32},    {"i64", DLP_I64, read_i64}, {"f16", DLP_F16, read_f16},
    {"f32", DLP_F32, read_f32},    {"f64", DLP_F64, read_f64}, {"bf16", DLP_BF16, read_bf16},
    {"bool", DLP_BOOL, read_bool},
};

static int fetch(void *user, dlp_item *it) {
    memset(it->data[0], user ? 1 : 2, 1);
    return 0;
}

/* A batch map that reads a field that is not there. */
static int map(void *user, dlp_batch *b, void *state) {
    (void)user;
    (void)state;
    if (dlp_u64(b, "y") == NULL) return 1;
    return dlp_f32(b, "z") ? 0 : DLP_ERR_CALLBACK;
}

static dlp_pipe *open_pipe(const dlp_field *fields, uint32_t n, bool maps) {
    dlp_pipe *p = NULL;
    dlp_error err;
    dlp_node nodes[] = {
        {.name = "items", .verb = DLP_LIST, .list = {.n_items = 64}},
        {.name = "fetch",
         .verb = DLP_FETCH,
         .fetch = {.fetch = fetch, .fields = fields, .n_fields = n}},
        {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = 4}},
        {.name = "map", .verb = DLP_MAP, .map = {.batch = map}},
    };
    CHECK(dlp_pipe_open(&p, nodes, maps ? 4 : 3, NULL, &err) == DLP_OK);
    return p;
}

static void read__each_dtype__itself_alone(void) {
    for (int is = 0; is < N_TYPES; is++) {
        const dlp_field fields[] = {{.name = "x", .dtype = types[is].dtype},
                                    {.name = "y", .dtype = DLP_U64}};
        dlp_pipe *p = open_pipe(fields, 2, false);
        dlp_batch *b = NULL;
        char want[64];
        CHECK(dlp_pipe_next(p, &b) == DLP_OK);
        CHECK(dlp_pipe_error(p)->code == DLP_OK);
        for (int as = 0; as < N_TYPES && b != NULL; as++) {
            void *at = types[as].read(b, "x");
            CHECK((at == b->fields[0].data) == (is == as) && (at == NULL) == (is != as));
            if (is == as) continue;
            snprintf(want, sizeof want, "field \"x\" is %s, not %s: call dlp_%s", types[is].name,
                     types[as].name, types[is].name);
            CHECK(dlp_pipe_error(p)->code == DLP_ERR_ARG);
            CHECK(strcmp(dlp_pipe_error(p)->field, "x") == 0);
            CHECK(strcmp(dlp_pipe_error(p)->message, want) == 0);
        }
        CHECK(dlp_pipe_release(p, b) == DLP_OK);
        CHECK(dlp_pipe_next(p, &b) == DLP_OK); /* it is no error of the pipe */
        CHECK(dlp_pipe_error(p)->code == DLP_OK);
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    }
}

static void read__no_such_field__names_those_that_are(void) {
    const dlp_field fields[] = {{.name = "x", .dtype = DLP_F32}, {.name = "y", .dtype = DLP_U64}};
    dlp_pipe *p = open_pipe(fields, 2, false);
    dlp_batch *b = NULL;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_f32(b, "label") == NULL && dlp_u64(b, "y") == b->fields[1].data);
    CHECK(dlp_pipe_error(p)->code == DLP_ERR_ARG);
    CHECK(strcmp(dlp_pipe_error(p)->message, "no field \"label\": the batch has \"x\", \"y\"") ==
          0);
    CHECK(dlp_f32(NULL, "x") == NULL && dlp_f32(b, NULL) == NULL);
    CHECK(strcmp(dlp_pipe_error(p)->message, "name is NULL: the batch has \"x\", \"y\"") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
}

/* At max_held next has an error of its own, which the read's comes behind. */
static void read__beside_batches_that_are_held__the_newer_error(void) {
    const dlp_field x = {.name = "x", .dtype = DLP_F32};
    dlp_pipe *p = open_pipe(&x, 1, false);
    dlp_batch *b = NULL, *more = NULL;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_next(p, &more) == DLP_ERR_HELD);
    CHECK(dlp_pipe_error(p)->code == DLP_ERR_HELD);
    CHECK(dlp_f64(b, "x") == NULL && dlp_pipe_error(p)->code == DLP_ERR_ARG);
    CHECK(dlp_pipe_next(p, &more) == DLP_ERR_HELD && dlp_pipe_error(p)->code == DLP_ERR_HELD);
    CHECK(dlp_pipe_release(p, b) == DLP_OK && dlp_pipe_error(p)->code == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void read__in_a_batch_map__fails_with_its_words(void) {
    const dlp_field fields[] = {{.name = "x", .dtype = DLP_F32}, {.name = "y", .dtype = DLP_U64}};
    dlp_pipe *p = open_pipe(fields, 2, true);
    dlp_batch *b = NULL;
    CHECK(dlp_pipe_next(p, &b) == DLP_ERR_CALLBACK);
    CHECK(strcmp(dlp_pipe_error(p)->message, "no field \"z\": the batch has \"x\", \"y\"") == 0);
    CHECK(dlp_pipe_close(p) == DLP_OK);
}

static void read__behind_a_handle__unsupported(void) {
    dlp_error e = {0};
    float at = 0;
    const dlp_tensor t = {.name = "x", .dtype = DLP_F32, .data = &at, .byte_offset = 4};
    const dlp_batch b = {.n_fields = 1, .fields = &t, .error = &e};
    CHECK(dlp_f32(&b, "x") == NULL && e.code == DLP_ERR_UNSUPPORTED);
}

int main(void) {
    read__each_dtype__itself_alone();
    read__no_such_field__names_those_that_are();
    read__beside_batches_that_are_held__the_newer_error();
    read__in_a_batch_map__fails_with_its_words();
    read__behind_a_handle__unsupported();
    return test_end("read");
}
