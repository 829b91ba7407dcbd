/* needs: files */
#pragma once
#include "api/files.h"
/* ---------------------------------------------------------------------------------------------
   >>folder     FOLDERS OF PICTURES, A DIRECTORY FOR EACH CLASS (examples/folder.c)
   One call lists a tree of files into paths and classes, as an image folder is laid out:

     train/cat/a.jpg  train/cat/more/b.JPEG  train/dog/c.png  ->  classes "cat" 0, "dog" 1

     dlp_folder *folder;
     dlp_folder_open(&folder, &(dlp_folder_desc){.path = "train"}, &err);
     dlp_files_desc files_desc = {.n_items = folder->n_files, .paths = folder->paths,
                                  .fields = fields, .n_fields = 2, .decode = decode,
                                  .max_bytes = 64 << 20, .user = folder,
                                  .warning = folder->warning};
     ... as in >>files; in decode: label = folder->labels[item->index]

   A class is a directory directly below path. Classes are numbered in the order of the bytes of
   their names. The files of a class are all files below it, however deep, in the order of the bytes
   of their paths. So the index of an item is the same on every machine, whatever locale or file
   system.

   A validation folder must have the numbers of the training folder, also if it lacks a class:

     dlp_folder_desc val = {.path = "val", .classes = train->classes,
                            .n_classes = train->n_classes};

   Only regular files with one of the extensions count. Names that begin with a dot are left out,
   and directories that systems leave beside data, such as __MACOSX, @eaDir and lost+found, unless
   `classes` has the name. A directory without files is a class. `warning` tells which directories
   and files directly below path are left out, which links lead nowhere, and which classes have no
   files. Symbolic links are followed. A link is refused if it leads back to a directory that it
   lies in. A link that leads nowhere is refused directly below path, where it is a class that is
   missing, and below a class if its extension counts. Only directories are opened here: fetch reads
   and decodes the files. */

typedef struct dlp_folder_desc {
    const char *path;              /* directory to list; required */
    const char *const *extensions; /* [n_extensions] extensions without the dot, in any case, ASCII;
                                            NULL: jpg jpeg png bmp ppm webp */
    uint32_t n_extensions;
    uint64_t max_files;         /* most files; more are DLP_ERR_LIMIT; 0: 2^31 */
    const char *const *classes; /* [n_classes] names of the classes in the order of their numbers,
                                   usually those of the training folder; valid during the call. A
                                   directory of another name is refused. NULL: each directory is a
                                   class */
    uint32_t n_classes;         /* number of names, at most 2^20; 0 without classes */
} dlp_folder_desc;

/* A list of files. You only read it. All arrays belong to the folder, until close. */
typedef struct dlp_folder {
    uint64_t n_files;
    const char *const *paths; /* [n_files] desc.path/class/..., for dlp_files_desc.paths */
    const uint32_t *labels;   /* [n_files] number of the class of each file */
    uint32_t n_classes;
    const char *const *classes;  /* [n_classes] names of the classes */
    const uint64_t *class_files; /* [n_classes] number of files of each class; may be 0 */
    uint64_t left_out;           /* number of names that do not count: files, hidden names,
                                    directories that systems leave, and files in no class */
    uint64_t id;                 /* a number that differs if the names of classes or files do. Give
                    it to dlp_sampler_desc.function_id, so that a state of another folder is
                    refused */
    const char *warning; /* directories and files that are left out though you may miss them, and
                            classes without files; NULL: nothing. As dlp_files_desc.warning each
                            pipe gives it */
} dlp_folder;

/* List a folder.
   out: close it with dlp_folder_close. desc: copied. err: written on failure; may be NULL; its
   message names the path. Returns DLP_OK, or:
     DLP_ERR_ARG      a field is wrong, path has no directory or one that `classes` does not have,
                      or no file counts
     DLP_ERR_SYSTEM   a directory cannot be read; a link leads nowhere, or back (ELOOP); see errnum
     DLP_ERR_LIMIT    there are more than max_files files, or than 2^20 directories
     DLP_ERR_MEMORY
   Any thread. Waits for the disk. Allocates the paths and some 20 bytes a file.
   Source: the layout of torchvision.datasets.ImageFolder. */
DLPDEF int dlp_folder_open(dlp_folder **out, const dlp_folder_desc *desc, dlp_error *err);

/* Free a folder. Call it when no pipe or source uses its arrays. NULL does nothing. Any thread.
   Does not wait. */
DLPDEF void dlp_folder_close(dlp_folder *folder);
