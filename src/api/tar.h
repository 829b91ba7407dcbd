/* needs: tar */
#pragma once
#include "api/expand.h"
#include "api/item_index.h"
#include "api/parts.h"
/* ---------------------------------------------------------------------------------------------
   >>tar        TAR SHARDS, WEBDATASET (examples/webdataset.c)
   Members that follow each other and have one key are one item: a sample. The key is the name up to
   the first dot after the last slash. The text after this dot is the extension. It says which field
   the member is:

     train/000017.jpg  train/000017.cls  train/000018.jpg ...     key train/000017: "jpg", "cls"

     dlp_tar_desc tar = {.paths = shards, .n_paths = n, .fields = fields, .n_fields = 2}; // by name
     dlp_tar_open(&source, &tar, &err);
     desc.source = source;  // of a loader; or of a fetch node

   At random   dlp_tar_open finds the samples of all shards, and keeps their places in an index file
               of each shard (>>item-index). A shuffle is over all samples of all shards.
               Workers read in_flight samples at once, as >>files reads files; with maps they
               take samples out of a mapping.
   Whole       dlp_tar_load and dlp_tar_fetch are callbacks of a part queue (>>parts, >>found).
               Shards are loaded whole, from files, S3 or a gzip stream. Their numbers of samples
               are not known before.
   Expanded    dlp_tar_expand is the callback of an expander (>>expand) whose input is a shard.

   The formats ustar, pax and GNU are read, with long names and large sizes. Directories are left
   out. So are names without a dot, or with a dot in front, and __NAME__, which WebDataset has for
   members about the shard. Directories that systems make do not count (__MACOSX, @eaDir,
   PaxHeaders). Sparse files are refused. A link, a device or a pipe is refused if a field wants it:
   tar --hard-dereference and --dereference write the bytes instead. A sample of which no member
   belongs to a field is an error of its item.

   A shard must end with a block of zeros; without it, the shard was cut. Archives may follow each
   other in a shard, as `tar -i` reads them. Other bytes behind the end are refused. So are more
   than 4 MiB of zeros between two members, since data are missing there.

   The members of a sample must follow each other. A shard is refused if a key comes again with
   other members: sort it (tar --sort=name). If a key comes again with the same members, they are
   two samples, and dlp_index_info.warning says so. `insist` takes such shards as they are.

   A compressed shard has no random access; it can be loaded whole by a load that unpacks it. */

/* A member of a sample. Valid during the call only. */
typedef struct dlp_tar_member {
    const char *extension; /* extension of the name, such as "jpg" or "seg.png" */
    const void *data;
    uint64_t bytes;
} dlp_tar_member;

/* A sample. Valid during the call only. */
typedef struct dlp_tar_sample {
    const char *key; /* key of the names, such as "train/000017" */
    const dlp_tar_member *members;
    uint32_t n_members; /* number of members, 1..256 */
    uint32_t pad;
} dlp_tar_sample;

typedef dlp_indexed_desc dlp_tar_desc; /* >>item-index has its fields */

/* Open all shards and find their samples, or take the samples from index files.
   out: close it with dlp_source_close. desc: copied. err: may be NULL; its message names the shard
   and the byte. Returns DLP_OK, or:
     DLP_ERR_ARG           a field is wrong, or there are no samples
     DLP_ERR_SYSTEM        a shard cannot be opened or read (errnum)
     DLP_ERR_CORRUPT       a shard is no tar, was cut, has other bytes behind its end, has the
                           members of a sample in two places, or changed while it was read
     DLP_ERR_UNSUPPORTED   a sparse file, a link or a device that a field wants, an archive of
                           several volumes, an unknown type
     DLP_ERR_MEMORY
   Any thread. Waits for the disk, and for its own threads. Allocates 8 bytes a sample if no index
   file can be mapped, 24 bytes a sample while it finds the samples, and some 150 bytes a shard.
   Source: POSIX.1-2017, pax; the GNU tar manual, "Basic Tar Format"; the WebDataset convention. */
DLPDEF int dlp_tar_open(dlp_source **out, const dlp_tar_desc *desc, dlp_error *err);

/* The argument `user` of dlp_tar_load and dlp_tar_fetch. Borrowed until close. */
typedef struct dlp_tar_parts {
    const dlp_tar_desc *desc; /* fields, decode and so on; required */
    dlp_part_fn load;         /* loads the bytes of a shard as they are in a .tar:
                         dlp_part_files_load, dlp_s3_part_load, or a function that unpacks;
                         required */
    void *user; /* argument of load. With dlp_s3_part_load it is the source, which is also source of
                   the desc of parts */
} dlp_tar_parts;

/* Load a shard: call load, then find the samples and set items. The places of the samples are put
   behind the bytes of the shard. So max_part_bytes must be 8 * (samples + 3) bytes more than the
   longest shard.
   parts: a dlp_tar_parts. part: the argument of load. Returns as load; DLP_ERR_CALLBACK (what
   dlp_tar_open refuses as corrupt or unsupported); DLP_ERR_LENGTH (there is no room). Allocates 24
   bytes a sample during the call. In load only. */
DLPDEF int dlp_tar_load(void *parts, dlp_part *part);

/* Write a sample of a shard that dlp_tar_load has loaded. parts: the dlp_tar_parts of that load.
   Returns as fetch. In fetch only. */
DLPDEF int dlp_tar_fetch(void *parts, dlp_item *item);

/* Make the samples of a shard, which is field 0 of the input: DLP_U8, ragged. desc: a dlp_tar_desc.
   Returns as expand. In expand only. */
DLPDEF int dlp_tar_expand(void *desc, dlp_expand *x);
