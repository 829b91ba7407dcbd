/* needs: explain */
#pragma once
/* tests: system/report/texts */
#include "report/words.h"
/* ---- explain: a table of conditions, sentences and the numbers in them ---- */

/* The formatter would take each row apart. */
/* clang-format off */

/* Groups of sentences. One of those before BETTER says what limits, and what to change; the first
   five are numbered as DLPI_LIMIT_* are. The groups from BETTER to TUNED are told in this order,
   each once for each stage. */
enum {
    DLPI_OF_CONSUMER, DLPI_OF_CORES, DLPI_OF_PREFETCH, DLPI_OF_UNKNOWN, DLPI_OF_PRODUCERS,
    DLPI_OF_ALONE, DLPI_OF_NONE, DLPI_OF_OUT, DLPI_OF_HANGS, DLPI_OF_LOCK, DLPI_OF_TURNS,
    DLPI_OF_CLEARS, DLPI_OF_INLINE, DLPI_OF_MANY, DLPI_OF_WORKERS, DLPI_OF_BETTER, DLPI_OF_SKEW,
    DLPI_OF_LONGEST, DLPI_OF_SLOW, DLPI_OF_INPUTS, DLPI_OF_STREAMS, DLPI_OF_PACKING,
    DLPI_OF_PARTS, DLPI_OF_RUN, DLPI_OF_TIME, DLPI_OF_TIMES, DLPI_OF_IDLE, DLPI_OF_ERRORS,
    DLPI_OF_SKIP, DLPI_OF_TUNED, DLPI_OF_NOTE, DLPI_OF_REST
};

#define DLPI_HAND_OVER_NS 500 /* ns to hand a batch to another core: overhead_ns_b1_p2, far */

/* What the lists below are made of. little: a larger cache, of up to eight times the bytes, would
   keep all that the stage fetches. behind: bytes of a ragged field behind the lengths are written,
   else no more bytes are cleared than items have used. brief: a batch is less work than handing it
   over. handing: handing batches over costs more than workers give, also with more batches in
   flight. */
#define DLPI_FACTS \
    const dlp_stream_stats *y = &g->spread; \
    const dlp_chunk_stats *c = &s->chunks; \
    const dlp_worker_stats *w = &s->longest; \
    const dlpi_foretold *f = &x->f; \
    const uint64_t *own = g->own, lookups = s->cache_hits + s->cache_misses; \
    const uint64_t tokens = own[DLP_PACK_PADDING] + own[DLP_PACK_TOKENS]; \
    const dlpi_stage_ops *ops = dlpi_words_ops(g); \
    const dlpi_kind_words *words = &ops->words; \
    const dlpi_reader_words reader = dlpi_stage_reader(g), *r = &reader; \
    const uint64_t age = w->current_age_ns; \
    const int i = (int)(g - s->stages); \
    const bool chunks = dlpi_of_chunks(s), batches = dlpi_stage_takes_batches(g); \
    const char *unit = g->cells > 0 ? ops->expands ? "input" : "part" \
                       : chunks     ? "chunk" \
                       : batches    ? "batch" \
                                    : "item"; \
    const bool crowded = v->next_limit == DLPI_LIMIT_CORES || dlpi_cores_crowded(s); \
    const bool none = f->n == 0 || (f->n < 0 && v->rate_plus_one < v->rate * 1.05); \
    const bool brief = !chunks && s->batches > 0 && g->busy_ns / s->batches < DLPI_HAND_OVER_NS; \
    const bool here = \
        i == v->limiting_stage && x->told >= DLPI_OF_INLINE && x->told <= DLPI_OF_WORKERS; \
    const bool fetches = here && g->kind == DLP_STAGE_FETCH; \
    const bool little = s->cache_hits > 0 && s->cache_capacity < s->cache_all_bytes && \
                       s->cache_all_bytes / 8 <= s->cache_capacity; \
    const bool jumps = g->max_ns >= 1000000 && g->max_ns / 16 >= g->p50_ns; \
    const dlp_clear_stats *z = &g->clears; \
    const double spared = dlpi_clears_share(g, z->spared_ns); \
    const bool behind = z->used < z->room && z->cleared / 2 > z->used; \
    const bool padded = tokens > 0 && (double)own[DLP_PACK_PADDING] >= 0.001 * (double)tokens; \
    const bool taken = l->used < 0.9 && l->cores > l->used; \
    const bool filters = words->items == NULL && g->inputs_items > 0 && g->inputs_empty > 0 && \
                         g->inputs_items + g->inputs_empty == g->inputs; \
    const bool longest = i == (w->stage < l->n && w->stage > 0 ? w->stage : 0); \
    const bool hangs = age >= 1000000000 || (age >= 100000000 && age / 2 >= g->p99_ns); \
    const double out = (double)g->in_flight_ns / (double)g->busy_ns; \
    const double batch_ns = l->ns / (double)s->batches; \
    const double without = l->work + (double)s->step_ns / (double)s->batches; \
    const bool hurried = \
        l->work >= 1 && s->batches >= 200 && batch_ns <= 100000 && without <= 0.9 * batch_ns; \
    const bool handing = hurried && (s->n_workers == 1 || 2 * l->work <= batch_ns) && \
                         f->deeper * without <= l->rows * 1e9;

/* Rows: a group, a condition, what is said if it holds. Rows are tried in order. Where rows begin
   alike ("Change: "), the first that holds is said. {name} is a number or a word of the lists
   below. [name|text] is said if the condition of that name holds; [name|text|other] says the other
   text if it does not. */
#define DLPI_SENTENCES(X) \
    X(NONE, true, "Limit: the items: each of the {left_out_of_all} items so far was left out, so " \
      "no row is valid.\n") \
    X(NONE, true, "Change: mend the first cause, which is told below; dlp_pipe_skips names the " \
      "newest ones.\n") \
    X(OUT, g->items == 0, "Limit: out '{name}' has taken no batch, and the pipe waits for it " \
      "(DLP_FULL_WAIT).\n") \
    X(OUT, true, "Limit: out '{name}' has taken {items} of {batches} batches and holds {ready}; " \
      "the pipe waits for it (DLP_FULL_WAIT).\n") \
    X(OUT, true, "Change: take and release its batches faster, or close it (dlp_out_close). With " \
      "full = DLP_FULL_KEEP_NEWEST it misses batches, and the pipe never waits.\n") \
    X(PRODUCERS, true, "Limit: the producers: '{name}' waits for them {starved} % of the " \
      "time[attached|; each of the {attached} takes about {each} for an item].\n") \
    X(PRODUCERS, v->rate_plus_one > 1.02 * v->rate, "Change: make the producers faster, or add " \
      "some; one more should give about {rate_more} items/s.\n") \
    X(PRODUCERS, true, "Change: make the producers faster, or add some.\n") \
    X(ALONE, true, "Limit: no producer lives, and {ended} of {writers} streams have ended.\n") \
    X(ALONE, r->last > 0, "Change: start producer {last} again with the same number. It is gone " \
      "and did not end its stream.\n") \
    X(ALONE, true, "Change: start the missing producers, or set writers.\n") \
    X(HANGS, true, "Limit: one item: worker {worker} of '{name}' (thread {tid} of process {pid}) " \
      "has been at {unit} {current_index} for {age}; p99 is {p99}.\n") \
    X(HANGS, true, "Change: find out what its callback waits for. With deadline_ms in workers, " \
      "an item that hangs is an error; in a process (DLP_PLACE_PROCESSES) it can be left " \
      "out.\n") \
    X(LOCK, true, "Limit: a lock in '{name}': items take {slower} times longer with {workers} " \
      "workers than alone. They wait for each other: {waiting} of {at_work} wait for one lock " \
      "now.\n") \
    X(LOCK, true, "Change: hold the lock for a shorter time, or give each worker a handle of its " \
      "own in worker_init. More workers or requests give nothing; {field} = 1 gives about as " \
      "many items/s.\n") \
    X(CLEARS, true, "Limit: clearing: {clears} % of the time of '{name}' goes into setting bytes " \
      "to 0, most of it for field '{cleared_field}': {cleared} for each item[ragged|, which uses " \
      "{used_bytes} of a room of {room}].\n") \
    X(CLEARS, 2 * z->spared_ns >= z->ns, "Change: set writes_all_bytes = 1 if the callback " \
      "writes all bytes of its fields[ragged|, of this one those of its length], or declare a " \
      "smaller '{cleared_field}'; that should give up to {rate_spared} items/s.\n") \
    X(CLEARS, behind, "Change: write no bytes behind the length of '{cleared_field}', as padding " \
      "does: the whole room is cleared then. Or declare a smaller room (its shape).\n") \
    X(CLEARS, true, "Change: declare a smaller '{cleared_field}'[own_workers|, or raise " \
      "{field}]; no setting leaves this clearing out.\n") \
    X(INLINE, true, "Limit: stage '{name}' runs inline in the consumer (0 workers) and takes " \
      "{busy} % of its time; steps take {steps} %.\n") \
    X(INLINE, brief, "Change: raise batch_size: a batch is {each_batch} of its work, and a " \
      "worker takes longer to hand one over.\n") \
    X(INLINE, none && crowded, "Change: a worker would give nothing: the cores are the limit " \
      "already.\n") \
    X(INLINE, none, "Change: a worker would give nothing: the rest is the limit already.\n") \
    X(INLINE, f->n < 0, "Change: set {setting}; that should give about {rate_more} items/s; then " \
      "the limit is [last|that worker|{next}].\n") \
    X(INLINE, true, "Change: set {field}; {foretold}; then the limit is {then}.\n") \
    X(MANY, true, "Limit: requests in flight: each worker of '{name}' ({workers} in all) has " \
      "{out} of {in_flight} requests out; a request takes p50 {p50}; the consumer waits {wait} % " \
      "of the time.\n") \
    X(MANY, out >= 0.8 * g->in_flight, "Change: raise in_flight, or {field}; twice as many give " \
      "up to {twice} items/s if the source can serve them and prefetch_factor has as many " \
      "items.\n") \
    X(MANY, true, "Change: raise prefetch_factor (and batch_pool, if it is set): there are too " \
      "few items for {in_flight} requests. Or the source refuses more requests.\n") \
    X(WORKERS, true, "Limit: stage '{name}': its {workers} worker{are} {util} % busy, and the " \
      "consumer waits {wait} % of the time.\n") \
    X(WORKERS, dlpi_stage_slow(g) != NULL, "Change: it has one thread: {slow}.\n") \
    X(WORKERS, g->workers < g->workers_max, "Change: none; workers are added while they are " \
      "needed, up to workers_max = {workers_max}.\n") \
    X(WORKERS, batches && g->workers >= (int)s->prefetch_factor, "Change: raise prefetch_factor " \
      "above {prefetch_factor}, and {field} with it: each batch in flight has a worker " \
      "already.\n") \
    X(WORKERS, v->next_limit == DLPI_LIMIT_PREFETCH, "Change: raise prefetch_factor above " \
      "{prefetch_factor}, then {field}: every item in flight has a worker already.\n") \
    X(WORKERS, v->rate_plus_one < v->rate * 1.02, "Change: make the stage cheaper; one more " \
      "worker would give nothing: {next} would be the limit.\n") \
    X(WORKERS, true, "Change: raise {field}; {one_more} should give about {rate_more} " \
      "items/s[last||; then the limit is {next}].\n") \
    X(CONSUMER, l->wait < 0.01, "Limit: the training step. It hardly ever waited for data.\n") \
    X(CONSUMER, true, "Limit: the consumer: it waits for batches only {wait} % of the time.\n") \
    X(CONSUMER, true, "Change: nothing in the pipe; steps take {step}[busiest| and the busiest " \
      "workers ('{name}') are {util} % busy].\n") \
    X(CORES, true, "Limit: the cores: workers and consumer keep {used} of {cpus} busy[taken|, " \
      "and wait for one {core_wait} % of the time that they could run]; more workers would give " \
      "nothing.\n") \
    X(CORES, l->busiest >= 0, "Change: make '{name}' cheaper, or use more cores[taken|: others " \
      "have these, or the CPU quota is used up].\n") \
    X(TURNS, true, "Limit: worker {slowest} of '{name}': its items take {slowest_ns}, those of " \
      "the other workers {others_ns}; these wait for it, since batches go to the workers in " \
      "turn.\n") \
    X(TURNS, true, "Change: let any worker take the next items: the economic topology, or " \
      "queue.deal = DLP_DEAL_RUNS. Or find out what makes this worker slow.\n") \
    X(PREFETCH, handing, "Limit: the way to the consumer: a batch is {work} of work and comes " \
      "every {batch_ns}; handing it over from a worker takes the rest.\n") \
    X(PREFETCH, true, "Limit: prefetch_factor = {prefetch_factor}: the consumer waits {wait} % " \
      "of the time while the workers of '{name}' are only {busy} % busy.\n") \
    X(PREFETCH, handing, "Change: set num_workers = 0; a batch should come every " \
      "{without}.[few| Or set workers.consumer_helps = 1: the consumer works beside the " \
      "workers.]\n") \
    X(PREFETCH, true, "Change: raise {depth}, for instance to {more}[deeper|; that should give " \
      "about {deeper} items/s]; each further {further} takes about {batch_bytes}.\n") \
    X(UNKNOWN, s->batches == 0, "Limit: not known: no batch has been delivered yet, {elapsed} " \
      "after the start.\n") \
    X(UNKNOWN, true, "Limit: not known yet: {batches} batch{es} delivered, and the first " \
      "prefetch_factor = {prefetch_factor} are the start-up.\n") \
    X(BETTER, fetches && little, "Better: cache.bytes = {cache_all_bytes}, if there is memory: " \
      "later epochs then fetch nothing; {misses} % of the lookups miss now.\n") \
    X(BETTER, (here && spared >= 0.1) || \
      (x->told == DLPI_OF_PREFETCH && i == l->busiest && spared >= 0.3), "Better: " \
      "writes_all_bytes = 1 in '{name}', if its callback writes all bytes. Setting them to 0 " \
      "takes {spared} % of its time, most of it for field '{cleared_field}' ({room}).\n") \
    X(BETTER, here && dlpi_stage_sleeps(s, g) && dlpi_stage_slow(g) == NULL, "Better: " \
      "{many}[inlined| and {field} = 1] in '{name}'[one| (in a loader, also fetcher = " \
      "DLP_FETCH_THREADS)]. Its [inlined|callbacks|workers] compute {cpu} % of their time and " \
      "wait for the rest. That [sixteen|should give about {sixteen} items/s if the source can " \
      "serve them and items do not wait for each other|gives up to 16 times as many items/s if " \
      "the source can serve them and prefetch_factor has as many items].\n") \
    X(SKEW, x->told == DLPI_OF_PREFETCH && !handing && g->p50_ns > 0 && \
      (g->p99_ns / 4 >= g->p50_ns || jumps), "Skew: times of '{name}' are uneven (p50 {p50}, p99 " \
      "{p99}[outlier|; {unit} {max_index} took {max}]): slow {piece}s hold up the order; more " \
      "{hidden_by}[loose|, which should give about {loose} items/s].\n") \
    X(SLOW, dlpi_stage_lags(g) && !(v->limiting_stage == DLPI_LIMIT_PREFETCH && \
      dlpi_stage_turns(g) && i == l->busiest), "Slow: worker {slowest} of '{name}': its items " \
      "take {slowest_ns}, those of the other workers {others_ns}; [turns|these wait for it, " \
      "since batches go to the workers in turn|it has made {slowest_items} of {items}].\n") \
    X(LONGEST, longest && hangs && x->told != DLPI_OF_HANGS, "Longest: worker {worker} of " \
      "'{name}' (thread {tid} of process {pid}) has been at {unit} {current_index} for {age}; " \
      "p99 is [p99|{p99}|not known].\n") \
    X(INPUTS, g->inputs > 0 && filters, "Inputs: '{name}' keeps {kept} %: {inputs_a_row} inputs " \
      "a row[window|; {cells} cells of {cell_bytes} in all are for windows of {window} " \
      "{windows}, and to load ahead].\n") \
    X(INPUTS, g->inputs > 0, "Inputs: '{name}' makes {made} {things} of each input; {none} % of " \
      "the inputs have none[window|; {cells} cells of {cell_bytes} in all are for windows of " \
      "{window} {windows}, and to load ahead].\n") \
    X(STREAMS, y->counted > 0 && (y->streams > 1 || y->left_out > 0), "Streams: {counted} of the " \
      "{streams} streams of this rank are counted: {least}[uneven| to {most}] {things} in a " \
      "pass[uneven|, each {least_share} to {most_share} % of all][left|; an epoch leaves out " \
      "{at_least}{left} %].\n") \
    X(STREAMS, y->weights > 0 && y->all > 1, "Weights: each of the {all} streams has " \
      "{weight_least} to {weight_most} % of the weight[drops|; if the numbers of items follow " \
      "the weights, an epoch leaves out {weight_left} %].\n") \
    X(PACKING, g->kind == DLP_STAGE_PACK && own[DLP_PACK_ROWS] > 0, "Packing: {padding} % of the " \
      "tokens are padding, {segments} segments a row[wider|; a window larger than {window} makes " \
      "that less].\n") \
    X(PARTS, l->rate > 0 && g->cells > 0 && (double)s->part_wait_ns >= 0.02 * l->ns, "Cells: no " \
      "{unit} is ready: the consumer waits for {unit}s {part_wait} % of the time; workers of " \
      "'{name}' make one in {p50} and are {busy} % busy; {raise} {field} ({workers})[rests|, and " \
      "cells ({cells}): queue.capacity, or parts.queue_size of a loader].\n") \
    X(RUN, i == 0 && l->rate > 0 && hurried && !(handing && x->told == DLPI_OF_PREFETCH), \
      "Short: a batch is {work} of work and comes every {batch_ns}: handing it from a worker to " \
      "the consumer takes longer. With num_workers = 0 a batch should come every {without}.[few| " \
      "With workers.consumer_helps = 1 the consumer works beside the workers.]\n") \
    X(RUN, i == 0 && l->rate > 0, "Measured: {rate} items/s ({batch_rate} batches/s)") \
    X(TIME, l->rate > 0 && g->p50_ns > 0, "; '{name}' takes p50 {p50}, p99 {p99}") \
    X(TIMES, i == 0 && l->rate > 0, ".\n") \
    X(IDLE, l->rate > 0 && g->workers > 0 && g->cells == 0 && g->workers - l->useful[i] >= 1, \
      "Idle: {idle} of the {workers} workers of '{name}' never have work: only " \
      "prefetch_factor{times} = {useful} {units} are in flight.\n") \
    X(ERRORS, g->retried + g->replaced + g->left_out > 0, "Errors: stage '{name}': {retried} " \
      "retried, {replaced} replaced, {left_out} left out; dlp_pipe_skips names the last two.\n") \
    X(ERRORS, g->restarts > 0, "Deaths: workers of '{name}' were replaced {restarts} times; the " \
      "last one died by {signal}; no item is lost.\n") \
    X(SKIP, i == 0 && s->first_skip.code != 0, "First replaced or left out: {first_skip}\n") \
    X(TUNED, g->kind == DLP_STAGE_OUT, "Out: '{name}' holds {owned} of {capacity} " \
      "batch{own_es}[waits|; the pipe waits for this out if it is slow| and missed {missed}; it " \
      "{keeps} batches, and the pipe never waits for it].\n") \
    X(TUNED, g->workers_max > 0, "Workers: {workers} of '{name}' at work, of {workers_min} to " \
      "{workers_max}; changed {tunes} times.\n") \
    X(NOTE, k->reason >= DLP_TUNE_BUSY && k->reason <= DLP_TUNE_SET, "Tuned: after {at} '{name}' " \
      "{from} -> {to}: {reason}.\n") \
    X(REST, s->cache_capacity > 0, "Cache: {hits} % of {lookups} lookups hit; {cached} of " \
      "{cache} are in use; it has room for [all|all items|{cache_share} % of the items; " \
      "cache.bytes = {cache_all_bytes} would keep all].\n") \
    X(REST, c->cpu_buffers > 0, "Chunks: {loadable} loadable in this epoch; {cpu_buffers} CPU " \
      "chunk buffers: {cpu_free} free, {cpu_loading} loading, {cpu_filled} filled[device|; " \
      "{device_buffers} device chunk buffers: {device_free} free, {device_copying} being copied, " \
      "{device_filled} filled]; {in_use} in use.[preload| Chunks are loaded once and " \
      "stay.][found| DLP_PRELOAD_AUTO found room for all.][full| DLP_PRELOAD_AUTO found no room " \
      "for all: none stays.]\n") \
    X(REST, c->cpu_buffers > 0 && c->seam_buffers > 0, "Seams: {seams} batch{seams_were} copied, " \
      "{seam_bytes} in all; a batch_size that divides the rows of every chunk has none.\n") \
    X(REST, s->epoch_borders > 0, "Epoch borders: {border} each, from set_epoch to the next " \
      "epoch's first batch, {borders} % of the run; items of an epoch are fetched after " \
      "set_epoch only.\n") \
    X(REST, s->plan_bytes > 0, "Memory: {plan} are planned, with {records}{slots} {slots_are} " \
      "(prefetch_factor {prefetch_factor} + max_held {max_held}[others| + {others} of outs]).\n")

/* Conditions inside sentences: a name, a condition. */
#define DLPI_TRUTHS(X) \
    X(attached, r->attached > 0) X(last, v->next_limit == v->limiting_stage) X(taken, taken) \
    X(busiest, l->busiest >= 0) X(deeper, f->deeper > 0) X(one, g->in_flight == 0) \
    X(sixteen, f->many > 0) X(outlier, jumps && g->max_index != UINT64_MAX) X(p99, g->p99_ns > 0) \
    X(loose, f->loose > 0 && g->cells == 0) X(turns, dlpi_stage_turns(g)) X(window, g->window > 0) \
    X(uneven, y->most > y->least) X(left, y->left_out > 0) X(drops, y->drops != 0) \
    X(wider, padded && g->window > 0 && g->inputs > g->window) X(rests, l->util[i] < 0.9) \
    X(waits, own[DLP_OUT_FULL] == DLP_FULL_WAIT) X(all, s->cache_capacity >= s->cache_all_bytes) \
    X(device, c->device_buffers > 0) X(preload, c->preload != 0) \
    X(found, c->preload != 0 && c->preload_auto != 0) X(others, !chunks && x->others > 0) \
    X(inlined, g->workers <= 0) X(ragged, z->used < z->room) \
    X(own_workers, g->workers > 0) X(full, c->preload == 0 && c->preload_auto != 0) \
    X(few, l->busiest >= 0 && (int)s->cpus <= s->stages[l->busiest].workers + 1)

/* Fields that are told as they are: of what, and which. */
#define DLPI_COUNTS(X) \
    X(s, batches) X(s, prefetch_factor) X(s, max_held) X(s, slots) X(s, cpus) X(s, tunes) \
    X(s, cache_all_bytes) X(g, cells) X(g, window) X(g, max_index) X(g, items) X(g, ready) \
    X(g, retried) X(g, replaced) X(g, left_out) X(g, restarts) X(g, workers) X(g, workers_min) \
    X(g, workers_max) X(g, in_flight) X(g, slowest) X(g, slowest_items) X(y, counted) X(y, all) \
    X(y, streams) X(y, least) X(y, most) X(r, ended) X(r, writers) X(r, last) X(r, attached) \
    X(w, current_index) X(w, worker) X(w, tid) X(w, pid) X(c, loadable) X(c, cpu_buffers) \
    X(c, cpu_free) X(c, cpu_loading) X(c, cpu_filled) X(c, device_buffers) X(c, device_free) \
    X(c, device_copying) X(c, device_filled) X(c, in_use) X(c, seams) X(k, from) X(k, to) \
    X(f, more) X(x, others)

/* Other numbers: a name, a form (dlpi_num_FORM), a value. */
#define DLPI_NUMBERS(X) \
    X(elapsed, span, s->elapsed_ns) X(rate, of, l->rate) X(twice, of, 2 * l->rate) \
    X(batch_rate, of, l->rows > 0 ? l->rate / l->rows : 0) X(rate_more, of, v->rate_plus_one) \
    X(one_more, int, g->workers + INT64_C(1)) X(deeper, of, f->deeper) X(loose, of, f->loose) \
    X(sixteen, of, f->many) X(wait, percent, l->wait) X(used, of, l->used * s->cpus) \
    X(core_wait, percent, 1 - l->used / l->cores) X(util, percent, l->util[i]) X(out, of, out) \
    X(useful, of, l->useful[i]) X(idle, int, g->workers - l->useful[i]) X(p50, span, g->p50_ns) \
    X(p99, span, g->p99_ns) X(max, span, g->max_ns) X(slowest_ns, span, g->slowest_ns) \
    X(others_ns, span, g->others_ns) X(age, span, age) X(at, span, k->at_ns) \
    X(batch_ns, span, batch_ns) X(work, span, l->work) X(without, span, without) \
    X(cell_bytes, bytes, g->cell_bytes) X(lookups, of, lookups) X(cached, bytes, s->cache_bytes) \
    X(weight_left, percent, 1 - y->all * (double)y->weights_least / (double)y->weights) \
    X(cache, bytes, s->cache_capacity) X(seam_bytes, bytes, c->seam_bytes) \
    X(plan, bytes, s->plan_bytes) X(left_out_of_all, int, dlpi_all_left_out(s)) \
    X(owned, int, own[DLP_OUT_HELD]) X(capacity, int, own[DLP_OUT_CAPACITY]) \
    X(missed, int, own[DLP_OUT_MISSED]) X(waiting, int, x->lock.waits) \
    X(room, bytes, z->room) X(cleared, bytes, z->cleared) X(used_bytes, bytes, z->used) \
    X(clears, percent, dlpi_clears_share(g, z->ns)) \
    X(spared, percent, spared) X(rate_spared, of, dlpi_clears_rate(l, s, g)) \
    X(at_work, int, x->lock.at_work) X(slower, of, dlpi_lock_times(&x->lock))

/* Parts and means: a name, a form, two numbers of which the first is divided by the second. */
#define DLPI_RATIOS(X) \
    X(part_wait, percent, s->part_wait_ns, l->ns) X(step, span, s->step_ns, s->batches) \
    X(steps, percent, s->step_ns, l->ns) X(starved, percent, g->starved_ns, l->ns) \
    X(busy, percent, g->busy_ns, l->ns * (g->workers > 0 ? g->workers : 1)) \
    X(cpu, percent, g->cpu_ns, g->busy_ns) \
    X(batch_bytes, bytes, s->bytes, c->taken > 0 ? c->taken : s->batches) \
    X(each_batch, span, g->busy_ns, s->batches) \
    X(none, percent, g->inputs_empty, g->inputs) \
    X(kept, percent, g->inputs_items, g->inputs) \
    X(each, span, (double)r->attached * l->ns, g->items) \
    X(made, of, g->inputs_items, g->inputs) X(inputs_a_row, of, g->inputs, g->inputs_items) \
    X(least_share, percent, y->least, y->items) X(most_share, percent, y->most, y->items) \
    X(left, percent, y->left_out, y->items) X(weight_least, percent, y->weights_least, y->weights) \
    X(weight_most, percent, y->weights_most, y->weights) X(hits, percent, s->cache_hits, lookups) \
    X(misses, percent, s->cache_misses, lookups) \
    X(cache_share, percent, s->cache_capacity, s->cache_all_bytes) \
    X(border, span, s->epoch_wait_ns, s->epoch_borders) \
    X(borders, percent, s->epoch_wait_ns, s->elapsed_ns) \
    X(padding, percent, own[DLP_PACK_PADDING], tokens) \
    X(segments, of, own[DLP_PACK_SEGMENTS], own[DLP_PACK_ROWS])

/* Words: a name, what it stands for. */
#define DLPI_WORDS(X) \
    X(cleared_field, z->field) \
    X(name, g->name) X(next, dlpi_num_limit(s, v->next_limit).s) X(first_skip, x->first_skip) \
    X(then, dlpi_num_limit(s, f->then).s) X(es, s->batches == 1 ? " is" : "es are") \
    X(are, g->workers == 1 ? " is" : "s are") X(own_es, own[DLP_OUT_CAPACITY] == 1 ? "" : "es") \
    X(seams_were, c->seams == 1 ? " spanned chunks and was" : "es spanned chunks and were") \
    X(raise, g->workers > 0 ? "raise" : "set") X(slow, dlpi_stage_slow(g)) X(many, words->many) \
    X(things, words->items ? words->items : "items") X(foretold, f->words) \
    X(windows, words->windows ? words->windows : "items") X(further, chunks ? "chunk" : "batch") \
    X(signal, dlpi_signal_text((uint32_t)g->died_by)) X(times, batches ? "" : " x batch_size") \
    X(depth, chunks ? "cpu_buffers, and so prefetch_factor" : "prefetch_factor") X(unit, unit) \
    X(at_least, y->drops == 2 ? "at least " : "") X(units, batches ? "batches" : "items") \
    X(records, chunks ? "records of " : "") X(slots_are, chunks ? "chunks" : "batch slots") \
    X(field, words->more != NULL ? words->more : "workers.num_workers") \
    X(piece, g->cells > 0 || chunks ? unit : "item") \
    X(setting, ops->sink != NULL ? chunks ? "transfer_inline = 0" : "transfer.threaded = 1" : \
      words->out != NULL ? words->out : "workers.num_workers = 1") \
    X(keeps, own[DLP_OUT_FULL] == DLP_FULL_DROP_NEW ? "keeps the oldest" \
      : "goes on with the newest") \
    X(hidden_by, g->cells > 0 ? "cells hide them: queue.capacity, or parts.queue_size of a loader" \
      : chunks ? "chunks in flight hide them" : "batches in flight hide them, or unordered = 1") \
    X(reason, k->reason == DLP_TUNE_BUSY ? "the consumer waited, its workers were busy" \
      : k->reason == DLP_TUNE_IDLE ? "batches were ready, workers had no work" \
      : k->reason == DLP_TUNE_CORES ? "busy, but its workers compute and the cores are full" \
      : "set by dlp_pipe_set_workers")

/* clang-format on */
