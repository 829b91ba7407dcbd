/* needs: tokens */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>tokens     TOKENS OUT OF SHARDS, FOR LANGUAGE MODELS (examples/tokens.c)
   A dataset of windows of length + 1 tokens, cut out of files (shards) of uint16 or uint32 tokens:
   a step takes tokens [0, T) of a row as its input and [1, T + 1) as its targets. A window begins
   every stride tokens and never crosses a shard; what is left at a shard's end is in no item.

     dlp_tokens_desc shards = {.pattern = "fineweb10B/fineweb_train_*.bin", .length = 1024};
     dlp_source *tokens;
     if (dlp_tokens_open(&tokens, &shards, &err) != DLP_OK) ...
     dlp_loader_desc desc = {.source = tokens, .batch_size = 64, .num_workers = 1, .shuffle = 1};
     if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) ...
     ... the pipe, until it is closed: b->fields[0].data is uint16_t [64][1025]
     dlp_source_close(tokens);

   A window is one copy: a batch of 64 windows of 1,024 uint16 takes 20 to 30 us. One worker hides
   that behind the step. Where a step takes less than the copy, num_workers = 0 is up to a quarter
   faster: the rows are written in the cache of the core that reads them.

   The shuffle is that of the pipe: over all windows of all shards, in an order of each epoch's own,
   in no memory. So are ranks and states: a run resumes exactly, with any number of ranks and
   workers, and a state of other shards (their number, the tokens in each), or of another length or
   stride is refused: DLP_ERR_RESUME.

   Shards are mapped, and a window is copied once, from the mapping into its row. Read-ahead: the
   next MiB where windows come in order; else the windows that come read_ahead items later, as long
   as a probe now and then (one in 32) finds such a one not in memory. A shard that was cut since it
   was opened is an error of the item that needs it, found within a tick of the kernel's clock (some
   ms); one that is cut, or whose disk fails, while it is copied ends the process by SIGBUS, as any
   mapping does. `reads` turns both into errors, for a system call a window.

   A shard without a header of llm.c may be anything. A shard that begins with the magic of another
   format (npy, zip, gzip, zstd, HDF5, Parquet, an index of Megatron) is refused. The first 4 KiB of
   tokens are looked at as well. If every other word there is below 16, the ids have more bytes than
   `format` says. If most ids are above 2^24, they have fewer. All bytes may be text. Each of these
   is a warning: dlp_tokens_info.warning, and a warning of each pipe of the source. `insist` turns
   refusal and warnings off. */

enum {
    DLP_TOKENS_AUTO = 0, /* LLMC if the first shard begins with one of its magic numbers, else
                            NANOGPT */
    DLP_TOKENS_LLMC,     /* 256 int32, then tokens. [0] and [1] are 20240520 and 1 (uint16, GPT-2),
                            or 20240801 and 7 (uint32, Llama 3), [2] is the number of tokens */
    DLP_TOKENS_NANOGPT,  /* uint16 from the first byte on */
    DLP_TOKENS_U16,      /* header_bytes of anything, then uint16 ... */
    DLP_TOKENS_U32       /* ... or uint32 */
};

typedef struct dlp_tokens_desc {
    const char *pattern; /* glob(3), without braces and tildes: shards in the order of their paths'
                            bytes, whatever the locale. Or */
    const char *const *paths; /* [n_paths] shards in this order; copied */
    uint64_t n_paths;         /* 1..2^20. One descriptor is open for each shard: ulimit -n */
    int32_t format;           /* DLP_TOKENS_*, the same for all; little-endian */
    uint32_t windows;         /* 0: an item is one window, [T + 1]. 1..2^20: it is so many that
                                 follow each other in their shard, [windows, T + 1]: a micro-batch
                                 as one item, for a batch_size of 1 */
    uint64_t header_bytes;    /* _U16, _U32: before a shard's first token, any number; else 0 */
    uint64_t length;          /* T, required, 1..2^30 */
    uint64_t stride;          /* tokens from one window to the next, 1..2^48; 0: T, so that each
                                 token is a target once */
    int32_t widen;            /* 1: rows are DLP_I32, whatever the shards have. 0: as they have it,
                                 DLP_U16 or DLP_U32 */
    int32_t reads;            /* 1: pread in place of mappings */
    int32_t read_ahead;       /* items from one that is read to the one asked for, where they are
                                 shuffled; best a multiple of batch_size. 0: 256; DLP_NONE: none is
                                 asked for, in any order */
    int32_t insist;           /* 1: the shards are tokens of this format, whatever they look like */
    uint32_t multiple;        /* each shard gives a multiple of so many items, 1..2^20; the rest is
                                 left out; 0: 1. With batch_size, in order, no step has items of
                                 two shards, for any number of ranks: llm.c's rule */
} dlp_tokens_desc;

typedef struct dlp_tokens_shard {
    const char *path;
    uint64_t header_bytes;
    uint64_t tokens;
    uint64_t first_item, items; /* dataset indices first_item and so on */
    uint64_t left_out;          /* tokens at its end that no item has */
} dlp_tokens_shard;

typedef struct dlp_tokens_info {
    uint64_t n_items, tokens, left_out; /* of all shards */
    uint64_t length, stride, windows;   /* as they came out: none is 0 */
    dlp_dtype stored, dtype;            /* in the shards; of a row */
    uint64_t id; /* differs where shards' number or lengths, length, stride, windows or multiple do:
                    what states know this dataset by */
    uint64_t n_shards;
    const dlp_tokens_shard *shards; /* [n_shards] */
    const char *warning; /* the first shard that does not look like tokens, and why; NULL: none */
} dlp_tokens_info;

/* Open all shards and count their windows.
   out: to be closed; desc: copied; err: written on failure, may be NULL; its message names file and
   byte - returns DLP_OK; DLP_ERR_ARG (a field; no file matches; not one whole item in all of them);
   DLP_ERR_SYSTEM (a file cannot be opened or mapped: errnum); DLP_ERR_CORRUPT (wrong magic or
   version, another format's magic, a number of tokens that is not the file's, half a token);
   DLP_ERR_UNSUPPORTED (a big-endian machine); DLP_ERR_MEMORY - any thread - waits for the disk;
   allocates some 150 bytes a shard; mappings are not in the pipe's plan.
   Source: dataloader.h of llm.c (github.com/karpathy/llm.c), train.py of nanoGPT. */
DLPDEF int dlp_tokens_open(dlp_source **out, const dlp_tokens_desc *desc, dlp_error *err);

/* Tell what was found. The source's, until close; NULL if this is another source. Any thread; does
   not wait. */
DLPDEF const dlp_tokens_info *dlp_tokens_describe(const dlp_source *tokens);

enum {
    DLP_EOT_BEGINS = 0, /* the end-of-text token is a document's first, as in llm.c's shards */
    DLP_EOT_ENDS        /* ... its last, as in nanoGPT's */
};

/* Find the documents in a row: start[0] is 0, start[i] is where the next one begins, and after the
   last of n documents start[n] is length: the cumulative lengths that attention within documents
   wants (cu_seqlens), for the first `length` tokens of a row. A call for whoever needs it, in the
   step or in a batch map, rather than a field of every batch: which would be ragged, with room for
   length + 1 numbers in every row.
   tokens: [length], a row of a batch; dtype: DLP_U16, DLP_U32 or DLP_I32; eot: the token; rule:
   DLP_EOT_*; start: [room], written as far as there is room; length + 1 always suffices - returns
   n, 1 or more, or 0: length is 0 or 2^31 and more, or dtype none of those - any thread - does not
   wait or allocate. */
DLPDEF uint64_t dlp_tokens_documents(const void *tokens, dlp_dtype dtype, uint64_t length,
                                     uint32_t eot, int rule, int32_t *start, uint64_t room);
