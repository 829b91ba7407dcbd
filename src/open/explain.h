/* needs: explain */
#pragma once
/* tests: system/report/texts, system/report/advice */
#include "open/observe.h"
#include "report/explain.h"
/* ---- a pipe explains itself ---- */

DLPDEF int dlp_pipe_explain(dlp_pipe *p, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    char words[640];
    dlpi_seen s;
    int rc = dlpi_seen_now(p, buf != NULL || size == 0, true, &s);
    uint64_t n = rc == DLP_OK ? dlpi_credit_look(&p->warnings.n) : 0; /* V1 <- V1 */
    for (uint64_t i = 0; i < n; i++) dlpi_text_add(&t, "Warning: %s.\n", p->warnings.text[i]);
    if (rc == DLP_OK && dlpi_first_seen(&p->ctl->error_ready) != 0) { /* E1 <- E1 */
        dlp_error_format(&p->ctl->error, words, sizeof words);        /* it belongs to no batch */
        dlpi_text_add(&t, "Error: %s\n", words);
    }
    if (rc == DLP_OK) dlpi_explain(&t, &s);
    return rc == DLP_OK ? dlpi_text_length(&t) : rc;
}
