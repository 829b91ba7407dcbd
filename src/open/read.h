#pragma once
/* tests: system/open/read */
#include "fail/fail.h"
/* ---- a field of a batch by its name and dtype ---- */

/* Write the name of a dtype as the macros have it, such as "f32" of dlp_f32. */
static void dlpi_dtype_name(dlp_dtype t, char *to, size_t size) {
    static const char *const kinds[] = {"i", "u", "f", "type ", "bf", "type "};
    const uint32_t code = t >> 16, bits = t & 0xffffu;
    if (t == DLP_BOOL)
        snprintf(to, size, "bool");
    else
        snprintf(to, size, "%s%" PRIu32, kinds[code < 6 ? code : 3], bits);
}

/* Tell why a field cannot be read, in the record of the batch, or by the batch map that runs. t:
   the field of this name; NULL: there is none. Returns NULL. */
DLPI_COLD static void *dlpi_read_fail(const dlp_batch *b, const char *name, const dlp_tensor *t,
                                      dlp_dtype dtype) {
    char names[200] = "", is[24], want[24];
    dlp_error e;
    for (uint32_t f = 0, n = 0; f < b->n_fields && n + 36 < sizeof names; f++)
        n += (uint32_t)snprintf(names + n, sizeof names - n, "%s\"%.31s\"", f > 0 ? ", " : "",
                                b->fields[f].name);
    dlpi_dtype_name(t != NULL ? t->dtype : dtype, is, sizeof is);
    dlpi_dtype_name(dtype, want, sizeof want);
    if (name == NULL)
        dlpi_error_set(&e, DLP_ERR_ARG, "name", "name is NULL: the batch has %s", names);
    else if (t == NULL)
        dlpi_error_set(&e, DLP_ERR_ARG, name, "no field \"%.31s\": the batch has %s", name, names);
    else if (t->dtype != dtype)
        dlpi_error_set(&e, DLP_ERR_ARG, name, "field \"%.31s\" is %s, not %s: call dlp_%s", name,
                       is, want, is);
    else
        dlpi_error_set(&e, DLP_ERR_UNSUPPORTED, name,
                       "field \"%.31s\" lies behind a handle of the device, at byte_offset", name);
    if (b->error != NULL)
        *b->error = e;
    else
        dlp_fail(b->call, 0, "%s", e.message);
    return NULL;
}

DLPDEF void *dlp_batch_data(const dlp_batch *batch, const char *name, dlp_dtype dtype) {
    const dlp_tensor *t = NULL;
    if (batch == NULL) return NULL;
    for (uint32_t f = 0; f < batch->n_fields && t == NULL && name != NULL; f++)
        if (strcmp(batch->fields[f].name, name) == 0) t = &batch->fields[f];
    if (t == NULL || t->dtype != dtype || t->byte_offset != 0)
        return dlpi_read_fail(batch, name, t, dtype);
    return t->data;
}
