/* needs: parts pack */
#pragma once
#include "api/found.h"
#include "api/batch.h"
/* ---------------------------------------------------------------------------------------------
   >>pack       PACKING: DOCUMENTS INTO ROWS OF T TOKENS
   What trains on rows of T tokens reads documents of any length. The workers of a pack node call
   what the dataset has for fetch, for each dataset index, which writes a document;
   batch.copy_workers copy pieces of documents into rows, each token once.

     list -> fetch ------> pack -----------> [item maps] -> batch ...
             writes a      keeps it in a     see a row, into which
             document      cell              pieces are copied

   The dataset's fields are ragged, all with one shape[0], L, which is the longest document: tokens
   and, if there are more, what goes with each token (a mask). A document's lengths are equal, and 0
   is none. Rows have these fields, of T tokens, zeros after the last; lengths has the tokens used.
   Besides two more:

     "cu_seqlens"    int32 [S + 1]: where segments begin, 0 first; what is left is filled with the
                     end of the last one. A segment is one document's share of the row
     "position_ids"  int32 [T]: places in the segment, or in the document; zeros after the last

   Documents are dealt to streams, in the order of >>found, each dataset index being a part:

     DLP_PACK_CUT    documents end to end, cut each T tokens, wherever that is. A row begins with
                     the last `overlap` tokens of the row before it, so 1 gives each token a next
                     one. Padding is only in the last row of a stream in an epoch, if any, and in
                     rows that end since they have S segments
     DLP_PACK_FIT    of each N documents of a stream that have tokens (the last of an epoch: fewer),
                     longest first (of equal ones, those that come first), each goes into the
                     fullest row with room for it (of equal ones, the first), or begins a row.
                     Pieces of T tokens of a longer document count as documents

   Behind a load or an expand (>>graph) an input has several documents, and filters may leave some
   of them out. Their order is that of the inputs, and in an input that in which they are made. The
   cell of an input has room for as many documents as load or expand may make, L tokens each.
   Documents without tokens are passed over. The workers of the pack are those of the load or
   expand. Behind a mix (>>graph) DLP_PACK_CUT packs the documents of all branches.

     list -> load -> fetch ------> [filter] -> pack -> batch ...
             a part  a document    keeps it

   So the order follows from seed, epoch and the data alone. Ends, ranks, states and cells are those
   of >>found, rows being its items. dlp_batch.index has the index of a row's first segment. With
   steps_per_epoch passes follow each other inside a row (CUT) or window (FIT). A document that
   fails is an error of its first row (FIT: of its window's first row). If a resumed one has fewer
   tokens than were given already, or the documents of a window have other lengths, that is an
   error. */

enum { DLP_PACK_CUT = 0, DLP_PACK_FIT = 1 };

/* FIT: documents of more than T tokens. */
enum {
    DLP_PACK_LONGER_CUT = 0,
    DLP_PACK_LONGER_DROP, /* they are left out, as by DLP_SKIP */
    DLP_PACK_LONGER_ERROR /* DLP_ERR_LENGTH: workers.on_error, where DROP leaves them out, too,
                             counted */
};

/* dlp_stage_stats.own of the stage: what it has put into the rows of batches scheduled so far.
   tokens + padding are rows * T. */
enum { DLP_PACK_ROWS = 0, DLP_PACK_TOKENS, DLP_PACK_PADDING, DLP_PACK_SEGMENTS };

typedef struct dlp_pack_desc {
    uint32_t tokens;        /* T; required, 2..2^24 */
    int32_t rule;           /* DLP_PACK_* */
    uint32_t overlap;       /* CUT: tokens that a row has from the one before, below S and T */
    uint32_t max_segments;  /* S: a row with so many is closed, whatever room it has. 0: 2048 by
                                 batch_size, but 8 and overlap + 1 at least, T at most. A batch may
                                 need a cell, for L tokens, for each segment it may have */
    uint32_t window;        /* FIT: N, 1..4096; 0: 256 */
    int32_t longer;         /* FIT: DLP_PACK_LONGER_* */
    int32_t positions;      /* 0: in the segment; 1: in the document */
    uint64_t id;            /* the user's number for what fetch does, such as of a tokenizer, part
                                 of a state's fingerprint */
    uint32_t min_documents; /* behind load or expand: documents with tokens that an input has, if it
                               has any; 0: 1. So many fewer cells are needed. An input that has
                               fewer fails with DLP_ERR_LENGTH */
} dlp_pack_desc;

/* Make the one cu_seqlens of a whole batch that attention over sequences of any length takes (flash
   attention's varlen interface: cu_seqlens_q and _k, max_seqlen) out of those of its rows, over the
   [count * T] tokens as they lie, so nothing is copied: the segments of each row and then, where it
   is not full, one of padding, to T; a row with valid[] 0 is all padding. What attention makes of
   padding is left out like any other token without a label.
   batch: with the fields cu_seqlens and position_ids in host memory: without a transfer stage, or
   in a batch map before it; cu_seqlens: [capacity]; 0 first, then where each segment ends, so
   count * T last; count * (S + 1) + 1 always suffices; longest: tokens of the longest segment,
   padding too; may be NULL - returns how many segments; DLP_ERR_ARG: batch has no such fields, or
   bounds that are none; DLP_ERR_LIMIT: capacity is less than it takes, or count * T is 2^31 or
   more - any thread - never waits or allocates. */
DLPDEF int dlp_pack_flatten(const dlp_batch *batch, int32_t *cu_seqlens, uint32_t capacity,
                            int32_t *longest);
