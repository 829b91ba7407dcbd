/* What an index costs: one at a time, and in blocks as the loader asks for them. No peer; see
   order_ns in the loader's benchmarks. Argument: rounds (5, at most 16). One JSON object per line
   on standard output and in build/bench/order.jsonl. */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"

#include "bench_rig.h"

enum { BLOCK = 64, NUMBERS = 4000000 };

static uint64_t sink; /* printed, so that nothing measured can be left out */

static double one_at_a_time(const dlp_permutation *p) {
    uint64_t begin = dlpi_now_ns(), sum = 0;
    for (uint64_t i = 0, position = 0; i < NUMBERS; i++) {
        sum += dlp_permutation_at(p, position);
        position = position + 1 < p->n ? position + 1 : 0;
    }
    sink += sum;
    return (double)(dlpi_now_ns() - begin) / NUMBERS;
}

static double in_blocks(dlpi_order *o, uint64_t n) {
    static uint64_t out[BLOCK];
    uint64_t begin = dlpi_now_ns(), first = 0, epoch = 0;
    for (uint64_t i = 0; i < NUMBERS; i += BLOCK) {
        dlpi_order_block(o, epoch, first, BLOCK, out);
        sink += out[i / BLOCK % BLOCK];
        first += BLOCK;
        if (first + BLOCK > n) {
            first = 0;
            epoch++;
        }
    }
    return (double)(dlpi_now_ns() - begin) / NUMBERS;
}

static void measure(const char *name, uint64_t n, int rounds) {
    double blocks[MAX_ROUNDS], single[MAX_ROUNDS], plain[MAX_ROUNDS];
    dlp_sampler_desc d;
    dlp_permutation p;
    dlpi_order o;
    memset(&d, 0, sizeof d);
    d.order = DLP_ORDER_SHUFFLED;
    dlpi_order_init(&o, &d, n, NULL);
    dlp_permutation_init(&p, n, 0, 0);
    for (int i = 0; i < rounds; i++) {
        uint64_t begin, numbers = 0;
        static uint64_t out[BLOCK];
        dlp_permutation scalar = p;
        scalar.simd = 0;
        blocks[i] = in_blocks(&o, n);
        single[i] = one_at_a_time(&p);
        begin = dlpi_now_ns();
        for (; numbers < NUMBERS; numbers += BLOCK) {
            dlp_permutation_block(&scalar, numbers % (n - BLOCK), BLOCK, out);
            sink += out[0];
        }
        plain[i] = (double)(dlpi_now_ns() - begin) / NUMBERS;
    }
    char line[512];
    size_t count = (size_t)rounds;
    double ours = quantile(blocks, count, 0.5);
    snprintf(line, sizeof line,
             "{\"bench\":\"%s\",\"regime\":\"near\",\"unit\":\"ns\",\"ours\":%.3g,\"min\":%.3g,"
             "\"max\":%.3g,"
             "\"one_at_a_time\":%.3g,\"blocks_without_simd\":%.3g,\"bytes\":%zu,\"rounds\":%d}",
             name, ours, blocks[0], blocks[count - 1], quantile(single, count, 0.5),
             quantile(plain, count, 0.5), sizeof(dlp_permutation), rounds);
    put_line(line);
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
