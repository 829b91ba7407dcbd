#pragma once
#include "open/loader.h"
DLPDEF int dlp_loader_open(dlp_pipe **out, const dlp_loader_desc *desc, dlp_error *err) {
    return dlpi_loader_open(out, desc, NULL, err);
}

DLPDEF int dlp_parts_open(dlp_pipe **out, const dlp_parts_desc *desc, dlp_error *err) {
    dlp_part_desc parts;
    if (desc == NULL) return dlpi_loader_open(out, NULL, NULL, err);
    parts = desc->parts;
    if (desc->loader.shuffle == 1) parts.shuffle_parts = parts.shuffle_items = 1;
    return dlpi_loader_open(out, &desc->loader, &parts, err);
}
