// A pipe as a table of nodes, in C++17, on data that are made up: shards of games are read, each
// shard becomes games, some of these are kept and mixed, and batches are scaled. The order of the
// games, and so the sum, is the same with any number of workers.
//
//     cc -O2 -I../.. -c ../vendor/dlpipe.c
//     c++ -std=c++17 -O2 -I../.. graph.cpp dlpipe.o -lpthread
//     graph [-w workers]
#include "dlpipe.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <unistd.h>

namespace {

enum { shards = 400, games = 50, squares = 64, most_bytes = games * squares };

// What a shard holds: games of one byte a square, as many as it happens to have.
void read_shard(dlpipe::item shard) {
    const std::uint64_t n = dlp_hash(1, shard.index(), 0, 0) % (games + 1);
    shard.set_length(0, n * squares);
    for (std::uint64_t i = 0; i < n * squares; i++)
        shard.field<std::uint8_t>("bytes")[i] =
            static_cast<std::uint8_t>(dlp_hash(2, shard.index(), i / 8, 0) >> (i % 8 * 8));
}

void unpack(dlpipe::expansion shard) {
    const auto bytes = shard.input().field<std::uint8_t>("bytes");
    for (std::uint64_t at = 0; at < shard.input().length(0); at += squares) {
        const dlpipe::item game = shard.add();
        const auto board = game.field<float>("board");
        for (std::uint64_t i = 0; i < squares; i++) board[i] = bytes[at + i];
        game.field<std::int32_t>("result")[0] = bytes[at] % 3 - 1;
    }
}

dlpipe::table table_of(int workers) {
    dlpipe::table t;
    t.desc.seed = 1;
    t.desc.epochs = 2;
    t.list("shards", shards)->list.shuffle = 1;
    t.fetch("read", {dlpipe::ragged<std::uint8_t>("bytes", {most_bytes})}, read_shard)
        .workers(workers);
    t.expand("games", games,
             {dlpipe::field<float>("board", {squares}), dlpipe::field<std::int32_t>("result")},
             unpack);
    t.filter("decided",
             [](dlpipe::item_view game) { return game.field<std::int32_t>("result")[0] != 0; });
    t.window("mixed", 500);
    t.batch("batch", 64).capacity(4);
    t.map("scaled", [](dlpipe::batch_view b) {
        for (float &square : b.field<float>("board").all()) square /= 255;
    });
    return t;
}

int run(const dlpipe::table &t) {
    double sum = 0; // depends on the order, not on the workers
    std::size_t rows = 0;
    for (dlpipe::batch &b : t.open()) {
        rows += b.count();
        for (const float square : b.field<float>("board").all()) sum = sum * 0.999 + square;
    }
    std::printf("%zu games, the sum is %.9f\n", rows, sum);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    int workers = 2;
    for (int c; (c = getopt(argc, argv, "w:")) != -1;) {
        if (c != 'w') return std::cerr << "usage: graph [-w workers]\n", 2;
        workers = std::atoi(optarg);
    }
    try {
        const dlpipe::table t = table_of(workers);
        std::printf("%d nodes, %.0f KiB\n", static_cast<int>(t.size()),
                    static_cast<double>(t.plan().total_bytes) / 1024);
        return run(t);
    } catch (const dlpipe::error &e) { // it names the node
        std::cerr << "graph: " << e.what() << "\n";
        return 1;
    }
}
