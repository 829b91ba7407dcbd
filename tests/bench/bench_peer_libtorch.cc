/* libtorch's DataLoader in C++, as a peer of bench_peers: a dataset whose get_batch gives a whole
   batch out of memory, RandomSampler, threads. Answers the commands that bench_peers.py tells.

   bench_peer_libtorch prefetch | product
   What max_jobs is, the number of batches that are asked for at once: prefetch, as many as the
   other loaders have ahead in all; or the product of prefetch and workers, as many as a loader that
   has prefetch batches for each worker. */
#include <torch/data.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace {

uint64_t word(uint64_t i) {
    uint64_t x = i + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Its batches are tensors: [count][row_bytes]. */
struct Rows : torch::data::datasets::BatchDataset<Rows, torch::Tensor> {
    torch::Tensor rows;
    explicit Rows(torch::Tensor r) : rows(std::move(r)) {}
    torch::Tensor get_batch(c10::ArrayRef<size_t> at) override {
        const size_t bytes = size_t(rows.size(1));
        torch::Tensor out = torch::empty({int64_t(at.size()), rows.size(1)}, torch::kUInt8);
        uint8_t *to = out.data_ptr<uint8_t>();
        const uint8_t *from = rows.data_ptr<uint8_t>();
        for (size_t i = 0; i < at.size(); i++)
            std::memcpy(to + i * bytes, from + at[i] * bytes, bytes);
        return out;
    }
    std::optional<size_t> size() const override { return size_t(rows.size(0)); }
};

double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

struct Peer {
    using Sampler = torch::data::samplers::RandomSampler;
    using Loader = torch::data::StatelessDataLoader<Rows, Sampler>;
    torch::Tensor rows;
    size_t n = 0, row_bytes = 0;
    bool product = false;
    std::unique_ptr<Loader> loader;

    void open(size_t items, size_t bytes, size_t batch, size_t workers, size_t prefetch) {
        n = items, row_bytes = bytes;
        rows = torch::empty({int64_t(n), int64_t(bytes)}, torch::kUInt8);
        uint8_t *to = rows.data_ptr<uint8_t>();
        for (uint64_t i = 0; i < n * bytes / 8; i++) {
            uint64_t w = word(i);
            std::memcpy(to + 8 * i, &w, 8);
        }
        auto how = torch::data::DataLoaderOptions(batch).workers(workers);
        how.max_jobs(product ? prefetch * workers : std::max(prefetch, workers));
        how.enforce_ordering(true);
        loader = torch::data::make_data_loader(Rows(rows), Sampler(n), how);
        rate(100);
    }

    /* Epochs follow each other until the time is up; what is left of the last is waited for, and
       not counted. */
    double rate(double ms) {
        const double begin = now(), until = begin + ms * 1e-3;
        for (uint64_t items = 0;;) {
            double took = 0;
            for (torch::Tensor &b : *loader) {
                if (took > 0) continue;
                items += uint64_t(b.size(0));
                if (now() >= until) took = now() - begin;
            }
            if (took > 0) return double(items) / took;
        }
    }

    std::vector<double> check() {
        uint64_t items = 0, sum = 0;
        for (torch::Tensor &b : *loader) {
            const uint8_t *at = b.data_ptr<uint8_t>();
            for (int64_t r = 0; r < b.size(0); r++, items++)
                for (uint64_t k = 0; k < row_bytes / 8; k++, at += 8) {
                    uint64_t w;
                    std::memcpy(&w, at, 8);
                    sum += w * (2 * k + 1);
                }
        }
        return {double(items), double(sum >> 32), double(sum & 0xffffffff)};
    }

    double gap(int borders) {
        std::vector<double> gaps;
        double last = 0;
        for (int e = 0; e <= borders; e++) {
            bool first = true;
            for (torch::Tensor &b : *loader) {
                (void)b;
                double t = now();
                if (first && last > 0) gaps.push_back(t - last);
                first = false, last = t;
            }
        }
        std::sort(gaps.begin(), gaps.end());
        return 1e6 * gaps[gaps.size() / 2];
    }
};

} // namespace

int main(int argc, char **argv) {
    torch::set_num_threads(1);
    Peer peer;
    peer.product = argc > 1 && strcmp(argv[1], "product") == 0;
    char line[256];
    printf("ready %s\n", TORCH_VERSION);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned long long a[5] = {0};
        std::vector<double> answer;
        int n = sscanf(line, "%*s %llu %llu %llu %llu %llu", &a[0], &a[1], &a[2], &a[3], &a[4]);
        bool known = true;
        if (strncmp(line, "open", 4) == 0 && n == 5)
            peer.open(a[0], a[1], a[2], a[3], a[4]);
        else if (strncmp(line, "rate", 4) == 0 && n == 1)
            answer = {peer.rate(double(a[0]))};
        else if (strncmp(line, "check", 5) == 0)
            answer = peer.check();
        else if (strncmp(line, "gap", 3) == 0 && n == 1)
            answer = {peer.gap(int(a[0]))};
        else
            known = false;
        printf(known ? "ok" : "error no state that it could go on from");
        for (double x : answer) printf(" %.17g", x);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
