/* needs: arrays */
#pragma once
#include "api/stages.h"
/* ---------------------------------------------------------------------------------------------
   >>arrays     ROWS OUT OF ARRAYS: IDX, CIFAR, NPY
   The items of this dataset are rows of MNIST's IDX files, CIFAR's .bin files, or numpy's .npy
   files. A column is a list of files whose rows follow each other. It becomes a field; a column of
   CIFAR becomes two or three fields. Item i has row i of each column.

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
     NPY      version 1, 2 or 3; b1, i1, i2, i4, i8, u1, u2, u4,   one, of the machine's byte order
              u8, f2, f4, f8 in either byte order and each spelling
              of numpy; C order, or at most one long dimension

   A file must be exactly as long as its header says. A file of another format (gzip, zip, HDF5,
   Parquet and others) is refused by name. Files are mapped, and a row is copied once,
   into the batch. For this, for files that are cut, and for `reads`, see >>tokens: arrays behave as
   shards do. For batches without this copy, as rows in the files, see >>array-chunks. */

enum {
    DLP_ARRAY_AUTO = 0, /* IDX or NPY, by the first bytes of the first file; CIFAR files have no
                           magic */
    DLP_ARRAY_IDX,
    DLP_ARRAY_NPY,
    DLP_ARRAY_CIFAR10,
    DLP_ARRAY_CIFAR100
};

typedef struct dlp_array_column {
    const char *name;         /* name of the field, 1..31 bytes; copied. NULL for CIFAR, whose
                                 fields have names */
    const char *path;         /* path of one file; NULL: give paths */
    const char *const *paths; /* [n_paths] files, whose rows have one type and shape. NULL: give
                                 path */
    uint64_t n_paths;         /* number of paths, 1..2^16; 0 with path */
    int32_t format;           /* DLP_ARRAY_* */
} dlp_array_column;

typedef struct dlp_arrays_desc {
    const dlp_array_column *columns; /* [n_columns] columns with equally many rows; copied */
    uint32_t n_columns;              /* number of columns, 1..DLP_MAX_FIELDS; the fields are as many
                                  at most */
    int32_t reads;                   /* 1: read by pread, without mappings */
    int32_t moved;                   /* 1: the files may have other names than when a state was
                                  saved (>>state) */
    int32_t insist;                  /* 1: take files of CIFAR that begin like another format, and
                                        files without rows, which are else a warning of the pipe */
} dlp_arrays_desc;

typedef struct dlp_arrays_info {
    uint64_t n_items; /* number of rows */
    uint32_t n_fields;
    const dlp_field *fields; /* [n_fields] */
    uint64_t id; /* number by which states know this dataset. It differs if the fields, or the rows
                    of a file, differ. Contents do not count */
} dlp_arrays_info;

/* Open all files and read their headers.
   out: close it with dlp_source_close. desc: copied. err: written on failure; may be NULL; its
   message names file and byte. Returns DLP_OK, or:
     DLP_ERR_ARG           a field is wrong, columns have different lengths, or there are no rows
     DLP_ERR_SYSTEM        a file cannot be opened, read or mapped (errnum)
     DLP_ERR_CORRUPT       another or an unknown format, or a header that is cut or contradicts the
                           file's length
     DLP_ERR_UNSUPPORTED   a type, an order or a number of dimensions that the table above does not
                           have, or a big-endian machine
     DLP_ERR_MEMORY
   Any thread. Waits for the disk. Mappings are not in the plan of the pipe.
   Source: yann.lecun.com/exdb/mnist (IDX); cs.toronto.edu/~kriz/cifar.html; numpy.lib.format. */
DLPDEF int dlp_arrays_open(dlp_source **out, const dlp_arrays_desc *desc, dlp_error *err);

/* Return what was found. It belongs to the source, until close. NULL if `arrays` is another source.
   Any thread. Does not wait. */
DLPDEF const dlp_arrays_info *dlp_arrays_describe(const dlp_source *arrays);
