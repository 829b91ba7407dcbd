/* needs: explain */
#pragma once
/* tests: system/report/texts, system/report/advice */
#include "open/observe.h"
#include "report/explain.h"
/* ---- a pipe explains itself ---- */

/* Append the error that ends the pipe and belongs to no batch, if there is one. */
static void dlpi_explain_error(dlpi_text *t, const dlpi_ctl *ctl) {
    char words[640];
    if (dlpi_first_seen(&ctl->error_ready) == 0) return; /* E1 <- E1 */
    dlp_error_format(&ctl->error, words, sizeof words);
    dlpi_text_add(t, "Error: %s\n", words);
}

DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    dlpi_seen s;
    int rc = dlpi_seen_now(p, buf != NULL || size == 0, true, &s);
    uint64_t n = rc == DLP_OK ? dlpi_credit_look(&p->warnings.n) : 0; /* V1 <- V1 */
    for (uint64_t i = 0; i < n; i++) dlpi_text_add(&t, "Warning: %s.\n", p->warnings.text[i]);
    if (rc == DLP_OK) dlpi_explain_error(&t, p->ctl);
    if (rc == DLP_OK) dlpi_explain(&t, &s);
    return rc == DLP_OK ? dlpi_text_length(&t) : rc;
}
