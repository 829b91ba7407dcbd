#pragma once
/* tests: system/inputs/neighbours, system/core/pipe_basic */
#include "pipe/pipe.h"
/* ---------------------------------------------------------------------------------------------
   >>impl-roles      ROLES THAT ARE ALWAYS THERE
   A pipe has a table of each role from its opening on, so no code asks whether a role is there.
   Here are the tables of pipes without a stage for it, and what a source says that has nothing to
   say. Whole batches, the lender's default, are in deliver/whole.h. */

/* ---- of several roles ---- */

static uint64_t dlpi_role_none(const dlp_pipe *p DLPI_UNREAD) { return 0; }
static bool dlpi_role_yes(dlp_pipe *p DLPI_UNREAD) { return true; }
static int dlpi_role_well(dlp_pipe *p DLPI_UNREAD) { return DLP_OK; }
static void dlpi_role_idle(dlp_pipe *p DLPI_UNREAD) {}

/* ---- source ---- */

static bool dlpi_source_ready(dlp_pipe *p DLPI_UNREAD, uint64_t rows DLPI_UNREAD) { return true; }
static inline bool dlpi_source_asks(const dlp_pipe *p) { return p->source->agreed != NULL; }
static void dlpi_source_filled(struct dlpi_worker *w DLPI_UNREAD,
                               const struct dlpi_unit *t DLPI_UNREAD) {}
DLPI_COLD static void dlpi_source_config(const dlp_pipe *p DLPI_UNREAD,
                                         struct dlpi_state *s DLPI_UNREAD) {}
static const struct dlpi_source_state *dlpi_source_stateless(const dlp_pipe *p DLPI_UNREAD,
                                                             uint32_t s DLPI_UNREAD,
                                                             int after DLPI_UNREAD) {
    return NULL;
}

#define DLPI_SOURCE_PARAMS "params: subset, weights, samples, function_id, datasets mixed"

/* Its items are at hand: nothing is loaded ahead of a batch. */
#define DLPI_SOURCE_AT_HAND \
    .ready = dlpi_source_ready, .ahead = dlpi_role_idle, .quiet = dlpi_role_yes

/* The part of a source whose batches' numbers say all of their places. */
#define DLPI_SOURCE_BY_NUMBER \
    .step = dlpi_role_well, .state = dlpi_source_stateless, .never_saved = dlpi_state_bad_field

static const dlpi_source_ops dlpi_no_source = {0}; /* of a chain that is not checked yet */

/* ---- keeper, holder: called for stages that are something to it, of which there are none ---- */

static const dlpi_keeper_ops dlpi_no_keeper = {0};
static const dlpi_holder_ops dlpi_no_holder = {0};

/* ---- sink: results stay in their slots ---- */

static void dlpi_slot_data(const dlp_pipe *p DLPI_UNREAD, uint32_t s DLPI_UNREAD,
                           uint32_t field DLPI_UNREAD, uint64_t at DLPI_UNREAD,
                           dlp_tensor *t DLPI_UNREAD) {}
static void dlpi_slot_freed(dlp_pipe *p DLPI_UNREAD, uint32_t s DLPI_UNREAD) {}

static const dlpi_sink_ops dlpi_slot_sink = {
    .data = dlpi_slot_data,
    .freed = dlpi_slot_freed,
};

static inline bool dlpi_results_in_slots(const dlp_pipe *p) { return p->sink == &dlpi_slot_sink; }

/* ---- sharing: the consumer is alone ---- */

static bool dlpi_unshared_free(dlp_pipe *p DLPI_UNREAD, uint32_t s DLPI_UNREAD) { return true; }

static const dlpi_sharing_ops dlpi_unshared = {
    .words = "",
    .keep = dlpi_role_well,
    .may_schedule = dlpi_role_yes,
    .slot_free = dlpi_unshared_free,
    .holds = dlpi_role_none,
    .leave = dlpi_role_yes,
};

static inline bool dlpi_is_shared(const dlp_pipe *p) { return p->sharing != &dlpi_unshared; }

/* ---- a pipe's ---- */

/* Give a new pipe the tables of no stage. whole: the table of a lender that lends whole batches. */
static void dlpi_roles_begin(dlp_pipe *p, const dlpi_lender_ops *whole) {
    p->source = &dlpi_no_source;
    p->keeper = &dlpi_no_keeper;
    p->kept_by = -1;
    p->holder = &dlpi_no_holder;
    p->sink = &dlpi_slot_sink;
    p->lender = whole;
    p->sharing = &dlpi_unshared;
}

/* Take the roles of a stage of the chain. */
static void dlpi_roles_take(dlp_pipe *p, dlpi_stage *st) {
    const dlpi_stage_ops *ops = st->ops;
    if (ops->sink != NULL) p->sink = ops->sink, p->sink_stage = st;
    if (ops->keeper != NULL) p->keeper = ops->keeper, p->keeper_stage = st;
    if (ops->lender != NULL) p->lender = ops->lender, p->lender_stage = st, p->lends = true;
    if (ops->holder != NULL) p->holder = ops->holder, p->holder_stage = st;
    if (ops->source != NULL) p->source = ops->source, p->source_stage = st;
    if (ops->sharing != NULL) p->sharing = ops->sharing;
}

/* True if one consumer gets whole batches, in their slots. */
static bool dlpi_roles_whole(const dlp_pipe *p) {
    return !p->lends && !dlpi_is_shared(p) && dlpi_results_in_slots(p);
}

/* True if the pipe has one consumer, and a source by number whose items are at hand. Then a
   delivery takes a slot for each credit, and a release brings no credit. */
static bool dlpi_roles_bare(const dlp_pipe *p) {
    return dlpi_roles_whole(p) && p->source->ahead == dlpi_role_idle &&
           p->source->state == dlpi_source_stateless;
}

/* Return how many ranks share the rows of a batch: 1 without ranks, and where a lender's whole
   batches go to ranks. */
static uint32_t dlpi_roles_world(const dlp_pipe *p) {
    return p->lends || p->d.world_size == 0 ? 1 : p->d.world_size;
}

/* Return a stage that must know the number of items in advance, or NULL. */
static const dlpi_stage *dlpi_roles_count(const dlp_pipe *p) {
    return p->keeper_stage ? p->keeper_stage : p->lender_stage;
}
