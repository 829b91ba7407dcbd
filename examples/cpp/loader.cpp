// A training loop in C++17 over data that is made up: two classes of points, a logistic regression.
// It shows what goes wrong (one item cannot be decoded and is replaced; another sort of damage ends
// the run), and how a run that was stopped goes on: with a state and the weights, to the last bit.
//
//     cc -O2 -I../.. -c ../vendor/dlpipe.c
//     c++ -std=c++17 -O2 -I../.. loader.cpp dlpipe.o -lpthread
//     loader [-w workers] [-b batches] [-d] [state-file]
//
//   -b  stop after so many batches; with a state-file the next run goes on behind them
//   -d  damage an item in a way that no policy mends
#include "dlpipe.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <unistd.h>

namespace {

enum { items = 5000, features = 8, batch_size = 64, epochs = 2, unreadable = 1234 };

struct options {
    int workers = 4;
    long batches = -1;
    bool damaged = false;
    const char *path = nullptr;
};

// What a real one would hold for each worker: a decoder, a file that is open, a scratch buffer.
struct decoder {
    explicit decoder(int) : point(features) {}
    const std::vector<float> &decode(const dlpipe::item &item) {
        if (item.index() == unreadable)
            throw std::runtime_error("point " + std::to_string(item.index()) + " is unreadable");
        for (std::uint64_t i = 0; i < features; i++)
            point[i] = static_cast<float>(dlp_hash(1, item.index(), i, 0) % 2001) * 0.001f - 1 +
                       static_cast<float>(item.random(i) % 100) * 0.0001f; // augmented
        return point;
    }
    std::vector<float> point;
};

dlpipe::dataset points(bool damaged) {
    return dlpipe::dataset(
        items, {dlpipe::field<float>("x", {features}), dlpipe::field<float>("y")},
        [damaged](dlpipe::item item) { // by all workers at once
            const std::vector<float> &point = item.state<decoder>().decode(item);
            if (damaged && item.position() == 1000)
                item.field<double>("x"); // x is of floats: thrown
            std::copy(point.begin(), point.end(), item.field<float>("x").begin());
            item.field<float>("y")[0] = point[0] - point[1] + point[2] > 0 ? 1.0f : 0.0f;
        });
}

struct model { // what a checkpoint holds, with the place in the data
    dlp_state place;
    std::uint64_t steps;
    float weight[features + 1];
};

float step(model &m, const dlpipe::batch &b) { // returns the loss
    const auto x = b.field<const float>("x"), y = b.field<const float>("y");
    float loss = 0, slope[features + 1] = {};
    for (std::size_t r = 0; r < b.count(); r++) {
        const auto point = x.row(r);
        float sum = m.weight[features];
        for (std::size_t i = 0; i < features; i++) sum += m.weight[i] * point[i];
        const float p = 1 / (1 + std::exp(-sum)), want = y.row(r)[0];
        loss -= std::log((want > 0 ? p : 1 - p) + 1e-7f) / static_cast<float>(b.count());
        for (std::size_t i = 0; i < features; i++) slope[i] += (p - want) * point[i];
        slope[features] += p - want;
    }
    for (std::size_t i = 0; i <= features; i++)
        m.weight[i] -= slope[i] / static_cast<float>(b.count());
    m.steps++;
    return loss;
}

bool load(const char *path, model &m) {
    std::ifstream file(path, std::ios::binary);
    model read = model();
    if (!file) return false;
    file.read(reinterpret_cast<char *>(&read), sizeof read);
    if (!file || file.peek() != EOF)
        throw std::runtime_error(std::string(path) + ": not a file that this program has written");
    m = read;
    return true;
}

void save(const char *path, const model &m) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(&m), sizeof m);
    if (!file.flush()) throw std::runtime_error(std::string(path) + ": cannot be written");
}

dlpipe::loader loader_for(const options &o) {
    dlpipe::loader make(points(o.damaged));
    make.desc.batch_size = batch_size;
    make.desc.num_workers = o.workers;
    make.desc.shuffle = 1;
    make.desc.seed = 11;
    make.desc.epochs = epochs;
    make.desc.workers.on_error = DLP_ON_ERROR_REPLACE; // what is thrown costs the item alone
    make.desc.workers.max_skips = 2;                   // twice: it is in both epochs
    make.worker_state([](int worker) { return decoder(worker); });
    return make;
}

void say_replaced(const dlpipe::pipe &pipe) { // a call of C, which dlpipe.hpp need not have
    dlp_skip last;
    std::uint64_t total = 0;
    if (dlp_pipe_skips(pipe.get(), &last, 1, &total) < 0 || total == 0) return;
    std::cerr << total << " replaced, the last " << last.index << "\n";
}

void train(const options &o) {
    model m = model();
    dlpipe::loader make = loader_for(o);
    if (o.path != nullptr && load(o.path, m)) make.resume(m.place);
    dlpipe::pipe pipe = make.open();
    long batches = o.batches;
    for (dlpipe::batch &b : pipe) {
        const float loss = step(m, b);
        if (b.last() || b.in_epoch() % 20 == 0)
            std::printf("epoch %d, batch %2d: loss %.6f\n", static_cast<int>(b.epoch()),
                        static_cast<int>(b.in_epoch()), static_cast<double>(loss));
        if (--batches == 0) break; // the batch goes back here
    }
    if (o.path != nullptr) {
        m.place = pipe.state();
        save(o.path, m);
    }
    if (pipe.code() == DLP_END) std::printf("trained, %d steps\n", static_cast<int>(m.steps));
    say_replaced(pipe);
    pipe.close();
}

int usage() {
    std::cerr << "usage: loader [-w workers] [-b batches] [-d] [state-file]\n";
    return 2;
}

} // namespace

int main(int argc, char **argv) {
    options o;
    for (int c; (c = getopt(argc, argv, "w:b:d")) != -1;) {
        if (c == 'w')
            o.workers = std::atoi(optarg);
        else if (c == 'b')
            o.batches = std::atol(optarg);
        else if (c == 'd')
            o.damaged = true;
        else
            return usage();
    }
    if (optind < argc - 1) return usage();
    o.path = argv[optind]; // or NULL
    try {
        train(o);
    } catch (const dlpipe::error &e) { // of the pipe: it says which item, and why
        std::cerr << "loader: " << e.what() << "\n";
        return 1;
    } catch (const std::exception &e) {
        std::cerr << "loader: " << e.what() << "\n";
        return 1;
    }
    return 0;
}
