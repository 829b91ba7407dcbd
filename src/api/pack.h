/* needs: pack */
#pragma once
#include "api/found.h"
#include "api/batch.h"
/* ---------------------------------------------------------------------------------------------
   >>pack       PACKING: DOCUMENTS INTO ROWS OF T TOKENS
   A model trains on rows of T tokens, and documents have any length. The workers of a pack node
   call the dataset's fetch for each dataset index; fetch writes a document. batch.copy_workers copy
   pieces of documents into rows, each token once.

     list -> fetch ------> pack -----------> [item maps] -> batch ...
             writes a      keeps it in a     see a row, into which
             document      cell              pieces are copied

   The fields of the dataset are ragged, and all have one shape[0], L: the length of the longest
   document. They are the tokens and, if there are more fields, data for each token, such as a mask.
   The lengths of a document are equal; length 0 is no document. Rows have the same fields, of T
   tokens, with zeros after the last token. lengths has the number of used tokens. Rows have two
   more fields:

     "cu_seqlens"    int32 [S + 1]: where segments begin, 0 first. The rest is filled with the end
                     of the last segment. A segment is the share of one document in the row
     "position_ids"  int32 [T]: places of tokens in the segment, or in the document; zeros after
                     the last token

   Documents are dealt to streams in the order of >>found. Each dataset index is a part.

     DLP_PACK_CUT   documents end to end, cut after every T tokens. A row begins with the last
                    `overlap` tokens of the row before, so overlap 1 gives each token a next token.
                    Only two kinds of row have padding: the last row of a stream in an epoch, and a
                    row that ends because it has S segments
     DLP_PACK_FIT   takes N documents of a stream that have tokens; at the end of an epoch fewer.
                    The longest document comes first; of equal documents, the earlier. Each document
                    goes into the fullest row with room for it; of equal rows, the first. If no row
                    has room, it begins a row. Pieces of T tokens of a longer document count as
                    documents

   Behind a load or an expand (>>graph) an input has several documents, and filters may leave some
   of them out. Documents come in the order of the inputs. Inside an input they come in the order in
   which they are made. The cell of an input has room for as many documents as load or expand may
   make, of L tokens each. Documents without tokens are passed over. The workers of the pack are the
   workers of the load or expand. Behind a mix (>>graph) DLP_PACK_CUT packs the documents of all
   branches. Behind a window the documents of a stream come in the order of its windows. A row may
   have documents of two windows.

     list -> fetch -> [window] -> pack -> [window] -> batch ...

   A window behind the pack shuffles rows. Each N rows of a stream are shuffled together; the last
   window of an epoch is shorter. The rows are those of the table without this window. So the
   window changes neither what is in a row nor how the documents are dealt. Its order follows from
   the seed, the epoch, the stream, and the place where the window begins. What a window's rows lie
   in is kept until they are given. For R rows that must be known, the cells are those of R + N - 1
   rows of the pack, of S segments each. The plan says their bytes. A table is refused if it needs
   over 2^22 cells, or if its windows may have over 2^26 segments. A state may lie inside a window.
   Then another run packs the rows of the window again. If their pieces differ, the resume fails
   with DLP_ERR_RESUME.

     list -> load -> fetch ------> [filter] -> pack -> batch ...
             a part  a document    keeps it

   So the order depends on seed, epoch and the data alone. The ends, ranks, states and cells are
   those of >>found; the items there are rows here. dlp_batch.index has the index of the first
   segment of a row. With steps_per_epoch one pass follows another inside a row (CUT) or a window
   (FIT). If a document fails, that is an error of its first row (FIT: of the first row of its
   window). After a resume a document may have fewer tokens than were given already, or the
   documents of a window may have other lengths. That is an error. */

enum { DLP_PACK_CUT = 0, DLP_PACK_FIT = 1 };

/* What FIT does with documents of more than T tokens. */
enum {
    DLP_PACK_LONGER_CUT = 0, /* they are cut into pieces of T tokens */
    DLP_PACK_LONGER_DROP,    /* they are left out, as by DLP_SKIP */
    DLP_PACK_LONGER_ERROR    /* they fail with DLP_ERR_LENGTH, by workers.on_error; DROP leaves them
                             out and counts them */
};

/* Numbers in dlp_stage_stats.own of the stage: what the stage has put into the rows of batches that
   are scheduled so far. tokens + padding is rows * T. */
enum { DLP_PACK_ROWS = 0, DLP_PACK_TOKENS, DLP_PACK_PADDING, DLP_PACK_SEGMENTS };

typedef struct dlp_node_pack {
    uint32_t tokens;        /* tokens of a row (T); required, 2..2^24 */
    int32_t rule;           /* DLP_PACK_* */
    uint32_t overlap;       /* CUT: tokens that a row repeats from the row before; below S and T */
    uint32_t max_segments;  /* most segments of a row (S), 0..4096. A row with S segments is closed,
                                 even if it has room. 0: 2048 by batch_size, but at least 8 and
                                 overlap + 1, and at most T. A batch may need a cell, for L tokens,
                                 for each possible segment */
    uint32_t window;        /* FIT: documents that are packed together (N), 1..4096; 0: 256 */
    int32_t longer;         /* FIT: DLP_PACK_LONGER_* */
    int32_t positions;      /* position_ids count 0: in the segment; 1: in the document */
    uint64_t id;            /* your number for what fetch does, such as the number of a tokenizer.
                                 It is part of the fingerprint of a state */
    uint32_t min_documents; /* behind load or expand: fewest documents with tokens in an input that
                               has any; 0: 1. A higher number needs fewer cells. An input that has
                               fewer documents fails with DLP_ERR_LENGTH */
} dlp_node_pack;

/* Make one cu_seqlens of a whole batch out of the cu_seqlens of its rows. Attention over sequences
   of any length takes it (flash attention's varlen interface: cu_seqlens_q and _k, max_seqlen). It
   covers the [count * T] tokens where they lie, so nothing is copied. Each row gives its segments
   and, if it is not full, one segment of padding up to T. A row with valid[] 0 is all padding.
   Leave out what attention makes of padding, as for any token without a label.
   batch: has the fields cu_seqlens and position_ids in host memory: in a pipe without a transfer
   stage, or in a batch map before it. cu_seqlens: [capacity]; 0 first, then the end of each
   segment, so count * T last. A capacity of count * (S + 1) + 1 is always enough. longest: tokens
   of the longest segment, padding too; may be NULL. Returns the number of segments. DLP_ERR_ARG:
   the batch has no such fields, or their bounds are wrong. DLP_ERR_LIMIT: capacity is too small, or
   count * T is 2^31 or more. Any thread. Never waits or allocates. */
DLPDEF int dlp_pack_flatten(const dlp_batch *batch, int32_t *cu_seqlens, uint32_t capacity,
                            int32_t *longest);
