/* needs: parts */
#pragma once
#include "api/pack.h"
#include "source/pack.h"
#include "build/check.h"
DLPDEF dlp_stage dlp_pipe_add_pack(dlp_pipe *p, const dlp_pack_desc *desc) {
    dlpi_stage *st;
    if (p == NULL || desc == NULL) return DLP_ERR_ARG;
    st = dlpi_add(p, &dlpi_pack_ops, "pack", &desc->workers);
    if (st == NULL) return dlpi_add_refused(p);
    return dlpi_added(p, st, dlpi_pack_take(p, st, desc));
}
