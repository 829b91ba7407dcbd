/* needs: lines */
#pragma once
/* tests: system/source/index_turn, system/source/lines, system/source/tar */
#include "source/item_index.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-index-turn     ONE PROCESS FINDS THE ITEMS OF A FILE
   Many processes open the same file at once: the ranks of a job. The first one locks
   PATH.dlpidx.lock (flock) and finds the items. The others poll until the index has its name. A
   lock dies with its holder. Then one of the others takes its place. The holder removes the lock
   file while it holds the lock. So a process that gets the lock looks whether the file still has
   its name. If that is never so, the path has another inode at each look, or the handles are stale:
   there nobody waits for a turn.

   A source of many files first takes the files that no other process has, and waits behind that. So
   the processes share the files.

   The lock decides only who works. Each index is written under a name of its own and renamed. So
   nothing is damaged where locks do not work, or do not reach other machines: there each process
   finds the items itself.

   The lock file has a record: a letter, the holder's process and machine, and how far it is. The
   letter is 'x' once no index will come, because the holder failed. Then nobody waits for a turn:
   all find the items at once, and fail or succeed on their own. If a record does not change for
   DLPI_INDEX_STALL_NS, the holder was stopped, or a forked child of a dead holder still has the
   lock. Then nobody waits for it, either. */

#ifndef DLPI_INDEX_TELL_NS /* until the first line of progress; tests want less */
#define DLPI_INDEX_TELL_NS UINT64_C(2000000000)
#endif
#ifndef DLPI_INDEX_STALL_NS /* without a change of the record */
#define DLPI_INDEX_STALL_NS UINT64_C(180000000000)
#endif
#define DLPI_INDEX_BEAT_NS UINT64_C(5000000000) /* between two records */
#define DLPI_INDEX_TRIES 100 /* lock files that were another one by the time of their lock */

/* What a source tells of its progress. */
typedef struct dlpi_progress {
    void (*log)(void *user, const char *message); /* of the desc; NULL: nothing is told */
    void *user;
    dlpi_mutex lock;  /* one line at a time */
    uint64_t next_ns; /* time of the next line */
} dlpi_progress;

typedef struct dlpi_turn {
    dlpi_scan scan; /* first: what reads of the file are told to */
    dlpi_progress *tell;
    const char *file;         /* path of the data file */
    uint64_t size;            /* its bytes */
    uint64_t beat_ns;         /* time of the next record */
    bool waits;               /* false: a file that another process has is left for later */
    int fd;                   /* the lock; -1: none */
    int unlocked;             /* errno if locks do not work; 0 else */
    char path[DLPI_PATH_MAX]; /* of the lock file */
} dlpi_turn;

/* Results of a look at the lock. */
enum {
    DLPI_TURN_MINE,  /* the lock is ours, and there is no index */
    DLPI_TURN_MADE,  /* the lock is ours, and the index is there */
    DLPI_TURN_THERE, /* the index is there; another process has the lock */
    DLPI_TURN_FREE,  /* nobody is to be waited for */
    DLPI_TURN_BUSY,  /* another process has the lock, and the caller does not wait */
    DLPI_TURN_AGAIN  /* the lock file is another one by now */
};

typedef struct dlpi_turn_record {
    char text[128];
} dlpi_turn_record;

/* ---- what is told ---- */

/* Tell the log how far the items of a file are found, if a line is due. who: the process that finds
   them; "": this one. */
DLPI_COLD static void dlpi_progress_tell(dlpi_progress *t, const char *file, const char *who,
                                         uint64_t at, uint64_t size) {
    const uint64_t now = dlpi_now_ns();
    const size_t n = strlen(file);
    char line[160];
    if (t->log == NULL || now < DLPI_LOAD_RLX(&t->next_ns)) return; /* looked at under the lock */
    if (!dlpi_mutex_try(&t->lock)) return;
    if (now >= DLPI_LOAD_RLX(&t->next_ns)) { /* own: under the lock */
        snprintf(line, sizeof line, "%.60s: %s%s finds its items: %.1f of %.1f MB",
                 n > 60 ? file + n - 60 : file, who[0] ? "waits for " : "this process", who,
                 (double)at / 1e6, (double)size / 1e6);
        t->log(t->user, line);
        DLPI_STORE_RLX(&t->next_ns, dlpi_now_ns() + 5 * DLPI_INDEX_TELL_NS);
    }
    dlpi_mutex_unlock(&t->lock);
}

/* Write the holder's record into the lock file. letter: 'f' while it finds items, 'x' if no index
   will come. */
DLPI_COLD static void dlpi_turn_note(const dlpi_turn *t, char letter, uint64_t at) {
    dlpi_turn_record r;
    char host[48];
    if (t->fd < 0) return;
    memset(&r, ' ', sizeof r);
    dlpi_host_name(host, sizeof host);
    snprintf(r.text, sizeof r.text, "%c %d %.47s %" PRIu64 "\n", letter, dlpi_process_number(),
             host, at);
    if (dlpi_handle_write(t->fd, &r, sizeof r, 0) == 0) dlpi_handle_sync(t->fd);
}

/* A dlpi_scan.seen: bytes of the file up to `at` were read. Any thread that finds items. */
DLPI_COLD static void dlpi_turn_seen(dlpi_scan *scan, uint64_t at) {
    dlpi_turn *t = (dlpi_turn *)(void *)scan;
    const uint64_t now = dlpi_coarse_ns();
    if (now >= DLPI_LOAD_RLX(&t->beat_ns)) { /* two records at once do no harm */
        DLPI_STORE_RLX(&t->beat_ns, now + DLPI_INDEX_BEAT_NS);
        dlpi_turn_note(t, 'f', at);
    }
    dlpi_progress_tell(t->tell, t->file, "", at, t->size);
}

/* ---- waiting ---- */

/* Let a network file system look at a directory again: it may keep in mind that a file was not
   there. */
DLPI_COLD static void dlpi_turn_refresh(const char *path) {
    char directory[DLPI_PATH_MAX];
    dlpi_handle f;
    dlpi_directory_of(directory, path);
    if (dlpi_handle_open(&f, directory, DLPI_READ) == 0) dlpi_handle_close(f);
}

/* Remove the lock file, and give up the lock. A forked child may have the descriptor, too. */
DLPI_COLD static void dlpi_turn_drop(int fd, const char *path) {
    if (dlpi_file_is(fd, path)) dlpi_path_remove(path);
    dlpi_handle_unlock(fd);
    dlpi_handle_close(fd);
}

/* Read the holder's record, and tell how far it is. Returns its letter, or 0. */
DLPI_COLD static char dlpi_turn_look(const dlpi_turn *t, int fd, dlpi_turn_record *r) {
    char letter = 0, host[48] = "", who[80];
    unsigned long long at = 0;
    uint64_t got;
    int pid = 0;
    memset(r, 0, sizeof *r);
    (void)dlpi_handle_read(fd, r, sizeof *r - 1, 0, &got);
    if (sscanf(r->text, "%c %d %47s %llu", &letter, &pid, host, &at) != 4) return 0;
    for (char *c = host; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    snprintf(who, sizeof who, "process %d on %.40s, which", pid, host);
    if (letter == 'f') dlpi_progress_tell(t->tell, t->file, who, at, t->size);
    return letter;
}

/* Try to take the lock of an open lock file once. Returns a DLPI_TURN_*, or -1 if another process
   has it. *to: gets an index that is there by now. */
DLPI_COLD static int dlpi_turn_try(dlpi_turn *t, int fd, dlpi_index *to, const char *index,
                                   const dlpi_index_key *key) {
    dlpi_turn_record r;
    const int rc = dlpi_handle_lock(fd, false);
    if (rc != 0) {
        if (rc == EWOULDBLOCK || rc == EINTR)
            return dlpi_file_is(fd, t->path) ? -1 : DLPI_TURN_AGAIN;
        if (rc == ESTALE) return DLPI_TURN_AGAIN; /* its holder removed it */
        t->unlocked = rc;
        if (dlpi_file_is(fd, t->path)) dlpi_path_remove(t->path); /* it is of no use */
        return DLPI_TURN_FREE;
    }
    if (!dlpi_file_is(fd, t->path))
        return dlpi_turn_look(t, fd, &r) == 'x' ? DLPI_TURN_FREE : DLPI_TURN_AGAIN;
    dlpi_turn_refresh(t->path);
    return dlpi_index_map(to, index, key) ? DLPI_TURN_MADE : DLPI_TURN_MINE;
}

/* Wait at an open lock file until it is this process' turn, or the index is there, or nobody will
   make it. Returns a DLPI_TURN_*. */
DLPI_COLD static int dlpi_turn_wait(dlpi_turn *t, int fd, dlpi_index *to, const char *index,
                                    const dlpi_index_key *key) {
    uint64_t sleep_ns = 1000000, changed_ns = dlpi_now_ns();
    dlpi_turn_record last = {""}, r;
    int rc;
    while ((rc = dlpi_turn_try(t, fd, to, index, key)) < 0) {
        if (dlpi_index_map(to, index, key)) return DLPI_TURN_THERE;
        if (dlpi_turn_look(t, fd, &r) == 'x') return DLPI_TURN_FREE;
        if (!t->waits) return DLPI_TURN_BUSY;
        if (memcmp(&r, &last, sizeof r) != 0) changed_ns = dlpi_now_ns();
        last = r;
        if (dlpi_now_ns() - changed_ns > DLPI_INDEX_STALL_NS) {
            t->unlocked = ETIMEDOUT;
            return DLPI_TURN_FREE;
        }
        dlpi_sleep(sleep_ns);
        if (sleep_ns < 250000000) sleep_ns += sleep_ns / 2;
    }
    return rc;
}

/* Take the turn to find the items of a file, or wait for it. index: path of the index file. Returns
   DLPI_TURN_THERE if another process has made the index, which is then in *to. Returns
   DLPI_TURN_BUSY if another process has the turn, and t does not wait. Else returns DLPI_TURN_MINE:
   the caller finds the items and calls dlpi_turn_end. */
DLPI_COLD static int dlpi_turn_take(dlpi_turn *t, dlpi_index *to, const char *index,
                                    const dlpi_index_key *key) {
    int rc, tries = 0;
    if (snprintf(t->path, sizeof t->path, "%s.lock", index) >= (int)sizeof t->path) {
        t->unlocked = ENAMETOOLONG;
        return DLPI_TURN_MINE;
    }
    for (;;) {
        dlpi_handle fd;
        rc = dlpi_lock_open(&fd, t->path, DLPI_READ | DLPI_WRITE);
        if (rc == EACCES) rc = dlpi_lock_open(&fd, t->path, DLPI_READ);
        if (rc != 0) {
            t->unlocked = rc;
            return DLPI_TURN_MINE;
        }
        rc = dlpi_turn_wait(t, fd, to, index, key);
        if (rc == DLPI_TURN_MINE)
            t->fd = fd;
        else if (rc == DLPI_TURN_MADE)
            dlpi_turn_drop(fd, t->path);
        else
            dlpi_handle_close(fd);
        if (rc != DLPI_TURN_AGAIN) break;
        if (dlpi_index_map(to, index, key)) return DLPI_TURN_THERE;
        if (++tries < DLPI_INDEX_TRIES) continue;
        t->unlocked = ESTALE;
        return DLPI_TURN_MINE;
    }
    dlpi_turn_note(t, 'f', 0);
    return rc == DLPI_TURN_FREE ? DLPI_TURN_MINE : rc == DLPI_TURN_MADE ? DLPI_TURN_THERE : rc;
}

/* End the turn. made: the index has its name. */
DLPI_COLD static void dlpi_turn_end(dlpi_turn *t, bool made) {
    if (t->fd < 0) return;
    if (!made) dlpi_turn_note(t, 'x', 0);
    dlpi_turn_drop(t->fd, t->path);
    t->fd = -1;
}
