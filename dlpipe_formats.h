/* dlpipe_formats.h - v0.1.0 - file formats for dlpipe.h - MIT licence - header-only, Linux
   Made from src/ by "make headers": edit there.

   Sources of items in files that many programs have: lines of text (JSONL, CSV), and samples of tar
   shards (WebDataset).

   >>formats-use            DO THIS, THEN THAT
   1  Copy this file beside dlpipe.h. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"
          #include "dlpipe_formats.h"
   2  Open a source, and give it to a loader or a fetch node: dlp_lines_open, dlp_tar_open.
      Shards that are loaded whole: dlp_tar_load, dlp_tar_expand.
   3  Close the pipe, then the source: dlp_source_close.

   >>contents               search for the anchor
   >>formats-use            DO THIS, THEN THAT
   >>formats-index          INDEX FILES
   >>formats-own            A FORMAT OF YOUR OWN
   >>formats-limits         LIMITS AND CAVEATS
   >>lines                  LINES OF TEXT FILES: JSONL, CSV
   >>tar                    TAR SHARDS, WEBDATASET
   The implementation:
   >>formats-impl-platform >>formats-impl-index >>formats-impl-indexed >>formats-impl-lines
   >>formats-impl-tar >>formats-impl-tar-source
   >>formats-history >>formats-licence

   >>formats-index          INDEX FILES
   To read items in any order, a source must know where each item lies. It finds the items when it
   is opened first, and writes their places into an index file: 8 bytes an item. The next open maps
   this file, which takes microseconds, if the data file has the same length and the same time of
   its last change.

     train.jsonl  ->  train.jsonl.dlpidx                 beside the file, or
                      DIRECTORY/train.jsonl.HASH.dlpidx  .index = "DIRECTORY"; HASH: of the path

   If the index file cannot be written, the source keeps the places in memory, and each open finds
   them again. The pipe then has a warning, which names the file. .index = "" asks for no index
   files. Several processes may open the same files at once. Each writes a file of its own (its name
   ends in .new), and renames it. A process that is killed meanwhile leaves that file.

   An item whose place in the index is wrong is an error, which names the data file; remove its
   index then. Lines compare the bytes before and at their ends. Samples of tar shards compare the
   sums of headers, and the keys. If the index file is cut while it is mapped, the process ends by
   SIGBUS. dlpipe itself never cuts one.

   >>formats-own            A FORMAT OF YOUR OWN
   This header calls nothing but what dlpipe.h declares. So another format can be one file, too. It
   needs two functions, locate (where is item i?) and decode (make the fields of item i out of these
   bytes), for dlp_files_open, which reads many items at once. Or it fills a dlp_source with a
   fetch of its own.

   >>formats-limits         LIMITS AND CAVEATS
   * A source has a descriptor open for each file: see ulimit -n.
   * Compressed files have no random access. A shard that is compressed can be loaded whole, by a
     load that unpacks it (examples/webdataset.c).
   * Samples of a tar shard whose members do not follow each other are several samples. Links are
     left out: make shards with --hard-dereference and --dereference.
   * A file that holds several archives, one behind the other, ends for dlpipe with the first one.
   * A made-up index can leave out the last members of a sample, if their fields are optional.
   * dlpipe_formats.h is compiled in the same file as dlpipe.h's implementation.
*/

#ifndef DLPIPE_FORMATS_H
#define DLPIPE_FORMATS_H

#include "dlpipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>lines      LINES OF TEXT FILES: JSONL, CSV (examples/jsonl.c)
   A source whose items are lines. Lines are found once, by several threads, and kept in an index
   file (>>formats-index). So lines come in any order, and a shuffle over all lines of all files
   costs no memory.

     dlp_lines_desc lines = {.path = "train.jsonl", .fields = fields, .n_fields = 2,
                             .parse = parse};
     dlp_lines_open(&source, &lines, &err);
     desc.source = source;  // of a loader; or of a fetch node
     ... the pipe, until it is closed
     dlp_source_close(source);

   A line ends with \n or \r\n, which is no part of it. The last line of a file need not end so. An
   empty line is an item of 0 bytes, or no item (no_empty). A record of a CSV file that has a line
   break inside quotes is several lines: such a file needs another format.

   A worker reads a line when it needs the line, or in_flight lines at once, as >>files reads files:
   for a disk or a network that waits. A file that is cut is an error of the item. Before a line is
   parsed, the bytes around it are compared with the index. If the index does not fit the file, the
   item fails. */

typedef struct dlp_lines_desc {
    const char *path;         /* a file, or */
    const char *const *paths; /* [n_paths] files, whose lines follow each other; copied */
    uint64_t n_paths;         /* 1..2^20. One descriptor is open for each file: ulimit -n */
    const dlp_field *fields; /* [n_fields] of an item; borrowed until close. NULL: one field "line",
                                 DLP_U8, ragged, as long as the longest line */
    uint32_t n_fields;       /* 0..DLP_MAX_FIELDS */
    /* Write the fields of an item out of a line of n bytes, which are valid during the call and do
       not end with 0. Returns as fetch does; called by all workers at once. NULL: the line is the
       only field, which is ragged, of one dimension and one byte an element. */
    int (*parse)(void *user, void *worker_state, dlp_item *item, const char *line, uint64_t n);
    void *user;         /* of all callbacks here; borrowed until close */
    uint64_t max_bytes; /* most bytes of a line, 1..2^40; a longer one is DLP_ERR_LENGTH of its
                             item. 0: those of the longest line */
    uint32_t skip;     /* lines at the beginning of each file that are no items: names of columns */
    int32_t no_empty;  /* 1: empty lines are no items */
    const char *index; /* directory for index files; NULL: beside each file; "": no index files */
    int32_t threads;   /* that find the lines; 0: as many as CPUs, 16 at most; 1..256 */
    int32_t in_flight; /* 0: a worker reads one line at a time, also inline (num_workers 0).
                          1..256: it has so many in hand at once, by requests (dlp_files_desc) */
    int32_t use_threads; /* as in dlp_files_desc */
    /* For parse's worker_state, as in dlp_workers_desc; may be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
} dlp_lines_desc;

typedef struct dlp_lines_info {
    uint64_t n_items;      /* lines of all files, without those that are skipped */
    uint64_t longest;      /* bytes of the longest line, or a little more */
    uint64_t found;        /* files whose lines were found now; the others had an index */
    uint64_t worker_bytes; /* that each worker allocates when it begins */
    uint64_t id; /* a number that differs where the number of lines or bytes of a file does: what
                    states know this source by */
    const char *warning; /* the first index file that could not be written, and why; NULL: none */
} dlp_lines_info;

/* Open all files and find their lines, or take these from index files.
   out: to be closed by dlp_source_close. desc: copied. err: may be NULL; its message names the
   file. Returns DLP_OK, or:
     DLP_ERR_ARG       a field; no lines
     DLP_ERR_SYSTEM    a file cannot be opened or read (errnum)
     DLP_ERR_CORRUPT   a file changed while its lines were found
     DLP_ERR_MEMORY
   Any thread. Waits for the disk, and for threads of its own. Allocates 8 bytes a line where no
   index file can be mapped, and some 150 bytes a file. */
DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err);

/* Tell what was found. The text is the source's, until close. Returns NULL if this is another
   source. Any thread; does not wait. */
DLPDEF const dlp_lines_info *dlp_lines_describe(const dlp_source *lines);

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
               of each shard (>>formats-index). A shuffle is over all samples of all shards.
               Workers read in_flight samples at once, as >>files reads files.
   Whole       dlp_tar_load and dlp_tar_fetch are callbacks of a part queue (>>parts, >>found).
               Shards are loaded whole, from files, S3 or a gzip stream. Nobody knows how many
               samples they have.
   Expanded    dlp_tar_expand is the callback of an expander (>>expand) whose input is a shard.

   Known are the formats ustar, pax and GNU, with long names and large sizes. Members that are no
   regular files are left out, and so are names without a dot, or with a dot in front. Sparse files
   are refused. A shard must end with a block of zeros: without it, it was cut. */

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
    int32_t threads;     /* that find samples, in several shards at once; 0: as many as CPUs, 16
                             at most; 1..256 */
    int32_t in_flight;   /* samples that a worker has in hand at once, as in dlp_files_desc */
    int32_t use_threads; /* as in dlp_files_desc */
    /* For decode's worker_state, as in dlp_workers_desc; may be NULL. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
} dlp_tar_desc;

typedef struct dlp_tar_info {
    uint64_t n_items;      /* samples of all shards */
    uint64_t longest;      /* bytes of the longest sample in its shard */
    uint64_t found;        /* shards whose samples were found now; the others had an index */
    uint64_t worker_bytes; /* that each worker allocates when it begins */
    uint64_t id; /* a number that differs where the number of samples or bytes of a shard does: what
                    states know this source by */
    const char *warning; /* the first index file that could not be written, and why; NULL: none */
} dlp_tar_info;

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

/* Tell what was found. The text is the source's, until close. Returns NULL if this is another
   source. Any thread; does not wait. */
DLPDEF const dlp_tar_info *dlp_tar_describe(const dlp_source *tar);

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

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_FORMATS_H */

/* =============================================================================================
   IMPLEMENTATION
   It calls what dlpipe.h declares; where that can't be compiled, an #error of dlpipe.h has said
   why. */
#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_IMPLEMENTATION_DONE)
#include "dlpipe.h"
#endif

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_FORMATS_IMPLEMENTATION_DONE)
#define DLPIPE_FORMATS_IMPLEMENTATION_DONE

/* ---------------------------------------------------------------------------------------------
   >>formats-impl-platform  SYSTEM HEADERS
   This implementation calls no dlpi_* of dlpipe.h: it is built on what a program may call. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------
   >>formats-impl-index     WHERE ITEMS LIE IN A FILE
   A file of items is cut at n + 1 places: item i lies in bytes [at[i], at[i + 1]). An index file
   holds 8 words that say which file it belongs to, and then these places. All words are in the
   machine's order. The index is a hint: two places are compared with the file's length whenever
   they are read, and a format compares the bytes there with what it expects. So an index that is
   cut, old or made up gives errors, and no read outside a buffer.

   A new index is written under a name of its own, and renamed. So several processes may write the
   same index at once, and a reader maps a whole one. A writer that dies leaves that other name. */

enum { DLPI_INDEX_WORDS = 8, DLPI_FORMATS_PATH = 4096 };

/* What an index is about. */
typedef struct dlpi_index_key {
    uint64_t kind;           /* of places: DLPI_INDEX_* */
    uint64_t bytes, time_ns; /* of the file: its length, its last change */
} dlpi_index_key;

enum { DLPI_INDEX_LINES = 1, DLPI_INDEX_NO_EMPTY = 2, DLPI_INDEX_TAR = 3 };

typedef struct dlpi_index {
    const uint64_t *at; /* [n + 1]; in a mapping another process may change them */
    uint64_t n;         /* items */
    uint64_t most;      /* bytes of the longest item */
    void *memory;       /* that at lies in */
    size_t mapped;      /* bytes of the mapping; 0: memory is of malloc */
} dlpi_index;

/* Write an error record. Returns code. */
__attribute__((format(printf, 5, 6))) static int dlpi_formats_error(dlp_error *err, int code,
                                                                    int errnum, const char *field,
                                                                    const char *format, ...) {
    va_list args;
    if (err == NULL) return code;
    memset(err, 0, sizeof *err);
    err->code = code;
    err->errnum = errnum;
    err->worker = -1;
    snprintf(err->field, sizeof err->field, "%s", field);
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

/* The end of a path, which says more than its beginning. */
static const char *dlpi_formats_name(const char *path) {
    size_t n = strlen(path);
    return n > 100 ? path + n - 100 : path;
}

/* A system call failed at a file. errnum: of the call. */
static int dlpi_formats_system(dlp_error *err, const char *path, const char *call, int errnum) {
    return dlpi_formats_error(err, errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, errnum,
                              "path", "%s: %s: %s", dlpi_formats_name(path), call,
                              strerror(errnum));
}

/* fd, or a copy of it above 2: in a program that closed the first three, what somebody prints
   would go into the file. Returns -1 with errno if fd is -1 or no copy can be made. */
static int dlpi_formats_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* Open for reading. O_NONBLOCK: the open of a named pipe does not wait. */
static int dlpi_formats_open(const char *path) {
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    return dlpi_formats_above(fd);
}

/* Read n bytes from byte `at` on. Returns how many there were, or -1 and errno. */
static int64_t dlpi_formats_read(int fd, uint64_t at, uint64_t n, void *to) {
    uint64_t got = 0;
    while (got < n) {
        uint64_t rest = n - got < (1u << 30) ? n - got : 1u << 30;
        ssize_t k = pread(fd, (uint8_t *)to + got, (size_t)rest, (off_t)(at + got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        if (k == 0) break;
        got += (uint64_t)k;
    }
    return (int64_t)got;
}

static dlpi_index_key dlpi_index_key_of(const struct stat *st, uint64_t kind) {
    return (dlpi_index_key){kind, (uint64_t)st->st_size,
                            (uint64_t)st->st_mtim.tv_sec * 1000000000u +
                                (uint64_t)st->st_mtim.tv_nsec};
}

/* ---- index files ---- */

static void dlpi_index_head(uint64_t head[DLPI_INDEX_WORDS], const dlpi_index_key *key,
                            const dlpi_index *x) {
    const uint64_t first = UINT64_C(0x0131787069706c64); /* "dlpipx1", and its version */
    const uint64_t words[DLPI_INDEX_WORDS - 1] = {first, key->kind, key->bytes, key->time_ns,
                                                  x->n,  x->most,   0};
    head[DLPI_INDEX_WORDS - 1] = 0;
    for (int i = 0; i < DLPI_INDEX_WORDS - 1; i++) {
        head[i] = words[i];
        head[DLPI_INDEX_WORDS - 1] = dlp_hash(head[DLPI_INDEX_WORDS - 1], words[i], 0, 0);
    }
}

/* The name of the index of a file: beside it, or in a directory, where a number tells files of one
   name apart. Returns false if it is too long. */
static bool dlpi_index_path(char to[DLPI_FORMATS_PATH], const char *directory, const char *path) {
    const char *slash = strrchr(path, '/');
    uint64_t number = 0;
    int n;
    if (directory == NULL) {
        n = snprintf(to, DLPI_FORMATS_PATH, "%s.dlpidx", path);
    } else {
        for (const char *c = path; *c; c++) number = dlp_hash(number, (uint8_t)*c, 0, 0);
        n = snprintf(to, DLPI_FORMATS_PATH, "%s/%s.%016" PRIx64 ".dlpidx", directory,
                     slash != NULL ? slash + 1 : path, number);
    }
    return n > 0 && n < DLPI_FORMATS_PATH;
}

/* Does a mapped index belong to the file? bytes: of the mapping. */
static bool dlpi_index_fits(dlpi_index *x, const dlpi_index_key *key, uint64_t bytes) {
    uint64_t head[DLPI_INDEX_WORDS], want[DLPI_INDEX_WORDS];
    memcpy(head, x->memory, sizeof head);
    x->n = head[4];
    x->most = head[5];
    dlpi_index_head(want, key, x);
    return memcmp(head, want, sizeof head) == 0 && x->most <= key->bytes && x->n <= key->bytes &&
           bytes == (DLPI_INDEX_WORDS + x->n + 1) * sizeof(uint64_t);
}

static void dlpi_index_free(dlpi_index *x) {
    if (x->mapped > 0)
        munmap(x->memory, x->mapped);
    else
        free(x->memory);
    memset(x, 0, sizeof *x);
}

/* Map the index file, if there is one that fits. */
static bool dlpi_index_map(dlpi_index *x, const char *path, const dlpi_index_key *key) {
    int fd = dlpi_formats_open(path);
    struct stat st;
    void *map = MAP_FAILED;
    memset(x, 0, sizeof *x);
    if (fd < 0) return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size >= (DLPI_INDEX_WORDS + 1) * sizeof(uint64_t))
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return false;
    x->memory = map;
    x->mapped = (size_t)st.st_size;
    x->at = (const uint64_t *)map + DLPI_INDEX_WORDS;
    if (dlpi_index_fits(x, key, x->mapped)) return true;
    dlpi_index_free(x);
    return false;
}

static int dlpi_index_put(int fd, const void *bytes, uint64_t n) {
    const uint8_t *from = bytes;
    while (n > 0) {
        ssize_t k = write(fd, from, n < (1u << 30) ? (size_t)n : 1u << 30);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno;
        from += k;
        n -= (uint64_t)k;
    }
    return 0;
}

/* Write an index file. Returns 0 or errno. A file above the limit (ulimit -f) would end the program
   by SIGXFSZ. */
static int dlpi_index_write(const dlpi_index *x, const char *path, const dlpi_index_key *key) {
    char name[DLPI_FORMATS_PATH + 16];
    uint64_t head[DLPI_INDEX_WORDS];
    struct rlimit most;
    struct timespec now;
    int fd, rc;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 &&
        most.rlim_cur / sizeof(uint64_t) < DLPI_INDEX_WORDS + x->n + 1)
        return EFBIG;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof name, "%s.%08x.new", path,
             (unsigned)dlp_hash((uint64_t)getpid(), (uint64_t)(uintptr_t)x, (uint64_t)now.tv_sec,
                                (uint64_t)now.tv_nsec));
    fd = dlpi_formats_above(open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (fd < 0) return errno;
    dlpi_index_head(head, key, x);
    rc = dlpi_index_put(fd, head, sizeof head);
    if (rc == 0) rc = dlpi_index_put(fd, x->at, (x->n + 1) * sizeof *x->at);
    if (close(fd) != 0 && rc == 0) rc = errno;
    if (rc == 0 && rename(name, path) != 0) rc = errno;
    if (rc != 0) unlink(name);
    return rc;
}

/* Where item i lies. Returns false if the index cannot be that of a file of so many bytes. */
static inline bool dlpi_index_item(const dlpi_index *x, uint64_t bytes, uint64_t i, uint64_t *from,
                                   uint64_t *to) {
    memcpy(from, x->at + i, sizeof *from); /* copied once, then checked */
    memcpy(to, x->at + i + 1, sizeof *to);
    return *from < *to && *to <= bytes;
}

/* ---------------------------------------------------------------------------------------------
   >>formats-impl-indexed   A SOURCE OF FILES THAT HAVE AN INDEX
   It is a source of >>files, which reads stretches of files: locate finds the stretch of an item
   in the index, and decode, which each format has, makes the item. The source is a copy of that
   of the files, with a dataset and a close of its own. */

typedef struct dlpi_indexed_file {
    char *path;
    uint64_t bytes, first; /* first: number of its first item */
    dlpi_index index;
    int fd;        /* -1: not open */
    int unwritten; /* errno: why its index file could not be written; 0: it was, or need not be */
    bool found;    /* its items were found now */
} dlpi_indexed_file;

typedef struct dlpi_indexed {
    dlp_source source; /* first */
    dlp_source *files; /* what reads */
    dlp_dataset dataset;
    uint64_t n_files, n_items, most, found, id;
    dlpi_indexed_file *file;
    /* What the format sets. */
    uint64_t kind;         /* DLPI_INDEX_* */
    uint64_t skip, before; /* items left out at each file's beginning; bytes to read before one */
    const char *directory; /* for index files, as in the desc; only while it is opened */
    int threads;
    int (*find)(struct dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err); /* fill f->index */
    char warning[256];
} dlpi_indexed;

/* ---- threads that find items ---- */

typedef struct dlpi_jobs {
    pthread_mutex_t lock;
    uint64_t next, n;
    uint64_t failed; /* the first one that failed; n: none */
    int rc;
    dlp_error *err;
    int (*run)(void *user, uint64_t i, dlp_error *err);
    void *user;
} dlpi_jobs;

static void *dlpi_jobs_thread(void *arg) {
    dlpi_jobs *j = arg;
    dlp_error err;
    for (;;) {
        uint64_t i;
        int rc;
        pthread_mutex_lock(&j->lock);
        i = j->rc == DLP_OK ? j->next++ : j->n;
        pthread_mutex_unlock(&j->lock);
        if (i >= j->n) return NULL;
        if ((rc = j->run(j->user, i, &err)) == DLP_OK) continue;
        pthread_mutex_lock(&j->lock);
        if (i < j->failed) {
            j->failed = i;
            j->rc = rc;
            if (j->err != NULL) *j->err = err;
        }
        pthread_mutex_unlock(&j->lock);
    }
}

/* Run jobs 0..n - 1 in threads, of which this one is the first. Returns what the first job that
   failed returned. */
static int dlpi_jobs_run(uint64_t n, int threads, int (*run)(void *, uint64_t, dlp_error *),
                         void *user, dlp_error *err) {
    dlpi_jobs j = {PTHREAD_MUTEX_INITIALIZER, 0, n, n, DLP_OK, err, run, user};
    pthread_t others[256];
    int n_others = 0;
    while (n_others < threads - 1 && (uint64_t)n_others + 1 < n &&
           pthread_create(&others[n_others], NULL, dlpi_jobs_thread, &j) == 0)
        n_others++;
    dlpi_jobs_thread(&j);
    for (int i = 0; i < n_others; i++) pthread_join(others[i], NULL);
    pthread_mutex_destroy(&j.lock);
    return j.rc;
}

static int dlpi_jobs_threads(int32_t given) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (given > 0) return given;
    return cpus < 1 ? 1 : cpus > 16 ? 16 : (int)cpus;
}

/* ---- open ---- */

static int dlpi_indexed_stat(const dlpi_indexed_file *f, struct stat *st, dlp_error *err) {
    if (fstat(f->fd, st) != 0) return dlpi_formats_system(err, f->path, "fstat", errno);
    if (S_ISREG(st->st_mode)) return DLP_OK;
    return dlpi_formats_error(err, DLP_ERR_ARG, 0, "path", "%s: is %s", dlpi_formats_name(f->path),
                              S_ISDIR(st->st_mode) ? "a directory" : "no regular file");
}

/* Find the items of a file, and write the index file if there is to be one. */
static int dlpi_indexed_find(dlpi_indexed *x, dlpi_indexed_file *f, const dlpi_index_key *key,
                             const char *path, dlp_error *err) {
    struct stat st;
    dlpi_index_key now;
    dlpi_index map;
    int rc = x->find(x, f, err);
    if (rc != DLP_OK || (rc = dlpi_indexed_stat(f, &st, err)) != DLP_OK) return rc;
    now = dlpi_index_key_of(&st, x->kind);
    if (memcmp(&now, key, sizeof now) != 0)
        return dlpi_formats_error(err, DLP_ERR_CORRUPT, 0, "path",
                                  "%s: changed while its items were found",
                                  dlpi_formats_name(f->path));
    f->found = true;
    if (path[0] == 0) return DLP_OK;
    f->unwritten = dlpi_index_write(&f->index, path, key);
    if (f->unwritten != 0 || !dlpi_index_map(&map, path, key)) return DLP_OK;
    dlpi_index_free(&f->index);
    f->index = map;
    return DLP_OK;
}

/* Open file i, and take its index or find its items. */
static int dlpi_indexed_one(void *user, uint64_t i, dlp_error *err) {
    dlpi_indexed *x = user;
    dlpi_indexed_file *f = &x->file[i];
    char path[DLPI_FORMATS_PATH] = "";
    dlpi_index_key key;
    struct stat st;
    int rc;
    if ((f->fd = dlpi_formats_open(f->path)) < 0)
        return dlpi_formats_system(err, f->path, "open", errno);
    if ((rc = dlpi_indexed_stat(f, &st, err)) != DLP_OK) return rc;
    f->bytes = (uint64_t)st.st_size;
    key = dlpi_index_key_of(&st, x->kind);
    if ((x->directory == NULL || x->directory[0] != 0) &&
        !dlpi_index_path(path, x->directory, f->path))
        return dlpi_formats_system(err, f->path, "name of its index", ENAMETOOLONG);
    if (path[0] != 0 && dlpi_index_map(&f->index, path, &key)) return DLP_OK;
    return dlpi_indexed_find(x, f, &key, path, err);
}

/* Count the items of all files. */
static void dlpi_indexed_count(dlpi_indexed *x) {
    x->id = dlp_hash(x->kind, x->skip, x->n_files, 0);
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_indexed_file *f = &x->file[i];
        const uint64_t n = f->index.n > x->skip ? f->index.n - x->skip : 0;
        f->first = x->n_items;
        x->n_items += n;
        if (n > 0 && f->index.most > x->most) x->most = f->index.most;
        x->found += f->found;
        x->id = dlp_hash(x->id, n, f->bytes, 0);
        if (f->unwritten != 0 && x->warning[0] == 0)
            snprintf(x->warning, sizeof x->warning,
                     "%s: its index file cannot be written (%s); it is made again by each open",
                     dlpi_formats_name(f->path), strerror(f->unwritten));
    }
}

/* Free a source, also one that was opened in part. */
static void dlpi_indexed_free(dlpi_indexed *x) {
    for (uint64_t i = 0; i < x->n_files; i++) {
        dlpi_index_free(&x->file[i].index);
        if (x->file[i].fd >= 0) close(x->file[i].fd);
        free(x->file[i].path);
    }
    free(x->file);
    free(x);
}

/* Is a list of files given, by one path or by several? Else say what is wrong. */
static const char *dlpi_indexed_wrong(const char *path, const char *const *paths, uint64_t n,
                                      int32_t threads, const char **field) {
    if ((path == NULL) == (paths == NULL)) return *field = "path", "one of path and paths";
    if (path != NULL && n != 0) return *field = "n_paths", "0 with path";
    if (paths != NULL && (n == 0 || n > 1u << 20)) return *field = "n_paths", "1 to 2^20";
    for (uint64_t i = 0; i < n; i++)
        if (paths[i] == NULL) return *field = "paths", "none of them NULL";
    if (threads < 0 || threads > 256) return *field = "threads", "0 to 256";
    return NULL;
}

/* Make the record of a source. bytes: of the record that begins with dlpi_indexed. */
static void *dlpi_indexed_new(size_t bytes, const char *path, const char *const *paths,
                              uint64_t n_paths) {
    dlpi_indexed *x = calloc(1, bytes);
    const uint64_t n = path != NULL ? 1 : n_paths;
    if (x == NULL) return NULL;
    x->file = calloc((size_t)n, sizeof *x->file);
    for (uint64_t i = 0; x->file != NULL && i < n; i++) {
        x->file[i].fd = -1;
        x->n_files = i + 1;
        if ((x->file[i].path = strdup(path != NULL ? path : paths[i])) != NULL) continue;
        dlpi_indexed_free(x);
        return NULL;
    }
    if (x->file != NULL) return x;
    free(x);
    return NULL;
}

/* Open all files. together: several files at once, or each file by several threads. */
static int dlpi_indexed_open(dlpi_indexed *x, bool together, dlp_error *err) {
    int rc = dlpi_jobs_run(x->n_files, together ? x->threads : 1, dlpi_indexed_one, x, err);
    if (rc != DLP_OK) return rc;
    dlpi_indexed_count(x);
    if (x->n_items > 0) return DLP_OK;
    return dlpi_formats_error(err, DLP_ERR_ARG, 0, "path", "%s: no items in %s",
                              dlpi_formats_name(x->file[0].path),
                              x->n_files > 1 ? "this and the other files" : "this file");
}

/* ---- items ---- */

/* The file of an item: the last one that begins at it or before, among those that have items. */
static inline const dlpi_indexed_file *dlpi_indexed_file_of(const dlpi_indexed *x, uint64_t index) {
    uint64_t low = 0, n = x->n_files;
    while (n > 1) {
        uint64_t half = n / 2;
        low = x->file[low + half].first <= index ? low + half : low;
        n -= half;
    }
    return &x->file[low];
}

/* Say that what is at an item is not what the index promises. */
static int dlpi_indexed_unlike(const dlpi_indexed_file *f, const dlp_item *item, uint64_t at) {
    return dlp_fail(item->call, 0,
                    "%s: byte %" PRIu64 ": the index does not fit the file; remove its .dlpidx",
                    dlpi_formats_name(f->path), at);
}

/* Say that an item is too long. */
static int dlpi_indexed_long(const dlpi_indexed_file *f, const dlp_item *item, uint64_t at,
                             uint64_t n, uint64_t most) {
    dlp_fail(item->call, 0, "%s: byte %" PRIu64 ": %" PRIu64 " bytes, %" PRIu64 " are the most",
             dlpi_formats_name(f->path), at, n, most);
    return DLP_ERR_LENGTH;
}

static int dlpi_indexed_locate(void *user, const dlp_item *item, dlp_extent *out) {
    const dlpi_indexed *x = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(x, item->index);
    uint64_t from, to;
    if (!dlpi_index_item(&f->index, f->bytes, item->index - f->first + x->skip, &from, &to))
        return dlpi_indexed_unlike(f, item, from);
    if (from >= x->before) from -= x->before;
    out->fd = f->fd;
    out->path = f->path;
    out->offset = from;
    out->length = to - from;
    return 0;
}

/* ---- the source ---- */

static int dlpi_indexed_close(dlpi_indexed *x) {
    const int rc = dlp_source_close(x->files);
    if (rc == DLP_OK) dlpi_indexed_free(x);
    return rc;
}

/* Make the source. desc: what >>files needs beyond the places of items. */
static int dlpi_indexed_source(dlpi_indexed *x, const dlp_files_desc *desc,
                               int (*close_it)(dlp_source *), dlp_error *err) {
    dlp_files_desc d = *desc;
    int rc;
    d.n_items = x->n_items;
    d.locate = dlpi_indexed_locate;
    d.user = x;
    if ((rc = dlp_files_open(&x->files, &d, err)) != DLP_OK) return rc;
    x->dataset = *x->files->fetch.dataset;
    x->dataset.warning = x->warning[0] ? x->warning : NULL;
    x->source = *x->files;
    x->source.fetch.dataset = &x->dataset;
    x->source.id = x->id;
    x->source.close = close_it;
    return DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>formats-impl-lines     LINES
   Threads look for line ends, each in a stretch of the file. A place is the byte behind a line
   end. If empty lines are no items, they lie before the line of their item. */

enum { DLPI_LINES_STRETCH = 64 << 20, DLPI_LINES_LEAST = 64 << 10, DLPI_LINES_BLOCK = 1 << 20 };

typedef struct dlpi_lines {
    dlpi_indexed x; /* first */
    dlp_lines_desc d;
    dlp_lines_info info;
    dlp_field field; /* of a source without fields */
} dlpi_lines;

/* ---- line ends ---- */

typedef struct dlpi_line_ends {
    uint64_t *at;
    uint64_t n, room;
} dlpi_line_ends;

typedef struct dlpi_lines_find {
    const dlpi_lines *l;
    const dlpi_indexed_file *f;
    uint64_t stretch;     /* bytes */
    dlpi_line_ends *ends; /* of each stretch */
} dlpi_lines_find;

static bool dlpi_line_ends_add(dlpi_line_ends *e, uint64_t at) {
    if (e->n == e->room) {
        uint64_t room = 2 * e->room + 1024;
        uint64_t *more = realloc(e->at, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        e->at = more;
        e->room = room;
    }
    e->at[e->n++] = at;
    return true;
}

/* Find line ends in n bytes, before which 2 more bytes lie. begins: byte of the file. */
static bool dlpi_lines_block(const dlpi_lines *l, dlpi_line_ends *e, const uint8_t *bytes,
                             uint64_t n, uint64_t begins) {
    const uint8_t *at = bytes, *end = bytes + n;
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        bool empty = at[-1] == '\n' || (at[-1] == '\r' && at[-2] == '\n');
        at++;
        if (empty && l->d.no_empty) continue;
        if (!dlpi_line_ends_add(e, begins + (uint64_t)(at - bytes))) return false;
    }
    return true;
}

/* The next byte of a sparse file that is no part of a hole. before: the 2 bytes before it. */
static uint64_t dlpi_lines_data(const dlpi_indexed_file *f, uint64_t at, uint64_t end,
                                uint8_t before[2]) {
    off_t data = at < end ? lseek(f->fd, (off_t)at, SEEK_DATA) : (off_t)at;
    if (data < 0) return errno == ENXIO ? end : at; /* nothing but a hole; or nobody knows */
    if ((uint64_t)data > at) memset(before, 0, 2);
    return (uint64_t)data;
}

/* Find the line ends of stretch i. */
static int dlpi_lines_stretch(void *user, uint64_t i, dlp_error *err) {
    const dlpi_lines_find *find = user;
    const dlpi_indexed_file *f = find->f;
    const uint64_t most = find->stretch;
    uint64_t at = i * most, end = f->bytes - at < most ? f->bytes : at + most;
    uint8_t *buffer = malloc(DLPI_LINES_BLOCK + 2);
    int rc = DLP_OK;
    if (buffer == NULL) return dlpi_formats_system(err, f->path, "malloc", ENOMEM);
    memset(buffer, '\n', 2); /* as if a line had ended before the first one */
    if (at > 0 && dlpi_formats_read(f->fd, at - 2, 2, buffer) != 2)
        rc = dlpi_formats_system(err, f->path, "read", errno);
    while (rc == DLP_OK && (at = dlpi_lines_data(f, at, end, buffer)) < end) {
        uint64_t n = end - at < DLPI_LINES_BLOCK ? end - at : DLPI_LINES_BLOCK;
        int64_t got = dlpi_formats_read(f->fd, at, n, buffer + 2);
        if (got < 0) rc = dlpi_formats_system(err, f->path, "read", errno);
        if (got < (int64_t)n) break; /* it was cut: the caller sees that it has changed */
        if (!dlpi_lines_block(find->l, &find->ends[i], buffer + 2, n, at))
            rc = dlpi_formats_system(err, f->path, "malloc", ENOMEM);
        memmove(buffer, buffer + n, 2);
        at += n;
    }
    free(buffer);
    return rc;
}

/* Bytes of a stretch: a few for each thread. */
static uint64_t dlpi_lines_stretch_bytes(uint64_t bytes, int threads) {
    const uint64_t each = bytes / (4 * (uint64_t)threads);
    if (each > DLPI_LINES_STRETCH) return DLPI_LINES_STRETCH;
    return each < DLPI_LINES_LEAST ? DLPI_LINES_LEAST : each;
}

/* Put the line ends of all stretches together. tail: behind the last one a line follows. */
static int dlpi_lines_join(dlpi_indexed_file *f, const dlpi_line_ends *ends, uint64_t n, bool tail,
                           dlp_error *err) {
    uint64_t lines = tail, *at, k = 0;
    for (uint64_t i = 0; i < n; i++) lines += ends[i].n;
    if ((at = malloc((size_t)(lines + 1) * sizeof *at)) == NULL)
        return dlpi_formats_system(err, f->path, "malloc", ENOMEM);
    at[k++] = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (ends[i].n > 0) memcpy(at + k, ends[i].at, (size_t)ends[i].n * sizeof *at);
        k += ends[i].n;
    }
    if (tail) at[k] = f->bytes;
    f->index = (dlpi_index){.at = at, .n = lines, .memory = at};
    for (uint64_t i = 0; i < lines; i++)
        if (at[i + 1] - at[i] > f->index.most) f->index.most = at[i + 1] - at[i];
    return DLP_OK;
}

static int dlpi_lines_find_all(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    dlpi_lines *l = (dlpi_lines *)(void *)x;
    const uint64_t stretch = dlpi_lines_stretch_bytes(f->bytes, x->threads);
    const uint64_t n = f->bytes / stretch + (f->bytes % stretch != 0);
    dlpi_lines_find find = {l, f, stretch, calloc((size_t)n + 1, sizeof *find.ends)};
    char last = '\n';
    int rc;
    if (find.ends == NULL) return dlpi_formats_system(err, f->path, "malloc", ENOMEM);
    rc = dlpi_jobs_run(n, x->threads, dlpi_lines_stretch, &find, err);
    if (rc == DLP_OK && f->bytes > 0 && dlpi_formats_read(f->fd, f->bytes - 1, 1, &last) < 0)
        rc = dlpi_formats_system(err, f->path, "read", errno);
    if (rc == DLP_OK) rc = dlpi_lines_join(f, find.ends, n, last != '\n', err);
    for (uint64_t i = 0; i < n; i++) free(find.ends[i].at);
    free(find.ends);
    return rc;
}

/* ---- items ---- */

/* Find the line in the bytes of an item. at: its first byte in the file, before which one more byte
   was read. Returns false if these bytes are no line. */
static bool dlpi_lines_cut(const dlpi_lines *l, const dlpi_indexed_file *f, uint64_t at,
                           const char **line, uint64_t *n) {
    const char *from = *line, *end = from + *n;
    uint64_t rest = f->bytes - at;
    if (at > 0 && *from++ != '\n') return false;
    while (l->d.no_empty && from < end &&
           (*from == '\n' || (*from == '\r' && end - from > 1 && from[1] == '\n')))
        from += *from == '\n' ? 1 : 2;
    if (from == end) return false;
    if (end[-1] == '\n') {
        end--;
        if (end > from && end[-1] == '\r') end--;
    } else if ((uint64_t)(end - *line) - (at > 0) != rest) {
        return false; /* only the last line of a file has no end */
    }
    *line = from;
    *n = (uint64_t)(end - from);
    return memchr(from, '\n', (size_t)*n) == NULL;
}

static int dlpi_lines_decode(void *user, void *state, dlp_item *item, const void *bytes,
                             uint64_t n) {
    const dlpi_lines *l = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(&l->x, item->index);
    const char *line = bytes;
    uint64_t at, to, most = l->d.max_bytes;
    if (!dlpi_index_item(&f->index, f->bytes, item->index - f->first + l->x.skip, &at, &to) ||
        n != to - at + (at > 0) || !dlpi_lines_cut(l, f, at, &line, &n))
        return dlpi_indexed_unlike(f, item, at);
    if (most > 0 && n > most) return dlpi_indexed_long(f, item, at, n, most);
    if (l->d.parse != NULL) return l->d.parse(l->d.user, state, item, line, n);
    most = (uint64_t)l->x.dataset.fields->shape[0];
    if (n > most) return dlpi_indexed_long(f, item, at, n, most);
    if (n > 0) memcpy(item->data[0], line, (size_t)n);
    item->length[0] = n;
    return 0;
}

static int dlpi_lines_worker_init(void *user, int worker, void **state) {
    const dlpi_lines *l = user;
    return l->d.worker_init(l->d.user, worker, state);
}

static void dlpi_lines_worker_exit(void *user, int worker, void *state) {
    const dlpi_lines *l = user;
    l->d.worker_exit(l->d.user, worker, state);
}

/* ---- open, close ---- */

static int dlpi_lines_close(dlp_source *source) {
    return dlpi_indexed_close((dlpi_indexed *)(void *)source);
}

static const char *dlpi_lines_wrong(const dlp_lines_desc *d, const char **field) {
    const char *wrong = dlpi_indexed_wrong(d->path, d->paths, d->n_paths, d->threads, field);
    if (wrong != NULL) return wrong;
    if (d->max_bytes > UINT64_C(1) << 40) return *field = "max_bytes", "0 to 2^40";
    if (d->no_empty < 0 || d->no_empty > 1) return *field = "no_empty", "0 or 1";
    if ((d->fields == NULL) != (d->n_fields == 0))
        return *field = "n_fields", "0 if fields is NULL, and only then";
    if (d->parse != NULL && d->n_fields == 0) return *field = "fields", "those that parse writes";
    if (d->parse == NULL && d->n_fields > 0 &&
        (d->n_fields > 1 || !d->fields->ragged || d->fields->ndim != 1 ||
         (d->fields->dtype & 0xffff) != 8))
        return *field = "fields",
               "one without a parse: ragged, of one dimension and one byte an element";
    return NULL;
}

/* Make the source of the lines that were found. */
static int dlpi_lines_source(dlpi_lines *l, dlp_error *err) {
    const dlp_lines_desc *d = &l->d;
    const bool alone = d->in_flight == 0;
    const uint64_t most =
        d->max_bytes > 0 && d->max_bytes < l->x.most ? d->max_bytes + 2 : l->x.most;
    dlp_files_desc files = {.fields = d->fields,
                            .n_fields = d->n_fields,
                            .use_threads = d->use_threads,
                            .decode = dlpi_lines_decode,
                            .max_bytes = most + 1, /* and the byte before */
                            .worker_init = d->worker_init ? dlpi_lines_worker_init : NULL,
                            .worker_exit = d->worker_exit ? dlpi_lines_worker_exit : NULL};
    int rc;
    files.in_flight = d->in_flight;
    if (alone) files.in_flight = 1;
    l->field = (dlp_field){.name = "line", .dtype = DLP_U8, .ndim = 1, .ragged = 1};
    l->field.shape[0] = (int64_t)(d->max_bytes > 0 ? d->max_bytes : l->x.most);
    if (d->n_fields == 0) {
        files.fields = &l->field;
        files.n_fields = 1;
    }
    rc = dlpi_indexed_source(&l->x, &files, dlpi_lines_close, err);
    if (rc != DLP_OK) return rc;
    if (alone) { /* the worker reads; short lines of a file in memory take less than a ring */
        l->x.source.fetch.fetcher = DLP_FETCH_SEQUENTIAL;
        l->x.source.fetch.in_flight = 0;
    }
    l->info = (dlp_lines_info){.n_items = l->x.n_items,
                               .longest = l->x.most,
                               .found = l->x.found,
                               .worker_bytes = dlp_files_worker_bytes(l->x.files),
                               .id = l->x.id,
                               .warning = l->x.dataset.warning};
    return DLP_OK;
}

DLPDEF int dlp_lines_open(dlp_source **out, const dlp_lines_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_lines *l;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_formats_error(err, DLP_ERR_ARG, 0, "", "out and desc are required");
    if ((wrong = dlpi_lines_wrong(desc, &field)) != NULL)
        return dlpi_formats_error(err, DLP_ERR_ARG, 0, field, "%s: it must be %s", field, wrong);
    l = dlpi_indexed_new(sizeof *l, desc->path, desc->paths, desc->n_paths);
    if (l == NULL) return dlpi_formats_error(err, DLP_ERR_MEMORY, ENOMEM, "", "malloc failed");
    l->d = *desc;
    l->x.kind = desc->no_empty ? DLPI_INDEX_NO_EMPTY : DLPI_INDEX_LINES;
    l->x.skip = desc->skip;
    l->x.before = 1;
    l->x.directory = desc->index;
    l->x.threads = dlpi_jobs_threads(desc->threads);
    l->x.find = dlpi_lines_find_all;
    rc = dlpi_indexed_open(&l->x, false, err);
    if (rc == DLP_OK) rc = dlpi_lines_source(l, err);
    if (rc == DLP_OK)
        *out = &l->x.source;
    else
        dlpi_indexed_free(&l->x);
    return rc;
}

DLPDEF const dlp_lines_info *dlp_lines_describe(const dlp_source *source) {
    return source != NULL && source->close == dlpi_lines_close
               ? &((const dlpi_lines *)(const void *)source)->info
               : NULL;
}

/* ---------------------------------------------------------------------------------------------
   >>formats-impl-tar       MEMBERS OF A TAR
   The one place where bytes of a shard are believed. All sizes and places are compared with the
   length of the shard before they are used. It reads from memory, or from a descriptor: headers
   alone. */

enum {
    DLPI_TAR_BLOCK = 512,
    DLPI_TAR_NAME = 4096,             /* bytes of a name, its end included */
    DLPI_TAR_PAX = 64 << 10,          /* most bytes of a pax header */
    DLPI_TAR_MEMBERS = 256,           /* of a sample */
    DLPI_TAR_TEXT = 2 * DLPI_TAR_NAME /* the key of a sample and its extensions */
};

typedef struct dlpi_tar {
    const uint8_t *bytes; /* NULL: it is read from fd */
    uint8_t *room;        /* [DLPI_TAR_PAX] for what is read */
    uint64_t size;        /* bytes of the shard, or of a part of it */
    int fd;
    bool extent; /* a part: it ends with its last member */
    /* Where the next header is; what is wrong, and at which byte. */
    uint64_t at, wrong_at;
    int code, errnum;
    char why[160];
} dlpi_tar;

/* A member that is a regular file. */
typedef struct dlpi_tar_entry {
    uint64_t begins;      /* byte of the first header that is about it */
    uint64_t data, bytes; /* first byte, number of bytes */
    size_t key; /* bytes of name that are the key; the extension is behind the next byte */
    char name[DLPI_TAR_NAME];
} dlpi_tar_entry;

/* A header, as far as it matters. */
typedef struct dlpi_tar_head {
    uint64_t size;
    char type;
    char name[DLPI_TAR_BLOCK];
} dlpi_tar_head;

/* Say what is wrong at a byte. Returns -1. */
__attribute__((format(printf, 4, 5))) static int dlpi_tar_wrong(dlpi_tar *t, int code, uint64_t at,
                                                                const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(t->why, sizeof t->why, format, args);
    va_end(args);
    t->code = code;
    t->wrong_at = at;
    return -1;
}

/* n bytes from byte `at` on, which stay until the next call. NULL: they are not there. */
static const uint8_t *dlpi_tar_bytes(dlpi_tar *t, uint64_t at, uint64_t n, const char *what) {
    int64_t got;
    if (at > t->size || n > t->size - at) {
        dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->size, "it was cut: it ends in %s", what);
        return NULL;
    }
    if (t->bytes != NULL) return t->bytes + at;
    got = dlpi_formats_read(t->fd, at, n, t->room);
    if (got == (int64_t)n) return t->room;
    t->errnum = got < 0 ? errno : 0;
    dlpi_tar_wrong(t, got < 0 ? DLP_ERR_SYSTEM : DLP_ERR_CORRUPT, at, "%s",
                   got < 0 ? strerror(t->errnum) : "it was cut while it was read");
    return NULL;
}

/* ---- a header ---- */

/* A number in octal digits, with blanks before and a blank or 0 behind; or, if the first bit is
   set, in base 256. Returns false if it is none. */
static bool dlpi_tar_number(const uint8_t *text, int n, uint64_t *to) {
    uint64_t value = 0;
    int i = 0;
    if (text[0] == 0x80) {
        for (i = 1; i < n; i++) {
            if (value >> 55 != 0) return false;
            value = value << 8 | text[i];
        }
        *to = value;
        return true;
    }
    while (i < n && text[i] == ' ') i++;
    for (; i < n && text[i] >= '0' && text[i] <= '7'; i++) value = value * 8 + (text[i] - '0');
    *to = value;
    return i == n || text[i] == 0 || text[i] == ' ';
}

/* Is the sum of the header right? Its own 8 bytes count as blanks. Old programs took bytes as
   signed: 256 less for each above 127. */
static bool dlpi_tar_sum(const uint8_t *h) {
    uint32_t sum = 8 * ' ', high = 0;
    uint64_t want;
    for (int i = 0; i < DLPI_TAR_BLOCK; i++) sum += h[i];
    for (int i = 148; i < 156; i++) sum -= h[i];
    if (!dlpi_tar_number(h + 148, 8, &want)) return false;
    if (want == sum) return true;
    for (int i = 0; i < DLPI_TAR_BLOCK; i++) high += (i < 148 || i >= 156) && h[i] > 127;
    return (int64_t)want == (int64_t)sum - 256 * (int64_t)high;
}

static const char *dlpi_tar_other(const uint8_t *h) {
    if (h[0] == 0x1f && h[1] == 0x8b) return "is no tar, but compressed by gzip";
    if (memcmp(h, "\x28\xb5\x2f\xfd", 4) == 0) return "is no tar, but compressed by zstd";
    if (memcmp(h, "PK\3\4", 4) == 0) return "is no tar, but a zip";
    return "is no tar: the sum of its first header is wrong";
}

/* Read a header. Returns 1; 0: the end of the shard; -1. */
static int dlpi_tar_header(dlpi_tar *t, dlpi_tar_head *to) {
    static const uint8_t zeros[DLPI_TAR_BLOCK];
    const uint8_t *h;
    size_t n = 0;
    if (t->extent && t->at == t->size) return 0;
    h = dlpi_tar_bytes(t, t->at, DLPI_TAR_BLOCK,
                       t->at == t->size ? "no block of zeros" : "a header");
    if (h == NULL) return -1;
    if (memcmp(h, zeros, sizeof zeros) == 0 && !t->extent) return 0;
    if (!dlpi_tar_sum(h))
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "%s",
                              t->at == 0 && !t->extent ? dlpi_tar_other(h)
                                                       : "the sum of this header is wrong");
    to->type = (char)h[156];
    if (!dlpi_tar_number(h + 124, 12, &to->size))
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "the size in this header is no number");
    if (memcmp(h + 257,
               "ustar\0"
               "00",
               8) == 0 &&
        h[345] != 0) { /* a prefix; not of GNU's */
        n = strnlen((const char *)h + 345, 155);
        memcpy(to->name, h + 345, n);
        to->name[n++] = '/';
    }
    memcpy(to->name + n, h, 100);
    to->name[n + 100] = 0;
    return 1;
}

/* Go behind the data of a member. Returns false if the shard has not as many bytes. */
static bool dlpi_tar_skip(dlpi_tar *t, uint64_t size, const char *name) {
    const uint64_t data = t->at + DLPI_TAR_BLOCK, rest = t->size - data;
    if (size > rest) {
        dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->size,
                       "it was cut: %.60s has %" PRIu64 " bytes, %" PRIu64 " are there", name, size,
                       rest);
        return false;
    }
    size += (DLPI_TAR_BLOCK - size % DLPI_TAR_BLOCK) % DLPI_TAR_BLOCK;
    t->at = data + size; /* at most a block behind the end, which the next header finds */
    return true;
}

/* ---- what pax and GNU headers say of the next member ---- */

typedef struct dlpi_tar_next {
    bool name, size; /* they are said */
    uint64_t bytes;
} dlpi_tar_next;

static int dlpi_tar_bad_pax(dlpi_tar *t, const char *what) {
    return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "the pax header here: %s", what);
}

/* Take a name. Returns 0 or -1. */
static int dlpi_tar_long_name(dlpi_tar *t, dlpi_tar_next *next, dlpi_tar_entry *e,
                              const uint8_t *text, uint64_t n) {
    if (n == 0 || n >= DLPI_TAR_NAME || memchr(text, 0, (size_t)n) != NULL)
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at,
                              "a name here has no byte, a 0, or more "
                              "than %d bytes",
                              DLPI_TAR_NAME - 1);
    memcpy(e->name, text, (size_t)n);
    e->name[n] = 0;
    next->name = true;
    return 0;
}

/* Take a record "key=value" of n bytes. global: of all members. Returns 0 or -1. */
static int dlpi_tar_pax_record(dlpi_tar *t, dlpi_tar_next *next, dlpi_tar_entry *e,
                               const uint8_t *key, uint64_t n, bool global) {
    const uint8_t *equals = memchr(key, '=', (size_t)n), *value;
    uint64_t key_bytes;
    if (equals == NULL) return dlpi_tar_bad_pax(t, "a record without =");
    key_bytes = (uint64_t)(equals - key);
    value = equals + 1;
    n -= key_bytes + 1;
    if (key_bytes > 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at,
                              "a sparse file; make the shard without --sparse");
    if (key_bytes != 4 || (memcmp(key, "path", 4) != 0 && memcmp(key, "size", 4) != 0)) return 0;
    if (global) return dlpi_tar_bad_pax(t, "a path or size for all members");
    if (key[0] == 'p') return dlpi_tar_long_name(t, next, e, value, n);
    next->bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || next->bytes > UINT64_MAX / 20)
            return dlpi_tar_bad_pax(t, "a size that is no number");
        next->bytes = next->bytes * 10 + (value[i] - '0');
    }
    next->size = n > 0;
    return 0;
}

/* Take all records: "LENGTH key=value\n". Returns 0 or -1. */
static int dlpi_tar_pax(dlpi_tar *t, dlpi_tar_next *next, dlpi_tar_entry *e, const uint8_t *text,
                        uint64_t n, bool global) {
    while (n > 0) {
        uint64_t length = 0, i = 0;
        for (; i < n && i < 8 && text[i] >= '0' && text[i] <= '9'; i++)
            length = length * 10 + (text[i] - '0');
        if (i == 0 || i >= n || text[i] != ' ' || length > n || length < i + 3 ||
            text[length - 1] != '\n')
            return dlpi_tar_bad_pax(t, "a record of a wrong length");
        i++;
        if (dlpi_tar_pax_record(t, next, e, text + i, length - i - 1, global) != 0) return -1;
        text += length;
        n -= length;
    }
    return 0;
}

/* Take a header that is about other members. Returns 1; 0: it is about itself; -1. */
static int dlpi_tar_extended(dlpi_tar *t, const dlpi_tar_head *h, dlpi_tar_next *next,
                             dlpi_tar_entry *e) {
    const uint64_t most = h->type == 'L' || h->type == 'K' ? DLPI_TAR_NAME : DLPI_TAR_PAX;
    const uint8_t *text;
    uint64_t n = h->size;
    int rc = 0;
    if (h->type != 'x' && h->type != 'g' && h->type != 'L' && h->type != 'K') return 0;
    if (n > most)
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at, "a header of %" PRIu64 " bytes", n);
    if ((text = dlpi_tar_bytes(t, t->at + DLPI_TAR_BLOCK, n, "a pax header or a long name")) ==
        NULL)
        return -1;
    while (h->type == 'L' && n > 0 && text[n - 1] == 0) n--;
    if (h->type == 'L') rc = dlpi_tar_long_name(t, next, e, text, n);
    if (h->type == 'x' || h->type == 'g') rc = dlpi_tar_pax(t, next, e, text, n, h->type == 'g');
    return rc == 0 && dlpi_tar_skip(t, h->size, "a header") ? 1 : -1;
}

/* ---- members ---- */

/* Find the key and the extension in a name. Returns false if it has none. */
static bool dlpi_tar_key(dlpi_tar_entry *e) {
    const char *slash = strrchr(e->name, '/'), *base = slash != NULL ? slash + 1 : e->name;
    const char *dot = strchr(base, '.');
    if (dot == NULL || dot == base) return false;
    e->key = (size_t)(dot - e->name);
    return true;
}

/* Is a member of this type left out? has_data: whether its size says how many bytes follow.
   Returns 1; 0: it is a file; -1. */
static int dlpi_tar_left_out(dlpi_tar *t, char type, bool *has_data) {
    *has_data = type == 'D' || type == 'V';
    if (type == '0' || type == 0 || type == '7') return 0;
    if ((type >= '1' && type <= '6') || *has_data) return 1;
    if (type == 'S')
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at,
                              "a sparse file; make the shard without --sparse");
    return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, t->at, "a member of type %d%s", type,
                          type == 'M' ? ", which began in another volume" : ", which is not known");
}

/* Go to the next file that has a key. Returns 1; 0: the end of the shard; -1. */
static int dlpi_tar_file(dlpi_tar *t, dlpi_tar_entry *e) {
    dlpi_tar_next next = {false, false, 0};
    dlpi_tar_head h = {.type = 0};
    e->begins = t->at;
    for (;;) {
        bool has_data;
        int rc = dlpi_tar_header(t, &h);
        if (rc == 0 && (next.name || next.size))
            return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, t->at, "it ends behind a pax header");
        if (rc != 1) return rc;
        if ((rc = dlpi_tar_extended(t, &h, &next, e)) < 0) return rc;
        if (rc == 1) continue;
        if ((rc = dlpi_tar_left_out(t, h.type, &has_data)) < 0) return rc;
        if (!next.name) memcpy(e->name, h.name, sizeof h.name);
        e->data = t->at + DLPI_TAR_BLOCK;
        e->bytes = rc == 1 && !has_data ? 0 : next.size ? next.bytes : h.size;
        if (!dlpi_tar_skip(t, e->bytes, e->name)) return -1;
        if (rc == 0 && dlpi_tar_key(e)) return 1;
        next = (dlpi_tar_next){false, false, 0};
        e->begins = t->at;
    }
}

/* ---- samples ---- */

/* Find where samples begin. add is given the place of each, and of the end. Returns 0 or -1. */
static int dlpi_tar_samples(dlpi_tar *t, bool (*add)(void *to, uint64_t at), void *to) {
    dlpi_tar_entry pair[2];
    int rc, k = 0;
    bool any = false;
    while ((rc = dlpi_tar_file(t, &pair[k])) == 1) {
        const dlpi_tar_entry *e = &pair[k], *before = &pair[1 - k];
        bool same = any && e->key == before->key && memcmp(e->name, before->name, e->key) == 0;
        if (!same && !add(to, e->begins))
            return dlpi_tar_wrong(t, DLP_ERR_MEMORY, e->begins, "no room for more samples");
        any = true;
        k = 1 - k;
    }
    if (rc == 0 && !add(to, t->at))
        return dlpi_tar_wrong(t, DLP_ERR_MEMORY, t->at, "no room for more samples");
    return rc;
}

typedef struct dlpi_tar_sample {
    dlp_tar_sample s;
    dlp_tar_member members[DLPI_TAR_MEMBERS];
    char text[DLPI_TAR_TEXT];
    size_t used; /* bytes of text */
} dlpi_tar_sample;

/* Keep a text. Returns NULL if there is no room. */
static const char *dlpi_tar_keep(dlpi_tar_sample *s, const char *text, size_t n) {
    char *to = s->text + s->used;
    if (n >= sizeof s->text - s->used) return NULL;
    memcpy(to, text, n);
    to[n] = 0;
    s->used += n + 1;
    return to;
}

static const dlp_tar_member *dlpi_tar_find(const dlp_tar_sample *s, const char *extension,
                                           size_t n) {
    for (uint32_t i = 0; i < s->n_members; i++)
        if (strncasecmp(s->members[i].extension, extension, n) == 0 &&
            s->members[i].extension[n] == 0)
            return &s->members[i];
    return NULL;
}

/* Read a sample, which is all of t: a part of a shard in memory. Returns 0 or -1. */
static int dlpi_tar_sample_read(dlpi_tar *t, dlpi_tar_sample *to) {
    dlpi_tar_entry e;
    int rc;
    to->s = (dlp_tar_sample){NULL, to->members, 0, 0};
    to->used = 0;
    while ((rc = dlpi_tar_file(t, &e)) == 1) {
        const char *extension = e.name + e.key + 1;
        dlp_tar_member *m = &to->members[to->s.n_members];
        if (to->s.key == NULL && (to->s.key = dlpi_tar_keep(to, e.name, e.key)) == NULL) break;
        if (strncmp(to->s.key, e.name, e.key) != 0 || to->s.key[e.key] != 0)
            return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, e.begins,
                                  "a member of another sample: the "
                                  "index does not fit the shard");
        if (to->s.n_members == DLPI_TAR_MEMBERS)
            return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, e.begins, "more than %d members of %.80s",
                                  DLPI_TAR_MEMBERS, to->s.key);
        if (dlpi_tar_find(&to->s, extension, strlen(extension)) != NULL)
            return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, e.begins, "a second member %.120s", e.name);
        m->extension = dlpi_tar_keep(to, extension, strlen(extension));
        if (m->extension == NULL) break;
        m->data = t->bytes + e.data;
        m->bytes = e.bytes;
        to->s.n_members++;
    }
    if (rc == 1)
        return dlpi_tar_wrong(t, DLP_ERR_UNSUPPORTED, e.begins,
                              "the names of a sample have more "
                              "than %d bytes",
                              DLPI_TAR_TEXT);
    if (rc == 0 && to->s.key == NULL)
        return dlpi_tar_wrong(t, DLP_ERR_CORRUPT, 0, "no member: the index does not fit the shard");
    return rc;
}

/* ---------------------------------------------------------------------------------------------
   >>formats-impl-tar-source  SAMPLES AS ITEMS */

typedef struct dlpi_tar_source {
    dlpi_indexed x; /* first */
    dlp_tar_desc d;
    dlp_tar_info info;
} dlpi_tar_source;

/* ---- fields ---- */

/* Where an error is told. name: of the shard; NULL: the error says by itself which shard it is. */
typedef struct dlpi_tar_told {
    dlp_call *call;
    const char *name;
} dlpi_tar_told;

__attribute__((format(printf, 3, 4))) static int dlpi_tar_fail(const dlpi_tar_told *told,
                                                               int errnum, const char *format,
                                                               ...) {
    char words[200];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    return dlp_fail(told->call, errnum, "%s%s%s",
                    told->name != NULL ? dlpi_formats_name(told->name) : "",
                    told->name != NULL ? ": " : "", words);
}

/* Find the member of field i: by its extensions, or its name. */
static const dlp_tar_member *dlpi_tar_member_of(const dlp_tar_desc *d, uint32_t i,
                                                const dlp_tar_sample *s) {
    const char *at = d->extensions != NULL ? d->extensions[i] : d->fields[i].name;
    const dlp_tar_member *m = NULL;
    while (m == NULL && *at != 0) {
        size_t n = strcspn(at, " ");
        m = n > 0 ? dlpi_tar_find(s, at, n) : NULL;
        at += n + (at[n] == ' ');
    }
    return m;
}

/* Copy the bytes of a member into field i. */
static int dlpi_tar_field(const dlp_field *f, dlp_item *item, uint32_t i, const dlpi_tar_told *told,
                          const dlp_tar_sample *s, const dlp_tar_member *m) {
    uint64_t row = ((f->dtype & 0xffff) + 7) / 8, most;
    for (int k = f->ragged ? 1 : 0; k < f->ndim; k++) row *= (uint64_t)f->shape[k];
    most = f->ragged ? row * (uint64_t)f->shape[0] : row;
    if (m->bytes > most || (!f->ragged && m->bytes < most) || m->bytes % row != 0) {
        const char *takes = row > 1 ? "whole rows, up to " : "up to ";
        dlpi_tar_fail(told, 0, "%.60s.%.30s has %" PRIu64 " bytes; field %s takes %s%" PRIu64,
                      s->key, m->extension, m->bytes, f->name, f->ragged ? takes : "", most);
        return DLP_ERR_LENGTH;
    }
    if (m->bytes > 0) memcpy(item->data[i], m->data, (size_t)m->bytes);
    if (f->ragged) item->length[i] = m->bytes / row;
    return 0;
}

/* Write the fields of an item. */
static int dlpi_tar_write(const dlp_tar_desc *d, void *state, dlp_item *item,
                          const dlpi_tar_told *told, const dlp_tar_sample *s) {
    int rc = 0;
    if (d->decode != NULL) return d->decode(d->user, state, item, s);
    for (uint32_t i = 0; i < d->n_fields && rc == 0; i++) {
        const dlp_tar_member *m = dlpi_tar_member_of(d, i, s);
        if (m != NULL)
            rc = dlpi_tar_field(&d->fields[i], item, i, told, s, m);
        else if (!d->optional || !d->fields[i].ragged)
            rc = dlpi_tar_fail(told, 0, "%.80s has no member .%.50s", s->key,
                               d->extensions != NULL ? d->extensions[i] : d->fields[i].name);
    }
    return rc;
}

/* Say what is wrong. begins: byte of the shard that t begins with. */
static int dlpi_tar_say(const dlpi_tar *t, const dlpi_tar_told *told, uint64_t begins) {
    return dlpi_tar_fail(told, t->errnum, "byte %" PRIu64 ": %s", begins + t->wrong_at, t->why);
}

/* Make an item of n bytes of a shard, which are in memory. begins: the first one's place. */
static int dlpi_tar_item(const dlp_tar_desc *d, void *state, dlp_item *item,
                         const dlpi_tar_told *told, const uint8_t *bytes, uint64_t n,
                         uint64_t begins) {
    dlpi_tar t = {.bytes = bytes, .size = n, .fd = -1, .extent = true};
    dlpi_tar_sample s;
    if (dlpi_tar_sample_read(&t, &s) != 0) return dlpi_tar_say(&t, told, begins);
    return dlpi_tar_write(d, state, item, told, &s.s);
}

/* ---- at random ---- */

typedef struct dlpi_tar_places {
    uint64_t *at, n, room;
} dlpi_tar_places;

static bool dlpi_tar_place(void *to, uint64_t at) {
    dlpi_tar_places *p = to;
    if (p->n == p->room) {
        uint64_t room = 2 * p->room + 256;
        uint64_t *more = realloc(p->at, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        p->at = more;
        p->room = room;
    }
    p->at[p->n++] = at;
    return true;
}

static int dlpi_tar_find_all(dlpi_indexed *x, dlpi_indexed_file *f, dlp_error *err) {
    dlpi_tar t = {.size = f->bytes, .fd = f->fd, .room = malloc(DLPI_TAR_PAX)};
    dlpi_tar_places p = {NULL, 0, 0};
    (void)x;
    if (t.room == NULL) return dlpi_formats_system(err, f->path, "malloc", ENOMEM);
    if (dlpi_tar_samples(&t, dlpi_tar_place, &p) != 0) {
        free(p.at);
        free(t.room);
        return dlpi_formats_error(err, t.code, t.errnum, "path", "%s: byte %" PRIu64 ": %s",
                                  dlpi_formats_name(f->path), t.wrong_at, t.why);
    }
    free(t.room);
    f->index = (dlpi_index){.at = p.at, .n = p.n - 1, .memory = p.at};
    for (uint64_t i = 0; i + 1 < p.n; i++)
        if (p.at[i + 1] - p.at[i] > f->index.most) f->index.most = p.at[i + 1] - p.at[i];
    return DLP_OK;
}

static int dlpi_tar_decode(void *user, void *state, dlp_item *item, const void *bytes, uint64_t n) {
    const dlpi_tar_source *s = user;
    const dlpi_indexed_file *f = dlpi_indexed_file_of(&s->x, item->index);
    const dlpi_tar_told told = {item->call, f->path};
    uint64_t from = 0, to;
    (void)dlpi_index_item(&f->index, f->bytes, item->index - f->first, &from, &to);
    return dlpi_tar_item(&s->d, state, item, &told, bytes, n, from);
}

static int dlpi_tar_worker_init(void *user, int worker, void **state) {
    const dlpi_tar_source *s = user;
    return s->d.worker_init(s->d.user, worker, state);
}

static void dlpi_tar_worker_exit(void *user, int worker, void *state) {
    const dlpi_tar_source *s = user;
    s->d.worker_exit(s->d.user, worker, state);
}

static int dlpi_tar_close(dlp_source *source) {
    return dlpi_indexed_close((dlpi_indexed *)(void *)source);
}

static const char *dlpi_tar_desc_wrong(const dlp_tar_desc *d, const char **field) {
    const char *wrong = dlpi_indexed_wrong(d->path, d->paths, d->n_paths, d->threads, field);
    if (wrong != NULL) return wrong;
    if (d->max_bytes > UINT64_C(1) << 40) return *field = "max_bytes", "0 to 2^40";
    if (d->optional < 0 || d->optional > 1) return *field = "optional", "0 or 1";
    if (d->fields == NULL) return *field = "fields", "those of a sample";
    if (d->n_fields < 1 || d->n_fields > DLP_MAX_FIELDS) return *field = "n_fields", "1 to 16";
    for (uint32_t i = 0; d->extensions != NULL && i < d->n_fields; i++)
        if (d->extensions[i] == NULL) return *field = "extensions", "none of them NULL";
    return NULL;
}

static int dlpi_tar_source_make(dlpi_tar_source *s, dlp_error *err) {
    const dlp_tar_desc *d = &s->d;
    dlp_files_desc files = {.fields = d->fields,
                            .n_fields = d->n_fields,
                            .use_threads = d->use_threads,
                            .decode = dlpi_tar_decode,
                            .max_bytes = d->max_bytes > 0 ? d->max_bytes : s->x.most,
                            .worker_init = d->worker_init ? dlpi_tar_worker_init : NULL,
                            .worker_exit = d->worker_exit ? dlpi_tar_worker_exit : NULL};
    int rc;
    files.in_flight = d->in_flight;
    if ((rc = dlpi_indexed_source(&s->x, &files, dlpi_tar_close, err)) != DLP_OK) return rc;
    s->info = (dlp_tar_info){.n_items = s->x.n_items,
                             .longest = s->x.most,
                             .found = s->x.found,
                             .worker_bytes = dlp_files_worker_bytes(s->x.files),
                             .id = s->x.id,
                             .warning = s->x.dataset.warning};
    return DLP_OK;
}

DLPDEF int dlp_tar_open(dlp_source **out, const dlp_tar_desc *desc, dlp_error *err) {
    const char *field = "", *wrong;
    dlpi_tar_source *s;
    int rc;
    if (out == NULL || desc == NULL)
        return dlpi_formats_error(err, DLP_ERR_ARG, 0, "", "out and desc are required");
    if ((wrong = dlpi_tar_desc_wrong(desc, &field)) != NULL)
        return dlpi_formats_error(err, DLP_ERR_ARG, 0, field, "%s: it must be %s", field, wrong);
    s = dlpi_indexed_new(sizeof *s, desc->path, desc->paths, desc->n_paths);
    if (s == NULL) return dlpi_formats_error(err, DLP_ERR_MEMORY, ENOMEM, "", "malloc failed");
    s->d = *desc;
    s->x.kind = DLPI_INDEX_TAR;
    s->x.directory = desc->index;
    s->x.threads = dlpi_jobs_threads(desc->threads);
    s->x.find = dlpi_tar_find_all;
    rc = dlpi_indexed_open(&s->x, true, err);
    if (rc == DLP_OK) rc = dlpi_tar_source_make(s, err);
    if (rc == DLP_OK)
        *out = &s->x.source;
    else
        dlpi_indexed_free(&s->x);
    return rc;
}

DLPDEF const dlp_tar_info *dlp_tar_describe(const dlp_source *source) {
    return source != NULL && source->close == dlpi_tar_close
               ? &((const dlpi_tar_source *)(const void *)source)->info
               : NULL;
}

/* ---- shards that are whole in memory ---- */

/* The name of a shard, if it is known. */
static const char *dlpi_tar_name(const dlp_tar_desc *d, uint64_t index) {
    return d->paths != NULL && index < d->n_paths ? d->paths[index] : NULL;
}

/* Places behind the bytes of a part: one of each sample, that of the end, and their number. */
typedef struct dlpi_tar_table {
    uint64_t *at, n, room;
} dlpi_tar_table;

static bool dlpi_tar_table_add(void *to, uint64_t at) {
    dlpi_tar_table *p = to;
    if (p->n == p->room) return false;
    p->at[p->n++] = at;
    return true;
}

DLPDEF int dlp_tar_load(void *parts, dlp_part *part) {
    const dlp_tar_parts *p = parts;
    const dlpi_tar_told told = {part->call, dlpi_tar_name(p->desc, part->index)};
    dlpi_tar t = {.bytes = part->data, .fd = -1};
    dlpi_tar_table to;
    uint64_t begins;
    int rc = p->load(p->user, part);
    if (rc != 0) return rc;
    if (part->bytes > part->capacity) return DLP_ERR_LENGTH;
    t.size = part->bytes;
    begins = (part->bytes + 7) / 8 * 8;
    to.at = (uint64_t *)(void *)((uint8_t *)part->data + begins);
    to.n = 0;
    to.room = begins + 8 < part->capacity ? (part->capacity - begins) / 8 - 1 : 0;
    if (dlpi_tar_samples(&t, dlpi_tar_table_add, &to) != 0) {
        if (t.code != DLP_ERR_MEMORY) return dlpi_tar_say(&t, &told, 0);
        dlpi_tar_fail(&told, 0,
                      "max_part_bytes is %" PRIu64 ", with no room for the places of %" PRIu64
                      " samples and more",
                      part->capacity, to.n);
        return DLP_ERR_LENGTH;
    }
    to.at[to.n] = to.n - 1;
    part->bytes = begins + (to.n + 1) * 8;
    if (part->items != 0 && part->items != to.n - 1)
        return dlpi_tar_fail(&told, 0, "%" PRIu64 " samples, not %" PRIu64, to.n - 1, part->items);
    part->items = to.n - 1;
    return 0;
}

DLPDEF int dlp_tar_fetch(void *parts, dlp_item *item) {
    const dlp_tar_parts *p = parts;
    const dlp_part *part = item->part;
    const uint64_t words = part != NULL && part->bytes % 8 == 0 ? part->bytes / 8 : 0;
    const uint64_t *word, *at;
    dlpi_tar_told told;
    uint64_t n;
    if (words < 2) return dlp_fail(item->call, 0, "no part that dlp_tar_load has loaded");
    word = part->data;
    n = word[words - 1];
    at = word + words - 2 - (n < words - 1 ? n : 0);
    if (n >= words - 1 || part->item >= n || at[part->item] > at[part->item + 1] ||
        at[part->item + 1] > part->bytes)
        return dlp_fail(item->call, 0, "no part that dlp_tar_load has loaded");
    told = (dlpi_tar_told){item->call, dlpi_tar_name(p->desc, part->index)};
    return dlpi_tar_item(p->desc, item->worker_state, item, &told,
                         (const uint8_t *)part->data + at[part->item],
                         at[part->item + 1] - at[part->item], at[part->item]);
}

/* Make an item as soon as the next one begins. */
typedef struct dlpi_tar_expander {
    const dlp_tar_desc *d;
    dlp_expand *x;
    dlpi_tar_told told;
    uint64_t from;
    bool any;
    int rc;
} dlpi_tar_expander;

static bool dlpi_tar_expand_add(void *to, uint64_t at) {
    dlpi_tar_expander *e = to;
    const dlp_item *input = e->x->item;
    if (e->any) {
        dlp_item *item = dlp_expand_add(e->x);
        e->rc = item == NULL ? DLP_ERR_LENGTH
                             : dlpi_tar_item(e->d, input->worker_state, item, &e->told,
                                             (const uint8_t *)input->data[0] + e->from,
                                             at - e->from, e->from);
    }
    e->from = at;
    e->any = true;
    return e->rc == 0;
}

DLPDEF int dlp_tar_expand(void *desc, dlp_expand *x) {
    const dlp_tar_desc *d = desc;
    dlpi_tar t = {.bytes = x->item->data[0], .size = x->item->length[0], .fd = -1};
    dlpi_tar_expander e = {d, x, {x->call, dlpi_tar_name(d, x->item->index)}, 0, false, 0};
    if (dlpi_tar_samples(&t, dlpi_tar_expand_add, &e) == 0) return 0;
    return e.rc != 0 ? e.rc : dlpi_tar_say(&t, &e.told, 0);
}

#endif /* DLPIPE_IMPLEMENTATION */

/* ---------------------------------------------------------------------------------------------
   >>formats-history      VERSIONS
   0.1.0   The first version. Its number is always that of dlpipe.h.

   >>formats-licence      MIT
   The licence is that of dlpipe.h. */
