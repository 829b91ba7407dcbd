#pragma once
#include "api/base.h"
/* ---------------------------------------------------------------------------------------------
   >>shm-names      NAMED PIPES
   A name is a small record in /dev/shm ("dlpipe.NAME", mode 0600) that says where the pipe is. The
   pipe's processes hold a lock on it, which the kernel takes back with the last of them: a name
   whose lock is free belongs to nobody, and the next pipe of that name takes it over. Pids in it
   are for people. */

typedef struct dlp_shm_name {
    char name[64];
    int32_t pid;     /* of the owner as it sees itself; 0: the record cannot be read */
    int32_t alive;   /* 1: its lock is held; 0: stale; -1: another user's, not known */
    uint32_t uid;    /* of its owner */
    uint64_t age_ms; /* since it was made; 0: not known */
} dlp_shm_name;

/* List the names on this machine.
   out: [max], may be NULL with max 0 - returns how many there are, more than max perhaps;
   DLP_ERR_ARG, DLP_ERR_SYSTEM with errno (no /dev/shm) - any thread - opens each record and tries
   its lock for a moment; allocates what opendir does. */
DLPDEF int dlp_shm_names(dlp_shm_name *out, int max);

/* Remove names whose owners are gone, by their locks, never by pids. Pipes' memory goes by itself.
   name: one name, NULL: all of this user - returns how many were removed: 0 where the name is in
   use or is not there; DLP_ERR_ARG (no name), DLP_ERR_SYSTEM with errno (not this user's, no
   regular file, or no /dev/shm) - any thread - as dlp_shm_names. */
DLPDEF int dlp_shm_remove_stale(const char *name);
