#pragma once
/* tests: unit/api/version, system/core/pipe_errors, system/core/pipe_badinput */
#include "base/platform.h"
#include "api/atomics.h"
#include "api/codes.h"
#include "api/errors.h"
#include "api/version.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-errors     CODES AND ERROR RECORDS */

typedef struct dlpi_code {
    int value;
    const char *name, *text, *hint;
} dlpi_code;

static const dlpi_code dlpi_codes[] = {
#define DLPI_X(name, value, text, hint) {value, "DLP_" #name, text, hint},
    DLP_CODES(DLPI_X)
#undef DLPI_X
};

static const dlpi_code *dlpi_code_find(int code) {
    static const dlpi_code unknown = {0, "unknown code", "unknown code", ""};
    for (size_t i = 0; i < sizeof dlpi_codes / sizeof *dlpi_codes; i++)
        if (dlpi_codes[i].value == code) return &dlpi_codes[i];
    return &unknown;
}

DLPDEF const char *dlp_version(void) { return DLPIPE_VERSION; }

DLPDEF const char *dlp_code_name(int code) { return dlpi_code_find(code)->name; }
DLPDEF const char *dlp_code_text(int code) { return dlpi_code_find(code)->text; }
DLPDEF const char *dlp_code_hint(int code) { return dlpi_code_find(code)->hint; }

/* Print into a buffer what a function's `format` and the arguments after it say. */
#define DLPI_PRINT(to, size, format) \
    do { \
        va_list args_; \
        va_start(args_, format); \
        vsnprintf(to, size, format, args_); \
        va_end(args_); \
    } while (0)

/* Copy a text, cut to the buffer and always ended. If `from` is NULL, the copy is empty. */
DLPI_COLD static void dlpi_copy_text(char *to, size_t size, const char *from) {
    size_t n = from ? strlen(from) : 0;
    if (n >= size) n = size - 1;
    if (n > 0) memcpy(to, from, n);
    to[n] = 0;
}

/* Fill the error record *e, which may be NULL. Returns `code`, for the caller to return. */
DLPI_COLD DLPI_PRINTF(4, 5) static int dlpi_error_set(dlp_error *e, int code, const char *field,
                                                      const char *format, ...) {
    if (e == NULL) return code;
    memset(e, 0, sizeof *e);
    e->code = code;
    e->worker = -1;
    dlpi_copy_text(e->field, sizeof e->field, field);
    DLPI_PRINT(e->message, sizeof e->message, format);
    return code;
}

/* Write the number of errno and, unless the message has them already, its words. */
static void dlpi_errno_text(const dlp_error *e, char *buf, size_t size) {
    const char *text = strerror(e->errnum);
    bool said = strstr(e->message, text) != NULL;
    snprintf(buf, size, " (errno %d%s%s)", (int)e->errnum, said ? "" : ": ", said ? "" : text);
}

/* Return what to do about an error: the cure of its errno if there is one, else that of its code.
   "" if nothing is known, or if the message says it. A callback's errno may be of any call, so only
   numbers that mean one thing everywhere count. */
DLPI_COLD static const char *dlpi_error_hint(const dlp_error *e) {
    static const struct {
        int errnum, everywhere;
        const char *said, *hint; /* said: words by which a message shows that it tells the cure */
    } cures[] = {
        {EMFILE, 1, "ulimit -n", "raise ulimit -n, or open fewer files"},
        {ENFILE, 1, "fs.file-max", "the whole system has too many open files: raise fs.file-max"},
        {EACCES, 0, "permissions", "check the permissions of the path"},
        {EPERM, 0, "forbid", "the system forbids the call: see seccomp and the container's rules"},
        {ENOSYS, 0, "forbid", "the kernel lacks the call, or seccomp or the container forbids it"},
        {EAGAIN, 0, "ulimit -u", "raise ulimit -u, or the cgroup's pids.max"}};
    const bool ours = e->code == DLP_ERR_SYSTEM || e->code == DLP_ERR_MEMORY;
    for (size_t i = 0; i < sizeof cures / sizeof *cures; i++)
        if (e->errnum == cures[i].errnum && (ours || cures[i].everywhere))
            return strstr(e->message, cures[i].said) == NULL ? cures[i].hint : "";
    if (e->code == DLP_ERR_SYSTEM && (e->errnum == ENOSPC || e->errnum == EDQUOT))
        return "make room, or raise the quota";
    if (e->code == DLP_ERR_SYSTEM && e->errnum == EROFS) return "choose a path that can be written";
    return dlpi_code_find(e->code)->hint;
}

DLPI_COLD DLPDEF int dlp_error_format(const dlp_error *e, char *buf, size_t size) {
    char place[64] = "", worker[24] = "", item[128] = "", errnum[128] = "";
    const dlpi_code *c = dlpi_code_find(e->code);
    const char *hint = dlpi_error_hint(e);
    if (e->code == 0) return snprintf(buf, size, "%s: %s", c->name, c->text);
    if (e->worker >= 0) snprintf(worker, sizeof worker, "worker %d", (int)e->worker);
    if (e->has_item)
        snprintf(item, sizeof item, "item %" PRIu64 " (epoch %" PRIu64 ", position %" PRIu64 ")",
                 e->index, e->epoch, e->position);
    if (e->stage[0]) snprintf(place, sizeof place, "stage \"%s\"", e->stage);
    if (e->errnum) dlpi_errno_text(e, errnum, sizeof errnum);
    return snprintf(
        buf, size, "%s: %s%s%s%s%s%s%s%s%s%s%s", c->name, place, place[0] && worker[0] ? " " : "",
        worker, (place[0] || worker[0]) && item[0] ? ", " : "", item,
        place[0] || worker[0] || item[0] ? ": " : "", e->message[0] ? e->message : c->text, errnum,
        hint[0] ? " [" : "", hint, hint[0] ? "]" : "");
}

/* End the texts of a record that others wrote, so that they are valid strings. */
static void dlpi_error_end(dlp_error *e) {
    e->stage[sizeof e->stage - 1] = e->field[sizeof e->field - 1] = 0;
    e->message[sizeof e->message - 1] = 0;
}
