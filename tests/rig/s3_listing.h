/* A bucket to be listed: pages of any sorted keys, for s3_mock's script.

     s3_listing room = {.keys = keys, .n = n, .delay_ms = 75};
     mock->script = s3_listing_serve, mock->user = &room;

   Fields bend what S3 does. No delimiters. Include behind s3_mock.h. */
#ifndef S3_LISTING_H
#define S3_LISTING_H

enum { S3_LISTING_WELL = 0, S3_LISTING_IGNORES, S3_LISTING_REFUSES, S3_LISTING_INCLUSIVE };

typedef struct s3_listing {
    const char *const *keys; /* in order of their bytes */
    int n;
    int delay_ms;
    int plain;         /* 1: keys are not escaped, but as XML wants them */
    int start_after;   /* S3_LISTING_*: what becomes of it */
    int uneven;        /* 1: pages have fewer keys than are asked for, some none, and go on */
    int swapped;       /* the keys i and i + 1 of the bucket change places, if not 0 */
    int fail_every;    /* each so many-th request is answered by fail_status; 0: none */
    int fail_status;   /* and its code */
    int asked, failed; /* requests so far */
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

/* The first key behind after, or from it on. */
static int s3_listing_find(const s3_listing *b, const char *after, int inclusive) {
    int low = 0, high = b->n;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (strcmp(b->keys[mid], after) < (inclusive ? 0 : 1))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void s3_listing_serve(void *user, const s3_mock_request *q, s3_mock_reply *r) {
    s3_listing *b = user;
    char prefix[1100], after[1100], text[200], token[32], most[16];
    int at, left;
    b->asked++;
    r->delay_ms = b->delay_ms;
    s3_listing_param(q->query, "prefix", prefix, sizeof prefix);
    s3_listing_param(q->query, "start-after", after, sizeof after);
    s3_listing_param(q->query, "continuation-token", token, sizeof token);
    s3_listing_param(q->query, "max-keys", most, sizeof most);
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
    at = s3_listing_find(b, after, b->start_after == S3_LISTING_INCLUSIVE);
    if (strcmp(after, prefix) < 0) at = s3_listing_find(b, prefix, 1);
    if (token[0]) at = atoi(token + 1);
    left = most[0] && atoi(most) < 1000 ? atoi(most) : 1000;
    if (b->uneven) left = b->asked * 7 % 11 * left / 10 % (left + 1);
    b->bytes = 0;
    s3_listing_puts(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                       "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>");
    if (!b->plain) s3_listing_puts(b, "<EncodingType>url</EncodingType>");
    for (; at < b->n && left > 0; at++, left--) {
        int i = at;
        if (b->swapped && (at == b->swapped || at == b->swapped + 1)) i = 2 * b->swapped + 1 - at;
        if (strncmp(b->keys[i], prefix, strlen(prefix)) != 0) break;
        s3_listing_puts(b, "<Contents><Key>");
        s3_listing_key(b, b->keys[i]);
        snprintf(text, sizeof text,
                 "</Key><LastModified>2009-10-12T17:50:%02d.000Z</LastModified><ETag>"
                 "&quot;%032x&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass>"
                 "</Contents>",
                 i % 60, (unsigned)i, i);
        s3_listing_puts(b, text);
    }
    if (at < b->n && left == 0 && strncmp(b->keys[at], prefix, strlen(prefix)) == 0) {
        snprintf(text, sizeof text,
                 "<NextContinuationToken>i%d.%d</NextContinuationToken>"
                 "<IsTruncated>true</IsTruncated></ListBucketResult>",
                 at, b->asked);
        s3_listing_puts(b, text);
    } else {
        s3_listing_puts(b, "<IsTruncated>false</IsTruncated></ListBucketResult>");
    }
    r->status = 200;
    r->body = b->page, r->body_bytes = b->bytes;
}

#endif
