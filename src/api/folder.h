/* needs: files */
#pragma once
#include "api/files.h"
/* ---------------------------------------------------------------------------------------------
   >>folder     FOLDERS OF PICTURES, A DIRECTORY FOR EACH CLASS (examples/folder.c)
   One call lists a tree into paths and classes, as an image folder is laid out:

     train/cat/a.jpg  train/cat/more/b.JPEG  train/dog/c.png  ->  classes "cat" 0, "dog" 1

     dlp_folder *folder;
     dlp_folder_open(&folder, &(dlp_folder_desc){.path = "train"}, &err);
     dlp_files_desc files_desc = {.n_items = folder->n_files, .paths = folder->paths,
                                  .fields = fields, .n_fields = 2, .decode = decode,
                                  .max_bytes = 64 << 20, .user = folder};
     ... as in >>files; in decode: label = folder->labels[item->index]

   A class is a directory right below path; classes are numbered in the order of their names' bytes.
   Its files are those below it, however deep, in the order of their paths' bytes: so an item's
   index is the same on every machine, whatever locale or file system. Of them only regular files
   with one of the extensions count; names that begin with a dot, files and directories, are left
   out. Symbolic links are followed; one that leads back to a directory that it lies in is refused,
   and so is one that leads nowhere, if its extension counts. Reading and decoding are the fetch's:
   nothing is opened here but directories. */

typedef struct dlp_folder_desc {
    const char *path;              /* required */
    const char *const *extensions; /* [n_extensions] without the dot, any case, ASCII; NULL:
                                            jpg jpeg png bmp ppm webp */
    uint32_t n_extensions;
    uint64_t max_files; /* more are DLP_ERR_LIMIT; 0: 2^31 */
} dlp_folder_desc;

/* Read it; all of it is the folder's own, until close. */
typedef struct dlp_folder {
    uint64_t n_files;
    const char *const *paths; /* [n_files] desc.path/class/..., for dlp_files_desc.paths */
    const uint32_t *labels;   /* [n_files] class of each */
    uint32_t n_classes;
    const char *const *classes;  /* [n_classes] names */
    const uint64_t *class_files; /* [n_classes] files of each; 0 is possible */
    uint64_t left_out;           /* files below classes that do not count, and files of no class */
    uint64_t id;                 /* a number that differs where names of classes or files do: for
                    dlp_sampler_desc.function_id, so that a state of another folder is refused */
} dlp_folder;

/* List a folder.
   out: to be closed; desc: copied; err: written on failure, may be NULL; its message names the path
   - returns DLP_OK; DLP_ERR_ARG (a field; no directory in path, no file that counts);
   DLP_ERR_SYSTEM (a directory cannot be read, a link leads nowhere or, ELOOP, back: errnum);
   DLP_ERR_LIMIT (max_files, 2^20 directories); DLP_ERR_MEMORY - any thread - waits for the disk;
   allocates the paths and some 20 bytes a file.
   Source: the layout of torchvision.datasets.ImageFolder. */
DLPDEF int dlp_folder_open(dlp_folder **out, const dlp_folder_desc *desc, dlp_error *err);

/* Free a folder. folder: NULL does nothing; no pipe or source uses its arrays any more - any thread
   - does not wait. */
DLPDEF void dlp_folder_close(dlp_folder *folder);
