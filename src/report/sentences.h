#pragma once
/* tests: system/report/texts */
#include "report/words.h"
/* ---- explain: a table of conditions, sentences and the numbers in them ---- */

/* The formatter would take each row apart. */
/* clang-format off */

/* Groups of sentences. One of the first ten says what limits, and what to change. The groups from
   LONGEST on are told in this order. */
enum {
    DLPI_OF_OUT, DLPI_OF_PRODUCERS, DLPI_OF_INLINE, DLPI_OF_MANY, DLPI_OF_WORKERS, DLPI_OF_CONSUMER,
    DLPI_OF_CORES, DLPI_OF_TURNS, DLPI_OF_PREFETCH, DLPI_OF_UNKNOWN, DLPI_OF_SKEW, DLPI_OF_LONGEST,
    DLPI_OF_SLOW, DLPI_OF_INPUTS, DLPI_OF_STREAMS, DLPI_OF_PACKING, DLPI_OF_PARTS, DLPI_OF_RUN,
    DLPI_OF_TIME, DLPI_OF_TIMES, DLPI_OF_IDLE, DLPI_OF_ERRORS, DLPI_OF_SKIP, DLPI_OF_TUNED,
    DLPI_OF_NOTE, DLPI_OF_REST
};

/* A larger cache, of up to eight times the bytes, would keep all that the stage fetches. */
#define DLPI_SMALL_CACHE \
    (g->kind == DLP_STAGE_FETCH && s->cache_hits > 0 && s->cache_capacity < s->cache_all_bytes && \
     s->cache_all_bytes / 8 <= s->cache_capacity)
#define DLPI_BETTER_CACHE \
    "Better: cache.bytes = {cache_all_bytes}, if there is memory: later epochs then fetch " \
    "nothing; {misses} % of the lookups miss now.\n"

/* Zeroing the rows costs a stage with quick items a notable part of its time. */
#define DLPI_ZEROES \
    (g->kind == DLP_STAGE_FETCH && g->zeroes != 0 && g->items > 0 && g->busy_ns < g->bytes / 2)
#define DLPI_BETTER_WHOLE \
    "Better: each row ({row_bytes}) is set to 0 before its fetch, which takes {each_item}. If " \
    "fetch writes every byte, writes_all_bytes = 1 saves that.\n"

/* Rows: a group, a condition, what is said if it holds. Rows are tried in order. A row that begins
   with a capital begins a sentence. Another row goes on with an open sentence; a line end closes
   it. Where rows begin alike ("Change: "), the first that holds is said. {name} is a number or a
   word of the lists below. */
#define DLPI_SENTENCES(X) \
    X(OUT, g->items == 0, "Limit: out '{name}' has taken no batch, and the pipe waits for it " \
      "(DLP_FULL_WAIT).\n") \
    X(OUT, true, "Limit: out '{name}' has taken {taken} of {batches} batches and holds {holds}; " \
      "the pipe waits for it (DLP_FULL_WAIT).\n") \
    X(OUT, true, "Change: take and release its batches faster, or close it (dlp_out_close). With " \
      "full = DLP_FULL_KEEP_NEWEST it misses batches, and the pipe never waits.\n") \
    X(PRODUCERS, r->alone == 0, "Limit: the producers: '{name}' waits for them {starved} % of " \
      "the time") \
    X(PRODUCERS, r->attached > 0, "; each of the {attached} takes about {each} for an item") \
    X(PRODUCERS, r->alone == 0, ".\n") \
    X(PRODUCERS, r->alone == 0 && v->rate_plus_one > 1.02 * v->rate, "Change: make the producers " \
      "faster, or add some; one more should give about {rate_more} items/s.\n") \
    X(PRODUCERS, r->alone == 0, "Change: make the producers faster, or add some.\n") \
    X(PRODUCERS, r->alone != 0, "Limit: no producer lives, and {ended} of {writers} streams " \
      "have ended.\n") \
    X(PRODUCERS, r->last > 0, "Change: start producer {last} again with the same number. It is " \
      "gone and did not end its stream.\n") \
    X(PRODUCERS, r->alone != 0, "Change: start the missing producers, or set writers.\n") \
    X(INLINE, true, "Limit: stage '{name}' runs inline in the consumer (0 workers) and takes " \
      "{busy} % of its time; steps take {steps} %.\n") \
    X(INLINE, none && crowded, "Change: a worker would give nothing: the cores are the limit " \
      "already.\n") \
    X(INLINE, none, "Change: a worker would give nothing: the rest is the limit already.\n") \
    X(INLINE, x->f.n < 0, "Change: set {setting}; that should give about {rate_more} items/s; " \
      "then the limit is") \
    X(INLINE, last, " that worker.\n") \
    X(INLINE, true, " {next}.\n") \
    X(INLINE, true, "Change: set {field}; {foretold}; then the limit is {then}.\n") \
    X(INLINE, DLPI_SMALL_CACHE, DLPI_BETTER_CACHE) \
    X(INLINE, DLPI_ZEROES, DLPI_BETTER_WHOLE) \
    X(MANY, true, "Limit: requests in flight: each worker of '{name}' ({workers} in all) has " \
      "{out} of {in_flight} requests out; a request takes p50 {p50}; the consumer waits {wait} % " \
      "of the time.\n") \
    X(MANY, out >= 0.8 * g->in_flight, "Change: raise in_flight, or {field}; twice as many " \
      "give up to {twice} items/s if the source can serve them and prefetch_factor has as many " \
      "items.\n") \
    X(MANY, true, "Change: raise prefetch_factor (and batch_pool, if it is set): there are too " \
      "few items for {in_flight} requests. Or the source refuses more requests.\n") \
    X(MANY, DLPI_SMALL_CACHE, DLPI_BETTER_CACHE) \
    X(WORKERS, true, "Limit: stage '{name}': its {workers} worker{are} {util} % busy, and the " \
      "consumer waits {wait} % of the time.\n") \
    X(WORKERS, dlpi_stage_slow(g) != NULL, "Change: it has one thread: {slow}.\n") \
    X(WORKERS, g->workers < g->workers_max, "Change: none; workers are added while they are " \
      "needed, up to workers_max = {workers_max}.\n") \
    X(WORKERS, batches && g->workers >= (int)s->prefetch_factor, \
      "Change: raise prefetch_factor above {prefetch_factor}, and {field} with it: each batch " \
      "in flight has a worker already.\n") \
    X(WORKERS, v->next_limit == DLPI_LIMIT_PREFETCH, "Change: raise prefetch_factor above " \
      "{prefetch_factor}, then {field}: every item in flight has a worker already.\n") \
    X(WORKERS, v->rate_plus_one < v->rate * 1.02, "Change: make the stage cheaper; one more " \
      "worker would give nothing: {next} would be the limit.\n") \
    X(WORKERS, true, "Change: raise {field}; {one_more} should give about {rate_more} items/s") \
    X(WORKERS, last, ".\n") \
    X(WORKERS, true, "; then the limit is {next}.\n") \
    X(WORKERS, DLPI_SMALL_CACHE, DLPI_BETTER_CACHE) \
    X(WORKERS, DLPI_ZEROES, DLPI_BETTER_WHOLE) \
    X(WORKERS, dlpi_stage_sleeps(s, g) && dlpi_stage_slow(g) == NULL, \
      "Better: {many} in '{name}'") \
    X(WORKERS, g->in_flight == 0, ", for a loader with fetcher = DLP_FETCH_THREADS") \
    X(WORKERS, true, ". Its workers compute {cpu} % of their time and wait for the rest.") \
    X(WORKERS, x->f.many > 0, " That should give about {sixteen} items/s if the source can serve " \
      "them.\n") \
    X(WORKERS, true, " That gives up to 16 times as many items/s if the source can serve them " \
      "and prefetch_factor has as many items.\n") \
    X(CONSUMER, l->wait < 0.01, "Limit: the training step. It hardly ever waited for data.\n") \
    X(CONSUMER, true, "Limit: the consumer: it waits for batches only {wait} % of the time.\n") \
    X(CONSUMER, true, "Change: nothing in the pipe; steps take {step}") \
    X(CONSUMER, l->busiest >= 0, " and the busiest workers ('{name}') are {util} % busy") \
    X(CONSUMER, true, ".\n") \
    X(CORES, true, "Limit: the cores: workers and consumer keep {used} of {cpus} busy") \
    X(CORES, taken, ", and wait for one {core_wait} % of the time that they could run") \
    X(CORES, true, "; more workers would give nothing.\n") \
    X(CORES, l->busiest >= 0, "Change: make '{name}' cheaper, or use more cores") \
    X(CORES, taken, ": others have these, or the CPU quota is used up") \
    X(CORES, true, ".\n") \
    X(TURNS, true, "Limit: worker {slowest} of '{name}': its items take {slowest_ns}, those " \
      "of the other workers {others_ns}; these wait for it, since batches go to the workers in " \
      "turn.\n") \
    X(TURNS, true, "Change: let any worker take the next items: the economic topology, or " \
      "queue.deal = DLP_DEAL_RUNS. Or find out what makes this worker slow.\n") \
    X(PREFETCH, true, "Limit: prefetch_factor = {prefetch_factor}: the consumer waits {wait} % " \
      "of the time while the workers of '{name}' are only {busy} % busy.\n") \
    X(PREFETCH, chunks, "Change: raise cpu_buffers, and so prefetch_factor, for instance to " \
      "{more}") \
    X(PREFETCH, true, "Change: raise prefetch_factor, for instance to {more}") \
    X(PREFETCH, x->f.deeper > 0, "; that should give about {deeper} items/s") \
    X(PREFETCH, chunks, "; each further chunk takes about {batch_bytes}.\n") \
    X(PREFETCH, true, "; each further batch takes about {batch_bytes}.\n") \
    X(UNKNOWN, s->batches == 0, "Limit: not known: no batch has been delivered yet, {elapsed} " \
      "after the start.\n") \
    X(UNKNOWN, true, "Limit: not known yet: {batches} batch{es} delivered, and the first " \
      "prefetch_factor = {prefetch_factor} are the start-up.\n") \
    X(SKEW, g->p50_ns > 0 && (g->p99_ns / 4 >= g->p50_ns || dlpi_stage_jumps(g)), \
      "Skew: times of '{name}' are uneven (p50 {p50}, p99 {p99}") \
    X(SKEW, dlpi_stage_jumps(g) && g->max_index != UINT64_MAX, \
      "; {unit} {max_index} took {max}") \
    X(SKEW, true, "): slow") \
    X(SKEW, g->cells > 0, " {unit}s hold up the order; more cells hide them: queue.capacity, or " \
      "parts.queue_size of a loader.\n") \
    X(SKEW, chunks, " chunks hold up the order; more chunks in flight hide them.\n") \
    X(SKEW, true, " items hold up the order; more batches in flight hide them, or unordered = 1") \
    X(SKEW, x->f.loose > 0, ", which should give about {loose} items/s") \
    X(SKEW, true, ".\n") \
    X(SLOW, dlpi_stage_lags(g) && !(v->limiting_stage == DLPI_LIMIT_PREFETCH && \
      dlpi_stage_turns(g) && i == l->busiest), \
      "Slow: worker {slowest} of '{name}': its items take {slowest_ns}, " \
      "those of the other workers {others_ns}") \
    X(SLOW, dlpi_stage_turns(g), \
      "; these wait for it, since batches go to the workers in turn.\n") \
    X(SLOW, true, "; it has made {slowest_items} of {made_items}.\n") \
    X(LONGEST, hangs, "Longest: worker {worker} of '{name}' (thread {tid} of process {pid}) has " \
      "been at {unit} {current_index} for {age}; p99 is") \
    X(LONGEST, g->p99_ns > 0, " {p99}.\n") \
    X(LONGEST, true, " not known.\n") \
    X(INPUTS, g->inputs > 0 && filters, "Inputs: '{name}' keeps {kept} %: {inputs_a_row} inputs " \
      "a row") \
    X(INPUTS, g->inputs > 0, "Inputs: '{name}' makes {made} {items} of each input; {none} % of " \
      "the inputs have none") \
    X(INPUTS, g->window > 0, "; {cells} cells of {cell_bytes} in all are for windows of {window} " \
      "{windows}, and to load ahead") \
    X(INPUTS, true, ".\n") \
    X(STREAMS, y->counted > 0 && (y->streams > 1 || y->left_out > 0), \
      "Streams: {counted} of the {streams} streams of this rank are counted: {least}") \
    X(STREAMS, uneven, " to {most}") \
    X(STREAMS, true, " {items} in a pass") \
    X(STREAMS, uneven, ", each {least_share} to {most_share} % of all") \
    X(STREAMS, y->left_out > 0 && y->drops == 2, "; an epoch leaves out at least {left} %") \
    X(STREAMS, y->left_out > 0 && y->drops != 2, "; an epoch leaves out {left} %") \
    X(STREAMS, true, ".\n") \
    X(STREAMS, y->weights > 0 && y->all > 1, "Weights: each of the {all} streams has " \
      "{weight_least} to {weight_most} % of the weight") \
    X(STREAMS, y->drops != 0, "; if the numbers of items follow the weights, an epoch leaves out " \
      "{weight_left} %") \
    X(STREAMS, true, ".\n") \
    X(PARTS, l->rate > 0 && g->cells > 0 && (double)s->part_wait_ns >= 0.02 * l->ns, \
      "Cells: no {unit} is ready: the consumer waits for {unit}s {part_wait} % of the time; " \
      "workers of '{name}' make one in {p50} and are {busy} % busy; {raise} {field} ({workers})") \
    X(PARTS, l->util[i] < 0.9, ", and cells ({cells}): queue.capacity, or parts.queue_size of a " \
      "loader") \
    X(PARTS, true, ".\n") \
    X(RUN, l->rate > 0 && hurried, "Short: a batch is {work} of work and comes every {batch_ns}: " \
      "handing it from a worker to the consumer takes longer. With num_workers = 0 a batch " \
      "should come every {without}.\n") \
    X(RUN, l->rate > 0, "Measured: {rate} items/s ({batch_rate} batches/s)") \
    X(TIME, g->p50_ns > 0, "; '{name}' takes p50 {p50}, p99 {p99}") \
    X(TIMES, true, ".\n") \
    X(IDLE, l->rate > 0 && g->workers > 0 && g->cells == 0 && g->workers - l->useful[i] >= 1, \
      "Idle: {idle} of the {workers} workers of '{name}' never have work: only") \
    X(IDLE, batches, " prefetch_factor = {useful} batches are in flight.\n") \
    X(IDLE, true, " prefetch_factor x batch_size = {useful} items are in flight.\n") \
    X(ERRORS, g->retried + g->replaced + g->left_out > 0, "Errors: stage '{name}': {retried} " \
      "retried, {replaced} replaced, {left_out} left out; dlp_pipe_skips names the last two.\n") \
    X(ERRORS, g->restarts > 0, "Deaths: workers of '{name}' were replaced {restarts} times; the " \
      "last one died by {signal}; no item is lost.\n") \
    X(SKIP, s->first_skip.code != 0, "First replaced or left out: {first_skip}\n") \
    X(TUNED, g->workers_max > 0, "Workers: {workers} of '{name}' at work, of {workers_min} to " \
      "{workers_max}; changed {tunes} times.\n") \
    X(NOTE, k->reason >= DLP_TUNE_BUSY && k->reason <= DLP_TUNE_SET, \
      "Tuned: after {at} '{name}' {from} -> {to}: ") \
    X(NOTE, k->reason == DLP_TUNE_BUSY, "the consumer waited, its workers were busy.\n") \
    X(NOTE, k->reason == DLP_TUNE_IDLE, "batches were ready, workers had no work.\n") \
    X(NOTE, k->reason == DLP_TUNE_CORES, "busy, but its workers compute and the cores are " \
      "full.\n") \
    X(NOTE, true, "set by dlp_pipe_set_workers.\n") \
    X(REST, s->cache_capacity > 0, "Cache: {hits} % of {lookups} lookups hit; {cached} of " \
      "{cache} are in use") \
    X(REST, s->cache_capacity >= s->cache_all_bytes, "; it has room for all items.\n") \
    X(REST, true, "; it has room for {cache_share} % of the items; cache.bytes = " \
      "{cache_all_bytes} would keep all.\n") \
    X(REST, c->cpu_buffers > 0, "Chunks: {loadable} loadable in this epoch; {cpu_buffers} CPU " \
      "chunk buffers: {cpu_free} free, {cpu_loading} loading, {cpu_filled} filled") \
    X(REST, c->device_buffers > 0, "; {device_buffers} device chunk buffers: {device_free} free, " \
      "{device_copying} being copied, {device_filled} filled") \
    X(REST, true, "; {in_use} in use.") \
    X(REST, c->preload != 0, " Chunks are loaded once and stay.") \
    X(REST, c->preload != 0 && c->preload_auto != 0, " DLP_PRELOAD_AUTO found room for all.") \
    X(REST, c->preload == 0 && c->preload_auto != 0, " DLP_PRELOAD_AUTO found no room for all: " \
      "none stays.") \
    X(REST, true, "\n") \
    X(REST, c->cpu_buffers > 0 && c->seam_buffers > 0, "Seams: {seams} batch{seams_were} copied, " \
      "{seam_bytes} in all; a batch_size that divides the rows of every chunk has none.\n") \
    X(REST, s->epoch_borders > 0, "Epoch borders: {border} each, from set_epoch to the next " \
      "epoch's first batch, {borders} % of the run; items of an epoch are fetched after " \
      "set_epoch only.\n") \
    X(REST, s->plan_bytes > 0, "Memory: {plan} are planned, with ") \
    X(REST, chunks, "records of {slots} chunks") \
    X(REST, !chunks, "{slots} batch slots") \
    X(REST, true, " (prefetch_factor {prefetch_factor} + max_held {max_held}") \
    X(REST, !chunks && x->others > 0, " + {others} of outs") \
    X(REST, true, ").\n")

/* Fields that are told as they are. */
#define DLPI_COUNTS(X) \
    X(s, batches) X(s, prefetch_factor) X(s, max_held) X(s, slots) X(s, cpus) X(s, tunes) \
    X(s, cache_all_bytes) X(g, cells) X(g, window) X(g, max_index) X(g, retried) X(g, replaced) \
    X(g, left_out) X(g, restarts) X(y, counted) X(y, streams) X(y, all) X(y, least) X(y, most) \
    X(r, ended) X(r, writers) X(r, last) X(w, current_index) X(c, loadable) X(c, cpu_buffers) \
    X(c, cpu_free) X(c, cpu_loading) X(c, cpu_filled) X(c, device_buffers) X(c, device_free) \
    X(c, device_copying) X(c, device_filled) X(c, in_use) X(c, seams) X(g, workers) \
    X(g, workers_min) X(g, workers_max) X(g, in_flight) X(w, worker) X(w, tid) X(w, pid) \
    X(k, from) X(k, to) X(r, attached) X(g, slowest) X(g, slowest_items)

/* Other numbers: a name, a form (dlpi_num_FORM), a value. */
#define DLPI_NUMBERS(X) \
    X(elapsed, span, s->elapsed_ns) X(rate, of, l->rate) \
    X(batch_rate, of, l->rows > 0 ? l->rate / l->rows : 0) X(twice, of, 2 * l->rate) \
    X(rate_more, of, v->rate_plus_one) X(one_more, int, g->workers + INT64_C(1)) \
    X(more, int, (int64_t)x->f.more) X(others, int, (int64_t)x->others) \
    X(deeper, of, x->f.deeper) X(wait, percent, l->wait) \
    X(part_wait, percent, (double)s->part_wait_ns / l->ns) \
    X(step, span, (double)s->step_ns / (double)s->batches) \
    X(steps, percent, (double)s->step_ns / l->ns) X(used, of, l->used * s->cpus) \
    X(core_wait, percent, 1 - l->used / l->cores) \
    X(busy, percent, (double)g->busy_ns / (l->ns * (g->workers > 0 ? g->workers : 1))) \
    X(util, percent, l->util[i]) X(useful, of, l->useful[i]) \
    X(idle, int, (int64_t)(g->workers - l->useful[i])) X(out, of, out) X(p50, span, g->p50_ns) \
    X(p99, span, g->p99_ns) X(max, span, g->max_ns) \
    X(cpu, percent, dlpi_part_of(g->cpu_ns, g->busy_ns)) \
    X(age, span, w->current_age_ns) X(at, span, k->at_ns) \
    X(batch_ns, span, (uint64_t)batch_ns) \
    X(batch_bytes, bytes, (double)s->bytes / (double)(c->taken > 0 ? c->taken : s->batches)) \
    X(work, span, (uint64_t)work) X(without, span, (uint64_t)without) \
    X(cell_bytes, bytes, (double)g->cell_bytes) \
    X(row_bytes, bytes, (double)g->bytes / (double)g->items) \
    X(each_item, span, (double)g->busy_ns / (double)g->items) \
    X(kept, percent, dlpi_part_of(g->inputs_items, g->inputs)) \
    X(none, percent, dlpi_part_of(g->inputs_empty, g->inputs)) \
    X(made, of, (double)g->inputs_items / (double)g->inputs) \
    X(inputs_a_row, of, (double)g->inputs / (double)g->inputs_items) \
    X(least_share, percent, dlpi_part_of(y->least, y->items)) \
    X(most_share, percent, dlpi_part_of(y->most, y->items)) \
    X(left, percent, dlpi_part_of(y->left_out, y->items)) \
    X(weight_least, percent, dlpi_part_of(y->weights_least, y->weights)) \
    X(weight_most, percent, dlpi_part_of(y->weights_most, y->weights)) \
    X(weight_left, percent, 1 - y->all * (double)y->weights_least / (double)y->weights) \
    X(hits, percent, dlpi_part_of(s->cache_hits, s->cache_hits + s->cache_misses)) \
    X(lookups, of, (double)(s->cache_hits + s->cache_misses)) \
    X(cached, bytes, (double)s->cache_bytes) X(cache, bytes, (double)s->cache_capacity) \
    X(cache_share, percent, dlpi_part_of(s->cache_capacity, s->cache_all_bytes)) \
    X(seam_bytes, bytes, (double)c->seam_bytes) \
    X(border, span, (double)s->epoch_wait_ns / (double)s->epoch_borders) \
    X(borders, percent, dlpi_part_of(s->epoch_wait_ns, s->elapsed_ns)) \
    X(plan, bytes, (double)s->plan_bytes) \
    X(taken, int, (int64_t)g->items) X(made_items, int, (int64_t)g->items) \
    X(holds, int, (int64_t)g->ready) X(slowest_ns, span, g->slowest_ns) \
    X(others_ns, span, g->others_ns) X(loose, of, x->f.loose) X(sixteen, of, x->f.many) \
    X(starved, percent, (double)g->starved_ns / l->ns) \
    X(each, span, (double)r->attached * l->ns / (double)g->items) \
    X(misses, percent, dlpi_part_of(s->cache_misses, s->cache_hits + s->cache_misses))

/* Words: a name, what it stands for. */
#define DLPI_WORDS(X) \
    X(name, g->name) X(next, dlpi_num_limit(s, v->next_limit).s) \
    X(then, dlpi_num_limit(s, x->f.then).s) X(first_skip, x->first_skip) \
    X(es, s->batches == 1 ? " is" : "es are") X(are, g->workers == 1 ? " is" : "s are") \
    X(seams_were, c->seams == 1 ? " spanned chunks and was" : "es spanned chunks and were") \
    X(raise, g->workers > 0 ? "raise" : "set") X(field, dlpi_stage_field(g)) \
    X(setting, dlpi_stage_setting(s, g)) X(slow, dlpi_stage_slow(g)) \
    X(many, dlpi_words_ops(g)->words.many) \
    X(unit, dlpi_stage_unit(s, g)) X(items, words->items ? words->items : "items") \
    X(windows, words->windows ? words->windows : "items") X(foretold, x->f.words) \
    X(signal, dlpi_signal_text((uint32_t)g->died_by))

/* clang-format on */
