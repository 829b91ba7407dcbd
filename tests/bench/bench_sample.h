/* A loader's sample in a process of its own, this program run again: what it measures and how it
   tells. After bench_jpeg.h and bench_rig.h. */

struct sample {
    double rate, wait_share, first_ms, gap_ms, plan_bytes, before_bytes, requests;
    uint64_t sum;
};

/* Sum of bytes, as words: it does not depend on the order of the rows. */
static uint64_t sum_of_bytes(const void *bytes, uint64_t n) {
    const unsigned char *at = bytes;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        sum += word;
    }
    return sum;
}

static uint64_t sum_of(const dlp_batch *b) {
    return sum_of_bytes(b->fields[0].data, b->count * (uint64_t)PICTURE_BYTES);
}

/* Take all batches, with a step that sleeps after each. The sum is that of the first epoch. */
static bool sample_take(dlp_pipe *p, uint32_t step_us, bool with_sum, struct sample *s,
                        double begin) {
    uint64_t items = 0;
    double waited = 0, first = 0, now = begin;
    bool border = false;
    dlp_batch *b = NULL;
    int code;
    while ((code = dlp_pipe_next_timeout(p, &b, WAIT_MS)) == DLP_OK) {
        double got = seconds_now();
        if (items == 0) {
            first = got;
            s->first_ms = (got - begin) * 1e3;
        } else {
            waited += got - now;
        }
        s->gap_ms = border ? (got - now) * 1e3 : s->gap_ms;
        border = (b->flags & DLP_BATCH_LAST) != 0;
        s->sum += with_sum && b->epoch == 0 ? sum_of(b) : 0;
        items += b->count;
        sleep_us(step_us);
        dlp_pipe_release(p, b);
        now = seconds_now();
    }
    if (code != DLP_END) {
        char text[512];
        dlp_error_format(dlp_pipe_error(p), text, sizeof text);
        say(" [next: %s]", text);
        return false;
    }
    s->rate = (double)items / (now - begin);
    s->wait_share = waited / (now - first);
    return items > 0;
}

static bool sample_print(const struct sample *s) {
    return printf("%.9g %.9g %.9g %.9g %.9g %.9g %.9g %" PRIu64 "\n", s->rate, s->wait_share,
                  s->first_ms, s->gap_ms, s->plan_bytes, s->before_bytes, s->requests, s->sum) > 0;
}

/* Print the figures, draw the timeline if it has a name, close. Returns the exit status. */
static int sample_tell(dlp_pipe *p, struct sample *s, const char *timeline) {
    dlp_stats stats;
    s->plan_bytes = dlp_pipe_stats(p, &stats) == DLP_OK ? (double)stats.plan_bytes : 0;
    dlp_error err;
    if (timeline != NULL && dlp_pipe_write_timeline(p, timeline, &err) != DLP_OK) {
        say(" [%s]", err.message);
    }
    return sample_print(s) && dlp_pipe_close(p) == DLP_OK ? 0 : 1;
}

/* Have this program take a sample. */
static bool sample_ask(struct child *c, const char *const *argv, struct sample *s) {
    char line[256];
    return run_child(c, "/proc/self/exe", argv, line, sizeof line) &&
           sscanf(line, "%lf %lf %lf %lf %lf %lf %lf %" SCNu64, &s->rate, &s->wait_share,
                  &s->first_ms, &s->gap_ms, &s->plan_bytes, &s->before_bytes, &s->requests,
                  &s->sum) == 8;
}
