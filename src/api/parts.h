/* needs: parts */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>parts      PART QUEUE: FILES, ARCHIVES, RANGES THAT HOLD MANY ITEMS
   A part holds many items: a shard file, an archive, a range of one file. Part workers load the
   next parts into queue_size cells. Meanwhile fetch takes items out of the loaded parts.

     sampler -> [repeat] -> parts -> fetch -> ...
     order of               load into a  reads
     parts, items           part cell    item.part

   An epoch has T items. The parts follow each other in their order, or in a keyed permutation.
   Inside a part its items do likewise. This sequence is cut into C streams (pipe.streams), whose
   lengths differ by one item at most. Row i of a full batch of B rows is the next item of stream i
   / (B / C). The last short batch takes the remaining items of each stream in turn.

   So every item comes once, and batches mix items of C parts. A rank of W reads C / W streams, and
   loads the parts of these streams only; W must divide C. A part that lies across the border of two
   streams is loaded by both. If steps_per_epoch is set, an epoch has that many full batches on
   every rank, and a stream that ends earlier begins again. A batch is scheduled when all parts that
   it needs are loaded: fetch never waits for a part. A part that is still in its cell is not loaded
   again. */

/* A part. Valid during the call only. */
typedef struct dlp_part {
    uint64_t index;     /* number of the part, 0..n_parts - 1 */
    void *data;         /* bytes of the part, aligned to 4096; load writes them; fetch may only read
                           them */
    uint64_t bytes;     /* bytes that the part has. load sets it, at most capacity; fetch reads it.
                            The bytes after them are not defined */
    uint64_t capacity;  /* bytes of room at data: max_part_bytes */
    uint64_t items;     /* number of items in this part. With max_items it is 0 until load sets
                           it */
    uint64_t first;     /* dataset index of the first item: the number of items in all parts before
                            this part. With max_items it is 0, and the dataset index of an item is
                            the index of its part */
    uint64_t item;      /* fetch: number of this item in the part, from 0 */
    uint32_t attempt;   /* load: 0, then 1, 2 and so on for each retry */
    uint32_t worker;    /* load: number of the worker */
    void *worker_state; /* load: the state that worker_init set */
    dlp_call *call;     /* load: for dlp_fail; the error names the part already */
    const struct dlp_item *of; /* the item that this part belongs to, with its fields, if the load
                            node stands behind a push or behind other rows. NULL if the part is one
                            of a list */
} dlp_part;

/* Load a part: write part->data and set part->bytes.
   user: dlp_node_load.user. Returns 0; DLP_SKIP to leave the rows of the part out; any other value
   for failure, best by dlp_fail. All part workers call it at once. It may block. If the worker
   dies, another worker begins the load again. */
typedef int (*dlp_part_fn)(void *user, dlp_part *part);

typedef struct dlp_node_load {
    uint64_t n_parts;      /* number of parts; required, 1..2^31 */
    const uint64_t *items; /* [n_parts] items in each part, 0 or more; copied. NULL: see count */
    int (*count)(void *user, uint64_t part, uint64_t *items); /* Write the number of items of a
                                  part. It is called for each part while the stage is added. Returns
                                  0, or failure: DLP_ERR_CALLBACK */
    uint64_t manifest_id;     /* your number for this list of parts, such as a hash of names. It is
                                  part of the fingerprint of a state, as the counts are */
    uint64_t max_part_bytes;  /* bytes of the largest part; required, 1..2^46 */
    uint32_t queue_size;      /* number of part cells, 2..4096, with max_items 1..2^22. 0: one more
                                  than one batch of this rank may need, and with max_items one or
                                  more for each worker. start fails if there are fewer than that
                                  batch may need */
    int32_t shuffle_parts;    /* 1: each epoch has the parts in an order of its own */
    int32_t shuffle_items;    /* 1: each epoch has the items inside a part in an order of its own */
    dlp_part_fn load;         /* function that loads a part; required */
    void *user;               /* argument of load and count; borrowed until close */
    dlp_workers_desc workers; /* the part workers. num_workers 0: 1 worker, which loads ahead of the
                                  consumer; DLP_NONE: next loads. on_error RAISE: an error of the
                                  first batch that needs the part; DROP: the rows of the part are
                                  left out. dispatch: CLAIM; workers_max: 0. name NULL: "parts" */
    uint64_t max_items;       /* most items of a part, if items and count are NULL. Nobody knows the
                                  counts, and load sets part->items, 0..max_items (>>found). Else
                                  0 */
    uint64_t min_items; /* with max_items: fewest items of a part that is not empty; 0: 1. A higher
                                  number needs fewer cells */
    uint32_t window;    /* with max_items: items of a stream that are shuffled together (>>found),
                                  1..2^24; 0: no shuffle */
    const uint64_t
        *weights; /* with max_items: [n_parts] items, or bytes, of each part. They may be estimates;
                                0 counts as 1; the sum is at most 2^62. Parts are dealt so that the
                                streams get similar weight (>>found). Copied. NULL: all parts weigh
                                the same */
    const struct dlp_source *source; /* source of the parts (objects: >>s3-parts); borrowed until
                                close. The source sets n_parts (give 0 or its number) and
                                manifest_id (give 0); worker_* must be NULL. If load is NULL, it
                                sets load and user. If max_part_bytes is 0, it sets that. It sets
                                items, if items and count are NULL and max_items is 0. NULL: load
                                reads the parts */
} dlp_node_load;

/* A part that is a file, or a range of a file. */
typedef struct dlp_part_file {
    const char *path; /* path of the file */
    uint64_t offset;  /* bytes from the beginning of the file to the part */
    uint64_t bytes;   /* bytes of the range; 0: to the end of the file */
} dlp_part_file;

/* Files as parts: .load = dlp_part_files_load, .user = &files. */
typedef struct dlp_part_files {
    const dlp_part_file *files; /* [n_files] by part index; borrowed until close */
    uint64_t n_files;           /* number of files: n_parts */
    const char *dir; /* directory of the files, such as a cache; a file is then dir/path. All
                                  directories must exist. NULL: path is used as it is */
    /* Write the whole of a file to fd. It is called if the file is missing. NULL: all files are
       there. fd is a new file, which gets the name `path` once it is complete and safe on disk.
       Returns 0, or failure, best by dlp_fail. Part workers call it: for one file once at a time,
       also among processes. The other workers wait. */
    int (*download)(void *user, const dlp_part *part, const char *path, int fd);
    void *user;    /* argument of download */
    int32_t moved; /* 1: the files may have other names than when a state was saved (>>state) */
} dlp_part_files;

/* Read a part from its file. Download the file first if it is missing. Errors name the path.
   A download is written to path.tmp under a lock (flock), is synced, and then renamed. So a file
   under its own name is complete, and is used. If a process dies during a download, path.tmp stays
   without a lock, and the next process that wants the file begins the download again. A download
   follows no link, and writes to a regular file with one name only. In a directory that all users
   may write to, a file counts only if this user, or the owner of the directory, owns it (else
   EACCES). New files have mode 0600 there. A directory for each user is better.
   files: a dlp_part_files; part: the argument of load. Returns 0. DLP_ERR_CALLBACK: a system call
   or the download failed, or the file is shorter than the range. DLP_ERR_LENGTH: the range, or the
   download, has too many bytes. In load only. Waits for the disk, the download and the lock. */
DLPDEF int dlp_part_files_load(void *files, dlp_part *part);
