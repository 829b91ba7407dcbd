/* needs: arrays */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>arrays     ROWS OUT OF ARRAYS: IDX, CIFAR, NPY
   A dataset whose items are rows: of MNIST's IDX files, of CIFAR's .bin, of numpy's .npy. A column
   is a list of files whose rows follow each other, and becomes a field (CIFAR's: two or three);
   item i has row i of each column.

     dlp_array_column columns[] = {{.name = "image", .path = "train-images-idx3-ubyte"},
                                   {.name = "label", .path = "train-labels-idx1-ubyte"}};
     dlp_arrays_desc files = {.columns = columns, .n_columns = 2};
     if (dlp_arrays_open(&arrays, &files, &err) != DLP_OK) ...
     dlp_arrays_describe(arrays)->n_items; // what was found
     dlp_loader_desc desc = {.source = arrays, .batch_size = 64, .shuffle = 1};
     if (dlp_loader_open(&pipe, &desc, &err) != DLP_OK) ...
     ... the pipe, until it is closed: fields[0] is uint8_t [64][28][28], fields[1] [64]
     dlp_source_close(arrays);

     format   of a file                                             fields
     IDX      magic 0 0 type dimensions, 32-bit big-endian sizes;   one, of the file's type: U8, I8,
              numbers are big-endian and come out as the            I16, I32, F32, F64
              machine's own
     CIFAR10  records of a label and 32 x 32 pixels, by channels    "label", "image" [3][32][32], U8
     CIFAR100 the same with two labels                              "coarse", "fine", "image"
     NPY      version 1, 2 or 3; C order; little-endian b1, i1, i2, one
              i4, i8, u1, u2, u4, u8, f2, f4, f8

   A file has to be exactly as long as its header says. Files are mapped, and a row is copied once,
   into the batch; what is said of that, of files that are cut, and of `reads`, in >>tokens holds
   here, too. Without that copy batches are rows where they lie in the files: see >>array-chunks. */

enum {
    DLP_ARRAY_AUTO = 0, /* IDX or NPY, by the first file's first bytes; CIFAR's have no magic */
    DLP_ARRAY_IDX,
    DLP_ARRAY_NPY,
    DLP_ARRAY_CIFAR10,
    DLP_ARRAY_CIFAR100
};

typedef struct dlp_array_column {
    const char *name;         /* of the field, copied, 1..31 bytes; NULL for CIFAR's, which have
                                 names */
    const char *path;         /* a file, or */
    const char *const *paths; /* [n_paths] files, whose rows are of one type and shape */
    uint64_t n_paths;         /* 0 with path; else 1..2^16 */
    int32_t format;           /* DLP_ARRAY_* */
} dlp_array_column;

typedef struct dlp_arrays_desc {
    const dlp_array_column *columns; /* [n_columns] of equally many rows; copied */
    uint32_t n_columns;              /* 1..DLP_MAX_FIELDS; as many fields at most */
    int32_t reads;                   /* 1: pread in place of mappings */
} dlp_arrays_desc;

typedef struct dlp_arrays_info {
    uint64_t n_items; /* rows */
    uint32_t n_fields;
    const dlp_field *fields; /* [n_fields] */
    uint64_t id; /* a number that differs where the fields or the rows of a file do: what states
                    know this dataset by. Contents are not looked at */
} dlp_arrays_info;

/* Open all files and read their headers.
   out: to be closed; desc: copied; err: written on failure, may be NULL; its message names file and
   byte - returns DLP_OK; DLP_ERR_ARG (a field; columns of different lengths; no rows);
   DLP_ERR_SYSTEM (a file cannot be opened, read or mapped: errnum); DLP_ERR_CORRUPT (no such
   format, a header that is cut or contradicts the file's length); DLP_ERR_UNSUPPORTED (a type, an
   order or a number of dimensions that is not among those above; a big-endian machine);
   DLP_ERR_MEMORY - any thread - waits for the disk; mappings are not in the pipe's plan.
   Source: yann.lecun.com/exdb/mnist (IDX); cs.toronto.edu/~kriz/cifar.html; numpy.lib.format. */
DLPDEF int dlp_arrays_open(dlp_source **out, const dlp_arrays_desc *desc, dlp_error *err);

/* Tell what was found. The source's, until close; NULL if this is another source. Any thread; does
   not wait. */
DLPDEF const dlp_arrays_info *dlp_arrays_describe(const dlp_source *arrays);
