/* What an index costs: one at a time, and in blocks as the loader asks for them. No peer; see
   order_ns in the loader's benchmarks. Argument: rounds (5, at most 16). One JSON object per line
   on standard output and in build/bench/order.jsonl. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"

enum { BLOCK = 64, NUMBERS = 4000000 };

static uint64_t sink; /* printed, so that nothing measured can be left out */

struct numbers {
    uint64_t n;
    dlp_permutation permutation, scalar;
    dlpi_order order;
};

static double one_at_a_time(void *arg) {
    const dlp_permutation *p = &((struct numbers *)arg)->permutation;
    uint64_t begin = dlpi_now_ns(), sum = 0;
    for (uint64_t i = 0, position = 0; i < NUMBERS; i++) {
        sum += dlp_permutation_at(p, position);
        position = position + 1 < p->n ? position + 1 : 0;
    }
    sink += sum;
    return (double)(dlpi_now_ns() - begin) / NUMBERS;
}

static double in_blocks(void *arg) {
    static uint64_t out[BLOCK];
    struct numbers *x = arg;
    uint64_t begin = dlpi_now_ns(), first = 0, epoch = 0;
    for (uint64_t i = 0; i < NUMBERS; i += BLOCK) {
        dlpi_order_block(&x->order, epoch, first, BLOCK, out);
        sink += out[i / BLOCK % BLOCK];
        first += BLOCK;
        if (first + BLOCK > x->n) {
            first = 0;
            epoch++;
        }
    }
    return (double)(dlpi_now_ns() - begin) / NUMBERS;
}

static double without_simd(void *arg) {
    static uint64_t out[BLOCK];
    const struct numbers *x = arg;
    uint64_t begin = dlpi_now_ns();
    for (uint64_t i = 0; i < NUMBERS; i += BLOCK) {
        dlp_permutation_block(&x->scalar, i % (x->n - BLOCK), BLOCK, out);
        sink += out[0];
    }
    return (double)(dlpi_now_ns() - begin) / NUMBERS;
}

static void measure(const char *name, uint64_t n, int rounds) {
    static const char *const suffix[] = {"", "_single", "_without_simd"};
    static struct numbers x;
    struct series s = {0};
    dlp_sampler_desc d = {.order = DLP_ORDER_SHUFFLED};
    x.n = n;
    dlpi_order_init(&x.order, &d, n, NULL);
    dlp_permutation_init(&x.permutation, n, 0, 0);
    x.scalar = x.permutation;
    x.scalar.simd = 0;
    compete(&s, "blocks", "", in_blocks, &x);
    compete(&s, "single", "", one_at_a_time, &x);
    compete(&s, "scalar", "", without_simd, &x);
    run_rounds(&s, name, rounds);
    for (int i = 0; i < 3; i++) {
        char full[64];
        struct measure m = {.bench = full, .unit = "ns", .lower_is_better = true};
        snprintf(full, sizeof full, "%s%s", name, suffix[i]);
        snprintf(m.extra, sizeof m.extra, ",\"bytes\":%zu", sizeof x.permutation);
        put(&m, &s, i, -1);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        uint64_t n;
    } at[] = {
        {"order_ns_1e9", 1000000000}, {"order_ns_2p30p1", 1073741825}, {"order_ns_60000", 60000}};
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 5;
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    if (!lines_to("build/bench/order.jsonl", "w")) return 1;
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) measure(at[k].name, at[k].n, rounds);
    fprintf(stderr, "checksum %llx\n", (unsigned long long)sink);
    return fclose(lines_file) != 0;
}
