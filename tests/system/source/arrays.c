/* needs: arrays */
/* Rows out of arrays: IDX of every type, CIFAR's, npy of every version, type and spelling that
   numpy or others write, one file or several; and headers that are cut, contradict the file,
   overflow or are none, refused by file and byte. */
#define _GNU_SOURCE
#include "../../../dlpipe.h"

#include "../../rig/check.h"
#include "../../rig/source_rig.h"
#include "../../rig/arrays_loader.h"

static uint8_t bytes[1 << 20]; /* of a file that is made up */

static dlp_source *must_open(const dlp_arrays_desc *d) {
    dlp_source *a = NULL;
    dlp_error err = {0};
    int rc = dlp_arrays_open(&a, d, &err);
    if (rc != DLP_OK) printf("%s: %s\n", dlp_code_name(rc), err.message);
    CHECK(rc == DLP_OK);
    return a;
}

static void refused(const dlp_arrays_desc *d, int code, const char *const *words) {
    dlp_source *a = NULL;
    dlp_error err = {0};
    int before = rig_fds(), rc = dlp_arrays_open(&a, d, &err);
    if (rc != code) printf("%s: %s\n", dlp_code_name(rc), err.message);
    CHECK(rc == code && a == NULL && rig_says(&err, words));
    CHECK(dlp_arrays_open(&a, d, NULL) == code && a == NULL && rig_fds() == before);
}

/* One file, of which the message is to have its name and two words. */
static void refused_file(const char *name, int format, int code, const char *byte,
                         const char *word) {
    dlp_array_column column = {
        .name = format < DLP_ARRAY_CIFAR10 ? "x" : NULL, .path = in_rig(name), .format = format};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    refused(&d, code, (const char *const[]){name, byte, word, ""});
}

/* All rows of a loader: row i of field f is what row_of says. Returns the rows; -1: one is not. */
static int64_t take(const dlp_arrays_desc *arrays, int workers, int shuffle,
                    void (*row_of)(uint64_t i, uint32_t f, uint8_t *to)) {
    arrays_loader d = {
        .arrays = *arrays,
        .loader = {.batch_size = 4, .num_workers = workers, .shuffle = shuffle, .seed = 3}};
    static uint8_t want[4096];
    dlp_source *a = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    int64_t rows = 0, wrong = 0;
    dlp_error err = {0};
    if (arrays_loader_open(&p, &a, &d, &err) != DLP_OK) {
        printf("%s\n", err.message);
        return -2;
    }
    for (; dlp_pipe_next(p, &b) == DLP_OK; dlp_pipe_release(p, b))
        for (uint32_t i = 0; i < b->count; i++, rows++)
            for (uint32_t f = 0; f < b->n_fields; f++) {
                const dlp_tensor *t = &b->fields[f];
                uint64_t n = t->bytes / b->count;
                row_of(b->index[i], f, want);
                wrong += n > sizeof want || memcmp((uint8_t *)t->data + i * n, want, n) != 0;
            }
    CHECK(dlp_pipe_error(p)->code == 0 && dlp_source_close(a) == DLP_ERR_BUSY);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(a) == DLP_OK);
    return wrong ? -1 : rows;
}

/* ---- IDX ---- */

static size_t idx(int type, int ndim, const uint32_t *shape) {
    bytes[0] = bytes[1] = 0;
    bytes[2] = (uint8_t)type;
    bytes[3] = (uint8_t)ndim;
    for (int i = 0; i < ndim; i++)
        for (int k = 0; k < 4; k++) bytes[4 + 4 * i + k] = (uint8_t)(shape[i] >> (24 - 8 * k));
    return 4 + 4 * (size_t)ndim;
}

static void image_row(uint64_t i, uint32_t f, uint8_t *to) {
    if (f == 1) {
        to[0] = (uint8_t)(i % 10);
        return;
    }
    for (uint64_t k = 0; k < 28 * 28; k++) to[k] = (uint8_t)dlp_hash(1, i, k, 0);
}

static void write_mnist(void) {
    size_t n = idx(8, 3, (const uint32_t[]){50, 28, 28});
    for (uint64_t i = 0; i < 50; i++) image_row(i, 0, bytes + n + i * 784);
    rig_write("images", bytes, n + 50 * 784);
    n = idx(8, 1, (const uint32_t[]){50});
    for (uint64_t i = 0; i < 50; i++) image_row(i, 1, bytes + n + i);
    rig_write("labels", bytes, n + 50);
}

static void arrays__idx__images_and_labels(void) {
    dlp_array_column columns[] = {{.name = "image"}, {.name = "label"}};
    dlp_arrays_desc d = {.columns = columns, .n_columns = 2};
    const dlp_arrays_info *info;
    dlp_source *a;
    int before = rig_fds();
    write_mnist();
    columns[0].path = in_rig("images");
    columns[1].path = in_rig("labels");
    a = must_open(&d);
    if (a == NULL) return;
    info = dlp_arrays_describe(a);
    CHECK(info->n_items == 50 && info->n_fields == 2);
    CHECK(info->fields[0].ndim == 2 && info->fields[0].shape[1] == 28 &&
          info->fields[0].dtype == DLP_U8 && info->fields[1].ndim == 0 &&
          strcmp(info->fields[1].name, "label") == 0);
    CHECK(dlp_source_close(a) == DLP_OK && dlp_source_close(NULL) == DLP_OK);
    for (int i = 0; i < 8; i++) {
        d.reads = i >> 2;
        CHECK(take(&d, i & 1 ? 2 : 0, i >> 1 & 1, image_row) == 50);
    }
    CHECK(rig_fds() == before);
}

static uint64_t number_width;

static void number_row(uint64_t i, uint32_t f, uint8_t *to) { /* little-endian, two of them */
    (void)f;
    for (uint64_t k = 0; k < 2; k++) {
        uint64_t word = dlp_hash(2, i, k, 0);
        memcpy(to + k * number_width, &word, number_width);
    }
}

static void arrays__idx__numbers_are_the_machines(void) {
    static const struct {
        int type;
        dlp_dtype dtype;
        uint64_t width;
    } types[] = {{8, DLP_U8, 1},   {9, DLP_I8, 1},   {11, DLP_I16, 2},
                 {12, DLP_I32, 4}, {13, DLP_F32, 4}, {14, DLP_F64, 8}};
    dlp_array_column column = {.name = "x", .path = in_rig("numbers")};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t n = idx(types[t].type, 2, (const uint32_t[]){9, 2}), w = types[t].width;
        dlp_source *a;
        number_width = w;
        for (uint64_t i = 0; i < 9; i++) {
            uint8_t little[16];
            number_row(i, 0, little);
            for (size_t k = 0; k < 2 * w; k++)
                bytes[n + i * 2 * w + k] = little[k / w * w + (w - 1 - k % w)];
        }
        rig_write("numbers", bytes, n + 9 * 2 * w);
        a = must_open(&d);
        CHECK(a && dlp_arrays_describe(a)->fields[0].dtype == types[t].dtype);
        dlp_source_close(a);
        CHECK(take(&d, 0, 1, number_row) == 9);
    }
}

static void arrays__idx_that_is_none__is_refused(void) {
    size_t n = idx(8, 2, (const uint32_t[]){5, 3});
    rig_write("short", bytes, n + 14);
    refused_file("short", DLP_ARRAY_AUTO, DLP_ERR_CORRUPT, "byte 26",
                 "wants 27 bytes, the file has 26");
    rig_write("long", bytes, n + 16);
    refused_file("long", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 27", "wants 27 bytes");
    rig_write("head", bytes, 9);
    refused_file("head", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 9", "ends in its header");
    rig_write("magic", bytes, 3);
    refused_file("magic", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 3", "ends in its header");
    refused_file("magic", DLP_ARRAY_AUTO, DLP_ERR_CORRUPT, "byte 0", "neither as npy nor as IDX");
    n = idx(10, 2, (const uint32_t[]){5, 3});
    rig_write("type", bytes, n + 15);
    refused_file("type", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 2", "type 10");
    bytes[0] = 1;
    rig_write("first", bytes, n + 15);
    refused_file("first", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 0", "is not IDX");
    n = idx(8, 0, NULL);
    rig_write("scalar", bytes, n);
    refused_file("scalar", DLP_ARRAY_IDX, DLP_ERR_UNSUPPORTED, "byte 3", "0 dimensions");
    bytes[3] = 255;
    rig_write("dims", bytes, 4 + 4 * 255);
    refused_file("dims", DLP_ARRAY_IDX, DLP_ERR_UNSUPPORTED, "byte 3", "255 dimensions");
    n = idx(8, 2, (const uint32_t[]){5, 0});
    rig_write("zero", bytes, n);
    refused_file("zero", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 0", "rows have 0 bytes");
    n = idx(8, 1, (const uint32_t[]){0});
    rig_write("none", bytes, n);
    refused_file("nowhere", DLP_ARRAY_IDX, DLP_ERR_SYSTEM, "open", "No such file");
    { /* products that come round to what the file has: 2^32 * 2^32, in 64 bits 0 */
        const uint32_t big[] = {4, 0x80000000u, 0x80000000u, 4};
        n = idx(8, 4, big);
        rig_write("wraps", bytes, n);
        refused_file("wraps", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 0",
                     "rows have 18446744073709551615");
        n = idx(14, 3, (const uint32_t[]){UINT32_MAX, 1 << 20, 1 << 15});
        rig_write("rows", bytes, n);
        refused_file("rows", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 16", "the file has 16");
    }
}

/* ---- CIFAR ---- */

static uint64_t cifar_labels;

static void cifar_row(uint64_t i, uint32_t f, uint8_t *to) {
    if (f < cifar_labels)
        to[0] = (uint8_t)(i + f * 7);
    else
        for (uint64_t k = 0; k < 3072; k++) to[k] = (uint8_t)dlp_hash(4, i, k, 0);
}

static void arrays__cifar__labels_and_pixels(void) {
    const char *const paths[] = {in_rig("batch_1.bin"), in_rig("batch_2.bin")};
    dlp_array_column column = {.paths = paths, .n_paths = 2};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    for (cifar_labels = 1; cifar_labels <= 2; cifar_labels++) {
        uint64_t record = cifar_labels + 3072, i = 0;
        dlp_source *a;
        const dlp_arrays_info *info;
        column.format = cifar_labels == 1 ? DLP_ARRAY_CIFAR10 : DLP_ARRAY_CIFAR100;
        for (int file = 0; file < 2; file++) {
            uint64_t n = file ? 11 : 6;
            for (uint64_t k = 0; k < n; k++, i++) {
                for (uint32_t f = 0; f < cifar_labels; f++) cifar_row(i, f, bytes + k * record + f);
                cifar_row(i, (uint32_t)cifar_labels, bytes + k * record + cifar_labels);
            }
            rig_write(file ? "batch_2.bin" : "batch_1.bin", bytes, n * record);
        }
        a = must_open(&d);
        if (a == NULL) return;
        info = dlp_arrays_describe(a);
        CHECK(info->n_items == 17 && info->n_fields == 1 + cifar_labels);
        CHECK(strcmp(info->fields[0].name, cifar_labels == 1 ? "label" : "coarse") == 0);
        CHECK(strcmp(info->fields[cifar_labels].name, "image") == 0 &&
              info->fields[cifar_labels].ndim == 3 && info->fields[cifar_labels].shape[0] == 3);
        CHECK(dlp_source_close(a) == DLP_OK);
        for (int k = 0; k < 4; k++) {
            d.reads = k >> 1;
            CHECK(take(&d, 2 * (k & 1), 1, cifar_row) == 17);
        }
    }
    rig_write("odd.bin", bytes, 3 * 3073 + 5);
    refused_file("odd.bin", DLP_ARRAY_CIFAR10, DLP_ERR_CORRUPT, "byte 9219",
                 "ends in 5 bytes of a record of 3073");
    rig_write("empty.bin", bytes, 0);
    column = (dlp_array_column){.path = in_rig("empty.bin"), .format = DLP_ARRAY_CIFAR10};
    refused(&d, DLP_ERR_ARG, (const char *const[]){"0 rows", ""});
}

/* ---- npy ---- */

/* A header as given, padded to 64 bytes as numpy does it unless `tight`. */
static size_t npy(int version, const char *dict, int tight) {
    size_t prefix = version == 1 ? 10 : 12, n = strlen(dict);
    size_t all = tight ? n : (prefix + n + 1 + 63) / 64 * 64 - prefix;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    for (size_t i = 8; i < prefix; i++) bytes[i] = (uint8_t)(all >> 8 * (i - 8));
    memset(bytes + prefix, ' ', all);
    memcpy(bytes + prefix, dict, n);
    if (!tight) bytes[prefix + all - 1] = '\n';
    return prefix + all;
}

static void turn(uint8_t *at, size_t numbers, size_t width) { /* the order of their bytes */
    for (; numbers > 0; numbers--, at += width)
        for (size_t i = 0; i < width / 2; i++) {
            const uint8_t b = at[i];
            at[i] = at[width - 1 - i];
            at[width - 1 - i] = b;
        }
}

static void arrays__npy__versions_types_spellings(void) {
    static const struct {
        const char *dict;
        dlp_dtype dtype;
        uint64_t width;
        int tight;
    } kinds[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (7, 2), }", DLP_F32, 4, 0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (7, 2), }", DLP_U8, 1, 0},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (7, 2), }", DLP_BOOL, 1, 0},
        {"{'descr': '|i1', 'fortran_order': False, 'shape': (7, 2), }", DLP_I8, 1, 0},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (7, 2), }", DLP_I16, 2, 0},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (7, 2), }", DLP_U16, 2, 0},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (7, 2), }", DLP_I32, 4, 0},
        {"{'descr': '<u4', 'fortran_order': False, 'shape': (7, 2), }", DLP_U32, 4, 0},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (7, 2), }", DLP_I64, 8, 0},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (7, 2), }", DLP_U64, 8, 0},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (7, 2), }", DLP_F16, 2, 0},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (7, 2), }", DLP_F64, 8, 0},
        {"{\"shape\":(7,2),\"descr\":\"=f4\",\"fortran_order\":False}", DLP_F32, 4, 1},
        {"  { 'fortran_order' : False , 'shape' : ( 7 , 2 , ) , 'descr' : '<f4' } ", DLP_F32, 4, 1},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (7L, 2L), }", DLP_F32, 4, 0},
        {"{u'descr': u'<f4', u'fortran_order': False, u'shape': (7L, 2L,), }", DLP_F32, 4, 0},
        {"{'descr': 'f4', 'fortran_order': False, 'shape': (7, 2), }", DLP_F32, 4, 0},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (7, 2), }", DLP_F32, 4, 0},
        {"{'descr': '?', 'fortran_order': False, 'shape': (7, 2), }", DLP_BOOL, 1, 0},
        {"{'descr': '<b1', 'fortran_order': False, 'shape': (7, 2), }", DLP_BOOL, 1, 0},
        {"{'descr': 'b', 'fortran_order': False, 'shape': (7, 2), }", DLP_I8, 1, 0},
        {"{'descr': '<l', 'fortran_order': False, 'shape': (7, 2), }", DLP_I64, 8, 0},
        {"{'descr': 'uint16', 'fortran_order': False, 'shape': (7, 2), }", DLP_U16, 2, 0},
        {"{'descr': 'd', 'fortran_order':\r\n False, 'shape': (7, 2), }\r\n", DLP_F64, 8, 1},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (7, 2), }", DLP_F32, 4, 0},
        {"{'descr': '>u2', 'fortran_order': False, 'shape': (7, 2), }", DLP_U16, 2, 0},
        {"{'descr': '>i8', 'fortran_order': False, 'shape': (7, 2), }", DLP_I64, 8, 0},
        {"{'descr': '>u1', 'fortran_order': False, 'shape': (7, 2), }", DLP_U8, 1, 0},
    };
    dlp_array_column column = {.name = "x", .path = in_rig("x.npy")};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    for (int version = 1; version <= 3; version++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            size_t n = npy(version, kinds[k].dict, kinds[k].tight);
            dlp_source *a;
            number_width = kinds[k].width;
            for (uint64_t i = 0; i < 7; i++) number_row(i, 0, bytes + n + i * 2 * number_width);
            if (strstr(kinds[k].dict, "'>") != NULL) turn(bytes + n, 14, number_width);
            rig_write("x.npy", bytes, n + 14 * number_width);
            a = must_open(&d);
            CHECK(a && dlp_arrays_describe(a)->fields[0].dtype == kinds[k].dtype &&
                  dlp_arrays_describe(a)->fields[0].ndim == 1);
            dlp_source_close(a);
            CHECK(take(&d, (int)k % 2, 1, number_row) == 7);
        }
}

static void arrays__npy__of_one_and_of_many_dimensions(void) {
    dlp_array_column column = {.name = "x", .path = in_rig("x.npy")};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    dlp_source *a;
    size_t n = npy(1, "{'descr': '<i8', 'fortran_order': True, 'shape': (5,), }", 0);
    rig_write("x.npy", bytes, n + 40);
    a = must_open(&d);
    CHECK(a && dlp_arrays_describe(a)->n_items == 5 && dlp_arrays_describe(a)->fields[0].ndim == 0);
    dlp_source_close(a);
    n = npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 1, 1, 1, 1, 3, 2), }", 0);
    rig_write("x.npy", bytes, n + 12);
    a = must_open(&d);
    CHECK(a && dlp_arrays_describe(a)->n_items == 2 && dlp_arrays_describe(a)->fields[0].ndim == 7);
    dlp_source_close(a);
}

/* Files of both byte orders in one column; and orders that do not matter. */
static void arrays__npy__each_file_has_its_order(void) {
    static const struct {
        const char *shape;
        uint64_t rows;
    } orders[] = {{"(6,)", 6}, {"(6, 1)", 6}, {"(1, 6)", 1}, {"(1, 1, 6, 1)", 1}, {"(0, 6)", 0}};
    const char *const paths[] = {in_rig("little.npy"), in_rig("big.npy")};
    dlp_array_column column = {.name = "x", .paths = paths, .n_paths = 2};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    dlp_source *a;
    char dict[100];
    number_width = 4;
    for (int file = 0; file < 2; file++) {
        size_t n = npy(1,
                       file ? "{'descr': '>i4', 'fortran_order': False, 'shape': (4, 2), }"
                            : "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }",
                       0);
        for (uint64_t i = 0; i < 3 + (uint64_t)file; i++)
            number_row(i + 3 * (uint64_t)file, 0, bytes + n + i * 8);
        if (file) turn(bytes + n, 8, 4);
        rig_write(file ? "big.npy" : "little.npy", bytes, n + (file ? 32 : 24));
    }
    for (d.reads = 0; d.reads < 2; d.reads++) CHECK(take(&d, 0, 1, number_row) == 7);
    d.reads = 0;
    column = (dlp_array_column){.name = "x", .path = in_rig("x.npy")};
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        snprintf(dict, sizeof dict, "{'descr': '<i4', 'fortran_order': True, 'shape': %s, }",
                 orders[k].shape);
        rig_write("x.npy", bytes, npy(1, dict, 0) + (orders[k].rows == 0 ? 0 : 24));
        if (orders[k].rows == 0) {
            refused(&d, DLP_ERR_ARG, (const char *const[]){"0 rows", ""});
            continue;
        }
        a = must_open(&d);
        CHECK(a && dlp_arrays_describe(a)->n_items == orders[k].rows);
        dlp_source_close(a);
    }
}

static void npy_refused(const char *dict, size_t data, int code, const char *word) {
    size_t n = npy(1, dict, 1);
    memset(bytes + n, 0, data);
    rig_write("bad.npy", bytes, n + data);
    refused_file("bad.npy", DLP_ARRAY_AUTO, code, "byte ", word);
}

static void arrays__npy_that_is_none__is_refused(void) {
#define D "'descr': '<f4', "
#define F "'fortran_order': False, "
#define S "'shape': (2, 3)"
    char long_shape[200] = "{" D F "'shape': (";
    for (int i = 0; i < 9; i++) strcat(long_shape, "1, ");
    strcat(long_shape, ")}");
    npy_refused("{" D F S "}", 23, DLP_ERR_CORRUPT, "the file has");
    npy_refused("{" D F S "}", 25, DLP_ERR_CORRUPT, "the file has");
    npy_refused("{" D F S "} x", 24, DLP_ERR_CORRUPT, "text after the dict");
    npy_refused("{" D F S, 24, DLP_ERR_CORRUPT, "no end of the dict");
    npy_refused("{" D F S " 1}", 24, DLP_ERR_CORRUPT, "no end of the dict");
    npy_refused("", 24, DLP_ERR_CORRUPT, "no dictionary");
    npy_refused("{}", 24, DLP_ERR_CORRUPT, "missing");
    npy_refused("{" D F "}", 24, DLP_ERR_CORRUPT, "missing");
    npy_refused("{" D F S ", " S "}", 24, DLP_ERR_CORRUPT, "twice");
    npy_refused("{" D F S ", 'more': 1}", 24, DLP_ERR_CORRUPT, "an unknown key");
    npy_refused("{'descr", 24, DLP_ERR_CORRUPT, "no key");
    npy_refused("{'a key of more than any length that it may have': 1}", 24, DLP_ERR_CORRUPT,
                "key");
    npy_refused("{'descr' '<f4'}", 24, DLP_ERR_CORRUPT, "no colon");
    npy_refused("{'descr': 7}", 24, DLP_ERR_CORRUPT, "no type");
    npy_refused("{'descr': [('a', '<f4')]}", 24, DLP_ERR_UNSUPPORTED, "structured");
    npy_refused("{'descr': '<V2', " F S "}", 12, DLP_ERR_UNSUPPORTED,
                "V2, as bfloat16 is saved; save x.view('u2') instead, at: '<V2'");
    npy_refused("{'descr': '>c8', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{'descr': 'i4 i8', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{'descr': ' i4', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{'descr': '<', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{" D F "'shape': (np.int64(2), 3)}", 24, DLP_ERR_CORRUPT,
                "no number of 64 bits in 'shape', at: np.int64(2), 3)}");
    npy_refused("{" D F "'shape': (L, 3)}", 24, DLP_ERR_CORRUPT, "no number");
    npy_refused("{" D F "'shape': (2LL, 3)}", 24, DLP_ERR_CORRUPT, "no end of 'shape'");
    npy_refused("{" D F "'shape': \x01\x80}", 24, DLP_ERR_CORRUPT,
                "no tuple after 'shape', at: ??}");
    npy_refused("{'descr': '|O', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{'descr': '<c8', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{'descr': '<U9', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{'descr': '', " F S "}", 24, DLP_ERR_UNSUPPORTED, "not one of");
    npy_refused("{" D "'fortran_order': True, " S "}", 24, DLP_ERR_UNSUPPORTED, "Fortran");
    npy_refused("{" D "'fortran_order': 1, " S "}", 24, DLP_ERR_CORRUPT, "True or False");
    npy_refused("{" D F "'shape': 6}", 24, DLP_ERR_CORRUPT, "no tuple");
    npy_refused("{" D F "'shape': ()}", 4, DLP_ERR_UNSUPPORTED, "a scalar");
    npy_refused("{" D F "'shape': (-2, 3)}", 24, DLP_ERR_CORRUPT, "no number");
    npy_refused("{" D F "'shape': (2 3)}", 24, DLP_ERR_CORRUPT, "no end of 'shape'");
    npy_refused("{" D F "'shape': (2, ", 24, DLP_ERR_CORRUPT, "no number");
    npy_refused("{" D F "'shape': (2, 0)}", 0, DLP_ERR_CORRUPT, "rows have 0 bytes");
    npy_refused("{" D F "'shape': (18446744073709551616, 3)}", 24, DLP_ERR_CORRUPT, "64 bits");
    npy_refused("{" D F "'shape': (4611686018427387904, 1)}", 0, DLP_ERR_CORRUPT, "the file has");
    npy_refused("{" D F "'shape': (1, 4294967296, 4294967296)}", 0, DLP_ERR_CORRUPT,
                "rows have 18446744073709551615");
    npy_refused(long_shape, 4, DLP_ERR_UNSUPPORTED, "more than 8 dimensions");
}

/* A file of another format is named; CIFAR, without a magic, takes it with insist. */
static void arrays__a_file_of_another_format__refused_by_name(void) {
    static const struct {
        const char *magic, *words;
        size_t bytes;
    } kinds[] = {{"\x1f\x8b\x08", "is gzip; it must be ", 3},
                 {"PK\x03\x04", "is zip (or .npz, .pt); it must be ", 4},
                 {"\x89HDF", "is HDF5; it must be ", 4},
                 {"\x80\x02}q\x01", "is a Python pickle; it must be ", 5}};
    dlp_array_column column = {.path = in_rig("other"), .format = DLP_ARRAY_CIFAR10};
    dlp_arrays_desc d = {.columns = &column, .n_columns = 1};
    dlp_source *a;
    dlp_error err;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        memset(bytes, 'x', 3073);
        memcpy(bytes, kinds[i].magic, kinds[i].bytes);
        bytes[3072] = '.';
        rig_write("other", bytes, 3073);
        for (int format = DLP_ARRAY_AUTO; format <= DLP_ARRAY_CIFAR100; format++)
            refused_file("other", format, DLP_ERR_CORRUPT, "byte 0", kinds[i].words);
        d.insist = 1;
        a = must_open(&d);
        CHECK(a && dlp_arrays_describe(a)->n_items == 1 && dlp_source_close(a) == DLP_OK);
    }
    npy(1, "{" D F S "}", 0);
    rig_write("other", bytes, 200);
    refused_file("other", DLP_ARRAY_IDX, DLP_ERR_CORRUPT, "byte 0", "is NumPy (dlp_arrays_open");
    {
        const char *paths[] = {in_rig("some"), in_rig("none")};
        memset(bytes, 1, 3073);
        rig_write("some", bytes, 3073);
        rig_write("none", bytes, 0);
        column.path = NULL;
        column.paths = paths;
        column.n_paths = 2;
        for (d.insist = 0; d.insist < 2; d.insist++) {
            const char *told;
            if ((a = must_open(&d)) == NULL) continue;
            told = a->dataset->warning;
            CHECK(d.insist ? told == NULL : told != NULL && strstr(told, "/none: has no rows"));
            CHECK(dlp_source_close(a) == DLP_OK);
        }
    }
    d.insist = 2;
    CHECK(dlp_arrays_open(&a, &d, &err) == DLP_ERR_ARG && strcmp(err.field, "insist") == 0);
}

static void arrays__npy_prefix_that_is_none__is_refused(void) {
    size_t n = npy(1, "{" D F S "}", 0);
    rig_write("cut.npy", bytes, n - 10);
    refused_file("cut.npy", DLP_ARRAY_NPY, DLP_ERR_CORRUPT, "byte 118", "ends in its header");
    rig_write("cut.npy", bytes, 9);
    refused_file("cut.npy", DLP_ARRAY_NPY, DLP_ERR_CORRUPT, "byte 9", "ends in its header");
    bytes[6] = 4;
    rig_write("version.npy", bytes, n + 24);
    refused_file("version.npy", DLP_ARRAY_NPY, DLP_ERR_UNSUPPORTED, "byte 6", "version 4.0");
    bytes[0] = 0;
    rig_write("magic.npy", bytes, n + 24);
    refused_file("magic.npy", DLP_ARRAY_NPY, DLP_ERR_CORRUPT, "byte 0", "does not begin as npy");
    n = npy(2, "{" D F S "}", 0);
    rig_write("cut2.npy", bytes, 11);
    refused_file("cut2.npy", DLP_ARRAY_NPY, DLP_ERR_CORRUPT, "byte 11", "ends in its header");
    memset(bytes + 8, 0xff, 4); /* 4 GiB of a header: not allocated */
    rig_write("huge.npy", bytes, n + 24);
    refused_file("huge.npy", DLP_ARRAY_NPY, DLP_ERR_CORRUPT, "byte 8", "4294967295 bytes");
    bytes[8] = bytes[9] = 0xff;
    bytes[10] = bytes[11] = 0; /* 65535 is allowed, but not there */
    rig_write("large.npy", bytes, n + 24);
    refused_file("large.npy", DLP_ARRAY_NPY, DLP_ERR_CORRUPT, "byte ", "ends in its header");
}

/* ---- columns, descs ---- */

static void arrays__columns_that_do_not_fit__are_refused(void) {
    dlp_array_column columns[17] = {{.name = "image"}, {.name = "label"}}, one;
    dlp_arrays_desc d = {.columns = columns, .n_columns = 2};
    const char *const pair[] = {in_rig("images"), in_rig("labels")};
    size_t n;
    write_mnist();
    n = idx(8, 1, (const uint32_t[]){49});
    rig_write("fewer", bytes, n + 49);
    columns[0].path = pair[0];
    columns[1].path = in_rig("fewer");
    refused(&d, DLP_ERR_ARG, (const char *const[]){"\"label\" has 49 rows, \"image\" has 50", ""});
    one = columns[0] = (dlp_array_column){.name = "x", .paths = pair, .n_paths = 2};
    d.n_columns = 1;
    refused(&d, DLP_ERR_CORRUPT, (const char *const[]){"labels", "differ from the column's", ""});
#define WRONG(word, ...) \
    columns[0] = one; \
    __VA_ARGS__; \
    refused(&d, DLP_ERR_ARG, (const char *const[]){word, ""})
    WRONG("columns[0].name", columns[0].name = NULL);
    WRONG("columns[0].name", columns[0].name = "");
    WRONG("columns[0].name", columns[0].name = "a name of more than thirty-one bytes");
    WRONG("columns[0].name", columns[0].format = DLP_ARRAY_CIFAR10);
    WRONG("columns[0].format", columns[0].format = 5);
    WRONG("columns[0].path", columns[0].path = "x");
    WRONG("columns[0].path", columns[0].paths = NULL);
    WRONG("columns[0].n_paths", columns[0].n_paths = 0);
    WRONG("columns[0].n_paths", columns[0].n_paths = (1 << 16) + 1);
    WRONG("paths has a NULL", columns[0].paths = (const char *const[]){NULL, NULL});
    WRONG("columns is missing: give 1 to 16", d.n_columns = 17);
    WRONG("columns is missing: give 1 to 16", d.n_columns = 0);
    d.n_columns = 1;
    WRONG("reads", d.reads = 2);
    d.reads = 0;
    rig_write("c.bin", bytes, 3073);
    for (int i = 0; i < 9; i++)
        columns[i] = (dlp_array_column){.path = in_rig("c.bin"), .format = DLP_ARRAY_CIFAR10};
    d.n_columns = 9;
    refused(&d, DLP_ERR_ARG, (const char *const[]){"more than 16 fields", ""});
    CHECK(dlp_arrays_open(NULL, &d, NULL) == DLP_ERR_ARG);
}

static void arrays__cut_since_it_was_opened__is_an_error_that_names_it(void) {
#ifdef _WIN32 /* a file that is mapped cannot be cut */
    const int from = 1;
#else
    const int from = 0;
#endif
    for (int reads = from; reads < 2; reads++) {
        dlp_array_column column = {.name = "image"};
        arrays_loader d = {.arrays = {.columns = &column, .n_columns = 1, .reads = reads},
                           .loader = {.batch_size = 4}};
        const struct timespec ticks = {0, 30 * 1000000};
        dlp_source *a = NULL;
        dlp_pipe *p = NULL;
        dlp_batch *b = NULL;
        int rc;
        write_mnist();
        column.path = in_rig("images");
        CHECK(arrays_loader_open(&p, &a, &d, NULL) == DLP_OK);
        if (p == NULL) return;
        CHECK(dlp_pipe_next(p, &b) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
        CHECK(truncate(column.path, 16 + 20 * 784) == 0);
        nanosleep(&ticks, NULL);
        while ((rc = dlp_pipe_next(p, &b)) == DLP_OK) dlp_pipe_release(p, b);
        CHECK(rc == DLP_ERR_CALLBACK);
        CHECK(rig_says(dlp_pipe_error(p),
                       (const char *const[]){"images", reads ? "ended at byte 15696" : "was cut to",
                                             "39216", ""}));
        CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(a) == DLP_OK);
    }
}

static void arrays__state_of_other_arrays__is_refused(void) {
    dlp_array_column column = {.name = "image"};
    arrays_loader d = {.arrays = {.columns = &column, .n_columns = 1},
                       .loader = {.batch_size = 4, .shuffle = 1}};
    dlp_source *a = NULL;
    dlp_pipe *p = NULL;
    dlp_batch *b = NULL;
    dlp_state state;
    dlp_error err = {0};
    write_mnist();
    column.path = in_rig("images");
    CHECK(arrays_loader_open(&p, &a, &d, NULL) == DLP_OK);
    if (p == NULL) return;
    CHECK(dlp_pipe_next(p, &b) == DLP_OK);
    CHECK(dlp_pipe_state(p, b, &state) == DLP_OK && dlp_pipe_release(p, b) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(a) == DLP_OK);
    d.loader.pipe.resume = &state;
    CHECK(arrays_loader_open(&p, &a, &d, NULL) == DLP_OK);
    CHECK(dlp_pipe_close(p) == DLP_OK && dlp_source_close(a) == DLP_OK);
    column.path = in_rig("labels"); /* as many rows */
    CHECK(arrays_loader_open(&p, &a, &d, &err) == DLP_ERR_RESUME);
    CHECK(strcmp(err.field, "source.names") == 0);
}

int main(void) {
    rig_begin("arrays");
    arrays__idx__images_and_labels();
    arrays__idx__numbers_are_the_machines();
    arrays__idx_that_is_none__is_refused();
    arrays__cifar__labels_and_pixels();
    arrays__npy__versions_types_spellings();
    arrays__npy__of_one_and_of_many_dimensions();
    arrays__npy__each_file_has_its_order();
    arrays__npy_that_is_none__is_refused();
    arrays__npy_prefix_that_is_none__is_refused();
    arrays__a_file_of_another_format__refused_by_name();
    arrays__columns_that_do_not_fit__are_refused();
    arrays__cut_since_it_was_opened__is_an_error_that_names_it();
    arrays__state_of_other_arrays__is_refused();
    rig_end();
    return test_end("arrays");
}
