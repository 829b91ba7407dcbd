/* needs: explain */
#pragma once
/* tests: system/shm/monitor */
#include "report/explain.h"
#include "shm/public.h"
/* ---- a monitor explains a pipe ---- */

DLPDEF int dlp_monitor_explain(const dlp_monitor *m, char *buf, size_t size) {
    dlpi_text t = {buf, size, 0};
    if (m == NULL || (buf == NULL && size > 0)) return DLP_ERR_ARG;
    dlpi_explain(&t, &m->seen);
    return dlpi_text_length(&t);
}
