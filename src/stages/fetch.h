#pragma once
#include "core/recover.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-fetch      FETCH: ROWS WRITTEN FOR THE FIRST TIME
   One at a time, or several in flight: the stage has the second table then. */

static const dlpi_stage_ops dlpi_fetch_ops = {
    .kind = DLP_STAGE_FETCH,
    .rank = 4,
    .unit = DLPI_UNIT_ROWS,
    .step = dlpi_rows_step,
    .find = dlpi_rows_find,
    .run = dlpi_rows_run,
    .full = dlpi_rows_full,
    .owes = dlpi_rows_owes,
    .due = dlpi_rows_due,
    .recover = dlpi_slots_recover,
};

static const dlpi_stage_ops dlpi_fetch_many_ops = {
    .kind = DLP_STAGE_FETCH,
    .rank = 4,
    .unit = DLPI_UNIT_ROWS,
    .step = dlpi_flights_step,
    .find = dlpi_flights_find,
    .run = dlpi_flights_run,
    .full = dlpi_flights_no_room,
    .owes = dlpi_flights_owes,
    .due = dlpi_flights_due,
    .recover = dlpi_slots_recover,
};
