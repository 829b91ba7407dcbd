/* needs: parts */
#pragma once
/* tests: system/s3/s3_source, system/shm/shm_s3 */
#include "api/s3_source_parts.h"
#include "s3/source.h"
#include "s3/manifest.h"
/* ---- parts ---- */

static int dlpi_s3_part_complain(const dlp_part *part, const dlp_s3_request *r) {
    char text[256];
    dlpi_s3_words(r, text, sizeof text);
    dlp_fail(part->call, r->error.errnum, "%s", text);
    return r->code == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK;
}

/* Find the manifest's entry of a part. Returns 0, or DLP_ERR_CALLBACK if there is none. */
static int dlpi_s3_part_entry(const dlpi_s3_source *s, const dlp_part *part, dlp_s3_entry *at) {
    *at = (dlp_s3_entry){"", 0, 0, 0, ""};
    if (dlp_s3_manifest_get(s->d.manifest, part->index, at) == DLP_OK) return 0;
    return dlp_fail(part->call, 0, "the manifest has only %llu entries; lower n_parts",
                    (unsigned long long)dlp_s3_manifest_count(s->d.manifest));
}

/* Compare an object's bytes with the manifest's, if known. Returns 0, or DLP_ERR_CALLBACK. */
static int dlpi_s3_part_size(const dlpi_s3_source *s, const dlp_part *part, const dlp_s3_entry *at,
                             uint64_t bytes) {
    char text[256];
    uint64_t said = dlpi_s3_bytes(at->length);
    if (at->length == 0 || bytes == said) return 0;
    dlpi_s3_src_place(s->bucket, at->key, text, sizeof text);
    return dlp_fail(part->call, 0, "%s: has %llu bytes, the manifest says %llu; list it again",
                    text, (unsigned long long)bytes, (unsigned long long)said);
}

/* Read a part's bytes to the memory at to. etag: NULL, or the ETag that the object must have if it
   is strong and the manifest has none. Returns 0, DLP_ERR_LENGTH or DLP_ERR_CALLBACK. */
static int dlpi_s3_part_get(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                            const dlp_s3_entry *at, void *to, uint64_t capacity, const char *etag,
                            dlp_s3_request *r) {
    uint64_t is;
    dlpi_s3_src_ask(s, r, at, to, capacity);
    if (etag && etag[0] == '"' && !r->if_match) dlpi_s3_held_to(r, etag, DLPI_S3_BY_HEAD);
    dlpi_s3_src_wait(s, io, dlpi_s3_pipe_of(part->call), r);
    if (dlpi_s3_other_size(r, at, &is)) return dlpi_s3_part_size(s, part, at, is);
    return r->code == DLP_OK ? 0 : dlpi_s3_part_complain(part, r);
}

DLPDEF int dlp_s3_part_load(void *source, dlp_part *part) {
    dlpi_s3_source *s = source;
    dlpi_s3_worker *w = part->worker_state;
    dlpi_s3_get *q;
    dlp_s3_entry at;
    int rc = dlpi_s3_part_entry(s, part, &at);
    if (rc != 0) return rc;
    if (!dlpi_s3_is_worker(part->call, w) || w->source != s)
        return dlp_fail(part->call, 0,
                        "give the objects as load.source; its workers have the connections");
    q = dlpi_s3_lend(w, true);
    rc = dlpi_s3_part_get(s, &q->io, part, &at, part->data, part->capacity, NULL, &q->request);
    if (rc == 0) part->bytes = q->request.received;
    dlpi_s3_src_give(w, q);
    return rc;
}

/* Ask by HEAD for an object. r->etag gets its ETag, at->length the bytes to download. Returns 0 or
   an error code. */
static int dlpi_s3_download_size(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                                 dlp_s3_entry *at, dlp_s3_request *r) {
    int rc;
    dlpi_s3_src_ask(s, r, at, NULL, 0);
    r->method = DLP_S3_HEAD;
    r->offset = r->length = 0;
    if (dlpi_s3_src_wait(s, io, dlpi_s3_pipe_of(part->call), r) != DLP_OK)
        return dlpi_s3_part_complain(part, r);
    if (at->offset != DLP_S3_WHOLE && at->offset > r->object_bytes)
        return dlp_fail(part->call, 0,
                        "%s: has %llu bytes, the manifest's offset is %llu; list it again", at->key,
                        (unsigned long long)r->object_bytes, (unsigned long long)at->offset);
    rc = at->offset == DLP_S3_WHOLE ? dlpi_s3_part_size(s, part, at, r->object_bytes) : 0;
    if (at->length == 0 || at->offset == DLP_S3_WHOLE)
        at->length = r->object_bytes - (at->offset == DLP_S3_WHOLE ? 0 : at->offset);
    return rc;
}

/* Download an entry into a file by way of a mapping. The file's blocks are allocated first, so that
   a full disk is an error and no SIGBUS. Returns 0 or an error code. */
static int dlpi_s3_download_to(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                               const dlp_s3_entry *at, const char *etag, int fd) {
    dlp_s3_request r;
    void *map;
    int rc = dlpi_file_may_be(at->length) ? posix_fallocate(fd, 0, (off_t)at->length) : errno;
    if (rc != 0) return dlp_fail(part->call, rc, "%s: %s", at->key, strerror(rc));
    map = mmap(NULL, (size_t)at->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return dlp_fail(part->call, errno, "%s: mmap: %s", at->key, strerror(errno));
    rc = dlpi_s3_part_get(s, io, part, at, map, at->length, etag, &r);
    munmap(map, (size_t)at->length);
    return rc;
}

/* Download a part into the file fd. *io: the client's loop, opened if it is NULL. Returns 0 or a
   failure's code, said in the part's call. */
static int dlpi_s3_download(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part, int fd) {
    dlp_s3_request head;
    dlp_s3_entry at;
    int rc = dlpi_s3_part_entry(s, part, &at);
    if (rc == 0) rc = dlpi_s3_download_size(s, io, part, &at, &head);
    if (rc != 0 || at.length == 0) return rc;
    return dlpi_s3_download_to(s, io, part, &at, head.etag, fd);
}

DLPDEF int dlp_s3_part_download(void *source, const dlp_part *part, const char *path DLPI_UNREAD,
                                int fd) {
    const dlpi_s3_source *s = source;
    dlpi_s3_worker *w = part->worker_state;
    dlp_s3_io *io = NULL;
    dlpi_s3_get *q;
    int rc;
    if (!dlpi_s3_is_worker(part->call, w) || w->source->d.s3 != s->d.s3) {
        rc = dlpi_s3_download(s, &io, part, fd);
        dlp_s3_io_close(io);
        return rc;
    }
    q = dlpi_s3_lend(w, true);
    rc = dlpi_s3_download(s, &q->io, part, fd);
    dlpi_s3_src_give(w, q);
    return rc;
}

/* Fill in a desc of parts as far as the source knows it: dlp_source.parts. */
static void dlpi_s3_parts(const dlp_source *source, dlp_node_load *parts) {
    dlpi_s3_source *s = (dlpi_s3_source *)(uintptr_t)source;
    parts->n_parts = dlp_s3_manifest_count(s->d.manifest);
    parts->manifest_id = dlp_s3_manifest_id(s->d.manifest);
    if (parts->count == NULL && parts->max_items == 0 && parts->items == NULL)
        parts->items = s->d.manifest->items;
    if (parts->max_part_bytes == 0) parts->max_part_bytes = s->longest;
    if (parts->load == NULL) {
        parts->load = dlp_s3_part_load;
        parts->user = s;
    }
}
