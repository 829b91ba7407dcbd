#pragma once
/* tests: system/source/lines, system/source/arrays, system/source/tar, system/source/folder */
#include "source/mapped.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-foreign     FILES OF ANOTHER FORMAT
   One function knows what a file is by its bytes. Each source of files asks it, and refuses a file
   of another format by name. It answers only when it is certain: the magic numbers are bytes that
   neither text nor token ids begin with. A magic number that is text counts for a source of text
   only if more of the file speaks for it. */

enum {
    DLPI_FOREIGN_HEAD = 512,     /* bytes that are read of a file's beginning */
    DLPI_FOREIGN_PAGE = 1 << 20, /* bytes that are read of a file that may be a page of HTML */
    DLPI_FOREIGN_END = 8,        /* bytes that are read of a file's end */
    DLPI_FOREIGN_NEAR = 60       /* bytes behind a magic number in which others must be binary */
};

/* What a source takes that others call foreign. TEXT: the files are text. */
enum { DLPI_TAKES_TEXT = 1, DLPI_TAKES_LLMC = 2, DLPI_TAKES_NPY = 4, DLPI_TAKES_TAR = 8 };

/* Bytes of a file that are known. */
typedef struct dlpi_looked {
    const uint8_t *head;           /* [n] its first bytes */
    uint64_t n, size;              /* size: bytes of the whole file */
    uint8_t end[DLPI_FOREIGN_END]; /* its last bytes; zeros if it has fewer */
    unsigned takes;                /* DLPI_TAKES_* */
} dlpi_looked;

typedef struct dlpi_foreign {
    const char *name; /* of the format; NULL: none is known */
    const char *cure; /* what to do */
} dlpi_foreign;

/* A format that is known by a magic number at a byte. */
typedef struct dlpi_magic {
    const char *name, *cure, *magic;
    uint8_t bytes, weak; /* weak: text may begin so */
    uint16_t at;
    unsigned takes; /* DLPI_TAKES_*: a source that takes such files */
} dlpi_magic;

#define DLPI_CURE_UNPACK "Unpack it first"
#define DLPI_CURE_PATH "Check the path"
#define DLPI_CURE_CONVERT "Convert it first"
#define DLPI_FOREIGN(name, cure, magic, at, weak, takes) \
    { name, cure, magic, sizeof(magic) - 1, weak, at, takes }

static const dlpi_magic dlpi_magics[] = {
    DLPI_FOREIGN("gzip", DLPI_CURE_UNPACK, "\x1f\x8b\x08", 0, 0, 0),
    DLPI_FOREIGN("zstd", DLPI_CURE_UNPACK, "\x28\xb5\x2f\xfd", 0, 0, 0),
    DLPI_FOREIGN("xz", DLPI_CURE_UNPACK, "\xfd\x37zXZ\0", 0, 0, 0),
    DLPI_FOREIGN("bzip2", DLPI_CURE_UNPACK, "1AY&SY", 4, 0, 0),
    DLPI_FOREIGN("bzip2", DLPI_CURE_UNPACK, "\x17rE8P\x90", 4, 0, 0),
    DLPI_FOREIGN("lz4", DLPI_CURE_UNPACK, "\x04\x22\x4d\x18", 0, 0, 0),
    DLPI_FOREIGN("lz4", DLPI_CURE_UNPACK, "\x02\x21\x4c\x18", 0, 0, 0),
    DLPI_FOREIGN("lzip", DLPI_CURE_UNPACK, "LZIP\x01", 0, 0, 0),
    DLPI_FOREIGN("lzop", DLPI_CURE_UNPACK, "\x89LZO\0\r\n\x1a\n", 0, 0, 0),
    DLPI_FOREIGN("compress (.Z)", DLPI_CURE_UNPACK, "\x1f\x9d\x90", 0, 0, 0),
    DLPI_FOREIGN("snappy", DLPI_CURE_UNPACK, "\xff\x06\0\0sNaPpY", 0, 0, 0),
    DLPI_FOREIGN("7-Zip", DLPI_CURE_UNPACK, "7z\xbc\xaf\x27\x1c", 0, 0, 0),
    DLPI_FOREIGN("RAR", DLPI_CURE_UNPACK, "Rar!\x1a\x07", 0, 0, 0),
    DLPI_FOREIGN("zip (or .npz, .pt)", DLPI_CURE_UNPACK, "PK\x03\x04", 0, 0, 0),
    DLPI_FOREIGN("zip", DLPI_CURE_UNPACK, "PK\x05\x06", 0, 0, 0),
    DLPI_FOREIGN("tar (dlp_tar_open reads it)", DLPI_CURE_UNPACK, "ustar\0", 257, 0,
                 DLPI_TAKES_TAR),
    DLPI_FOREIGN("tar (dlp_tar_open reads it)", DLPI_CURE_UNPACK, "ustar  \0", 257, 0,
                 DLPI_TAKES_TAR),
    DLPI_FOREIGN("NumPy (dlp_arrays_open reads it)", DLPI_CURE_CONVERT, "\x93NUMPY", 0, 0,
                 DLPI_TAKES_NPY),
    DLPI_FOREIGN("HDF5", DLPI_CURE_CONVERT, "\x89HDF", 0, 0, 0),
    DLPI_FOREIGN("Parquet", DLPI_CURE_CONVERT, "PAR1", 0, 1, 0),
    DLPI_FOREIGN("Arrow", DLPI_CURE_CONVERT, "ARROW1\0\0", 0, 0, 0),
    DLPI_FOREIGN("Arrow", DLPI_CURE_CONVERT, "\x10\0\0\0\0\0\x0a\0", 8, 0, 0), /* a stream */
    DLPI_FOREIGN("Feather", DLPI_CURE_CONVERT, "FEA1", 0, 1, 0),
    DLPI_FOREIGN("ORC", DLPI_CURE_CONVERT, "ORC", 0, 1, 0),
    DLPI_FOREIGN("Avro", DLPI_CURE_CONVERT, "Obj\x01", 0, 0, 0),
    DLPI_FOREIGN("SQLite", DLPI_CURE_CONVERT, "SQLite format 3\0", 0, 0, 0),
    DLPI_FOREIGN("LMDB", DLPI_CURE_CONVERT, "\xde\xc0\xef\xbe", 16, 0, 0),
    DLPI_FOREIGN("RecordIO", DLPI_CURE_CONVERT, "\x0a\x23\xd7\xce", 0, 0, 0),
    DLPI_FOREIGN("MATLAB", DLPI_CURE_CONVERT, "\0\x01IM", 124, 0, 0),
    DLPI_FOREIGN("GGUF", DLPI_CURE_PATH, "GGUF", 0, 1, 0),
    DLPI_FOREIGN("SentencePiece", DLPI_CURE_PATH, "\x0a\x0e\x0a\x05<unk>", 0, 0, 0),
    DLPI_FOREIGN("an index of Megatron", DLPI_CURE_PATH, "MMIDIDX", 0, 0, 0),
    DLPI_FOREIGN("an index file of dlpipe", DLPI_CURE_PATH, "dlpipx1\x01", 0, 0, 0),
    DLPI_FOREIGN("PDF", DLPI_CURE_PATH, "%PDF-1.", 0, 0, 0),
    DLPI_FOREIGN("PDF", DLPI_CURE_PATH, "%PDF-2.", 0, 0, 0),
    DLPI_FOREIGN("PNG", DLPI_CURE_PATH, "\x89PNG", 0, 0, 0),
    DLPI_FOREIGN("JPEG", DLPI_CURE_PATH, "\xff\xd8\xff", 0, 0, 0),
    DLPI_FOREIGN("GIF", DLPI_CURE_PATH, "GIF8", 0, 1, 0),
    DLPI_FOREIGN("TIFF", DLPI_CURE_PATH, "II*\0", 0, 0, 0),
    DLPI_FOREIGN("TIFF", DLPI_CURE_PATH, "MM\0*", 0, 0, 0),
    DLPI_FOREIGN("RIFF (WebP, WAV)", DLPI_CURE_PATH, "RIFF", 0, 1, 0),
    DLPI_FOREIGN("MP4", DLPI_CURE_PATH, "ftyp", 4, 1, 0),
    DLPI_FOREIGN("Ogg", DLPI_CURE_PATH, "OggS\0", 0, 0, 0),
    DLPI_FOREIGN("FLAC", DLPI_CURE_PATH, "fLaC", 0, 1, 0),
    DLPI_FOREIGN("an ELF program", DLPI_CURE_PATH, "\x7f\x45LF", 0, 0, 0),
};

static uint32_t dlpi_little32(const uint8_t *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint32_t dlpi_big32(const uint8_t *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | (uint32_t)b[3];
}

static uint64_t dlpi_little64(const uint8_t *b) {
    return dlpi_little32(b) | (uint64_t)dlpi_little32(b + 4) << 32;
}

static bool dlpi_foreign_begins(const dlpi_looked *l, uint64_t at, const char *magic, size_t n) {
    return at <= l->n && n <= l->n - at && memcmp(l->head + at, magic, n) == 0;
}

/* True if one of n bytes is a control character that no text has. */
static bool dlpi_foreign_binary(const uint8_t *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (b[i] < '\t' || (b[i] > '\r' && b[i] < ' ' && b[i] != 27)) return true;
    return false;
}

/* True if more than a magic number, which is text, speaks for a format: the bytes behind it, or the
   same number at the file's end. */
static bool dlpi_foreign_surely(const dlpi_looked *l, const dlpi_magic *m) {
    const uint64_t behind = m->at + (uint64_t)m->bytes, rest = l->n - behind;
    return dlpi_foreign_binary(l->head + behind,
                               rest < DLPI_FOREIGN_NEAR ? rest : DLPI_FOREIGN_NEAR) ||
           (l->size > 8 && memcmp(l->end + DLPI_FOREIGN_END - 4, m->magic, m->bytes) == 0);
}

/* Return the format whose magic number the file begins with. Its name is NULL if there is none. */
static dlpi_foreign dlpi_foreign_magic(const dlpi_looked *l) {
    for (size_t i = 0; i < sizeof dlpi_magics / sizeof *dlpi_magics; i++) {
        const dlpi_magic *m = &dlpi_magics[i];
        if ((m->takes & l->takes) == 0 && dlpi_foreign_begins(l, m->at, m->magic, m->bytes) &&
            (!m->weak || (l->takes & DLPI_TAKES_TEXT) == 0 || dlpi_foreign_surely(l, m)))
            return (dlpi_foreign){m->name, m->cure};
    }
    return (dlpi_foreign){NULL, NULL};
}

/* ---- formats without a fixed magic number ---- */

enum { DLPI_LLMC_U16 = 20240520, DLPI_LLMC_U32 = 20240801 };

static bool dlpi_llmc_magic(uint32_t word) {
    return word == DLPI_LLMC_U16 || word == DLPI_LLMC_U32;
}

/* Return the name of a file of llm.c that begins with this word, or NULL. */
static const char *dlpi_foreign_llmc(uint32_t word) {
    switch (word) {
    case DLPI_LLMC_U16:
    case DLPI_LLMC_U32: return "llm.c (DLP_TOKENS_LLMC)";
    case 20240522: return "an evaluation set of llm.c";
    case 20240326:
    case 20240327:
    case 20240803: return "a model of llm.c";
    case 20240328: return "a tokenizer of llm.c";
    case 20240527: return "a training state of llm.c";
    default: return NULL;
    }
}

/* Name a file of llm.c, in either order of bytes. */
static dlpi_foreign dlpi_foreign_word(const dlpi_looked *l) {
    dlpi_foreign none = {NULL, NULL};
    const char *name;
    if (l->n < 4) return none;
    name = dlpi_foreign_llmc(dlpi_little32(l->head));
    if (name != NULL && (l->takes & DLPI_TAKES_LLMC) != 0 &&
        dlpi_llmc_magic(dlpi_little32(l->head)))
        return none;
    if (name != NULL) return (dlpi_foreign){name, DLPI_CURE_PATH};
    if (dlpi_foreign_llmc(dlpi_big32(l->head)) == NULL) return none;
    return (dlpi_foreign){"llm.c in the other byte order", DLPI_CURE_CONVERT};
}

/* Return the checksum by which a record of a TFRecord file protects the 8 bytes of its length. */
static uint32_t dlpi_foreign_crc(const uint8_t *b) {
    uint32_t crc = UINT32_MAX;
    for (int i = 0; i < 8; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Name a format whose first bytes are a number that fits the rest of the file. */
static dlpi_foreign dlpi_foreign_number(const dlpi_looked *l) {
    const uint8_t *b = l->head;
    uint64_t length;
    if (l->n >= 3 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5 &&
        l->end[DLPI_FOREIGN_END - 1] == '.' &&
        (b[1] >= 4 ? b[2] == 0x95 : b[2] != 0 && strchr("}](cX\x8aq", b[2]) != NULL))
        return (dlpi_foreign){"a Python pickle", DLPI_CURE_CONVERT};
    if (l->n < 12) return (dlpi_foreign){NULL, NULL};
    if ((dlpi_little32(b) & ~15u) == 0x184d2a50) /* bytes that these formats skip */
        return (dlpi_foreign){"zstd or lz4", DLPI_CURE_UNPACK};
    length = dlpi_little64(b);
    if (length >= 2 && length <= l->size - 8 && b[7] == 0 && b[6] == 0 && b[8] == '{' &&
        (b[9] == '"' || b[9] == '}') &&
        !dlpi_foreign_binary(b + 8, length < l->n - 8 ? length : l->n - 8))
        return (dlpi_foreign){"safetensors", DLPI_CURE_PATH};
    if (l->size >= 16 && length <= l->size - 16 && dlpi_little32(b + 8) == dlpi_foreign_crc(b))
        return (dlpi_foreign){"TFRecord", DLPI_CURE_CONVERT};
    return (dlpi_foreign){NULL, NULL};
}

/* ---- text that is no data ---- */

/* Return the first byte from i on that is not white space, or a mark of UTF-8 in front; or l->n. */
static uint64_t dlpi_foreign_text(const dlpi_looked *l, uint64_t i) {
    if (i == 0 && dlpi_foreign_begins(l, 0, "\xef\xbb\xbf", 3)) i = 3;
    while (i < l->n && (l->head[i] == ' ' || (l->head[i] >= '\t' && l->head[i] <= '\r'))) i++;
    return i < l->n ? i : l->n;
}

/* True if the text at byte i begins with a word, in any case. */
static bool dlpi_foreign_word_at(const dlpi_looked *l, uint64_t i, const char *word) {
    const size_t n = strlen(word);
    return i <= l->n && n <= l->n - i && dlpi_string_alike((const char *)l->head + i, word, n);
}

/* Return the first byte from i on at which a text begins, or l->n. */
static uint64_t dlpi_foreign_find(const dlpi_looked *l, uint64_t i, const char *word) {
    while (i < l->n && !dlpi_foreign_word_at(l, i, word)) i++;
    return i;
}

/* True if a text comes again behind the one at byte i. */
static bool dlpi_foreign_again(const dlpi_looked *l, uint64_t i, const char *word) {
    i = dlpi_foreign_find(l, i, word);
    return i < l->n && dlpi_foreign_find(l, i + 1, word) < l->n;
}

/* True if the file is one page of HTML as a whole, from byte `at` on, and not a list of pages, or
   text that begins like one. */
static bool dlpi_foreign_page(const dlpi_looked *l, uint64_t at) {
    const bool doctype = dlpi_foreign_word_at(l, at, "<!doctype html");
    uint64_t tag = at;
    if (l->n < l->size) return false;
    if (doctype) tag = dlpi_foreign_text(l, dlpi_foreign_find(l, at, ">") + 1);
    if (doctype ? tag >= l->n || l->head[tag] != '<' : !dlpi_foreign_word_at(l, at, "<html"))
        return false;
    if (!doctype && dlpi_foreign_find(l, at, "</html") == l->n) return false;
    return !dlpi_foreign_again(l, at, "</html") && !dlpi_foreign_again(l, at, "<html") &&
           !dlpi_foreign_again(l, at, "<!doctype");
}

/* Name a pointer to data that were not fetched, or the words of a server that has refused them. */
static dlpi_foreign dlpi_foreign_words(const dlpi_looked *l) {
    uint64_t at = dlpi_foreign_text(l, 0);
    if (dlpi_foreign_word_at(l, 0, "version https://git-lfs") && l->size < 1024 &&
        dlpi_foreign_find(l, 0, "\noid sha256:") < l->n)
        return (dlpi_foreign){"a pointer of git LFS", "Run git lfs pull"};
    if (dlpi_foreign_word_at(l, 0, "/annex/objects/") && l->size < 1024 &&
        dlpi_foreign_find(l, 0, "\n") + 1 >= l->size)
        return (dlpi_foreign){"a pointer of git-annex", "Run git annex get"};
    if (at == l->n || l->head[at] != '<') return (dlpi_foreign){NULL, NULL};
    if (dlpi_foreign_word_at(l, at, "<?xml"))
        at = dlpi_foreign_text(l, dlpi_foreign_find(l, at, "?>") + 2);
    if (dlpi_foreign_page(l, at)) return (dlpi_foreign){"a page of HTML", DLPI_CURE_PATH};
    if (dlpi_foreign_word_at(l, at, "<Error>") &&
        dlpi_foreign_word_at(l, dlpi_foreign_text(l, at + 7), "<Code>"))
        return (dlpi_foreign){"the error of a server", DLPI_CURE_PATH};
    return (dlpi_foreign){NULL, NULL};
}

/* Name text that is not of bytes: UTF-16 and UTF-32. Other binary files have many zeros, too: most
   ids of 32 bits have them at two neighbours of four bytes, but not at every second byte. */
static dlpi_foreign dlpi_foreign_wide(const dlpi_looked *l) {
    static const char cure[] = "Convert it to UTF-8";
    const bool text = (l->takes & DLPI_TAKES_TEXT) != 0;
    const uint64_t n = l->n < DLPI_FOREIGN_HEAD ? l->n : DLPI_FOREIGN_HEAD;
    uint64_t zeros = 0, each[4] = {0, 0, 0, 0};
    bool little, big;
    for (uint64_t i = 0; i < n; i++) {
        zeros += l->head[i] == 0;
        each[i & 3] += l->head[i] == 0;
    }
    little = text || (each[1] > n / 8 && each[3] > n / 8);
    big = text || (each[0] > n / 8 && each[2] > n / 8);
    if ((little && dlpi_foreign_begins(l, 0, "\xff\xfe\0\0", 4)) ||
        (big && dlpi_foreign_begins(l, 0, "\0\0\xfe\xff", 4)))
        return (dlpi_foreign){"UTF-32", cure};
    if ((little && dlpi_foreign_begins(l, 0, "\xff\xfe", 2)) ||
        (big && dlpi_foreign_begins(l, 0, "\xfe\xff", 2)))
        return (dlpi_foreign){"UTF-16", cure};
    if (!text || zeros < 2 || zeros < n / 8) return (dlpi_foreign){NULL, NULL};
    return (dlpi_foreign){"binary, or UTF-16 without a mark", cure};
}

/* ---- directories that are no data ---- */

/* True if systems and programs make directories of this name, of n bytes, beside the data of their
   users. tar: the directory is in a shard, where the first four names count, and PaxHeaders.NUMBER;
   else it is in a folder, where the others count, from the third on. */
static inline bool dlpi_foreign_directory(const char *name, size_t n, bool tar) {
    static const char *const known[] = {"PaxHeader",    "PaxHeaders",
                                        "__MACOSX",     "@eaDir",
                                        "__pycache__",  "@tmp",
                                        "lost+found",   "@Recycle",
                                        "#recycle",     "#snapshot",
                                        "~snapshot",    "RECYCLER",
                                        "$RECYCLE.BIN", "System Volume Information"};
    const size_t end = tar ? 4 : sizeof known / sizeof *known;
    for (size_t i = tar ? 0 : 2; i < end; i++)
        if (strncmp(name, known[i], n) == 0 && known[i][n] == 0) return true;
    return tar && n > 10 && memcmp(name, "PaxHeaders.", 11) == 0;
}

/* ---- what a file is ---- */

/* Return what a file is, if that is certain and the source does not take it. */
static dlpi_foreign dlpi_foreign_of(const dlpi_looked *l) {
    dlpi_foreign f = dlpi_foreign_magic(l);
    if (f.name == NULL) f = dlpi_foreign_word(l);
    if (f.name == NULL) f = dlpi_foreign_number(l);
    if (f.name == NULL) f = dlpi_foreign_words(l);
    if (f.name == NULL) f = dlpi_foreign_wide(l);
    return f;
}

/* Read what dlpi_foreign_of needs of a file. page: the caller frees it; NULL: none was needed.
   Returns 0, or a DLP_ERR code and *err. */
static int dlpi_foreign_read(const dlpi_mapped *m, dlpi_looked *l, uint8_t *head, uint8_t **page,
                             dlp_error *err) {
    const uint64_t last = m->size < DLPI_FOREIGN_END ? 0 : m->size - DLPI_FOREIGN_END;
    int64_t got = dlpi_mapped_pread(m, 0, DLPI_FOREIGN_HEAD, head);
    uint64_t at;
    l->head = head;
    l->size = m->size;
    l->n = got < 0 ? 0 : (uint64_t)got;
    memset(l->end, 0, sizeof l->end);
    if (got >= DLPI_FOREIGN_END) got = dlpi_mapped_pread(m, last, DLPI_FOREIGN_END, l->end);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
    at = dlpi_foreign_text(l, 0);
    if (at == l->n || head[at] != '<' || m->size <= l->n || m->size > DLPI_FOREIGN_PAGE)
        return DLP_OK;
    if ((*page = malloc((size_t)m->size)) == NULL)
        return dlpi_mapped_system(err, m->path, "malloc", ENOMEM);
    got = dlpi_mapped_pread(m, 0, m->size, *page);
    if (got < 0) return dlpi_mapped_system(err, m->path, "read", (int)-got);
    l->head = *page;
    l->n = (uint64_t)got;
    return DLP_OK;
}

/* Return why a file is hardly text, or NULL. More than a sixteenth of its first bytes may be
   control characters, as in bytes at random. Or they have CR alone where lines end. */
static const char *dlpi_foreign_doubt(const dlpi_looked *l) {
    const uint64_t n = l->n < DLPI_FOREIGN_HEAD ? l->n : DLPI_FOREIGN_HEAD;
    uint64_t controls = 0, returns = 0, ends = 0;
    for (uint64_t i = 0; i < n; i++) {
        controls += dlpi_foreign_binary(l->head + i, 1);
        returns += l->head[i] == '\r' && i + 1 < n;
        ends += l->head[i] == '\n';
    }
    if (controls >= 4 && controls > n / 16) return "looks binary; it must be text";
    return returns > 0 && ends == 0 ? "has CR alone, which ends no line; write LF" : NULL;
}

/* Refuse a file that is foreign to its source. takes: DLPI_TAKES_*. wanted: what the file must be.
   insist: the source has a field of this name. doubt: set to why the file is hardly text, or to
   NULL; may be NULL. Returns 0, or a DLP_ERR code and *err. */
static int dlpi_foreign_refuse(const dlpi_mapped *m, unsigned takes, const char *wanted,
                               bool insist, const char **doubt, dlp_error *err) {
    uint8_t head[DLPI_FOREIGN_HEAD], *page = NULL;
    dlpi_looked l = {.takes = takes};
    int rc = dlpi_foreign_read(m, &l, head, &page, err);
    if (rc == DLP_OK) {
        const dlpi_foreign f = dlpi_foreign_of(&l);
        if (doubt != NULL) *doubt = dlpi_foreign_doubt(&l);
        if (f.name != NULL)
            rc = dlpi_mapped_error(err, DLP_ERR_CORRUPT, m->path, 0, "is %s; it must be %s. %s%s",
                                   f.name, wanted, f.cure, insist ? ", or set insist = 1" : "");
    }
    free(page);
    return rc;
}
