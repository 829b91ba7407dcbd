/* needs: parts */
/* As inside.h, of pushes, and what a hostile program could make of one. */
#ifndef INSIDE_PUSH_H
#define INSIDE_PUSH_H

#ifdef __linux__
#include <sys/un.h>
#endif
#include "inside.h"

typedef struct inside_push_head { /* what the memory of a push begins with */
    uint64_t magic;
    uint32_t version, flags;
    uint64_t rest[8];
} inside_push_head;
enum { INSIDE_PUSH_RAGGED = 1 }; /* a flag */

INSIDE const void *inside_push_memory(const dlp_push *push, uint64_t *bytes);
INSIDE dlp_mpsc *inside_push_bundle(const dlp_push *push);
INSIDE dlp_mpsc_tx *inside_pusher_tx(dlp_pusher *u);
INSIDE void inside_pusher_forget(dlp_pusher *u); /* no item is begun */
/* The reader of a dataset, but of a callback around its own. The last one made is there. */
INSIDE const struct dlpi_reader *inside_reader(const struct dlpi_reader *of, dlp_item_fn fetch);
INSIDE int inside_reads_on(dlp_pipe *p); /* fetch has a reader */
INSIDE int inside_only_yields(dlp_pipe *p);
INSIDE int inside_cpu_count(void);
/* Memory as that of a push. */
INSIDE int inside_push_map(uint64_t bytes, int *fd, void **map);
/* How long each waits. */
INSIDE void inside_pusher_wait(const dlp_pusher *u, uint32_t *spin_ns, uint32_t *yields);
INSIDE void inside_push_wait(const dlp_push *push, uint32_t *spin_ns, uint32_t *yields);
/* Hand out a file as the memory of a push; NULL: err says why not. */
INSIDE void *inside_door_open(const char *path, int memory, dlp_error *err);
INSIDE void inside_door_close(void *door, const char *path);
struct sockaddr_un;
INSIDE int inside_door_address(struct sockaddr_un *to, const char *path);

#ifdef DLPIPE_IMPLEMENTATION_DONE

_Static_assert(sizeof(inside_push_head) == sizeof(dlpi_push_head) &&
                   (int)INSIDE_PUSH_RAGGED == (int)DLPI_PUSH_RAGGED &&
                   offsetof(inside_push_head, flags) == offsetof(dlpi_push_head, flags),
               "the same");

INSIDE const void *inside_push_memory(const dlp_push *push, uint64_t *bytes) {
    *bytes = push->was.total_bytes;
    return push->head;
}
INSIDE dlp_mpsc *inside_push_bundle(const dlp_push *push) {
    return dlpi_at(push->head, push->was.bundle_at);
}
INSIDE dlp_mpsc_tx *inside_pusher_tx(dlp_pusher *u) { return &u->tx; }
INSIDE void inside_pusher_forget(dlp_pusher *u) { u->record = NULL; }

INSIDE const struct dlpi_reader *inside_reader(const struct dlpi_reader *of, dlp_item_fn fetch) {
    static dlpi_reader reader;
    reader = *of;
    reader.fetch = fetch;
    return &reader;
}
INSIDE int inside_reads_on(dlp_pipe *p) { return p->fetch->ops != &dlpi_fetch_ops; }
INSIDE int inside_only_yields(dlp_pipe *p) { return p->wait.only_yields; }
INSIDE int inside_cpu_count(void) { return dlpi_cpu_count(); }

INSIDE void inside_pusher_wait(const dlp_pusher *u, uint32_t *spin_ns, uint32_t *yields) {
    *spin_ns = u->tx.lane.spin_ns;
    *yields = u->tx.lane.yields;
}
INSIDE void inside_push_wait(const dlp_push *push, uint32_t *spin_ns, uint32_t *yields) {
    *spin_ns = push->rx.spin_ns;
    *yields = push->rx.yields;
}

INSIDE int inside_push_map(uint64_t bytes, int *fd, void **map) {
    const char *call;
    return dlpi_memory_file(fd, map, "dlpipe-push", bytes, false, &call);
}

#ifndef DLPIPE_THREADS_ONLY
INSIDE void *inside_door_open(const char *path, int memory, dlp_error *err) {
    dlpi_door *door = calloc(1, sizeof *door);
    if (door == NULL) return NULL;
    *door = (dlpi_door){.memory = memory, .reader = dlpi_pidfd_open(getpid())};
    if (dlpi_door_open(door, path, err) == DLP_OK) return door;
    close(door->reader);
    free(door);
    return NULL;
}
INSIDE void inside_door_close(void *door, const char *path) {
    dlpi_door *d = door;
    dlpi_door_close(d, path);
    close(d->reader);
    free(d);
}
INSIDE int inside_door_address(struct sockaddr_un *to, const char *path) {
    return dlpi_door_address(to, path);
}
#endif

#endif
#endif
