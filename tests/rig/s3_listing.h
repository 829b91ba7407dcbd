/* A bucket to be listed: pages of any sorted keys, for s3_mock's script.

     s3_listing room = {.keys = keys, .n = n, .delay_ms = 75};
     mock->script = s3_listing_serve, mock->user = &room;

   Fields bend what S3 does. The only delimiter is "/". With walks, it is a server that keeps keys
   as files, and walks the tree of folders as SeaweedFS does: sort the keys by s3_listing_by_tree.
   Include behind s3_mock.h. */
#ifndef S3_LISTING_H
#define S3_LISTING_H

enum { S3_LISTING_WELL = 0, S3_LISTING_IGNORES, S3_LISTING_REFUSES, S3_LISTING_INCLUSIVE };

typedef struct s3_listing {
    const char *const *keys; /* in order of their bytes */
    const char *server;      /* header Server; NULL: none */
    int n;
    int delay_ms;
    int plain;         /* 1: keys are not escaped, but as XML wants them */
    int start_after;   /* S3_LISTING_*: what becomes of it */
    int uneven;        /* 1: pages have fewer keys than are asked for, some none, and go on */
    int walks;         /* 1: it lists the tree: "a/b" before "a!"; behind a folder's name, what
                          follows the folder; behind "a//", keys "a//b" that do not exist */
    int flickers;      /* 1: each seventh key is there for every third request only */
    int swapped;       /* the keys i and i + 1 of the bucket change places, if not 0 */
    int fail_every;    /* each so many-th request is answered by fail_status; 0: none */
    int fail_status;   /* and its code */
    int asked, failed; /* requests so far */
    int split;         /* those that begin behind a start-after without "/", */
    int surveys;       /* and those with a delimiter */
    char *page;
    size_t size, bytes;
} s3_listing;

static void s3_listing_put(s3_listing *b, const char *text, size_t n) {
    if (b->bytes + n + 1 > b->size) {
        b->size = 2 * (b->bytes + n + 1);
        b->page = realloc(b->page, b->size);
        if (!b->page) abort();
    }
    memcpy(b->page + b->bytes, text, n);
    b->bytes += n;
    b->page[b->bytes] = '\0';
}

static void s3_listing_puts(s3_listing *b, const char *text) {
    s3_listing_put(b, text, strlen(text));
}

static void s3_listing_key(s3_listing *b, const char *key) {
    static const char digits[] = "0123456789ABCDEF";
    char text[8 * 1024 + 8];
    size_t n = 0;
    for (; *key; key++) {
        unsigned char c = (unsigned char)*key;
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            strchr("-_.~/", c)) {
            text[n++] = (char)c;
        } else if (!b->plain && c == ' ') {
            text[n++] = '+';
        } else if (!b->plain) {
            text[n++] = '%', text[n++] = digits[c >> 4], text[n++] = digits[c & 15];
        } else if (c < ' ' || strchr("<>&\"'", c)) {
            n += (size_t)snprintf(text + n, 8, "&#%d;", c);
        } else {
            text[n++] = (char)c;
        }
    }
    s3_listing_put(b, text, n);
}

/* A parameter's value, unescaped; "" if there is none. */
static void s3_listing_param(const char *query, const char *name, char *to, size_t size) {
    size_t n = strlen(name), k = 0;
    unsigned value;
    to[0] = '\0';
    for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&') {
        if (strncmp(at, name, n) != 0 || at[n] != '=') continue;
        for (at += n + 1; *at && *at != '&' && k + 1 < size; at++, k++) {
            to[k] = *at;
            if (*at != '%' || sscanf(at + 1, "%2x", &value) != 1) continue;
            to[k] = (char)value;
            at += 2;
        }
        to[k] = '\0';
    }
}

/* The order in which a tree of folders is walked: '/' is before all other bytes. */
static int s3_listing_tree_order(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    if (!*a || !*b) return (*a != 0) - (*b != 0);
    if (*a == '/' || *b == '/') return (*b == '/') - (*a == '/');
    return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

S3_MOCK int s3_listing_by_tree(const void *a, const void *b) {
    return s3_listing_tree_order(*(const char *const *)a, *(const char *const *)b);
}

/* The first key behind after, or from it on. */
static int s3_listing_find(const s3_listing *b, const char *after, int inclusive) {
    int low = 0, high = b->n;
    size_t n = strlen(after);
    while (low < high) {
        int mid = low + (high - low) / 2;
        if ((b->walks ? s3_listing_tree_order(b->keys[mid], after) : strcmp(b->keys[mid], after)) <
            (inclusive ? 0 : 1))
            low = mid + 1;
        else
            high = mid;
    }
    while (b->walks && !inclusive && n > 0 && low < b->n && strncmp(b->keys[low], after, n) == 0 &&
           b->keys[low][n] == '/')
        low++; /* it is the name of a folder, which is passed over */
    return low;
}

/* Where a page begins. Keys from `from` on; before them made-up ones of the `ghosts` keys there,
   whose folder's name has `folder` bytes. */
typedef struct s3_listing_place {
    int at, from, ghosts, folder;
} s3_listing_place;

static s3_listing_place s3_listing_begin(const s3_listing *b, const char *after,
                                         const char *prefix) {
    const char *twice = b->walks ? strstr(after, "//") : NULL;
    s3_listing_place p = {0, 0, 0, 0};
    if (twice && twice > after) {
        char folder[1100];
        snprintf(folder, sizeof folder, "%.*s/", (int)(twice - after), after);
        p.folder = (int)(twice - after);
        p.from = s3_listing_find(b, folder, 1);
        while (p.from + p.ghosts < b->n &&
               strncmp(b->keys[p.from + p.ghosts], folder, strlen(folder)) == 0)
            p.ghosts++;
    }
    if (p.ghosts > 0) return p;
    p.from = s3_listing_find(b, after, b->start_after == S3_LISTING_INCLUSIVE);
    if (s3_listing_find(b, prefix, 1) > p.from) p.from = s3_listing_find(b, prefix, 1);
    return p;
}

/* The i-th key of a list that begins at a place; NULL: there is none. */
static const char *s3_listing_at(const s3_listing *b, const s3_listing_place *p, int i,
                                 const char *prefix, char *text, size_t size) {
    int k = p->from + (i < p->ghosts ? i : i - p->ghosts);
    const char *key;
    if (k >= b->n) return NULL;
    if (b->swapped && (k == b->swapped || k == b->swapped + 1)) k = 2 * b->swapped + 1 - k;
    key = b->keys[k];
    if (strncmp(key, prefix, strlen(prefix)) != 0) return NULL;
    if (i >= p->ghosts) return key;
    snprintf(text, size, "%.*s/%s", p->folder, key, key + p->folder);
    return text;
}

/* Write an object, or the common prefix of so many bytes of a key. */
static void s3_listing_entry(s3_listing *b, const char *key, size_t prefix, int i) {
    char text[1100];
    if (prefix > 0) {
        snprintf(text, sizeof text, "%.*s", (int)prefix, key);
        s3_listing_puts(b, "<CommonPrefixes><Prefix>");
        s3_listing_key(b, text);
        s3_listing_puts(b, "</Prefix></CommonPrefixes>");
        return;
    }
    s3_listing_puts(b, "<Contents><Key>");
    s3_listing_key(b, key);
    snprintf(text, sizeof text,
             "</Key><LastModified>2009-10-12T17:50:%02d.000Z</LastModified><ETag>"
             "&quot;%032x&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass>"
             "</Contents>",
             i % 60, (unsigned)i, i);
    s3_listing_puts(b, text);
}

/* Write the entries of a page, at most `left`. Returns the number behind the last one. */
static int s3_listing_entries(s3_listing *b, const s3_listing_place *p, const char *prefix,
                              int levels, int left) {
    char text[2200], last[1100] = "";
    const char *key;
    int at = p->at;
    for (; (key = s3_listing_at(b, p, at, prefix, text, sizeof text)) != NULL; at++) {
        const char *slash = levels ? strchr(key + strlen(prefix), '/') : NULL;
        size_t n = slash ? (size_t)(slash - key) + 1 : 0;
        if (b->flickers && (p->from + at) % 7 == 3 && b->asked % 3) continue;
        if (n > 0 && strncmp(key, last, n) == 0 && !last[n]) continue;
        if (left-- == 0) break;
        if (levels) snprintf(last, sizeof last, "%.*s", (int)n, key);
        s3_listing_entry(b, key, n, at < p->ghosts ? at : p->from + at - p->ghosts);
    }
    return at;
}

static void s3_listing_serve(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    static char head[200];
    s3_listing *b = user;
    char prefix[1100], after[1100], text[200], token[80], most[16], delimiter[16];
    s3_listing_place p;
    int left;
    b->asked++;
    r->delay_ms = b->delay_ms;
    snprintf(head, sizeof head, "Server: %s\r\n", b->server ? b->server : "");
    if (b->server) r->headers = head;
    s3_listing_param(q->query, "prefix", prefix, sizeof prefix);
    s3_listing_param(q->query, "start-after", after, sizeof after);
    s3_listing_param(q->query, "continuation-token", token, sizeof token);
    s3_listing_param(q->query, "max-keys", most, sizeof most);
    s3_listing_param(q->query, "delimiter", delimiter, sizeof delimiter);
    b->surveys += delimiter[0] != 0;
    b->split += after[0] && !strchr(after, '/');
    if (b->fail_every && b->asked % b->fail_every == 0) {
        b->failed++;
        r->status = b->fail_status, r->s3_code = "AccessDenied";
        return;
    }
    if (after[0] && b->start_after == S3_LISTING_REFUSES) {
        r->status = 400, r->s3_code = "InvalidArgument";
        return;
    }
    if (b->start_after == S3_LISTING_IGNORES) after[0] = '\0';
    p = s3_listing_begin(b, after, prefix);
    if (token[0] && sscanf(token, "i%d.%d.%d.%d", &p.at, &p.from, &p.ghosts, &p.folder) != 4)
        abort();
    left = most[0] && atoi(most) < 1000 ? atoi(most) : 1000;
    if (b->uneven) left = b->asked * 7 % 11 * left / 10 % (left + 1);
    b->bytes = 0;
    s3_listing_puts(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                       "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>");
    if (!b->plain) s3_listing_puts(b, "<EncodingType>url</EncodingType>");
    p.at = s3_listing_entries(b, &p, prefix, delimiter[0] != 0, left);
    {
        char key[2200];
        const char *more = s3_listing_at(b, &p, p.at, prefix, key, sizeof key);
        snprintf(text, sizeof text,
                 "<NextContinuationToken>i%d.%d.%d.%d.%d</NextContinuationToken>"
                 "<IsTruncated>true</IsTruncated></ListBucketResult>",
                 p.at, p.from, p.ghosts, p.folder, b->asked);
        s3_listing_puts(b, more ? text : "<IsTruncated>false</IsTruncated></ListBucketResult>");
    }
    r->status = 200;
    r->body = b->page, r->body_bytes = b->bytes;
}

#endif
