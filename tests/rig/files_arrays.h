/* needs: arrays */
/* Random files of arrays (npy, IDX, CIFAR), and the rows that a reader finds in them. Behind
   files_random.h. */
#ifndef FILES_ARRAYS_H
#define FILES_ARRAYS_H

enum { COLUMNS = 3, ARRAY_FILES = 3 };

typedef struct array_type {
    const char *npy[3]; /* names in the header of an npy file */
    int idx;            /* number in that of an IDX file; 0: it has no such type */
    dlp_dtype dtype;
} array_type;

static const array_type array_types[] = {
    {{"u1", "B", "uint8"}, 8, DLP_U8},     {{"i1", "b", "int8"}, 9, DLP_I8},
    {{"i2", "h", "int16"}, 11, DLP_I16},   {{"i4", "i", "int32"}, 12, DLP_I32},
    {{"f4", "f", "float32"}, 13, DLP_F32}, {{"f8", "d", "float64"}, 14, DLP_F64},
    {{"b1", "?", "bool"}, 0, DLP_BOOL},    {{"u2", "H", "uint16"}, 0, DLP_U16},
    {{"u4", "I", "uint32"}, 0, DLP_U32},   {{"i8", "q", "int64"}, 0, DLP_I64},
    {{"u8", "Q", "uint64"}, 0, DLP_U64},   {{"f2", "e", "float16"}, 0, DLP_F16}};
enum { ARRAY_TYPES = sizeof array_types / sizeof *array_types };

typedef struct array_column {
    const char *paths[ARRAY_FILES];
    blob file[ARRAY_FILES];
    char name[8];
    uint64_t n;     /* files */
    int32_t format; /* as it was written */
} array_column;

typedef struct arrays_case {
    dlp_arrays_desc d;
    dlp_array_column desc[COLUMNS];
    array_column column[COLUMNS];
} arrays_case;

/* What a file has: rows of `row` bytes from byte `at` on. */
typedef struct array_file {
    uint64_t at, rows, row, ndim, shape[9];
    int width; /* bytes of a number */
    int big;   /* numbers are big-endian */
    int type;  /* number of the type; of CIFAR -1 */
} array_file;

/* ---- the writer ---- */

/* Append a shape as numpy writes it, or as it may stand in old files. */
static void put_shape(blob *b, const uint64_t *shape, uint64_t ndim, int old) {
    char text[40];
    put_text(b, "(");
    for (uint64_t i = 0; i < ndim; i++) {
        snprintf(text, sizeof text, "%s%" PRIu64 "%s", i ? ", " : "", shape[i], old ? "L" : "");
        put_text(b, text);
    }
    put_text(b, ndim == 1 ? ",)" : draw(4) ? ")" : ",)");
}

/* Append the header of an npy file in one of its versions, with its keys in any order. */
static void put_npy(blob *b, int type, const uint64_t *shape, uint64_t ndim) {
    const int version = 1 + (int)draw(3), dialect = has(F_ARRAYS_DIALECT, 4) ? (int)draw(6) : -1;
    const uint64_t order = draw(6), align = draw(2) ? 64 : 16;
    const char *descr = array_types[type].npy[dialect == 2 ? draw(3) : 0];
    const char *u = dialect == 4 ? "u" : ""; /* of Python 2 */
    const char quote = draw(4) ? '\'' : '"';
    blob t = {NULL, 0, 0};
    uint64_t prefix = version == 1 ? 10 : 12;
    char text[80];
    put_text(&t, "{");
    for (uint64_t k = 0; k < 3; k++) {
        const uint64_t key = order < 3 ? (order + k) % 3 : (order + 3 - k) % 3;
        if (key == 0) {
            const int one = element_bytes(array_types[type].dtype) == 1;
            const char *sign = one ? "|" : draw(5) ? "<" : "=";
            if (dialect == 1 || strlen(descr) != 2) sign = "";
            if (dialect == 5) sign = ">";
            snprintf(text, sizeof text, "%s%cdescr%c: %s%c%s%s%c", u, quote, quote, u, quote, sign,
                     descr, quote);
            put_text(&t, text);
        } else if (key == 1) {
            const int column = dialect == 3 && ndim == 2 && shape[1] == 1;
            snprintf(text, sizeof text, "%s%cfortran_order%c:%s%s", u, quote, quote,
                     draw(2) ? " " : "", column || (ndim == 1 && draw(3) == 0) ? "True" : "False");
            put_text(&t, text);
        } else {
            snprintf(text, sizeof text, "%s%cshape%c: ", u, quote, quote);
            put_text(&t, text);
            put_shape(&t, shape, ndim, dialect == 0);
        }
        if (k < 2 || draw(4)) put_text(&t, draw(4) ? ", " : ",");
    }
    put_text(&t, "}");
    while ((prefix + t.n + 1) % align != 0) put_text(&t, " ");
    if (draw(8)) put_text(&t, "\n");
    put_text(b, "\x93NUMPY");
    put_number(b, (uint64_t)version, 2, 0);
    put_number(b, t.n, version == 1 ? 2 : 4, 0);
    put(b, t.at, t.n);
}

/* Write one file of a column. */
static void write_array(blob *b, int32_t format, int type, uint64_t rows, const uint64_t *shape,
                        uint64_t ndim) {
    uint64_t n = element_bytes(array_types[type].dtype), all[9] = {rows};
    for (uint64_t i = 0; i < ndim; i++) n *= all[i + 1] = shape[i];
    if (format == DLP_ARRAY_NPY) put_npy(b, type, all, ndim + 1);
    if (format == DLP_ARRAY_IDX) {
        put_number(b, (uint64_t)array_types[type].idx << 8 | (ndim + 1), 4, 1);
        for (uint64_t i = 0; i <= ndim; i++) put_number(b, all[i], 4, 1);
    }
    if (format >= DLP_ARRAY_CIFAR10) n = 3072 + (format == DLP_ARRAY_CIFAR10 ? 1 : 2);
    put_random(b, n * rows);
}

static void write_column(array_column *c, uint64_t rows, int mutated) {
    const int type = (int)draw(c->format == DLP_ARRAY_IDX ? 6 : ARRAY_TYPES);
    const uint64_t ndim = draw(4), shape[] = {1 + draw(4), 1 + draw(3), 1 + draw(3)};
    uint64_t left = rows;
    c->n = 1 + draw(ARRAY_FILES);
    for (uint64_t i = 0; i < c->n; i++) {
        const uint64_t here = i + 1 == c->n ? left : draw(left + 1);
        c->paths[i] = case_path(c->name, i, ".arr");
        write_array(&c->file[i], c->format, type, here, shape, ndim);
        left -= here;
        if (mutated && draw(c->n) == 0) mutate(&c->file[i], 4, 1);
        if (has(F_ARRAYS_FOREIGN, 40)) make_foreign(&c->file[i]);
        write_at(c->paths[i], &c->file[i]);
    }
}

/* ---- the reader ---- */

/* Find what stands behind a key of the header's text. NULL: the key is not there. */
static const char *value_of(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (at == NULL || (at[strlen(key)] != '\'' && at[strlen(key)] != '"')) return NULL;
    at += strlen(key) + 1;
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static const char *read_npy(array_file *f, const blob *b) {
    const char *text, *descr, *shape, *order;
    char name[20];
    uint64_t prefix, n;
    if (b->n < 12 || memcmp(b->at, "\x93NUMPY", 6) != 0) return "no magic of npy";
    if (b->at[6] < 1 || b->at[6] > 3 || b->at[7] != 0) return "a version that is not known";
    prefix = b->at[6] == 1 ? 10 : 12;
    n = number_at(b->at + 8, b->at[6] == 1 ? 2 : 4, 0);
    if (n > b->n - prefix) return "the header is cut";
    text = copy_bytes(b->at + prefix, n);
    descr = value_of(text, "descr");
    shape = value_of(text, "shape");
    order = value_of(text, "fortran_order");
    if (descr == NULL || shape == NULL || order == NULL || *shape != '(') return "a key is missing";
    descr += *descr == 'u' ? 2 : 1;
    f->big = *descr == '>';
    if (*descr != 0 && strchr("<>|=", *descr) != NULL) descr++;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(descr, "'\""), descr);
    for (f->type = 0; f->type < ARRAY_TYPES; f->type++) {
        const char *const *names = array_types[f->type].npy;
        if (!strcmp(names[0], name) || !strcmp(names[1], name) || !strcmp(names[2], name)) break;
    }
    if (f->type == ARRAY_TYPES) return "a type that is not known";
    for (shape++; *shape >= '0' && *shape <= '9'; f->ndim++) {
        char *end;
        if (f->ndim == 8) return "more than 8 dimensions";
        f->shape[f->ndim] = strtoull(shape, &end, 10);
        for (shape = end; *shape == ',' || *shape == ' ' || *shape == 'L';) shape++;
    }
    if (*shape != ')' || f->ndim == 0) return "no shape";
    for (uint64_t i = 1, wide = f->shape[0] > 1; i < f->ndim && *order == 'T'; i++)
        if ((wide += f->shape[i] > 1) > 1) return "Fortran order";
    f->at = prefix + n;
    return NULL;
}

static const char *read_idx(array_file *f, const blob *b) {
    if (b->n < 4 || b->at[0] != 0 || b->at[1] != 0) return "no magic of IDX";
    for (f->type = 0; f->type < 6 && array_types[f->type].idx != b->at[2];) f->type++;
    if (f->type == 6) return "a type that is not known";
    f->ndim = b->at[3];
    f->at = 4 + 4 * f->ndim;
    if (f->ndim < 1 || f->ndim > 8 || b->n < f->at) return "dimensions";
    for (uint64_t i = 0; i < f->ndim; i++) f->shape[i] = number_at(b->at + 4 + 4 * i, 4, 1);
    f->big = 1;
    return NULL;
}

/* Read what a file says of itself. Returns what is wrong, or NULL. */
static const char *read_head(array_file *f, int32_t format, const blob *b) {
    const char *bad = format == DLP_ARRAY_NPY   ? read_npy(f, b)
                      : format == DLP_ARRAY_IDX ? read_idx(f, b)
                                                : NULL;
    __uint128_t all;
    if (bad != NULL) return bad;
    f->row = 3072 + (format == DLP_ARRAY_CIFAR10 ? 1 : 2);
    f->rows = b->n / f->row;
    f->width = 1;
    if (format >= DLP_ARRAY_CIFAR10) return b->n % f->row ? "half a record" : NULL;
    f->width = (int)element_bytes(array_types[f->type].dtype);
    f->rows = f->shape[0];
    all = (__uint128_t)f->width;
    for (uint64_t i = 1; i < f->ndim; i++)
        if ((all *= f->shape[i]) > UINT64_C(1) << 46) return "rows are too long";
    f->row = (uint64_t)all;
    if (f->row == 0) return "rows without bytes";
    return all * f->rows + f->at == b->n ? NULL : "the length is not that of the header";
}

/* Append the rows of a file to the items from number *row on. */
static void read_rows(want *w, const array_file *f, const blob *b, uint64_t *row) {
    for (uint64_t i = 0; i < f->rows; i++, ++*row) {
        blob *item = *row < w->x.n ? &w->x.item[*row] : items_add(&w->x);
        const uint8_t *at = b->at + f->at + i * f->row;
        for (uint64_t k = 0; k < f->row; k += (uint64_t)f->width)
            put_number(item, number_at(at + k, f->width, f->big), f->width, 0);
    }
}

static void want_arrays(want *w, const arrays_case *c) {
    uint64_t rows[COLUMNS] = {0};
    for (uint32_t k = 0; k < c->d.n_columns; k++) {
        const array_column *column = &c->column[k];
        array_file first = {.at = 0};
        int32_t format = c->desc[k].format;
        for (uint64_t i = 0; i < column->n; i++) {
            const blob *b = &column->file[i];
            array_file f = {.at = 0};
            const char *bad;
            if (format == DLP_ARRAY_AUTO)
                format = b->n > 0 && b->at[0] ? DLP_ARRAY_NPY : DLP_ARRAY_IDX;
            if ((bad = read_head(&f, format, b)) != NULL) {
                const int kind = foreign_kind(b);
                if (kind >= 0 && !c->d.insist && strcmp(bad, "a key is missing") != 0)
                    w->named = foreign[kind].name;
                worse(w, BAD, "file %" PRIu64 " of column %u: %s", i, k, bad);
                return;
            }
            if (i == 0) first = f;
            if (i > 0 && format <= DLP_ARRAY_NPY &&
                (f.type != first.type || f.ndim != first.ndim ||
                 memcmp(f.shape + 1, first.shape + 1, 8 * (f.ndim - 1)) != 0))
                worse(w, BAD, "files of two shapes");
            if (!c->d.insist && format >= DLP_ARRAY_CIFAR10) refuse_foreign(w, b, 1);
            if (w->verdict == BAD) return;
            w->warns += f.rows == 0 && !c->d.insist;
            read_rows(w, &f, b, &rows[k]);
        }
        if (rows[k] != rows[0]) worse(w, BAD, "columns of two lengths");
    }
    w->nameless = w->x.n == 0 || w->verdict == BAD;
    if (w->x.n == 0) worse(w, BAD, "there are no rows");
}

/* ---- the library ---- */

static int arrays_case_run(void) {
    static arrays_case c;
    const int mutated = has(F_MUTATED, 3);
    const uint64_t rows = draw(30);
    dlp_loader_desc l;
    dlp_source *s = NULL;
    dlp_error err = {0};
    want w = {.verdict = GOOD};
    got g;
    int cifar = 0;
    memset(&c, 0, sizeof c);
    c.d.columns = c.desc;
    c.d.n_columns = 1 + (uint32_t)draw(COLUMNS);
    c.d.reads = draw(3) == 0;
    c.d.insist = draw(5) == 0;
    say("arrays: %u columns of %" PRIu64 " rows, reads %d, insist %d;", c.d.n_columns, rows,
        c.d.reads, c.d.insist);
    l = draw_loader(0);
    for (uint32_t k = 0; k < c.d.n_columns; k++) {
        array_column *column = &c.column[k];
        column->format = DLP_ARRAY_IDX + (int)draw(cifar ? 2 : 4);
        snprintf(column->name, sizeof column->name, "c%u-", k);
        write_column(column, rows, mutated && draw(c.d.n_columns) == 0);
        c.desc[k] = (dlp_array_column){.name = column->name,
                                       .paths = column->paths,
                                       .n_paths = column->n,
                                       .format = column->format};
        if (column->format >= DLP_ARRAY_CIFAR10)
            c.desc[k].name = NULL, cifar = 1;
        else if (draw(2))
            c.desc[k].format = DLP_ARRAY_AUTO;
        say(" format %d as %d in %" PRIu64 ";", column->format, c.desc[k].format, column->n);
    }
    want_arrays(&w, &c);
    if (mutated) worse(&w, PERHAPS, "it was changed");
    if (mutated || w.nameless) w.named = NULL;
    got_begin(&g, 0);
    if (dlp_arrays_open(&s, &c.d, &err) != DLP_OK)
        got_error(&g, &err);
    else
        collect(&g, s, &l, w.x.n);
    close_source(s, &g);
    return judge(&w, &g, strrchr(rig_dir, '/'));
}

#endif
