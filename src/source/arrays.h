/* needs: arrays */
#pragma once
/* tests: system/source/arrays */
#include "api/arrays.h"
#include "inputs/check.h"
#include "cells/cells.h"
#include "order/order.h"
#include "build/check.h"
#include "source/identity.h"
#include "source/foreign.h"
#include "source/mapped.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-arrays     ROWS OUT OF ARRAYS
   The header of a file is read and checked once, when the source is opened. Kept of it are the byte
   at which rows begin, the number of rows, and the bytes of a row. No number of a header is used
   before it was compared with the length of the file. */

enum { DLPI_NPY_HEADER_MOST = 1 << 16, DLPI_CIFAR_PIXELS = 3 * 32 * 32 };
#define DLPI_ARRAY_FILES (UINT64_C(1) << 16)

typedef struct dlpi_array_file {
    dlpi_mapped m;
    uint64_t data;  /* byte of the file at which rows begin */
    uint64_t first; /* rows of the column in the files before this one */
    uint64_t rows;  /* rows of this file */
    uint64_t swap;  /* bytes of a number, if numbers are big-endian; 1: they are not */
} dlpi_array_file;

typedef struct dlpi_array {
    int32_t format;           /* DLP_ARRAY_* */
    uint32_t n_fields, field; /* it has n_fields of the source's fields, from number `field` on */
    uint64_t n_files, rows;   /* rows of all its files */
    uint64_t row_bytes;       /* bytes of a row in the file, with all its fields */
    dlpi_array_file *files;   /* [n_files] */
} dlpi_array;

typedef struct dlpi_arrays {
    dlp_source source; /* first */
    dlp_dataset dataset;
    dlp_identity identity;
    dlp_arrays_info info;
    dlp_field fields[DLP_MAX_FIELDS];
    char names[DLP_MAX_FIELDS][32];
    uint64_t field_bytes[DLP_MAX_FIELDS]; /* bytes of a row in each field */
    uint32_t n_columns, users;            /* users: U4 */
    bool reads, insist;                   /* reads: rows are read, not mapped */
    char warning[200];                    /* "": none */
    uint64_t piece, *chunk_first; /* >>array-chunks: rows of a chunk; rows before each, or NULL */
    dlpi_array columns[DLP_MAX_FIELDS];
} dlpi_arrays;

/* What a file says of itself. */
typedef struct dlpi_array_head {
    dlp_dtype dtype;
    uint32_t ndim;
    uint64_t shape[DLP_MAX_DIMS]; /* number of rows, then the shape of a row */
    uint64_t data, swap;          /* as in dlpi_array_file */
} dlpi_array_head;

/* ---- IDX ---- */

/* Read the header of an IDX file into *h. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_idx_head(const dlpi_mapped *m, dlpi_array_head *h, dlp_error *err) {
    static const dlp_dtype types[] = {DLP_U8, DLP_I8, 0, DLP_I16, DLP_I32, DLP_F32, DLP_F64};
    uint8_t b[4 + 4 * DLP_MAX_DIMS];
    int rc = dlpi_mapped_head(m, 0, 4, b, "header", err);
    if (rc != DLP_OK) return rc;
    if (b[0] != 0 || b[1] != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "is not IDX: its first 2 bytes "
                                 "are not 0");
    if (b[2] < 8 || b[2] > 14 || types[b[2] - 8] == 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 2, "type %d is unknown to IDX",
                                 b[2]);
    if (b[3] < 1 || b[3] > DLP_MAX_DIMS)
        return dlpi_mapped_error(err, DLP_ERR_UNSUPPORTED, m->path, 3,
                                 "%d dimensions, must be 1 to %d", b[3], DLP_MAX_DIMS);
    h->dtype = types[b[2] - 8];
    h->ndim = b[3];
    if ((rc = dlpi_mapped_head(m, 4, 4 * h->ndim, b, "header", err)) != DLP_OK) return rc;
    for (uint32_t i = 0; i < h->ndim; i++) h->shape[i] = dlpi_big32(b + 4 * i);
    h->data = 4 + 4 * h->ndim;
    h->swap = dlpi_dtype_bytes(h->dtype);
    return DLP_OK;
}

/* ---- npy ---- */

/* A Python literal of a dictionary, of which three keys are wanted, as numpy writes it. */
typedef struct dlpi_npy {
    const char *text, *at, *end; /* the header's text; the place that is parsed now; its end */
    const dlpi_mapped *m;
    uint64_t begins; /* byte of the file at which the text begins */
    dlp_error *err;
} dlpi_npy;

/* Set *n->err to words about the byte that is parsed now, and quote what stands there. Returns
   code. */
static int dlpi_npy_bad(const dlpi_npy *n, int code, const char *words) {
    char here[20];
    size_t i = 0;
    for (; i + 1 < sizeof here && n->at + i < n->end && n->at[i] != '\n'; i++)
        here[i] = n->at[i] >= ' ' && n->at[i] <= '~' ? n->at[i] : '?';
    here[i] = 0;
    return dlpi_mapped_error(n->err, code, n->m->path, n->begins + (uint64_t)(n->at - n->text),
                             "npy header: %s%s%s", words, i > 0 ? ", at: " : "", here);
}

static void dlpi_npy_space(dlpi_npy *n) {
    while (n->at < n->end && *n->at != 0 && strchr(" \n\t\r\f", *n->at) != NULL) n->at++;
}

/* Go past the next character that is not white space, if it is c. Returns false, and stays before
   it, if it is not c. */
static bool dlpi_npy_is(dlpi_npy *n, char c) {
    dlpi_npy_space(n);
    if (n->at == n->end || *n->at != c) return false;
    n->at++;
    return true;
}

/* True if this word comes next in the header, which then stands behind it. */
static bool dlpi_npy_word(dlpi_npy *n, const char *word) {
    size_t bytes = strlen(word);
    dlpi_npy_space(n);
    if ((size_t)(n->end - n->at) < bytes || memcmp(n->at, word, bytes) != 0) return false;
    n->at += bytes;
    return true;
}

/* Read a quoted text without escapes into to[size]; Python 2 may write u before it. Returns false
   if there is none that fits. */
static bool dlpi_npy_string(dlpi_npy *n, char *to, size_t size) {
    char quote;
    size_t i = 0;
    dlpi_npy_space(n);
    if (n->end - n->at > 1 && *n->at == 'u' && (n->at[1] == '\'' || n->at[1] == '"')) n->at++;
    if (n->at == n->end || (*n->at != '\'' && *n->at != '"')) return false;
    quote = *n->at++;
    for (; n->at < n->end && *n->at != quote; n->at++) {
        if (i + 1 == size || *n->at == '\\') return false;
        to[i++] = *n->at;
    }
    to[i] = 0;
    return dlpi_npy_is(n, quote);
}

/* Read a number; Python 2 may write L behind it. Returns false if there is none of 64 bits. */
static bool dlpi_npy_number(dlpi_npy *n, uint64_t *to) {
    uint64_t v = 0;
    const char *begin;
    dlpi_npy_space(n);
    for (begin = n->at; n->at < n->end && *n->at >= '0' && *n->at <= '9'; n->at++) {
        uint64_t digit = (uint64_t)(*n->at - '0');
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *to = v;
    if (n->at == begin) return false;
    if (n->at < n->end && *n->at == 'L') n->at++;
    return true;
}

/* Return the type that numpy calls `name`: by kind and bytes, by its letter, or in words. Returns 0
   if dlpipe has none. */
static dlp_dtype dlpi_npy_dtype(const char *name) {
    static const struct {
        const char *names; /* between spaces */
        dlp_dtype dtype;
    } types[] = {
        {" b1 ? bool ", DLP_BOOL},   {" i1 b int8 ", DLP_I8},     {" u1 B uint8 ", DLP_U8},
        {" i2 h int16 ", DLP_I16},   {" u2 H uint16 ", DLP_U16},  {" i4 i int32 ", DLP_I32},
        {" u4 I uint32 ", DLP_U32},  {" i8 l q int64 ", DLP_I64}, {" u8 L Q uint64 ", DLP_U64},
        {" f2 e float16 ", DLP_F16}, {" f4 f float32 ", DLP_F32}, {" f8 d float64 ", DLP_F64}};
    char word[16];
    snprintf(word, sizeof word, " %.12s ", name);
    for (size_t i = 0;
         name[0] != 0 && strchr(name, ' ') == NULL && i < sizeof types / sizeof *types; i++)
        if (strlen(name) <= 12 && strstr(types[i].names, word) != NULL) return types[i].dtype;
    return 0;
}

/* Read the type and its byte order, of which none means the machine's, into *h. Returns 0 or a
   DLP_ERR code with the error in n->err. */
static int dlpi_npy_descr(dlpi_npy *n, dlpi_array_head *h) {
    const char *begin;
    char descr[16];
    dlpi_npy_space(n);
    begin = n->at;
    if (n->at < n->end && *n->at == '[')
        return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "a structured type; save plain numbers");
    if (!dlpi_npy_string(n, descr, sizeof descr))
        return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no type after 'descr'");
    const bool ordered = descr[0] != 0 && strchr("<>|=", descr[0]) != NULL;
    h->dtype = dlpi_npy_dtype(descr + ordered);
    h->swap = descr[0] == '>' ? dlpi_dtype_bytes(h->dtype) : 1;
    if (h->dtype != 0) return DLP_OK;
    n->at = begin;
    if (strcmp(descr + ordered, "V2") == 0)
        return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED,
                            "V2, as bfloat16 is saved; save x.view('u2') instead");
    return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED,
                        "a type that is not one of b1, i1 .. i8, u1 .. u8, f2 .. f8");
}

/* Read the tuple of 'shape' into *h. Returns 0, or a DLP_ERR code with *n->err filled. */
static int dlpi_npy_shape(dlpi_npy *n, dlpi_array_head *h) {
    if (!dlpi_npy_is(n, '(')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no tuple after 'shape'");
    while (!dlpi_npy_is(n, ')')) {
        if (h->ndim == DLP_MAX_DIMS)
            return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "more than 8 dimensions");
        if (!dlpi_npy_number(n, &h->shape[h->ndim]))
            return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no number of 64 bits in 'shape'");
        h->ndim++;
        if (dlpi_npy_is(n, ',')) continue;
        if (!dlpi_npy_is(n, ')')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no end of 'shape'");
        break;
    }
    if (h->ndim == 0) return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "a scalar, which has no rows");
    return DLP_OK;
}

static int dlpi_npy_order(dlpi_npy *n, bool *fortran) {
    *fortran = dlpi_npy_word(n, "True");
    if (*fortran || dlpi_npy_word(n, "False")) return DLP_OK;
    return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no True or False after 'fortran_order'");
}

/* Read one key and its value. seen: a bit for each key that was read. Returns 0 or a DLP_ERR code
   with the error in n->err. */
static int dlpi_npy_entry(dlpi_npy *n, dlpi_array_head *h, uint32_t *seen, bool *fortran) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[24];
    uint32_t k = 0;
    if (!dlpi_npy_string(n, key, sizeof key)) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no key");
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3 || (*seen >> k & 1) != 0)
        return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "an unknown key, or a key twice");
    *seen |= 1u << k;
    if (!dlpi_npy_is(n, ':')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no colon after a key");
    if (k == 0) return dlpi_npy_descr(n, h);
    return k == 1 ? dlpi_npy_order(n, fortran) : dlpi_npy_shape(n, h);
}

/* Read the dictionary of a NumPy header into *h. Returns 0, or a DLP_ERR code with *n->err filled.
   Fortran order is refused, unless both orders have equal bytes. */
static int dlpi_npy_parse(dlpi_npy *n, dlpi_array_head *h) {
    uint32_t seen = 0, long_ones = 0;
    bool fortran = false;
    int rc;
    if (!dlpi_npy_is(n, '{')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no dictionary");
    while (!dlpi_npy_is(n, '}')) {
        if ((rc = dlpi_npy_entry(n, h, &seen, &fortran)) != DLP_OK) return rc;
        if (dlpi_npy_is(n, ',')) continue;
        if (!dlpi_npy_is(n, '}')) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "no end of the dict");
        break;
    }
    dlpi_npy_space(n);
    if (n->at != n->end) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "text after the dict");
    if (seen != 7) return dlpi_npy_bad(n, DLP_ERR_CORRUPT, "descr, fortran_order or shape missing");
    for (uint32_t i = 0; i < h->ndim; i++) long_ones += h->shape[i] > 1;
    if (fortran && long_ones > 1) /* else both orders have the same bytes */
        return dlpi_npy_bad(n, DLP_ERR_UNSUPPORTED, "Fortran order; save it in C order");
    return DLP_OK;
}

/* Read the header of an npy file into *h. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_npy_head(const dlpi_mapped *m, dlpi_array_head *h, dlp_error *err) {
    uint8_t b[12];
    uint64_t bytes, prefix;
    char *text;
    dlpi_npy n;
    int rc = dlpi_mapped_head(m, 0, 10, b, "header", err);
    if (rc != DLP_OK) return rc;
    if (memcmp(b, "\x93NUMPY", 6) != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0, "does not begin as npy");
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return dlpi_mapped_error(err, DLP_ERR_UNSUPPORTED, m->path, 6,
                                 "npy version %d.%d, must be 1.0 to 3.0", b[6], b[7]);
    prefix = b[6] == 1 ? 10 : 12;
    if ((rc = dlpi_mapped_head(m, 0, prefix, b, "header", err)) != DLP_OK) return rc;
    bytes = (uint64_t)b[8] | (uint64_t)b[9] << 8;
    if (prefix == 12) bytes |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    if (bytes > DLPI_NPY_HEADER_MOST)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 8,
                                 "the npy header has %" PRIu64 " bytes, must have at most %d",
                                 bytes, DLPI_NPY_HEADER_MOST);
    if ((text = malloc((size_t)bytes + 1)) == NULL)
        return dlpi_mapped_system(err, m->path, "malloc", ENOMEM);
    rc = dlpi_mapped_head(m, prefix, bytes, text, "header", err);
    n = (dlpi_npy){text, text, text + bytes, m, prefix, err};
    if (rc == DLP_OK) rc = dlpi_npy_parse(&n, h);
    free(text);
    h->data = prefix + bytes;
    return rc;
}

/* ---- files and columns ---- */

/* Set *format to npy or IDX by a file's first bytes. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_array_guess(const dlpi_mapped *m, int32_t *format, dlp_error *err) {
    uint8_t b[4] = {1};
    int64_t got = dlpi_mapped_pread(m, 0, 4, b);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
    if (got == 4 && memcmp(b, "\x93NUM", 4) == 0)
        *format = DLP_ARRAY_NPY;
    else if (got == 4 && b[0] == 0 && b[1] == 0 && b[2] >= 8 && b[2] <= 14)
        *format = DLP_ARRAY_IDX;
    else
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 got == 0 ? "is empty; it must be npy or IDX. Copy it again"
                                          : "begins neither as npy nor as IDX; for files of CIFAR "
                                            "set format");
    return DLP_OK;
}

/* Fill *h for a file of CIFAR, which has no header: its length gives the number of records. labels:
   those of a record. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_cifar_head(const dlpi_mapped *m, uint64_t labels, dlpi_array_head *h,
                           dlp_error *err) {
    uint64_t record = labels + DLPI_CIFAR_PIXELS;
    if (m->size % record != 0)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size - m->size % record,
                                 "ends in %" PRIu64 " bytes of a record of %" PRIu64,
                                 m->size % record, record);
    h->dtype = DLP_U8;
    h->ndim = 2;
    h->shape[0] = m->size / record;
    h->shape[1] = record;
    h->swap = 1;
    return DLP_OK;
}

/* Read the header of a file of a known format into *h. Returns 0, or a DLP_ERR code with *err
   filled. */
static int dlpi_array_head_of(int32_t format, const dlpi_mapped *m, dlpi_array_head *h,
                              dlp_error *err) {
    memset(h, 0, sizeof *h);
    switch (format) {
    case DLP_ARRAY_IDX: return dlpi_idx_head(m, h, err);
    case DLP_ARRAY_NPY: return dlpi_npy_head(m, h, err);
    case DLP_ARRAY_CIFAR10: return dlpi_cifar_head(m, 1, h, err);
    default: return dlpi_cifar_head(m, 2, h, err);
    }
}

/* Set *row to the bytes of a row, and check that the file is as long as its header says. Returns 0,
   or a DLP_ERR code and *err. */
static int dlpi_array_measure(const dlpi_mapped *m, const dlpi_array_head *h, uint64_t *row,
                              dlp_error *err) {
    uint64_t bytes = dlpi_dtype_bytes(h->dtype);
    for (uint32_t i = 1; i < h->ndim; i++) bytes = dlpi_times(bytes, h->shape[i]);
    *row = bytes;
    if (bytes == 0 || bytes > DLPI_CELL_MAX)
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0,
                                 "rows have %" PRIu64 " bytes, must have 1 to 2^46", bytes);
    bytes = dlpi_sum(dlpi_times(bytes, h->shape[0]), h->data);
    if (bytes == m->size) return DLP_OK;
    return dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, m->size < bytes ? m->size : bytes,
                             "its header wants %" PRIu64 " bytes, the file has %" PRIu64
                             "; copy it again",
                             bytes, m->size);
}

/* Add one field to a column and to the source. The caller has checked that there is room for it. */
static void dlpi_array_field(dlpi_arrays *a, dlpi_array *c, const char *name, dlp_dtype dtype,
                             const uint64_t *shape, uint32_t ndim) {
    uint32_t k = a->info.n_fields++;
    dlp_field *f = &a->fields[k];
    c->n_fields++;
    dlpi_copy_text(a->names[k], sizeof a->names[k], name);
    f->name = a->names[k];
    f->dtype = dtype;
    f->ndim = (int32_t)ndim;
    a->field_bytes[k] = dlpi_dtype_bytes(dtype);
    for (uint32_t i = 0; i < ndim; i++) {
        f->shape[i] = (int64_t)shape[i];
        a->field_bytes[k] *= shape[i];
    }
}

/* Add the fields of a column, as its first file says. Returns 0, or DLP_ERR_ARG and *err. */
static int dlpi_array_fields(dlpi_arrays *a, dlpi_array *c, const dlp_array_column *d,
                             const dlpi_array_head *h, dlp_error *err) {
    static const uint64_t pixels[] = {3, 32, 32};
    bool cifar = c->format >= DLP_ARRAY_CIFAR10, fine = c->format == DLP_ARRAY_CIFAR100;
    c->field = a->info.n_fields;
    if (c->field + (cifar ? 2 : 1) + fine > DLP_MAX_FIELDS)
        return dlpi_error_set(err, DLP_ERR_ARG, "columns",
                              "columns have more than 16 fields; leave some out");
    if (cifar) {
        if (fine) dlpi_array_field(a, c, "coarse", DLP_U8, NULL, 0);
        dlpi_array_field(a, c, fine ? "fine" : "label", DLP_U8, NULL, 0);
        dlpi_array_field(a, c, "image", DLP_U8, pixels, 3);
    } else {
        dlpi_array_field(a, c, d->name, h->dtype, h->shape + 1, h->ndim - 1);
    }
    return DLP_OK;
}

/* True if the rows of a further file have the type and shape of those of the first. */
static bool dlpi_array_like(const dlpi_arrays *a, const dlpi_array *c, const dlpi_array_head *h) {
    const dlp_field *f = &a->fields[c->field];
    if (c->format >= DLP_ARRAY_CIFAR10) return true;
    if (f->dtype != h->dtype || (uint32_t)f->ndim + 1 != h->ndim) return false;
    for (uint32_t i = 1; i < h->ndim; i++)
        if ((uint64_t)f->shape[i - 1] != h->shape[i]) return false;
    return true;
}

/* Refuse a file of another format by name. Files of CIFAR have no magic, so one may begin like
   another format: insist takes it. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_array_foreign(const dlpi_mapped *m, int32_t format, dlp_error *err) {
    static const char *const wanted[] = {"npy or IDX", "IDX", "npy", "CIFAR-10", "CIFAR-100"};
    const bool cifar = format >= DLP_ARRAY_CIFAR10;
    const bool npy = format == DLP_ARRAY_AUTO || format == DLP_ARRAY_NPY;
    return dlpi_foreign_refuse(m, npy ? DLPI_TAKES_NPY : 0, wanted[format], cifar, NULL, err);
}

/* Open file i of a column; the first sets its fields. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_array_file_open(dlpi_arrays *a, dlpi_array *c, const dlp_array_column *d,
                                uint64_t i, dlp_error *err) {
    dlpi_array_file *f = &c->files[i];
    dlpi_array_head h;
    uint64_t row = 0;
    int rc =
        dlpi_mapped_open(&f->m, d->path ? d->path : d->paths[i], a->reads, c->n_files - i, err);
    if (rc == DLP_OK && !a->insist) rc = dlpi_array_foreign(&f->m, c->format, err);
    if (rc == DLP_OK && c->format == DLP_ARRAY_AUTO) rc = dlpi_array_guess(&f->m, &c->format, err);
    if (rc == DLP_OK) rc = dlpi_array_head_of(c->format, &f->m, &h, err);
    if (rc == DLP_OK) rc = dlpi_array_measure(&f->m, &h, &row, err);
    if (rc == DLP_OK && i == 0) rc = dlpi_array_fields(a, c, d, &h, err);
    if (rc != DLP_OK) return rc;
    if (!dlpi_array_like(a, c, &h))
        return dlpi_mapped_error(err, DLP_ERR_CORRUPT, f->m.path, 0,
                                 "type or shape of rows differ from the column's first file");
    dlpi_mapped_spare(&f->m);
    c->row_bytes = row;
    f->data = h.data;
    f->first = c->rows;
    f->rows = h.shape[0];
    f->swap = h.swap;
    c->rows = dlpi_sum(c->rows, f->rows);
    if (f->rows == 0 && a->warning[0] == 0 && !a->insist)
        snprintf(a->warning, sizeof a->warning, "%s: has no rows; leave it out, or set insist = 1",
                 dlpi_path_end(f->m.path));
    a->info.id = dlp_hash(a->info.id, f->rows, row, (uint64_t)h.dtype << 32 | h.ndim);
    return DLP_OK;
}

/* Open all files of a column, and add its fields. Returns 0, or a DLP_ERR code with *err filled. If
   it fails, dlpi_arrays_free closes the files. */
static int dlpi_array_column_open(dlpi_arrays *a, const dlp_array_column *d, dlp_error *err) {
    dlpi_array *c = &a->columns[a->n_columns++];
    uint64_t n = d->path ? 1 : d->n_paths;
    int rc = DLP_OK;
    c->format = d->format;
    c->files = calloc((size_t)n, sizeof *c->files);
    if (c->files == NULL) return dlpi_error_set(err, DLP_ERR_MEMORY, "", "no memory for the files");
    for (uint64_t i = 0; i < n; i++) dlpi_mapped_begin(&c->files[i].m);
    c->n_files = n;
    for (uint64_t i = 0; i < n && rc == DLP_OK; i++) rc = dlpi_array_file_open(a, c, d, i, err);
    return rc;
}

/* ---- open, close ---- */

/* Check a desc of arrays. Returns 0, or DLP_ERR_ARG with *err filled. */
static int dlpi_arrays_check(const dlp_arrays_desc *d, dlp_error *err) {
    const char *wrong = NULL;
    if (d->columns == NULL || d->n_columns == 0 || d->n_columns > DLP_MAX_FIELDS)
        return dlpi_error_set(err, DLP_ERR_ARG, "columns",
                              "columns is missing: give 1 to 16, and n_columns");
    if (d->reads != 0 && d->reads != 1)
        return dlpi_error_set(err, DLP_ERR_ARG, "reads", "reads must be 0 or 1");
    if (d->moved != 0 && d->moved != 1)
        return dlpi_error_set(err, DLP_ERR_ARG, "moved", "moved must be 0 or 1");
    if (d->insist != 0 && d->insist != 1)
        return dlpi_error_set(err, DLP_ERR_ARG, "insist", "insist must be 0 or 1");
    for (uint32_t i = 0; i < d->n_columns && wrong == NULL; i++) {
        const dlp_array_column *c = &d->columns[i];
        bool cifar = c->format >= DLP_ARRAY_CIFAR10;
        size_t name = c->name ? strlen(c->name) : 0;
        if (c->format < DLP_ARRAY_AUTO || c->format > DLP_ARRAY_CIFAR100)
            wrong = "format must be DLP_ARRAY_*";
        else if (cifar ? c->name != NULL : name == 0 || name > 31)
            wrong = cifar ? "name must be NULL: fields of CIFAR have names"
                          : "name must have 1 to 31 bytes";
        else if ((c->path == NULL) == (c->paths == NULL))
            wrong = "path: give either path or paths";
        else if (c->path ? c->n_paths != 0 : c->n_paths == 0 || c->n_paths > DLPI_ARRAY_FILES)
            wrong = "n_paths must be 1 to 2^16 with paths, 0 with a path";
        if (wrong)
            return dlpi_error_set(err, DLP_ERR_ARG, "columns", "columns[%" PRIu32 "].%s", i, wrong);
    }
    return DLP_OK;
}

/* Close all files, and free the source. No pipe may use it any more. */
DLPI_COLD static void dlpi_arrays_free(dlpi_arrays *a) {
    for (uint32_t k = 0; k < a->n_columns; k++) {
        for (uint64_t i = 0; i < a->columns[k].n_files; i++)
            dlpi_mapped_close(&a->columns[k].files[i].m);
        free(a->columns[k].files);
    }
    free(a->chunk_first);
    free(a);
}

/* Check that all columns have equally many rows, and set the number of items. Returns 0, or
   DLP_ERR_ARG and *err. */
static int dlpi_arrays_rows(dlpi_arrays *a, dlp_error *err) {
    uint64_t rows = a->columns[0].rows;
    for (uint32_t k = 1; k < a->n_columns; k++)
        if (a->columns[k].rows != rows)
            return dlpi_error_set(err, DLP_ERR_ARG, "columns",
                                  "lengths differ: \"%s\" has %" PRIu64 " rows, \"%s\" has "
                                  "%" PRIu64,
                                  a->names[a->columns[k].field], a->columns[k].rows,
                                  a->names[a->columns[0].field], rows);
    if (rows == 0 || rows > DLPI_MAX_ITEMS)
        return dlpi_error_set(err, DLP_ERR_ARG, "columns",
                              "columns have %" PRIu64 " rows, must have 1 to 2^48", rows);
    a->info.n_items = rows;
    a->info.fields = a->fields;
    return DLP_OK;
}

/* ---- rows ---- */

/* Turn big-endian numbers of `width` bytes into little-endian ones, in place. */
static void dlpi_array_swap(uint8_t *to, uint64_t bytes, uint64_t width) {
    for (uint64_t i = 0; i + width <= bytes; i += width)
        for (uint64_t k = 0; k < width / 2; k++) {
            uint8_t b = to[i + k];
            to[i + k] = to[i + width - 1 - k];
            to[i + width - 1 - k] = b;
        }
}

/* Return the file of a column that has this row. */
static dlpi_array_file *dlpi_array_find(const dlpi_array *c, uint64_t row) {
    return &c->files[dlpi_file_of(&c->files->first, sizeof *c->files, c->n_files, row)];
}

/* Copy the fields of one column into an item. Returns 0 or a failure's code. */
static int dlpi_array_row(const dlpi_arrays *a, const dlpi_array *c, dlp_item *it) {
    dlpi_array_file *f = dlpi_array_find(c, it->index);
    uint64_t at = f->data + (it->index - f->first) * c->row_bytes;
    int rc = f->m.bytes ? dlpi_mapped_check(&f->m, it) : 0;
    dlpi_mapped_advise(&f->m, it->position == it->index ? DLPI_IN_ORDER : DLPI_AS_USUAL);
    for (uint32_t k = c->field; k < c->field + c->n_fields && rc == 0; k++) {
        rc = dlpi_mapped_copy(&f->m, at, a->field_bytes[k], it->data[k], it);
        at += a->field_bytes[k];
    }
    if (rc == 0 && f->swap > 1) dlpi_array_swap(it->data[c->field], c->row_bytes, f->swap);
    return rc;
}

/* Ask the processor for the rows that come soon, which are out of order. */
static inline void dlpi_arrays_touch(const dlpi_arrays *a, const dlp_item *it) {
    for (uint64_t next; (next = dlpi_item_ahead(it)) != UINT64_MAX;)
        for (uint32_t k = 0; k < a->n_columns; k++) {
            const dlpi_array *c = &a->columns[k];
            const dlpi_array_file *f = dlpi_array_find(c, next);
            if (f->m.bytes != NULL)
                dlpi_mapped_touch(f->m.bytes + f->data + (next - f->first) * c->row_bytes,
                                  c->row_bytes);
        }
}

/* The source's fetch callback: copy one row of each column. Returns 0 or a failure's code. */
static int dlpi_arrays_fetch(void *user, dlp_item *it) {
    const dlpi_arrays *a = user;
    int rc = 0;
    if (it->position != it->index) dlpi_arrays_touch(a, it);
    for (uint32_t k = 0; k < a->n_columns && rc == 0; k++)
        rc = dlpi_array_row(a, &a->columns[k], it);
    return rc;
}

/* ---- open, close ---- */

static int dlpi_arrays_close(dlp_source *source) {
    dlpi_arrays *a = (dlpi_arrays *)(void *)source;
    if (dlpi_users_any(&a->users)) return DLP_ERR_BUSY;
    dlpi_arrays_free(a);
    return DLP_OK;
}

/* Fill the dataset and the source, once all columns are open. */
static void dlpi_arrays_source(dlpi_arrays *a) {
    a->dataset.n_items = a->info.n_items;
    a->dataset.fields = a->fields;
    a->dataset.n_fields = a->info.n_fields;
    a->dataset.identity = &a->identity;
    a->dataset.warning = a->warning[0] ? a->warning : NULL;
    a->source.id = a->info.id;
    a->source.close = dlpi_arrays_close;
    dlpi_mapped_source(&a->source, &a->dataset, dlpi_arrays_fetch, &a->users);
}

DLPI_COLD DLPDEF int dlp_arrays_open(dlp_source **out, const dlp_arrays_desc *desc,
                                     dlp_error *err) {
    dlpi_arrays *a;
    int rc;
    if ((rc = dlpi_open_args(out, out, "", desc, err)) != DLP_OK) return rc;
    if ((rc = dlpi_arrays_check(desc, err)) != DLP_OK) return rc;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return dlpi_error_set(err, DLP_ERR_UNSUPPORTED, "", "this machine is big-endian");
    if ((a = calloc(1, sizeof *a)) == NULL)
        return dlpi_error_set(err, DLP_ERR_MEMORY, "", "calloc of the source failed");
    a->reads = desc->reads != 0;
    a->insist = desc->insist != 0;
    for (uint32_t i = 0; i < desc->n_columns && rc == DLP_OK; i++)
        rc = dlpi_array_column_open(a, &desc->columns[i], err);
    if (rc == DLP_OK) rc = dlpi_arrays_rows(a, err);
    if (rc != DLP_OK) {
        dlpi_arrays_free(a);
        return rc;
    }
    for (uint32_t k = 0; k < a->n_columns; k++)
        dlpi_identity_files(&a->identity, a->columns[k].files, a->columns[k].n_files,
                            sizeof *a->columns[k].files, desc->moved);
    dlpi_arrays_source(a);
    *out = &a->source;
    return DLP_OK;
}

DLPDEF const dlp_arrays_info *dlp_arrays_describe(const dlp_source *source) {
    return source != NULL && source->close == dlpi_arrays_close
               ? &((const dlpi_arrays *)(const void *)source)->info
               : NULL;
}
