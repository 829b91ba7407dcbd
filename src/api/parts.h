/* needs: parts */
#pragma once
#include "api/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>parts      PART QUEUE: FILES, ARCHIVES, RANGES THAT HOLD MANY ITEMS
   Items that come in parts (shard files, archives, ranges of one file): part workers load the next
   parts into queue_size cells, while fetch takes items out of those that are there.

     sampler -> [repeat] -> parts -> fetch -> ...
     order of               load into a  reads
     parts, items           part cell    item.part

   An epoch's order: the parts in their order, or in a keyed permutation; inside each its items in
   their order, or in a keyed permutation; and all of it one after another, T items. This is cut
   into C streams as long as each other to within one item. Row i of a full batch of B rows is the
   next of stream i / (B / C), the last short batch takes what is left of each stream in turn. So
   every item comes once, batches mix items of C parts, and a rank of W, where W divides C, reads
   C / W streams and loads their parts only. A part that lies across the border of two streams
   is loaded by both. With steps_per_epoch an epoch has that many full batches, on every rank, and a
   stream that ends before begins again. A batch is scheduled when all parts that it needs are
   there: fetch never waits for a part. Parts that are still in their cells are not loaded again. */

/* A part. Valid during the call only. */
typedef struct dlp_part {
    uint64_t index;     /* 0..n_parts - 1 */
    void *data;         /* aligned to 4096; load writes it; fetch may only read it */
    uint64_t bytes;     /* load: to be set, at most capacity; fetch: as load set it. What lies
                            after them is not defined */
    uint64_t capacity;  /* max_part_bytes */
    uint64_t items;     /* in this part; load, with max_items: to be set, 0 until then */
    uint64_t first;     /* dataset index of its first item: the items of all parts before it; with
                            max_items 0, and an item's dataset index is its part's */
    uint64_t item;      /* fetch: number of this item in the part, 0.. */
    uint32_t attempt;   /* load: 0, then 1.. for each retry */
    uint32_t worker;    /* load: worker number */
    void *worker_state; /* load: what worker_init left */
    dlp_call *call;     /* load: for dlp_fail; the error names the part already */
    const struct dlp_item *of; /* of a load node behind a push or behind other rows: the item whose
                            part this is, with its fields. NULL: the part is one of a list */
} dlp_part;

/* Load a part: write part->data, set part->bytes. user: part_desc.user - returns 0, DLP_SKIP to
   leave its rows out, or any other value for failure, best by dlp_fail - called by all part
   workers at once; may block; should the worker die, another begins it again. */
typedef int (*dlp_part_fn)(void *user, dlp_part *part);

typedef struct dlp_part_desc {
    uint64_t n_parts;      /* required, 1..2^31 */
    const uint64_t *items; /* [n_parts] items in each, 0 or more; copied; NULL: count tells */
    int (*count)(void *user, uint64_t part, uint64_t *items); /* asked for each part while the stage
                                  is added; returns 0, or failure: DLP_ERR_CALLBACK */
    uint64_t manifest_id;     /* the user's number for this list of parts (a hash of names, say),
                                  part of a state's fingerprint, as the counts are */
    uint64_t max_part_bytes;  /* required: of the largest part, 1..2^46 */
    uint32_t queue_size;      /* part cells, 2..4096, with max_items 1..2^22; 0: as many as one
                                  batch of this rank may need, and one more. Fewer than that need is
                                  an error of start */
    int32_t shuffle_parts;    /* 1: parts in an order of each epoch's own */
    int32_t shuffle_items;    /* 1: items inside a part, likewise */
    dlp_part_fn load;         /* required */
    void *user;               /* borrowed until close */
    dlp_workers_desc workers; /* the part workers; num_workers 0: 1, which loads ahead of the
                                  consumer; DLP_NONE: loaded in next. on_error: RAISE: an error of
                                  the first batch that needs the part; DROP: the part's rows are
                                  left out. dispatch: CLAIM; workers_max: 0. name NULL: "parts" */
    uint64_t max_items; /* items and count NULL: nobody knows the counts, load sets part->items,
                                  0..max_items (>>found); else 0 */
    uint64_t min_items; /* with max_items: as few as a part has that has any; 0: 1. The more,
                                  the fewer cells are needed */
    uint32_t window;    /* with max_items. So many items of a stream are shuffled at a time
                                  (>>found), 1..2^24; 0: none are */
    const uint64_t
        *weights; /* with max_items. [n_parts] items in each, or bytes: about, 0 counts as
                                1, at most 2^62 together. Parts are dealt to streams so that these
                                are of like weight (>>found); copied; NULL: all alike */
    const struct dlp_source *source; /* has the parts (objects: >>s3-parts); borrowed until close.
                                It gives n_parts (0, or as many), manifest_id (0) and worker_*
                                (NULL), and, where these are 0 or NULL, load with user,
                                max_part_bytes, and count. NULL: load reads them */
} dlp_part_desc;

/* A file that is a part, or a range of one. */
typedef struct dlp_part_file {
    const char *path;
    uint64_t offset;
    uint64_t bytes; /* 0: to the file's end */
} dlp_part_file;

/* Files as parts: .load = dlp_part_files_load, .user = &files. */
typedef struct dlp_part_files {
    const dlp_part_file *files; /* [n_files] by part index; borrowed until close */
    uint64_t n_files;
    const char *dir; /* the cache, or wherever they are; NULL: paths as they are, else
                                  dir/path; directories exist already */
    /* NULL: the files are there. Else called for one that is not: write the whole of it to fd, a
       new file that gets its name once it is complete and safe on disk. path: of that name -
       returns 0, or failure, best by dlp_fail - by part workers; for one file once at a time,
       also among processes: others wait for it. */
    int (*download)(void *user, const dlp_part *part, const char *path, int fd);
    void *user;
} dlp_part_files;

/* Read a part from its file, after a download if need be. Errors name the path.
   What is downloaded has the name path.tmp and a lock (flock) on it, is synced, then renamed. So a
   file under its own name is whole, and is used; what a process that died has left under the other
   name has no lock, and whoever wants that file next begins it again. No link is followed there,
   and nothing but a regular file with one name is written. In a directory that all may write to,
   files count only if they are this user's or the directory's owner's (else EACCES), and new ones
   have mode 0600; a directory for each user is better. files: a dlp_part_files; part: as load gets
   it - returns 0; DLP_ERR_CALLBACK (a system call or download failed, the file is shorter than the
   range), DLP_ERR_LENGTH (more bytes than capacity, or of download) - in load only - waits for the
   disk, the download, the lock. */
DLPDEF int dlp_part_files_load(void *files, dlp_part *part);
