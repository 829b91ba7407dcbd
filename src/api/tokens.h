/* needs: tokens */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>tokens     TOKENS OUT OF SHARDS, FOR LANGUAGE MODELS (examples/tokens.c)
   The items of this dataset are windows of length + 1 tokens, cut out of files (shards) of uint16
   or uint32 tokens. A training step takes tokens [0, T) of a row as its input and tokens [1, T + 1)
   as its targets. A window begins every stride tokens and never crosses a shard. The rest at the
   end of a shard is in no item.

     dlp_tokens_desc shards = {.pattern = "fineweb10B/fineweb_train_*.bin", .length = 1024};
     dlp_source *tokens;
     if (dlp_tokens_open(&tokens, &shards, &err) != DLP_OK) ...
     dlp_loader_desc desc = {.source = tokens, .batch_size = 64, .num_workers = 1, .shuffle = 1};
     if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) ...
     ... the pipe, until it is closed: b->fields[0].data is uint16_t [64][1025]
     dlp_source_close(tokens);

   A window is one copy: a batch of 64 windows of 1,024 uint16 takes 20 to 30 us. One worker hides
   this behind the step. If a step takes less time than the copy, num_workers = 0 is up to a quarter
   faster. The rows are then written in the cache of the core that reads them.

   The pipe shuffles all windows of all shards, in a new order for each epoch, and needs no memory
   for it. Ranks and states work as for any dataset: a run resumes exactly, with any number of ranks
   and workers. A state is refused (DLP_ERR_RESUME) if it is of other shards (their number, the
   tokens in each), of another length or of another stride.

   Shards are mapped, and a window is copied once, from the mapping into its row. If windows come in
   order, the next MiB is read ahead. Else the windows that come read_ahead items later are read
   ahead, as long as a probe finds such a window not in memory. About one item in 64 is probed. If a
   shard was cut since it was opened, the item that needs it fails. This is found within a tick of
   the kernel's clock (some ms). If a shard is cut, or its disk fails, during a copy, SIGBUS ends
   the process, as with any mapping. `reads` turns both into errors, and costs a system call a
   window.

   A mapped shard has a descriptor only while half of ulimit -n is free, so any number of shards can
   be open. With `reads` each shard has one. If a server comes back with new handles, a shard is
   opened again by its path. An item fails if the shard's length or time differs from what it was.

   A file of another format is refused by name. So are a compressed file, another file of llm.c, its
   shard in the other byte order, an index of Megatron, a pointer of git LFS, and a page of HTML. A
   shard with header_bytes may begin with anything.

   The first 4 KiB of tokens are checked as well. If every other word there is below 16, the ids
   have more bytes than `format` says. If most ids are above 2^24, they have fewer. The high bytes
   may come first, or all bytes may be text. All ids there, or in the last 64 KiB of a shard of more
   than 128 KiB, may be 0. Each of these is a warning: dlp_tokens_info.warning, and a warning of
   each pipe of the source. `insist` turns refusal and warnings off. */

enum {
    DLP_TOKENS_AUTO = 0, /* LLMC if the first shard begins with a magic number of LLMC, else
                            NANOGPT */
    DLP_TOKENS_LLMC,     /* 256 int32, then tokens. [0] and [1] are 20240520 and 1 (uint16, GPT-2),
                            or 20240801 and 7 (uint32, Llama 3). [2] is the number of tokens */
    DLP_TOKENS_NANOGPT,  /* uint16 tokens from the first byte on */
    DLP_TOKENS_U16,      /* header_bytes of any content, then uint16 tokens */
    DLP_TOKENS_U32       /* header_bytes of any content, then uint32 tokens */
};

typedef struct dlp_tokens_desc {
    const char *pattern; /* pattern of glob(3), without braces, tildes and [:classes:]. Shards come
                            in the order of the bytes of their paths. On Windows a backslash counts
                            as a slash, and takes no wildcard its meaning. NULL: give paths */
    const char *const *paths; /* [n_paths] shards in this order; copied. NULL: give pattern */
    uint64_t n_paths;         /* number of paths, 1..2^20. With `reads` a descriptor is open for
                                 each: ulimit -n */
    int32_t format;           /* DLP_TOKENS_*, for all shards; little-endian */
    uint32_t windows;         /* windows of an item. 0: an item is one window, [T + 1]. 1..2^20: an
                                 item is that many successive windows of a shard, [windows, T + 1].
                                 So a micro-batch is one item, for a batch_size of 1 */
    uint64_t header_bytes;    /* _U16, _U32: bytes before the first token of a shard, any number;
                                 else 0 */
    uint64_t length;          /* input tokens of a window (T), which has T + 1 tokens; required,
                                 1..2^30 */
    uint64_t stride;          /* tokens from one window to the next, 1..2^48; 0: T, so each token is
                                 a target once */
    int32_t widen;            /* 1: rows are DLP_I32. 0: rows have the type of the shards, DLP_U16
                                 or DLP_U32 */
    int32_t reads;            /* 1: read by pread, without mappings */
    int32_t read_ahead;       /* items between a read item and the item that is then read ahead, if
                                 items are shuffled. A multiple of batch_size is best. 0: 256;
                                 DLP_NONE: no read-ahead, in any order */
    int32_t insist;           /* 1: take the shards as tokens of this format, whatever they look
                                 like */
    uint32_t multiple;        /* divisor of the number of items of each shard, 1..2^20; the rest of
                                 a shard is left out; 0: 1. If it is batch_size and items come in
                                 order, no step has items of two shards, for any number of ranks:
                                 the rule of llm.c */
    int32_t moved;            /* 1: the shards may have other names than when a state was saved
                                 (>>state) */
} dlp_tokens_desc;

typedef struct dlp_tokens_shard {
    const char *path;
    uint64_t header_bytes;
    uint64_t tokens;
    uint64_t first_item, items; /* dataset index of the first item; number of items */
    uint64_t left_out;          /* tokens at the end of the shard that are in no item */
} dlp_tokens_shard;

typedef struct dlp_tokens_info {
    uint64_t n_items, tokens, left_out; /* numbers of items, of tokens, and of tokens in no item, in
                                  all shards */
    uint64_t length, stride, windows;   /* as in the desc, with defaults filled in: none is 0 */
    dlp_dtype stored, dtype;            /* type of tokens in the shards; in a row */
    uint64_t id; /* number by which states know this dataset. It differs if the number or the
                    lengths of shards, length, stride, windows or multiple differ */
    uint64_t n_shards;
    const dlp_tokens_shard *shards; /* [n_shards] */
    const char *warning; /* the first shard that does not look like tokens, and the reason; NULL: no
                            warning */
} dlp_tokens_info;

/* Open all shards and count their windows.
   out: close it with dlp_source_close. desc: copied. err: written on failure; may be NULL; its
   message names file and byte. Returns DLP_OK, or:
     DLP_ERR_ARG           a field is wrong, no file matches, or no shard has a whole item
     DLP_ERR_SYSTEM        a file cannot be opened or mapped (errnum)
     DLP_ERR_CORRUPT       a wrong magic or version, the magic of another format, a number of tokens
                           that is not the file's, or half a token
     DLP_ERR_UNSUPPORTED   the machine is big-endian
     DLP_ERR_MEMORY
   Any thread. Waits for the disk. Allocates some 150 bytes a shard. Mappings are not in the plan of
   the pipe.
   Source: dataloader.h of llm.c (github.com/karpathy/llm.c), train.py of nanoGPT. */
DLPDEF int dlp_tokens_open(dlp_source **out, const dlp_tokens_desc *desc, dlp_error *err);

/* Return what was found. It belongs to the source, until close. NULL if `tokens` is another source.
   Any thread. Does not wait. */
DLPDEF const dlp_tokens_info *dlp_tokens_describe(const dlp_source *tokens);

enum {
    DLP_EOT_BEGINS = 0, /* the end-of-text token is the first token of a document, as in llm.c's
                           shards */
    DLP_EOT_ENDS        /* the end-of-text token is the last token of a document, as in nanoGPT's
                           shards */
};

/* Find the documents in the first `length` tokens of a row. start[0] is 0, start[i] is where
   document i begins, and start[n], after the last of n documents, is length. These are the
   cumulative lengths (cu_seqlens) for attention within documents. Call it in the step or in a batch
   map, if you need it. A field of every batch would be ragged, with room for length + 1 numbers in
   every row.
   tokens: [length], a row of a batch. dtype: DLP_U16, DLP_U32 or DLP_I32. eot: the end-of-text
   token. rule: DLP_EOT_*. start: [room], written as far as there is room; length + 1 is always
   enough. Returns n, 1 or more. Returns 0 if length is 0, or 2^31 or more, or if dtype is another
   one. Any thread. Does not wait or allocate. */
DLPDEF uint64_t dlp_tokens_documents(const void *tokens, dlp_dtype dtype, uint64_t length,
                                     uint32_t eot, int rule, int32_t *start, uint64_t room);
