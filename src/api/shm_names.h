#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-names      NAMED PIPES
   A name is a small record in /dev/shm ("dlpipe.NAME", mode 0600) that says where the pipe is. The
   pipe's processes hold a lock on it. The kernel frees the lock when the last of them ends. A name
   whose lock is free belongs to nobody, and the next pipe of that name takes it over. The pid in
   the record is for people only. */

typedef struct dlp_shm_name {
    char name[64];
    int32_t pid;     /* process id of the owner, as the owner sees it; 0: unreadable record */
    int32_t alive;   /* 1: the lock is held; 0: stale; -1: not known, another user's */
    uint32_t uid;    /* user id of the owner */
    uint64_t age_ms; /* milliseconds since the name was made; 0: not known */
} dlp_shm_name;

/* List the names on this machine. It opens each record and tries its lock for a moment.
   out: [max]; NULL if max is 0. Returns the number of names, which may be above max; DLP_ERR_ARG;
   DLP_ERR_SYSTEM with errno (no /dev/shm). Any thread may call it. It allocates as opendir. */
DLPDEF int dlp_shm_names(dlp_shm_name *out, int max);

/* Remove names whose owners are gone: whose lock is free. Process ids do not count. The kernel
   frees the memory of dead pipes by itself.
   name: one name; NULL: all names of this user. Returns the number of removed names, which is 0 if
   the name is in use or does not exist; DLP_ERR_ARG (not a name); DLP_ERR_SYSTEM with errno
   (another user's, not a regular file, or no /dev/shm). Any thread may call it. It allocates what
   opendir does. */
DLPDEF int dlp_shm_remove_stale(const char *name);
