/* The peers of bench_hand: what C++ programmers write by hand instead of a loader. Each is used as
   its documentation says, with the memory of dlpipe: w.slots batches. None of them has resume,
   errors of items, a limit of time, or workers that may be killed: these are left to the program.
   A peer whose headers are not installed is left out. */
#include "bench_hand.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if __has_include(<oneapi/tbb/parallel_pipeline.h>)
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/version.h>
#define HAND_TBB 1
#endif
#if __has_include(<concurrentqueue/blockingconcurrentqueue.h>)
#include <concurrentqueue/blockingconcurrentqueue.h>
#define HAND_MOODYCAMEL 1
#endif

namespace {

/* Batches in memory, and the order of an endless stream of items. */
struct Slots {
    const hand_work &w;
    std::unique_ptr<uint8_t, decltype(&std::free)> memory;

    explicit Slots(const hand_work &work) : w(work), memory(nullptr, &std::free) {
        const size_t bytes = size_t(w.slots) * w.batch * w.row_bytes;
        memory.reset(static_cast<uint8_t *>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
        if (!memory) throw std::bad_alloc();
    }
    uint8_t *rows(uint64_t batch) const {
        return memory.get() + batch % w.slots * w.batch * w.row_bytes;
    }
    /* Write n items of one batch into a slot. at: the place of the first one in the order. */
    void fill(uint64_t at, uint32_t n, uint8_t *slot) const {
        const uint32_t *order = w.order + at % w.n_items;
        uint8_t *to = slot + at % w.batch * w.row_bytes;
        for (uint32_t i = 0; i < n; i++) {
            if (w.ahead && i + HAND_AHEAD < n) hand_prefetch(&w, order[i + HAND_AHEAD]);
            hand_item(&w, order[i], to + i * w.row_bytes);
        }
    }
    void fill(uint64_t at, uint32_t n) const { fill(at, n, rows(at / w.batch)); }
};

/* ---- threads and one mutex ------------------------------------------------------------------- */

/* A worker claims n items: a whole batch, or a single item, so that all workers share a batch. */
void mutex_claims(const hand_work *w, void *consumer, uint32_t n) {
    Slots slots(*w);
    std::mutex lock;
    std::condition_variable room, ready;
    std::vector<uint32_t> filled(w->slots);
    uint64_t claimed = 0, taken = 0;
    bool stop = false;
    std::vector<std::thread> workers;
    for (uint32_t i = 0; i < w->workers; i++)
        workers.emplace_back([&] {
            std::unique_lock<std::mutex> held(lock);
            for (;;) {
                room.wait(held, [&] { return stop || claimed < (taken + w->slots) * w->batch; });
                if (stop) return;
                const uint64_t at = claimed, batch = at / w->batch;
                claimed += n;
                held.unlock();
                slots.fill(at, n);
                held.lock();
                uint32_t &full = filled[batch % w->slots];
                full += n;
                if (full == w->batch && batch == taken) ready.notify_one();
            }
        });
    while (!stop) {
        std::unique_lock<std::mutex> held(lock);
        ready.wait(held, [&] { return filled[taken % w->slots] == w->batch; });
        held.unlock();
        const bool more = hand_take(consumer, slots.rows(taken));
        held.lock();
        filled[taken++ % w->slots] = 0;
        stop = !more;
        more &&n == w->batch ? room.notify_one() : room.notify_all();
    }
    for (auto &t : workers) t.join();
}

void mutex_batches(const hand_work *w, void *consumer) { mutex_claims(w, consumer, w->batch); }
void mutex_items(const hand_work *w, void *consumer) { mutex_claims(w, consumer, 1); }

/* ---- OpenMP ---------------------------------------------------------------------------------- */

/* One thread consumes one half of the slots, and helps with the other half when it is done. The
   barrier of a loop is paid once for all batches of a half. */
void openmp(const hand_work *w, void *consumer) {
    Slots slots(*w);
    const uint64_t half = std::max(1u, w->slots / 2), rows = half * w->batch;
    const int threads = int(w->workers) + 1;
    const int chunk = int(std::max<uint64_t>(1, rows / uint64_t(8 * threads)));
    std::atomic<uint64_t> steps{UINT64_MAX};
#pragma omp parallel num_threads(threads)
    for (uint64_t step = 0; step < steps; step++) {
#pragma omp master
        for (uint64_t i = 0; step > 0 && i < half && steps > step + 1; i++)
            if (!hand_take(consumer, slots.rows((step - 1) % 2 * half + i))) steps = step + 1;
#pragma omp for schedule(dynamic, chunk)
        for (uint64_t r = 0; r < rows; r++)
            hand_item(w, w->order[(step * rows + r) % w->n_items],
                      slots.rows(step % 2 * half + r / w->batch) + r % w->batch * w->row_bytes);
    }
}

/* ---- TBB ------------------------------------------------------------------------------------- */

#ifdef HAND_TBB
/* Three filters: number a token, fill its n items, consume in order. The consumer is a filter of
   the pipeline, not the loop of the caller. If a token is an item, so few are in flight that the
   slot of the oldest batch is left alone until the batch is consumed. */
void tbb_tokens(const hand_work *w, void *consumer, uint32_t n) {
    namespace t = oneapi::tbb;
    using mode = t::filter_mode;
    const size_t threads = w->workers + 1;
    const size_t tokens = n == w->batch ? w->slots : size_t(w->slots - 1) * w->batch + 1;
    Slots slots(*w);
    t::global_control limit(t::global_control::max_allowed_parallelism, threads);
    t::task_arena arena{int(threads)};
    std::atomic<bool> stop{false};
    uint64_t next = 0;
    auto number = [&](t::flow_control &control) {
        if (stop) control.stop();
        return n * next++;
    };
    auto fill = [&](uint64_t at) {
        slots.fill(at, n);
        return at;
    };
    auto consume = [&](uint64_t at) {
        if (stop || (at + n) % w->batch != 0) return;
        if (!hand_take(consumer, slots.rows(at / w->batch))) stop = true;
    };
    arena.execute([&] {
        t::parallel_pipeline(tokens,
                             t::make_filter<void, uint64_t>(mode::serial_in_order, number) &
                                 t::make_filter<uint64_t, uint64_t>(mode::parallel, fill) &
                                 t::make_filter<uint64_t, void>(mode::serial_in_order, consume));
    });
}

void tbb_batches(const hand_work *w, void *consumer) { tbb_tokens(w, consumer, w->batch); }
void tbb_items(const hand_work *w, void *consumer) { tbb_tokens(w, consumer, 1); }
#endif

/* ---- moodycamel's queue ---------------------------------------------------------------------- */

#ifdef HAND_MOODYCAMEL
/* One queue brings free slots to the workers, one brings full slots back. The queue does not keep
   the order of several producers, so the consumer holds batches back until their turn. */
void moodycamel_batches(const hand_work *w, void *consumer) {
    struct Full {
        uint64_t batch;
        uint32_t slot;
    };
    Slots slots(*w);
    moodycamel::BlockingConcurrentQueue<uint32_t> room(w->slots + w->workers);
    moodycamel::BlockingConcurrentQueue<Full> full(w->slots + w->workers);
    const uint32_t end = w->slots;
    std::atomic<uint64_t> next{0};
    std::vector<std::thread> workers;
    moodycamel::ProducerToken gives(room);
    for (uint32_t i = 0; i < w->slots; i++) room.enqueue(gives, i);
    for (uint32_t i = 0; i < w->workers; i++)
        workers.emplace_back([&] {
            moodycamel::ProducerToken puts(full);
            moodycamel::ConsumerToken gets(room);
            for (uint32_t slot;;) {
                room.wait_dequeue(gets, slot);
                if (slot == end) return;
                const uint64_t batch = next.fetch_add(1, std::memory_order_relaxed);
                slots.fill(batch * w->batch, w->batch, slots.rows(slot));
                full.enqueue(puts, Full{batch, slot});
            }
        });
    std::vector<Full> held(w->slots, Full{UINT64_MAX, 0});
    moodycamel::ConsumerToken takes(full);
    uint64_t turn = 0;
    for (bool more = true; more; turn++) {
        Full &f = held[turn % w->slots];
        while (f.batch != turn) {
            Full got;
            full.wait_dequeue(takes, got);
            held[got.batch % w->slots] = got;
        }
        more = hand_take(consumer, slots.rows(f.slot));
        room.enqueue(gives, f.slot);
    }
    for (uint32_t i = 0; i < w->workers; i++) room.enqueue(gives, end);
    for (auto &t : workers) t.join();
}
#endif

} // namespace

#define HAND_TEXT_OF(x) #x
#define HAND_TEXT(x) HAND_TEXT_OF(x)

extern "C" const hand_peer hand_peers[] = {
    {"one mutex, a batch a claim", "", nullptr, true, mutex_batches},
    {"one mutex, an item a claim", "", nullptr, true, mutex_items},
    {"OpenMP, parallel for", HAND_TEXT(_OPENMP), nullptr, true, openmp},
#ifdef HAND_TBB
    {"TBB pipeline, a batch a token", TBB_VERSION_STRING, nullptr, true, tbb_batches},
    {"TBB pipeline, an item a token", TBB_VERSION_STRING, nullptr, true, tbb_items},
#else
    {"TBB pipeline", "", "its headers are not installed (libtbb-dev)", true, nullptr},
#endif
#ifdef HAND_MOODYCAMEL
    {"moodycamel queue, a batch a message", HAND_MOODYCAMEL_VERSION, nullptr, true,
     moodycamel_batches},
#else
    {"moodycamel queue", "", "its headers are not installed (libconcurrentqueue-dev)", true,
     nullptr},
#endif
    {"Taskflow", "", "Debian has no package of its headers", true, nullptr},
    {"rigtorp's MPMCQueue", "", "Debian has no package of its headers", true, nullptr},
};
extern "C" const int hand_n_peers = int(sizeof hand_peers / sizeof *hand_peers);
