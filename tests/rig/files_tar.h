/* needs: files lines parts */
/* Random tar shards in each dialect, and the samples that a reader finds in them. Read at random,
   as whole parts, and by an expander. Behind files_random.h and files_index.h. */
#ifndef FILES_TAR_H
#define FILES_TAR_H

enum { TAR_BLOCK = 512, TAR_ROOM = 1 << 17, TAR_SHARD = 1 << 19, TAR_MOST = 400 };
enum { BY_INDEX, AS_PARTS, EXPANDED };

typedef struct tar_case {
    dlp_tar_desc d;
    dlp_loader_desc l;
    const char *paths[3];
    blob file[3];
    uint64_t written; /* samples that the writer wrote */
    int how;
} tar_case;

static const dlp_field tar_fields[] = {{"jpg", DLP_U8, 1, {TAR_ROOM}, 1, 0},
                                       {"cls", DLP_U8, 1, {TAR_ROOM}, 1, 0}};
static const dlp_field tar_whole[] = {{"sample", DLP_U8, 1, {TAR_ROOM}, 1, 0}};

/* ---- the writer ---- */

/* Write a number into n bytes of a header, as one of many programs does. */
static void tar_number(uint8_t *to, int n, uint64_t v) {
    char text[32];
    const uint64_t how = draw(6);
    memset(to, 0, (size_t)n);
    if (how == 0 && n == 12) {
        to[0] = 0x80;
        for (int i = 0; i < 8; i++) to[n - 1 - i] = (uint8_t)(v >> 8 * i);
        return;
    }
    snprintf(text, sizeof text, how < 3 ? "%0*" PRIo64 : "%*" PRIo64, n - 1, v);
    memcpy(to, text, (size_t)n - 1);
    if (how == 4) to[n - 1] = ' ';
}

static uint64_t tar_sum(const uint8_t *h, int is_signed) {
    int sum = 8 * ' ';
    for (int i = 0; i < TAR_BLOCK; i++)
        if (i < 148 || i >= 156) sum += is_signed ? (int8_t)h[i] : h[i];
    return (uint64_t)sum;
}

static void tar_seal(uint8_t *h) {
    char text[16];
    snprintf(text, sizeof text, draw(2) ? "%06o" : "%6o",
             (unsigned)tar_sum(h, draw(8) == 0) & 0777777);
    memcpy(h + 148, text, 6);
    h[154] = draw(2) ? 0 : ' ';
    h[155] = h[154] == 0 ? ' ' : 0;
}

/* Append a header, and the data of it in whole blocks. */
static void tar_block(blob *b, const char *name, const char *prefix, char type, const char *link,
                      const blob *data, uint64_t size) {
    static const char *const magics[] = {"ustar\00000", "ustar  ", "\0\0\0\0\0\0\0\0"};
    uint8_t *h = put(b, NULL, TAR_BLOCK);
    memcpy(h, name, strnlen(name, 100));
    for (int i = 100; i < 124; i += 8) tar_number(h + i, 8, draw(512));
    tar_number(h + 124, 12, size);
    tar_number(h + 136, 12, draw(UINT64_C(1) << 33));
    h[156] = (uint8_t)type;
    if (link != NULL) memcpy(h + 157, link, strnlen(link, 100));
    memcpy(h + 257, magics[prefix[0] ? 0 : draw(3)], 8);
    memcpy(h + 265, "root", 4);
    memcpy(h + 345, prefix, strlen(prefix));
    tar_seal(h);
    if (data == NULL) return;
    put(b, data->at, data->n);
    put(b, NULL, (TAR_BLOCK - data->n % TAR_BLOCK) % TAR_BLOCK);
}

/* Append a record "LENGTH key=value\n"; the length counts its own digits. */
static void pax_record(blob *b, const char *key, const char *value) {
    size_t n = strlen(key) + strlen(value) + 3, digits = 1, all;
    char text[24];
    for (all = n + digits; all >= 10; all /= 10) digits++;
    if (snprintf(text, sizeof text, "%zu", n + digits) != (int)digits) digits++;
    snprintf(text, sizeof text, "%zu ", n + digits);
    put_text(b, text);
    put_text(b, key);
    put_text(b, "=");
    put_text(b, value);
    put_text(b, "\n");
}

/* Append a member whose name is as long as it likes, by a prefix, GNU's L or a header of pax. */
static void tar_member(blob *b, const char *name, char type, const char *link, const blob *data) {
    const uint64_t how = draw(5), size = data != NULL ? data->n : 0;
    const int longer = strlen(name) > 100 || (link != NULL && strlen(link) > 100);
    const char *slash = strchr(name, '/');
    blob extra = {NULL, 0, 0};
    char text[24];
    if (slash != NULL && !longer && how == 0 && slash - name < 100) {
        char prefix[100] = "";
        memcpy(prefix, name, (size_t)(slash - name));
        if (prefix[0] != 0) {
            tar_block(b, slash + 1, prefix, type, link, data, size);
            return;
        }
    }
    if (how == 1 || how == 2 || longer) {
        if (how % 2) { /* GNU */
            if (link != NULL) put(&extra, link, strlen(link) + 1);
            if (link != NULL) tar_block(b, "././@LongLink", "", 'K', NULL, &extra, extra.n);
            extra.n = 0;
            put(&extra, name, strlen(name) + draw(2));
            tar_block(b, "././@LongLink", "", 'L', NULL, &extra, extra.n);
            tar_block(b, name, "", type, link, data, size);
            return;
        }
        if (draw(2)) pax_record(&extra, "mtime", "1700000000.123456789");
        pax_record(&extra, "path", name);
        if (draw(2)) pax_record(&extra, "comment", "two\nlines = of words");
        if (link != NULL) pax_record(&extra, "linkpath", link);
        snprintf(text, sizeof text, "%" PRIu64, size);
        if (how == 2) pax_record(&extra, "size", text);
        tar_block(b, "PaxHeaders/x", "", 'x', NULL, &extra, extra.n);
        tar_block(b, "cut", "", type, link, data, how == 2 && draw(2) ? draw(1 << 20) : size);
        return;
    }
    tar_block(b, name, "", type, link, data, size);
}

/* Append what belongs to no sample. */
static void tar_other(blob *b) {
    static const char types[] = "5234";
    blob words = {NULL, 0, 0};
    put_text(&words, "words\n");
    switch (draw(6)) {
    case 0: tar_member(b, "dir.x/", '5', NULL, NULL); break;
    case 1: tar_member(b, "a/.hidden.jpg", '0', NULL, &words); break;
    case 2: tar_member(b, "README", '0', NULL, &words); break;
    case 3: tar_member(b, "device.cls", types[1 + draw(3)], "a/b.jpg", NULL); break;
    case 4:
        words.n = 0;
        pax_record(&words, "comment", "of all members");
        tar_block(b, "pax_global_header", "", 'g', NULL, &words, words.n);
        break;
    default: tar_block(b, "volume.jpg", "", 'V', NULL, NULL, 0);
    }
}

static uint64_t tar_bytes(void) {
    static const uint64_t edges[] = {0, 1, 511, 512, 513, 1024};
    return draw(3) == 0 ? edges[draw(6)] : draw(300);
}

/* Names of members that a link may lead to. */
typedef struct tar_names {
    const char *name[64];
    uint64_t n;
} tar_names;

/* Append a hard link to any member before it, or to none. */
static void tar_link(blob *b, const char *name, const tar_names *before) {
    const char *to = draw(12) ? before->name[draw(before->n)] : "no/such.jpg";
    tar_member(b, name, '1', to, NULL);
}

/* Append a sample with a key. */
static void tar_sample(blob *b, const char *key, uint64_t bytes, tar_names *before) {
    static const char *const extensions[] = {"jpg", "cls", "seg.png", "JPG", "cls"};
    uint64_t n = 2 + draw(2), first = draw(2), lacks = has(F_TAR_UNSORTED, 20) ? draw(2) : 9;
    char name[5000];
    blob data = {NULL, 0, 0};
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t e = i < 2 ? i ^ first : 2;
        const char *extension = extensions[e == 0 && draw(4) == 0 ? 3 : e];
        if (e == lacks) continue;
        if (has(F_TAR_BEHIND, 60)) put(b, NULL, TAR_BLOCK * (1 + draw(2)));
        snprintf(name, sizeof name, "%s%s.%s", has(F_TAR_BARE, 30) ? draw(2) ? "./" : "/" : "", key,
                 extension);
        if (before->n > 0 && has(F_TAR_LINKS, 12)) {
            tar_link(b, name, before);
            continue;
        }
        data.n = 0;
        put_random(&data, i == 0 ? bytes : tar_bytes());
        tar_member(b, name, "0\0007"[draw(3)], NULL, &data);
        if (before->n < 64)
            before->name[before->n++] = copy_bytes((const uint8_t *)name, strlen(name));
    }
}

/* Write the key of sample k. */
static void tar_key(char *to, size_t size, uint64_t k) {
    static const char *const dirs[] = {"", "./", "train/", "a.b/c/", "d\xc3\xa9/"};
    static const char *const others[] = {"__MACOSX/", "@eaDir/", "PaxHeaders.7/", "PaxHeader/"};
    static const uint64_t lengths[] = {70, 150, 300, 3000};
    size_t n = (size_t)snprintf(to, size, "%s", dirs[draw(5)]);
    if (has(F_TAR_LONG, 8))
        for (uint64_t more = lengths[draw(4)]; more > 0; more--) to[n++] = more % 50 ? 'n' : '/';
    if (has(F_TAR_META, 10)) {
        const uint64_t how = draw(7); /* some of these names are those of samples */
        n += (size_t)snprintf(to + n, size - n, how < 4 ? "%sa%" PRIu64 : "%s%" PRIu64,
                              how < 4    ? others[how]
                              : how == 4 ? "__"
                                         : "__a",
                              k);
        if (how > 4) snprintf(to + n, size - n, how == 5 ? "__" : "_");
        return;
    }
    snprintf(to + n, size - n, "%06" PRIu64, k);
}

/* Write a shard of n samples. */
static void write_tar(tar_case *c, blob *b, uint64_t n) {
    const uint64_t outlier = has(F_OUTLIER, 10) ? draw(n) : UINT64_MAX;
    const int others = has(F_TAR_OTHERS, 2);
    char key[4200], first[4200] = "";
    tar_names before = {.n = 0};
    blob stray = {NULL, 0, 0};
    put_text(&stray, "{}");
    for (uint64_t k = 0; k < n; k++) {
        tar_key(key, sizeof key, c->written++);
        if (others && draw(3) == 0) tar_other(b);
        if (k > 1 && has(F_TAR_AGAIN, 12)) memcpy(key, first, sizeof key);
        tar_sample(b, key, k == outlier ? 100000 : tar_bytes(), &before);
        if (has(F_TAR_STRAY, 30))
            tar_member(b, draw(2) ? "meta.json" : "a/stray.txt", '0', NULL, &stray);
        if (k == 0) memcpy(first, key, sizeof key);
        if (k + 1 < n && has(F_TAR_BEHIND, 10)) put(b, NULL, TAR_BLOCK * (1 + draw(20)));
    }
    if (others) tar_other(b);
    put(b, NULL, TAR_BLOCK * (draw(4) == 0 ? 20 : 1 + draw(2)));
}

/* ---- the reader ---- */

/* Read octal digits, or base 256. Returns UINT64_MAX if there are none of either. */
static uint64_t read_octal(const uint8_t *at, int n) {
    uint64_t v = 0;
    int i = 0;
    if (at[0] & 0x80) {
        for (v = at[0] & 0x7f, i = 1; i < n && v < UINT64_C(1) << 52; i++) v = v << 8 | at[i];
        return i == n ? v : UINT64_MAX;
    }
    while (i < n && at[i] == ' ') i++;
    for (; i < n && at[i] >= '0' && at[i] < '8'; i++) v = 8 * v + at[i] - '0';
    return i == n || at[i] == 0 || at[i] == ' ' ? v : UINT64_MAX;
}

typedef struct tar_file {
    const char *name; /* of the whole path */
    const uint8_t *data;
    uint64_t bytes;
    size_t key; /* bytes of the key; 0: it has none */
    int apart;  /* it lies in another archive than the file before it */
} tar_file;

typedef struct tar_reader {
    tar_file *file; /* [n] regular files, in their order */
    uint64_t n;
    const char *name; /* of the next member, by pax or GNU; NULL: its own */
    uint64_t size;    /* UINT64_MAX: its own */
    uint64_t zeros;   /* bytes in front of the next file */
} tar_reader;

/* Take the records of a header of pax. */
static void read_pax(want *w, tar_reader *r, const uint8_t *at, uint64_t n) {
    while (n > 0) {
        uint64_t length = 0, i = 0, k, end;
        for (; i < n && at[i] >= '0' && at[i] <= '9' && length < n; i++)
            length = 10 * length + at[i] - '0';
        if (i == 0 || length > n || length < i + 3 || at[i] != ' ' || at[length - 1] != '\n') {
            worse(w, BAD, "a record of pax has no length");
            return;
        }
        for (k = ++i; k < length && at[k] != '='; k++) continue;
        end = length - 1;
        if (k - i == 4 && k < end && memcmp(at + i, "path", 4) == 0)
            r->name = copy_bytes(at + k + 1, end - k - 1);
        if (k - i == 4 && k < end && memcmp(at + i, "size", 4) == 0)
            r->size = strtoull(copy_bytes(at + k + 1, end - k - 1), NULL, 10);
        at += length;
        n -= length;
    }
}

/* True if a name is of a member about the shard, or lies in a directory that systems make. */
static int is_meta(const char *name, const char *base, const char *dot) {
    static const char *const others[] = {"__MACOSX/", "@eaDir/", "PaxHeader/", "PaxHeaders/",
                                         "PaxHeaders."};
    if (dot - base > 4 && !strncmp(base, "__", 2) && !strncmp(dot - 2, "__", 2)) return 1;
    for (const char *part = name; part < base; part = strchr(part, '/') + 1)
        for (int i = 0; i < 5; i++)
            if (strncmp(part, others[i], strlen(others[i])) == 0) return 1;
    return 0;
}

/* Bytes of the key of a name; 0: it is no name of a sample. */
static size_t key_of(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
    const char *dot = strchr(base, '.');
    if (dot == NULL || dot == base || is_meta(name, base, dot)) return 0;
    return (size_t)(dot - name);
}

/* True if a field of the source is made of a member. */
static int is_wanted(const tar_case *c, const tar_file *f) {
    if (f->key == 0 || c->d.decode != NULL) return f->key > 0;
    for (uint32_t k = 0; k < c->d.n_fields; k++)
        if (strcasecmp(f->name + f->key + 1, c->d.fields[k].name) == 0) return 1;
    return 0;
}

/* Return the name in a header. */
static const char *name_in(const uint8_t *h) {
    blob name = {NULL, 0, 0};
    if (memcmp(h + 257, "ustar\00000", 8) == 0 && h[345] != 0) {
        put(&name, h + 345, strnlen((const char *)h + 345, 155));
        put_text(&name, "/");
    }
    put(&name, h, strnlen((const char *)h, 100));
    return copy_bytes(name.at, name.n);
}

/* Take a member. Returns 0 if the shard is to be refused. */
static int read_member(want *w, tar_reader *r, const tar_case *c, const uint8_t *h, uint64_t size) {
    tar_file f = {r->name != NULL ? r->name : name_in(h), h + TAR_BLOCK, size, 0, 0};
    r->name = NULL;
    r->size = UINT64_MAX;
    f.key = key_of(f.name);
    if (h[156] == '5' || h[156] == 'D' || h[156] == 'V') return 1;
    if (h[156] >= '1' && h[156] <= '6') {
        if (is_wanted(c, &f) && !c->d.insist) worse(w, BAD, "%.60s is a link or a device", f.name);
        return 1;
    }
    if (h[156] != '0' && h[156] != 0 && h[156] != '7') {
        worse(w, BAD, "a member of type %d", h[156]);
        return 0;
    }
    if (f.key == 0) return 1;
    f.apart = r->zeros > TAR_BLOCK;
    r->zeros = 0;
    r->file[r->n++] = f;
    return 1;
}

/* Take the header at byte *at, and go behind its data. Returns 0 if the shard is to be refused. */
static int read_header(want *w, tar_reader *r, const tar_case *c, const blob *b, uint64_t *at) {
    const uint8_t *h = b->at + *at;
    const char *text = (const char *)h + TAR_BLOCK;
    uint64_t size = read_octal(h + 124, 12);
    const int about = h[156] != 0 && strchr("xgLK", h[156]) != NULL;
    if (!about && r->size != UINT64_MAX) size = r->size;
    if (h[156] >= '1' && h[156] <= '6') size = 0;
    if (size > b->n - *at - TAR_BLOCK) {
        worse(w, BAD, "the member at byte %" PRIu64 " is cut", *at);
        return 0;
    }
    *at += TAR_BLOCK + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    if (h[156] == 'L') r->name = copy_bytes(h + TAR_BLOCK, strnlen(text, size));
    if (h[156] == 'x') read_pax(w, r, h + TAR_BLOCK, size);
    return about || read_member(w, r, c, h, size);
}

/* Find the regular files of a shard. Archives may follow each other. Zeros end the last one. */
static void read_tar(want *w, tar_reader *r, const tar_case *c, const blob *b) {
    uint64_t at = 0, zeros = 0;
    r->file = keep(sizeof *r->file * (b->n / TAR_BLOCK + 1));
    while (at + TAR_BLOCK <= b->n) {
        const uint8_t *h = b->at + at;
        uint64_t sum = read_octal(h + 148, 8), k = 0;
        while (k < TAR_BLOCK && h[k] == 0) k++;
        if (k == TAR_BLOCK) {
            zeros += TAR_BLOCK;
            at += TAR_BLOCK;
            if (r->name != NULL || r->size != UINT64_MAX) worse(w, BAD, "zeros behind a header");
            continue;
        }
        if (sum != tar_sum(h, 0) && sum != tar_sum(h, 1) && sum != (tar_sum(h, 1) & 0777777)) {
            if (zeros == 0 || !c->d.insist) worse(w, BAD, "byte %" PRIu64 " is no header", at);
            return;
        }
        r->zeros += zeros;
        zeros = 0;
        if (!read_header(w, r, c, b, &at)) return;
    }
    for (; at < b->n && !c->d.insist; at++)
        if (b->at[at] != 0) worse(w, BAD, "bytes that are no block end it");
    if (zeros == 0) worse(w, BAD, "no block of zeros ends it");
}

/* Append a sample of n files to an item as the source gives it. */
static void want_sample(want *w, const tar_case *c, const tar_file *f, uint64_t n) {
    blob *item = items_add(&w->x), whole = {NULL, 0, 0};
    uint64_t fields = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < i; k++)
            if (strcasecmp(f[i].name + f[i].key, f[k].name + f[k].key) == 0)
                worse(w, BAD, "%.60s comes twice in a sample", f[i].name);
    if (n > 256) worse(w, BAD, "too many members");
    if (c->d.decode != NULL) {
        put(&whole, f->name, f->key);
        for (uint64_t i = 0; i < n; i++) {
            put_text(&whole, f[i].name + f[i].key);
            put_number(&whole, f[i].bytes, 4, 0);
            put(&whole, f[i].data, f[i].bytes);
        }
        put_number(item, whole.n, 8, 0);
        put(item, whole.at, whole.n);
        return;
    }
    for (uint32_t k = 0; k < c->d.n_fields; k++) {
        uint64_t i = 0;
        while (i < n && strcasecmp(f[i].name + f[i].key + 1, c->d.fields[k].name) != 0) i++;
        put_number(item, i < n ? f[i].bytes : 0, 8, 0);
        if (i < n) put(item, f[i].data, f[i].bytes);
        fields += i < n;
        if (i == n && !c->d.optional)
            worse(w, BAD, "%.60s has no %s", f->name, c->d.fields[k].name);
    }
    if (fields == 0) worse(w, BAD, "%.60s has no field", f->name);
}

/* Compare the samples of n[0] and n[1] files at a and b, whose keys are equal. They are two
   samples, or parts of one. */
static void want_again(want *w, const tar_file *a, const tar_file *b, const uint64_t n[2]) {
    uint64_t same = 0;
    for (uint64_t i = 0; i < n[0]; i++)
        for (uint64_t k = 0; k < n[1]; k++)
            same += strcmp(a[i].name + a[i].key, b[k].name + b[k].key) == 0;
    if (n[0] != n[1] || same != n[0]) worse(w, BAD, "%.60s has members in two places", a->name);
}

/* Bytes of a name that are ./ and / in front of it. */
static size_t front_of(const char *name) {
    size_t n = 0;
    while (name[n] == '/' || (name[n] == '.' && name[n + 1] == '/')) n += name[n] == '/' ? 1 : 2;
    return n;
}

/* True if two names have one key, but for ./ and / in front. */
static int same_key(const tar_file *a, const tar_file *b) {
    const size_t x = front_of(a->name), y = front_of(b->name);
    return a->key - x == b->key - y && memcmp(a->name + x, b->name + y, a->key - x) == 0;
}

/* Find the samples among the files of a shard. */
static void want_samples(want *w, const tar_case *c, const tar_reader *r) {
    uint64_t *from = keep(sizeof *from * (r->n + 1)), n = 0;
    int warns = r->n == 0;
    for (uint64_t i = 0; i < r->n; i++) {
        const int goes_on = i > 0 && !r->file[i].apart && same_key(&r->file[i - 1], &r->file[i]);
        if (!goes_on) from[n++] = i;
    }
    from[n] = r->n;
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t k = i; k-- > 0 && !c->d.insist;) {
            const uint64_t files[2] = {from[k + 1] - from[k], from[i + 1] - from[i]};
            if (!same_key(&r->file[from[k]], &r->file[from[i]])) continue;
            want_again(w, &r->file[from[k]], &r->file[from[i]], files);
            warns = 1;
            break;
        }
        want_sample(w, c, &r->file[from[i]], from[i + 1] - from[i]);
    }
    w->warns += warns;
}

static void want_tar(want *w, const void *of) {
    const tar_case *c = of;
    for (uint64_t k = 0; k < c->d.n_paths; k++) {
        tar_reader r = {.size = UINT64_MAX};
        read_tar(w, &r, c, &c->file[k]);
        want_samples(w, c, &r);
    }
    if (c->how != BY_INDEX) w->warns = 0; /* nobody tells those of shards that are loaded whole */
    w->nameless = w->x.n == 0 && c->how != BY_INDEX;
    if (w->x.n == 0) worse(w, BAD, "there are no samples");
}

/* ---- the library ---- */

static int tar_decode(void *user, void *state, dlp_item *item, const dlp_tar_sample *s) {
    uint8_t *to = item->data[0];
    uint64_t n = strlen(s->key);
    (void)user;
    (void)state;
    memcpy(to, s->key, n);
    for (uint32_t i = 0; i < s->n_members; i++) {
        const dlp_tar_member *m = &s->members[i];
        const size_t extension = strlen(m->extension);
        to[n++] = '.';
        memcpy(to + n, m->extension, extension);
        n += extension;
        for (int k = 0; k < 4; k++) to[n++] = (uint8_t)(m->bytes >> 8 * k);
        memcpy(to + n, m->data, m->bytes);
        n += m->bytes;
    }
    item->length[0] = n;
    return 0;
}

static void open_parts(got *g, const tar_case *c, uint64_t most) {
    dlp_part_file file[3];
    const dlp_part_files files = {.files = file, .n_files = c->d.n_paths};
    dlp_tar_parts t = {&c->d, dlp_part_files_load, (void *)(uintptr_t)&files};
    dlp_loader_desc l = c->l;
    dlp_error err = {0};
    dlp_pipe *p = NULL;
    for (uint64_t i = 0; i < c->d.n_paths; i++) file[i] = (dlp_part_file){.path = c->paths[i]};
    l.shuffle = 0;
    l.dataset = (dlp_dataset){
        .fields = c->d.fields, .n_fields = c->d.n_fields, .fetch = dlp_tar_fetch, .user = &t};
    l.parts = (dlp_node_load){.n_parts = c->d.n_paths,
                              .max_part_bytes = TAR_SHARD,
                              .max_items = TAR_MOST,
                              .load = dlp_tar_load,
                              .user = &t};
    got_begin(g, most);
    g->by_arrival = 1;
    if (dlp_loader_open(&p, &l, &err) != DLP_OK)
        got_error(g, &err);
    else
        drain(g, p);
}

static void open_expanded(got *g, const tar_case *c, uint64_t most) {
    static const dlp_field shard = {"shard", DLP_U8, 1, {TAR_SHARD}, 1, 0};
    const dlp_files_desc f = {
        .n_items = c->d.n_paths, .paths = c->paths, .fields = &shard, .n_fields = 1};
    dlp_source *s = NULL;
    dlp_error err = {0};
    dlp_pipe *p = NULL;
    CHECK(dlp_files_open(&s, &f, &err) == DLP_OK);
    {
        const dlp_node nodes[] = {
            {.name = "shards", .verb = DLP_LIST},
            {.name = "read", .verb = DLP_FETCH, .fetch = {.source = s}},
            {.name = "samples",
             .verb = DLP_EXPAND,
             .expand = {.expand = dlp_tar_expand,
                        .user = (void *)(uintptr_t)&c->d,
                        .max_out = TAR_MOST,
                        .fields = c->d.fields,
                        .n_fields = c->d.n_fields},
             .workers = {.num_workers = 1}},
            {.name = "batch", .verb = DLP_BATCH, .batch = {.batch_size = c->l.batch_size}}};
        got_begin(g, most);
        g->by_arrival = 1;
        if (dlp_pipe_open(&p, DLP_NODES(nodes), NULL, &err) != DLP_OK)
            got_error(g, &err);
        else
            drain(g, p);
    }
    close_source(s, g);
}

static uint64_t open_tar(got *g, const void *of, uint64_t most) {
    const tar_case *c = of;
    dlp_source *s = NULL;
    dlp_error err = {0};
    uint64_t found;
    if (c->how == AS_PARTS) open_parts(g, c, most);
    if (c->how == EXPANDED) open_expanded(g, c, most);
    if (c->how != BY_INDEX) return 0;
    got_begin(g, 0);
    if (dlp_tar_open(&s, &c->d, &err) != DLP_OK) {
        got_error(g, &err);
        return 0;
    }
    found = dlp_index_describe(s)->found;
    collect(g, s, &c->l, most);
    close_source(s, g);
    return found;
}

/* Draw which fields the source makes of a sample. */
static void draw_tar_fields(tar_case *c) {
    const uint64_t how = draw(6), first = draw(2);
    c->d.fields = how < 3 ? tar_whole : how == 3 ? tar_fields + first : tar_fields;
    c->d.n_fields = how > 3 ? 2 : 1;
    c->d.decode = how < 3 ? tar_decode : NULL;
    c->d.optional = how >= 3 && draw(2);
    say(" %s, %u fields, optional %d;", how < 3 ? "decode" : c->d.fields[0].name, c->d.n_fields,
        c->d.optional);
}

/* Want other fields of the same shards, for which their index files stand, too. */
static void tar_other_fields(void *of) { draw_tar_fields(of); }

static int tar_case_run(void) {
    static const char *const ways[] = {"at random", "as parts", "expanded"};
    static tar_case c;
    const int mutated = has(F_MUTATED, 3);
    memset(&c, 0, sizeof c);
    c.how = draw(2) ? BY_INDEX : (int)draw(3);
    c.d.paths = c.paths;
    c.d.n_paths = 1 + draw(3);
    draw_tar_fields(&c);
    c.d.insist = has(F_TAR_BEHIND, 1) && draw(4) == 0;
    c.d.threads = (int)draw(3);
    c.d.in_flight = (int)draw(5);
    c.d.use_threads = draw(3) == 0;
    say(" tar: %" PRIu64 " shards %s, insist %d, threads %d, in_flight %d, use_threads %d;",
        c.d.n_paths, ways[c.how], c.d.insist, c.d.threads, c.d.in_flight, c.d.use_threads);
    c.l = draw_loader(1);
    for (uint64_t i = 0; i < c.d.n_paths; i++) {
        c.paths[i] = case_path("shard", i, ".tar");
        write_tar(&c, &c.file[i], draw(10));
        if (mutated && draw(c.d.n_paths) == 0) mutate(&c.file[i], TAR_BLOCK, has(F_TAR_BEHIND, 1));
        if (mutated && draw(30) == 0) make_foreign(&c.file[i]);
        write_at(c.paths[i], &c.file[i]);
    }
    return run_indexed(&(indexed_case){want_tar, open_tar, &c, &c.d.index, c.paths, c.file,
                                       c.d.n_paths, TAR_BLOCK, mutated, 1, tar_other_fields});
}

#endif
