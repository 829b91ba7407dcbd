/* needs: files lines parts */
#pragma once
#include "api/expand.h"
#include "api/item_index.h"
#include "api/parts.h"
/* ---------------------------------------------------------------------------------------------
   >>tar        TAR SHARDS, WEBDATASET (examples/webdataset.c)
   Members that follow each other and have one key are one item, a sample. The key is the name up to
   the first dot behind the last slash. What follows this dot is the extension. It says which field
   a member is:

     train/000017.jpg  train/000017.cls  train/000018.jpg ...     key train/000017: "jpg", "cls"

     dlp_tar_desc tar = {.paths = shards, .n_paths = n, .fields = fields, .n_fields = 2}; // by name
     dlp_tar_open(&source, &tar, &err);
     desc.source = source;  // of a loader; or of a fetch node

   At random   dlp_tar_open finds the samples of all shards, and keeps their places in an index file
               of each shard (>>item-index). A shuffle is over all samples of all shards.
               Workers read in_flight samples at once, as >>files reads files.
   Whole       dlp_tar_load and dlp_tar_fetch are callbacks of a part queue (>>parts, >>found).
               Shards are loaded whole, from files, S3 or a gzip stream. Nobody knows how many
               samples they have.
   Expanded    dlp_tar_expand is the callback of an expander (>>expand) whose input is a shard.

   Known are the formats ustar, pax and GNU, with long names and large sizes. Members that are no
   regular files are left out, and so are names without a dot, or with a dot in front. Sparse files
   are refused. A shard must end with a block of zeros: without it, it was cut. It ends with its
   first archive. Members of a sample follow each other, or they are several samples. A compressed
   shard has no random access: a load that unpacks it gives a whole one. */

/* A member of a sample. Valid during the call only. */
typedef struct dlp_tar_member {
    const char *extension; /* "jpg", "seg.png" */
    const void *data;
    uint64_t bytes;
} dlp_tar_member;

/* A sample. Valid during the call only. */
typedef struct dlp_tar_sample {
    const char *key; /* "train/000017" */
    const dlp_tar_member *members;
    uint32_t n_members; /* 1..256 */
    uint32_t pad;
} dlp_tar_sample;

typedef struct dlp_tar_desc {
    const char *path;         /* a shard, or */
    const char *const *paths; /* [n_paths] shards, whose samples follow each other; copied. For load
                                 and expand: names of shards in errors, by the index of the part or
                                 input; may be NULL */
    uint64_t n_paths;         /* 1..2^20. One descriptor is open for each shard: ulimit -n */
    const dlp_field *fields;  /* required; [n_fields] of a sample; borrowed until close */
    uint32_t n_fields;        /* 1..DLP_MAX_FIELDS */
    int32_t optional;         /* 1: a ragged field whose member is not there has length 0. 0: the
                                 item fails */
    const char *const *extensions; /* [n_fields] extension of each field, or several with a blank
                                 between two: "jpg jpeg". Capital letters count as small ones. NULL:
                                 the names of the fields. Borrowed until close */
    /* Write the fields of an item out of a sample. Returns as fetch does; called by all workers at
       once. NULL: a field is the bytes of its member. A ragged field takes whole rows, up to
       shape[0]; a field of a fixed size takes exactly its bytes. */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const dlp_tar_sample *sample);
    void *user; /* of all callbacks here; borrowed until close */
    /* For dlp_tar_open alone. */
    uint64_t max_bytes;  /* most bytes of a sample in its shard, headers included, 1..2^40; a longer
                             one is DLP_ERR_LENGTH of its item. 0: those of the longest sample */
    const char *index;   /* directory for index files; NULL: beside each shard; "": none */
    int32_t threads;     /* that find samples, in several shards at once; 0: one a CPU, 16
                             at most; 1..256 */
    int32_t in_flight;   /* samples that a worker has in hand at once, as in dlp_files_desc */
    int32_t use_threads; /* as in dlp_files_desc */
    /* For decode's worker_state, as in dlp_workers_desc; may be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
} dlp_tar_desc;

/* Open all shards and find their samples, or take these from index files.
   out: to be closed by dlp_source_close. desc: copied. err: may be NULL; its message names the
   shard and the byte. Returns DLP_OK, or:
     DLP_ERR_ARG           a field; no samples
     DLP_ERR_SYSTEM        a shard cannot be opened or read (errnum)
     DLP_ERR_CORRUPT       it is no tar, was cut, or changed while its samples were found
     DLP_ERR_UNSUPPORTED   a sparse file, an archive of several volumes, a type nobody knows
     DLP_ERR_MEMORY
   Any thread. Waits for the disk, and for threads of its own. Allocates 8 bytes a sample where no
   index file can be mapped, and some 150 bytes a shard.
   Source: POSIX.1-2017, pax; the GNU tar manual, "Basic Tar Format"; the WebDataset convention. */
DLPDEF int dlp_tar_open(dlp_source **out, const dlp_tar_desc *desc, dlp_error *err);

/* What dlp_tar_load and dlp_tar_fetch get as user. Borrowed until close. */
typedef struct dlp_tar_parts {
    const dlp_tar_desc *desc; /* required: fields, decode and so on */
    dlp_part_fn load;         /* required; loads the bytes of a shard as they are in a .tar:
                         dlp_part_files_load, dlp_s3_part_load, or one that unpacks */
    void *user; /* of load; with dlp_s3_part_load the source, which is source of the desc of parts,
                   too */
} dlp_tar_parts;

/* Load a shard: call load, then find the samples. Behind the bytes of the shard their places are
   put, so max_part_bytes is 8 * (samples + 3) bytes more than the longest shard. Sets items.
   parts: a dlp_tar_parts; part: as load gets it. Returns as load, or DLP_ERR_CALLBACK (no tar, or
   cut), DLP_ERR_LENGTH (no room). In load only. */
DLPDEF int dlp_tar_load(void *parts, dlp_part *part);

/* Write a sample of a shard that dlp_tar_load has loaded. parts: the same. Returns as fetch. In
   fetch only. */
DLPDEF int dlp_tar_fetch(void *parts, dlp_item *item);

/* Make the samples of a shard, which is field 0 of the input: DLP_U8, ragged. desc: a dlp_tar_desc.
   Returns as expand. In expand only. */
DLPDEF int dlp_tar_expand(void *desc, dlp_expand *x);
