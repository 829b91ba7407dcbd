/* Queues against their peers, interleaved, in threads and between processes.
   Prints one JSON object per line on standard output and into build/bench/queue.jsonl, and progress
   on standard error. Arguments: [-r rounds] [-t sample_ms] [scenario prefix ...].
   Every sample runs in a child of its own, so that a peer that never ends costs its time-out only.
   The distance between two cores of a virtual machine is not steady: the probe of bench_probe.h is
   taken before and after each pair of samples, and pairs are reported by what it was (near, far);
   one in between which it changed is not counted, nor is a round in which a sample took too long.
   Ratios are those of the columns' medians, with the range of the pairs' own. */
#include "../../dlpipe.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "bench_probe.h"

#if __has_include(<ck_ring.h>)
#define HAVE_CK 1
extern "C" {
#define false 0 /* ck_ring.h returns false from a function of pointer type, which C++ refuses */
#include <ck_ring.h>
#undef false
#include <ck_md.h>
}
#endif
#ifdef BENCH_DPDK
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_version.h>
#endif
#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#define HAVE_BOOST 1
#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#include <boost/version.hpp>
#endif
#if __has_include(<readerwriterqueue/readerwriterqueue.h>) && \
    __has_include(<concurrentqueue/blockingconcurrentqueue.h>)
#define HAVE_MOODYCAMEL 1
#include <concurrentqueue/blockingconcurrentqueue.h>
#include <readerwriterqueue/readerwritercircularbuffer.h>
#include <readerwriterqueue/readerwriterqueue.h>
#endif
#if __has_include(<atomic_queue/atomic_queue.h>)
#define HAVE_ATOMIC_QUEUE 1
#include <atomic_queue/atomic_queue.h>
#endif
#if __has_include(<rigtorp/SPSCQueue.h>)
#define HAVE_RIGTORP 1
#include <rigtorp/SPSCQueue.h>
#endif

namespace {

const size_t CAPACITY = 1024;
const double SAMPLE_TIMEOUT_S = 4;

struct Rec8 {
    uint64_t word[1];
};
struct Rec64 {
    uint64_t word[8];
};

double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

std::vector<int> cores;

void pin(int which) {
    if (which < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[size_t(which) % cores.size()], &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* What everyone does on a failed try: one pause; with more threads than cores, yield after 64. */
struct Patience {
    bool yields;
    unsigned failed = 0;
    void lost() {
        if (yields && ++failed % 64 == 0)
            sched_yield();
        else
            relax();
    }
    void won() { failed = 0; }
};

/* ---- queues: each constructed in (possibly shared) memory, with a Tx and an Rx per side ---- */

template <class Rec> struct Dlp {
    static const char *name() { return "dlpipe"; }
    static const bool shareable = true;
    alignas(128) unsigned char mem[sizeof(dlp_spsc) + CAPACITY * sizeof(Rec)];
    Dlp(unsigned, bool shared) {
        if (dlp_spsc_init(mem, sizeof mem, sizeof(Rec), CAPACITY, shared) != DLP_OK) abort();
    }
    struct Tx {
        dlp_spsc_tx tx;
        Tx(Dlp &q, unsigned) {
            if (dlp_spsc_attach_tx(&tx, q.mem, sizeof q.mem) != DLP_OK) abort();
        }
        bool push(const Rec &r) { return dlp_spsc_try_push(&tx, &r) == DLP_OK; }
        size_t push_n(const Rec *r, size_t n) { return size_t(dlp_spsc_try_push_burst(&tx, r, n)); }
        void push_wait(const Rec &r) { dlp_spsc_push(&tx, &r, DLP_FOREVER); }
    };
    struct Rx {
        dlp_spsc_rx rx;
        explicit Rx(Dlp &q) {
            if (dlp_spsc_attach_rx(&rx, q.mem, sizeof q.mem) != DLP_OK) abort();
        }
        bool pop(Rec &r) { return dlp_spsc_try_pop(&rx, &r) == DLP_OK; }
        size_t pop_n(Rec *r, size_t n) { return size_t(dlp_spsc_try_pop_burst(&rx, r, n)); }
        void pop_wait(Rec &r) { dlp_spsc_pop(&rx, &r, DLP_FOREVER); }
    };
};

template <class Rec> struct DlpBundle {
    static const char *name() { return "dlpipe"; }
    static const bool shareable = true;
    static const unsigned MOST = 8;
    alignas(128) unsigned char mem[1024 + MOST * (sizeof(dlp_spsc) + CAPACITY * sizeof(Rec))];
    DlpBundle(unsigned producers, bool shared) {
        if (dlp_mpsc_init(mem, sizeof mem, sizeof(Rec), CAPACITY, producers, shared) != DLP_OK)
            abort();
    }
    struct Tx {
        dlp_mpsc_tx tx;
        Tx(DlpBundle &q, unsigned p) {
            if (dlp_mpsc_attach_tx(&tx, q.mem, sizeof q.mem, int(p)) < 0) abort();
        }
        bool push(const Rec &r) { return dlp_mpsc_try_push(&tx, &r) == DLP_OK; }
        void push_wait(const Rec &r) { dlp_mpsc_push(&tx, &r, DLP_FOREVER); }
    };
    struct Rx {
        dlp_mpsc_rx rx;
        dlp_spsc_rx lanes[MOST];
        explicit Rx(DlpBundle &q) {
            if (dlp_mpsc_attach_rx(&rx, lanes, MOST, q.mem, sizeof q.mem) != DLP_OK) abort();
        }
        bool pop(Rec &r) { return dlp_mpsc_try_pop(&rx, &r, NULL) == DLP_OK; }
        void pop_wait(Rec &r) { dlp_mpsc_pop(&rx, &r, NULL, DLP_FOREVER); }
    };
};

#ifdef HAVE_CK
/* The functions that CK_RING_PROTOTYPE expands to, whose casts only C accepts. */
template <class Rec, bool MP> struct Ck {
    static const char *name() { return "ck_ring"; }
    static const bool shareable = true;
    alignas(128) ck_ring_t ring;
    alignas(128) Rec slots[CAPACITY];
    Ck(unsigned, bool) { ck_ring_init(&ring, CAPACITY); }
    static bool put(Ck &q, const Rec &r) {
        return MP ? _ck_ring_enqueue_mp(&q.ring, q.slots, &r, sizeof r, NULL)
                  : _ck_ring_enqueue_sp(&q.ring, q.slots, &r, sizeof r, NULL);
    }
    static bool get(Ck &q, Rec &r) { return _ck_ring_dequeue_sc(&q.ring, q.slots, &r, sizeof r); }
    struct Tx {
        Ck &q;
        Tx(Ck &queue, unsigned) : q(queue) {}
        bool push(const Rec &r) { return put(q, r); }
        size_t push_n(const Rec *r, size_t n) {
            size_t k = 0;
            while (k < n && put(q, r[k])) k++;
            return k;
        }
    };
    struct Rx {
        Ck &q;
        explicit Rx(Ck &queue) : q(queue) {}
        bool pop(Rec &r) { return get(q, r); }
        size_t pop_n(Rec *r, size_t n) {
            size_t k = 0;
            while (k < n && get(q, r[k])) k++;
            return k;
        }
    };
};
#endif

#ifdef BENCH_DPDK
/* Elements of 8 or 64 bytes on memory of our own; no environment layer, no huge pages. */
template <class Rec, bool MP> struct Rte {
    static const char *name() { return "rte_ring"; }
    static const bool shareable = true;
    alignas(128) unsigned char mem[sizeof(rte_ring) + 2 * CAPACITY * sizeof(Rec) + 256];
    rte_ring *ring() { return reinterpret_cast<rte_ring *>(mem); }
    bool rts;
    Rte(unsigned producers, bool) : rts(producers + 1 > cores.size()) {
        /* Several producers on fewer cores: the mode that DPDK has for them (relaxed tail sync). */
        unsigned many = producers + 1 > cores.size() ? unsigned(RING_F_MP_RTS_ENQ) : 0u;
        unsigned flags = RING_F_SC_DEQ | RING_F_EXACT_SZ | (MP ? many : unsigned(RING_F_SP_ENQ));
        if (rte_ring_init(ring(), "bench", CAPACITY, flags) != 0) abort();
    }
    struct Tx {
        rte_ring *r;
        bool rts;
        Tx(Rte &q, unsigned) : r(q.ring()), rts(q.rts) {}
        bool push(const Rec &x) {
            void *in = const_cast<Rec *>(&x);
            if (MP && rts)
                return rte_ring_mp_rts_enqueue_bulk_elem(r, in, sizeof(Rec), 1, NULL) == 1;
            return MP ? rte_ring_mp_enqueue_elem(r, in, sizeof(Rec)) == 0
                      : rte_ring_sp_enqueue_elem(r, in, sizeof(Rec)) == 0;
        }
        size_t push_n(const Rec *x, size_t n) {
            return rte_ring_sp_enqueue_burst_elem(r, x, sizeof(Rec), unsigned(n), NULL);
        }
    };
    struct Rx {
        rte_ring *r;
        explicit Rx(Rte &q) : r(q.ring()) {}
        bool pop(Rec &x) { return rte_ring_sc_dequeue_elem(r, &x, sizeof(Rec)) == 0; }
        size_t pop_n(Rec *x, size_t n) {
            return rte_ring_sc_dequeue_burst_elem(r, x, sizeof(Rec), unsigned(n), NULL);
        }
    };
};
#endif

#ifdef HAVE_BOOST
template <class Rec> struct BoostSpsc {
    static const char *name() { return "boost"; }
    static const bool shareable = true;
    boost::lockfree::spsc_queue<Rec, boost::lockfree::capacity<CAPACITY>> queue;
    BoostSpsc(unsigned, bool) {}
    struct Tx {
        BoostSpsc &q;
        Tx(BoostSpsc &queue, unsigned) : q(queue) {}
        bool push(const Rec &r) { return q.queue.push(r); }
        size_t push_n(const Rec *r, size_t n) { return q.queue.push(r, n); }
    };
    struct Rx {
        BoostSpsc &q;
        explicit Rx(BoostSpsc &queue) : q(queue) {}
        bool pop(Rec &r) { return q.queue.pop(r); }
        size_t pop_n(Rec *r, size_t n) { return q.queue.pop(r, n); }
    };
};

template <class Rec> struct BoostQueue {
    static const char *name() { return "boost"; }
    static const bool shareable = true;
    boost::lockfree::queue<Rec, boost::lockfree::capacity<CAPACITY>> queue;
    BoostQueue(unsigned, bool) {}
    struct Tx {
        BoostQueue &q;
        Tx(BoostQueue &queue, unsigned) : q(queue) {}
        bool push(const Rec &r) { return q.queue.bounded_push(r); }
    };
    struct Rx {
        BoostQueue &q;
        explicit Rx(BoostQueue &queue) : q(queue) {}
        bool pop(Rec &r) { return q.queue.pop(r); }
    };
};
#endif

#ifdef HAVE_MOODYCAMEL
/* ReaderWriterQueue where records go one by one, ConcurrentQueue with tokens for bursts. */
template <class Rec> struct MoodySpsc {
    static const char *name() { return "moodycamel"; }
    static const bool shareable = false;
    moodycamel::ReaderWriterQueue<Rec> queue;
    MoodySpsc(unsigned, bool) : queue(CAPACITY) {}
    struct Tx {
        MoodySpsc &q;
        Tx(MoodySpsc &x, unsigned) : q(x) {}
        bool push(const Rec &r) { return q.queue.try_enqueue(r); }
    };
    struct Rx {
        MoodySpsc &q;
        explicit Rx(MoodySpsc &x) : q(x) {}
        bool pop(Rec &r) { return q.queue.try_dequeue(r); }
    };
};

/* ConcurrentQueue is not bounded: the producers hold back while half a ring's worth each waits,
   as its try_ calls can refuse for ever when blocks are preallocated. */
template <class Rec> struct MoodyBulk {
    static const char *name() { return "moodycamel"; }
    static const bool shareable = false;
    moodycamel::ConcurrentQueue<Rec> queue;
    unsigned producers;
    alignas(128) std::atomic<uint64_t> popped;
    MoodyBulk(unsigned p, bool) : queue(CAPACITY * 8), producers(p), popped(0) {}
    struct Tx {
        MoodyBulk &q;
        moodycamel::ProducerToken token;
        uint64_t pushed = 0, seen = 0;
        Tx(MoodyBulk &x, unsigned) : q(x), token(x.queue) {}
        bool room(size_t n) {
            if ((pushed + n) * q.producers <= seen + CAPACITY * q.producers) return true;
            seen = q.popped.load(std::memory_order_relaxed);
            return (pushed + n) * q.producers <= seen + CAPACITY * q.producers;
        }
        bool push(const Rec &r) {
            if (!room(1)) return false;
            pushed++;
            return q.queue.enqueue(token, r);
        }
        size_t push_n(const Rec *r, size_t n) {
            if (!room(n)) return 0;
            pushed += n;
            return q.queue.enqueue_bulk(token, r, n) ? n : 0;
        }
    };
    struct Rx {
        MoodyBulk &q;
        moodycamel::ConsumerToken token;
        uint64_t popped = 0, told = 0;
        explicit Rx(MoodyBulk &x) : q(x), token(x.queue) {}
        void tell(size_t n) {
            popped += n;
            if (popped - told >= CAPACITY / 8 || (n == 0 && popped != told))
                q.popped.store(told = popped, std::memory_order_relaxed);
        }
        bool pop(Rec &r) {
            bool got = q.queue.try_dequeue(token, r);
            tell(got);
            return got;
        }
        size_t pop_n(Rec *r, size_t n) {
            size_t got = q.queue.try_dequeue_bulk(token, r, n);
            tell(got);
            return got;
        }
    };
};

template <class Rec> struct MoodyBlockingRing {
    static const char *name() { return "moodycamel"; }
    static const bool shareable = false;
    moodycamel::BlockingReaderWriterCircularBuffer<Rec> queue;
    MoodyBlockingRing(unsigned, bool) : queue(CAPACITY) {}
    struct Tx {
        MoodyBlockingRing &q;
        Tx(MoodyBlockingRing &x, unsigned) : q(x) {}
        void push_wait(const Rec &r) { q.queue.wait_enqueue(r); }
    };
    struct Rx {
        MoodyBlockingRing &q;
        explicit Rx(MoodyBlockingRing &x) : q(x) {}
        void pop_wait(Rec &r) { q.queue.wait_dequeue(r); }
    };
};

/* Unbounded: its producers never wait. */
template <class Rec> struct MoodyBlocking {
    static const char *name() { return "moodycamel"; }
    static const bool shareable = false;
    moodycamel::BlockingConcurrentQueue<Rec> queue;
    MoodyBlocking(unsigned, bool) : queue(CAPACITY * 8) {}
    struct Tx {
        MoodyBlocking &q;
        moodycamel::ProducerToken token;
        Tx(MoodyBlocking &x, unsigned) : q(x), token(x.queue) {}
        void push_wait(const Rec &r) { q.queue.enqueue(token, r); }
    };
    struct Rx {
        MoodyBlocking &q;
        moodycamel::ConsumerToken token;
        explicit Rx(MoodyBlocking &x) : q(x), token(x.queue) {}
        void pop_wait(Rec &r) { q.queue.wait_dequeue(token, r); }
    };
};
#endif

#ifdef HAVE_ATOMIC_QUEUE
/* A state byte beside each record; its mode for one producer and one consumer. */
template <class Rec> struct AtomicQueue {
    static const char *name() { return "atomic_queue"; }
    static const bool shareable = true;
    atomic_queue::AtomicQueue2<Rec, CAPACITY, true, true, false, true> queue;
    AtomicQueue(unsigned, bool) {}
    struct Tx {
        AtomicQueue &q;
        Tx(AtomicQueue &x, unsigned) : q(x) {}
        bool push(const Rec &r) { return q.queue.try_push(r); }
        size_t push_n(const Rec *r, size_t n) {
            size_t k = 0;
            while (k < n && q.queue.try_push(r[k])) k++;
            return k;
        }
    };
    struct Rx {
        AtomicQueue &q;
        explicit Rx(AtomicQueue &x) : q(x) {}
        bool pop(Rec &r) { return q.queue.try_pop(r); }
        size_t pop_n(Rec *r, size_t n) {
            size_t k = 0;
            while (k < n && q.queue.try_pop(r[k])) k++;
            return k;
        }
    };
};
#endif

#ifdef HAVE_RIGTORP
/* Its slots come from an allocator: memory that is mapped shared before the fork. */
template <class T> struct SharedAllocator {
    typedef T value_type;
    T *allocate(size_t n) {
        void *at = mmap(NULL, n * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (at == MAP_FAILED) abort();
        return static_cast<T *>(at);
    }
    void deallocate(T *at, size_t n) { munmap(at, n * sizeof(T)); }
};

template <class Rec> struct Rigtorp {
    static const char *name() { return "rigtorp"; }
    static const bool shareable = true;
    rigtorp::SPSCQueue<Rec, SharedAllocator<Rec>> queue;
    Rigtorp(unsigned, bool) : queue(CAPACITY) {}
    struct Tx {
        Rigtorp &q;
        Tx(Rigtorp &x, unsigned) : q(x) {}
        bool push(const Rec &r) { return q.queue.try_push(r); }
        size_t push_n(const Rec *r, size_t n) {
            size_t k = 0;
            while (k < n && q.queue.try_push(r[k])) k++;
            return k;
        }
    };
    struct Rx {
        Rigtorp &q;
        explicit Rx(Rigtorp &x) : q(x) {}
        bool pop(Rec &r) {
            Rec *front = q.queue.front();
            if (!front) return false;
            r = *front;
            q.queue.pop();
            return true;
        }
        size_t pop_n(Rec *r, size_t n) {
            size_t k = 0;
            while (k < n && pop(r[k])) k++;
            return k;
        }
    };
};
#endif

/* The queue everyone writes: a ring, a mutex, two condition variables. */
template <class Rec> struct Mutex {
    static const char *name() { return "mutex"; }
    static const bool shareable = true;
    pthread_mutex_t lock;
    pthread_cond_t filled, drained;
    size_t head, tail;
    Rec slots[CAPACITY];
    Mutex(unsigned, bool shared) : head(0), tail(0) {
        pthread_mutexattr_t m;
        pthread_condattr_t c;
        pthread_mutexattr_init(&m);
        pthread_condattr_init(&c);
        int how = shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
        pthread_mutexattr_setpshared(&m, how);
        pthread_condattr_setpshared(&c, how);
        pthread_mutex_init(&lock, &m);
        pthread_cond_init(&filled, &c);
        pthread_cond_init(&drained, &c);
    }
    void put(const Rec *r, size_t n) {
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < n; i++) {
            while (tail - head == CAPACITY) {
                pthread_cond_signal(&filled);
                pthread_cond_wait(&drained, &lock);
            }
            slots[tail++ % CAPACITY] = r[i];
        }
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    size_t get(Rec *r, size_t n) {
        pthread_mutex_lock(&lock);
        while (tail == head) pthread_cond_wait(&filled, &lock);
        size_t k = 0;
        while (k < n && tail != head) r[k++] = slots[head++ % CAPACITY];
        pthread_cond_signal(&drained);
        pthread_mutex_unlock(&lock);
        return k;
    }
    struct Tx {
        Mutex &q;
        Tx(Mutex &x, unsigned) : q(x) {}
        bool push(const Rec &r) { return q.put(&r, 1), true; }
        size_t push_n(const Rec *r, size_t n) { return q.put(r, n), n; }
        void push_wait(const Rec &r) { q.put(&r, 1); }
    };
    struct Rx {
        Mutex &q;
        explicit Rx(Mutex &x) : q(x) {}
        bool pop(Rec &r) { return q.get(&r, 1) == 1; }
        size_t pop_n(Rec *r, size_t n) { return q.get(r, n); }
        void pop_wait(Rec &r) { q.get(&r, 1); }
    };
};

template <class Rec> struct Pipe {
    static const char *name() { return "pipe"; }
    static const bool shareable = true;
    int fd[2];
    Pipe(unsigned, bool) {
        if (pipe(fd) != 0) abort();
    }
    /* Writes below PIPE_BUF are not torn; a read may end within a record and is completed. */
    void put(const Rec *r, size_t n) {
        if (write(fd[1], r, n * sizeof(Rec)) != ssize_t(n * sizeof(Rec))) abort();
    }
    size_t get(Rec *r, size_t n) {
        ssize_t got = read(fd[0], r, n * sizeof(Rec));
        while (got > 0 && size_t(got) % sizeof(Rec))
            got += read(fd[0], reinterpret_cast<char *>(r) + got,
                        sizeof(Rec) - size_t(got) % sizeof(Rec));
        return size_t(got) / sizeof(Rec);
    }
    struct Tx {
        Pipe &q;
        Tx(Pipe &x, unsigned) : q(x) {}
        bool push(const Rec &r) { return q.put(&r, 1), true; }
        size_t push_n(const Rec *r, size_t n) { return q.put(r, n), n; }
        void push_wait(const Rec &r) { q.put(&r, 1); }
    };
    struct Rx {
        Pipe &q;
        explicit Rx(Pipe &x) : q(x) {}
        bool pop(Rec &r) { return q.get(&r, 1) == 1; }
        size_t pop_n(Rec *r, size_t n) { return q.get(r, n); }
        void pop_wait(Rec &r) { q.get(&r, 1); }
    };
};

/* ---- one sample ---- */

enum Mode { SINGLE, BURST, ROUNDTRIP, BLOCKING };

struct Shape {
    Mode mode;
    unsigned producers;
    bool processes;
    bool pinned() const { return producers == 1; }
};

struct Result { /* in shared memory */
    std::atomic<int> ready, go, done;
    double ops_per_s;
    uint64_t sum, want;
};

template <class Q, class Rec> struct Sample {
    Q *q, *back; /* back: the way home of a round trip */
    Shape shape;
    uint64_t n; /* records of each producer */
    Result *result;

    void arrive() {
        result->ready.fetch_add(1);
        while (!result->go.load()) sched_yield();
    }

    template <Mode M> void produce(unsigned p) {
        pin(shape.pinned() ? 0 : -1);
        typename Q::Tx tx(*q, p);
        Rec r;
        Rec burst[32];
        memset(&r, 0, sizeof r);
        memset(burst, 0, sizeof burst);
        Patience patience{shape.producers + 1 > cores.size()};
        arrive();
        if constexpr (M == SINGLE) {
            for (uint64_t i = 0; i < n; i++) {
                r.word[0] = i;
                while (!tx.push(r)) patience.lost();
                patience.won();
            }
        } else if constexpr (M == BLOCKING) {
            for (uint64_t i = 0; i < n; i++) {
                r.word[0] = i;
                tx.push_wait(r);
            }
        } else if constexpr (M == BURST) {
            for (uint64_t i = 0; i < n;) {
                size_t k = n - i < 32 ? size_t(n - i) : 32, at = 0;
                for (size_t j = 0; j < k; j++) burst[j].word[0] = i + j;
                while (at < k) {
                    size_t put = tx.push_n(burst + at, k - at);
                    at += put;
                    if (put == 0) patience.lost();
                }
                i += k;
            }
        } else {
            typename Q::Rx rx(*back);
            for (uint64_t i = 0; i < n; i++) {
                r.word[0] = i;
                while (!tx.push(r)) relax();
                while (!rx.pop(r)) relax();
            }
        }
    }

    template <Mode M> void consume() {
        pin(shape.pinned() ? 1 : -1);
        typename Q::Rx rx(*q);
        uint64_t total = n * shape.producers, warm = total / 8, got = 0, sum = 0;
        double begin = 0;
        Rec r;
        Rec burst[32];
        Patience patience{shape.producers + 1 > cores.size()};
        memset(&r, 0, sizeof r);
        arrive();
        while (got < total) {
            if (got >= warm && begin == 0) begin = now_s(), warm = got;
            uint64_t stop = begin == 0 ? warm : total;
            if constexpr (M == SINGLE) {
                for (; got < stop; got++) {
                    while (!rx.pop(r)) patience.lost();
                    patience.won();
                    sum += r.word[0];
                }
            } else if constexpr (M == BLOCKING) {
                for (; got < stop; got++) {
                    rx.pop_wait(r);
                    sum += r.word[0];
                }
            } else if constexpr (M == BURST) {
                while (got < stop) {
                    size_t k = rx.pop_n(burst, 32);
                    for (size_t j = 0; j < k; j++) sum += burst[j].word[0];
                    got += k;
                    if (k == 0) patience.lost();
                }
            } else {
                typename Q::Tx tx(*back, 0);
                for (; got < stop; got++) {
                    while (!rx.pop(r)) relax();
                    sum += r.word[0];
                    while (!tx.push(r)) relax();
                }
            }
        }
        result->ops_per_s = double(total - warm) / (now_s() - begin);
        result->sum = sum;
        result->want = shape.producers * (n * (n - 1) / 2);
    }

    template <Mode M> void run() {
        struct Start {
            Sample *s;
            unsigned p;
            static void *main(void *arg) {
                Start *me = static_cast<Start *>(arg);
                me->s->template produce<M>(me->p);
                return NULL;
            }
        };
        std::vector<Start> starts(shape.producers);
        std::vector<pthread_t> threads(shape.producers);
        for (unsigned p = 0; p < shape.producers; p++) {
            starts[p] = Start{this, p};
            if (!shape.processes) {
                pthread_create(&threads[p], NULL, Start::main, &starts[p]);
            } else if (fork() == 0) {
                Start::main(&starts[p]);
                _exit(0);
            }
        }
        std::atomic<int> &ready = result->ready;
        struct Opener { /* opens the gate when all have come */
            static void *main(void *arg) {
                Sample *s = static_cast<Sample *>(arg);
                while (s->result->ready.load() < int(s->shape.producers) + 1) usleep(100);
                s->result->go.store(1);
                return NULL;
            }
        };
        (void)ready;
        pthread_t opener;
        pthread_create(&opener, NULL, Opener::main, this);
        consume<M>();
        pthread_join(opener, NULL);
        for (unsigned p = 0; p < shape.producers; p++) {
            if (shape.processes)
                wait(NULL);
            else
                pthread_join(threads[p], NULL);
        }
        result->done.store(1);
    }
};

template <class T> T *shared_new(size_t extra = 0) {
    void *at = mmap(NULL, sizeof(T) + extra, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) abort();
    return static_cast<T *>(at);
}

/* Runs in the child. */
template <template <class> class QT, class Rec, Mode M>
void sample_main(const Shape &shape, uint64_t n, Result *result) {
    typedef QT<Rec> Q;
    Sample<Q, Rec> s;
    s.q = new (shared_new<Q>()) Q(shape.producers, shape.processes);
    s.back = M == ROUNDTRIP ? new (shared_new<Q>()) Q(1, shape.processes) : nullptr;
    s.shape = shape;
    s.n = n;
    s.result = result;
    s.template run<M>();
}

struct Contender {
    std::string name, version, variant;
    bool shareable;
    void (*main)(const Shape &, uint64_t, Result *);
    uint64_t n = 2000; /* records of each producer in the next sample */
    int timeouts = 0;
    bool dead = false; /* did not finish twice */
};

double sample_ms = 40;

/* Records per second, 0 if it did not finish. Adapts the next sample's length. */
double sample(Contender &c, const Shape &shape) {
    static Result *result = shared_new<Result>();
    new (result) Result();
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        c.main(shape, c.n, result);
        _exit(0);
    }
    setpgid(pid, pid);
    double begin = now_s();
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_s() - begin > SAMPLE_TIMEOUT_S) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            c.dead = ++c.timeouts == 2;
            c.n = std::max(c.n / 8, uint64_t(200));
            return 0;
        }
        usleep(300);
    }
    kill(-pid, SIGKILL);
    if (!result->done.load() || result->sum != result->want) {
        fprintf(stderr, "%s: a sample failed (status %d, sum %s)\n", c.name.c_str(), status,
                result->sum == result->want ? "right" : "WRONG");
        exit(1);
    }
    double want = result->ops_per_s * sample_ms * 1e-3 / shape.producers;
    c.n = uint64_t(std::min(std::max(want, 200.0), 2e7));
    return result->ops_per_s;
}

/* ---- scenarios, rounds, lines ---- */

FILE *json_file;
bool is_whole = true; /* all rows, in as many rounds as a table wants */
std::vector<double> trips[2];

/* Every line ends in the keys of the machine. */
void emit(const std::string &line) {
    std::string whole = line.substr(0, line.size() - 1);
    whole += (is_whole ? "" : ",\"quick\":1") + std::string(bench_machine()) + "}";
    puts(whole.c_str());
    fflush(stdout);
    if (json_file) {
        fprintf(json_file, "%s\n", whole.c_str());
        fflush(json_file);
    }
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : v[v.size() / 2];
}

struct Series {
    std::vector<double> ours, theirs, ratio, before, after;
    void add(double o, double t, double before_ns, double after_ns) {
        ours.push_back(o);
        theirs.push_back(t);
        ratio.push_back(o / t);
        before.push_back(before_ns);
        after.push_back(after_ns);
    }
};

void emit_series(const std::string &bench, const Contender &peer, const char *regime,
                 const Series &s) {
    char text[640];
    std::string variant = peer.variant.empty() ? "" : "\"variant\":\"" + peer.variant + "\",";
    double ours = median(s.ours), theirs = median(s.theirs);
    double least = *std::min_element(s.ratio.begin(), s.ratio.end());
    double most = *std::max_element(s.ratio.begin(), s.ratio.end());
    snprintf(text, sizeof text,
             "{\"bench\":\"%s\",\"peer\":\"%s\",%s\"peer_version\":\"%s\",\"regime\":\"%s\","
             "\"unit\":\"op/s\",\"ours\":%.4g,\"theirs\":%.4g,\"ratio\":%.3g,\"ratio_min\":%.3g,"
             "\"ratio_max\":%.3g,\"ours_best\":%.4g,\"theirs_best\":%.4g,\"rounds\":%zu,"
             "\"rtt_before_ns\":%.0f,\"rtt_after_ns\":%.0f}",
             bench.c_str(), peer.name.c_str(), variant.c_str(), peer.version.c_str(), regime, ours,
             theirs, ours / theirs, least, most, *std::max_element(s.ours.begin(), s.ours.end()),
             *std::max_element(s.theirs.begin(), s.theirs.end()), s.ratio.size(), median(s.before),
             median(s.after));
    emit(text);
    fprintf(stderr,
            "  %-22s %-11s %-4s ours %8.2f ns  theirs %8.2f ns  ratio %5.2f [%.2f %.2f] n=%zu\n",
            bench.c_str(), (peer.name + (peer.variant.empty() ? "" : "*")).c_str(), regime,
            1e9 / ours, 1e9 / theirs, ours / theirs, least, most, s.ratio.size());
}

void emit_skipped(const std::string &bench, const std::string &peer, const char *why) {
    emit("{\"bench\":\"" + bench + "\",\"peer\":\"" + peer + "\",\"skipped\":\"" + why + "\"}");
}

int rounds = 7;

struct Scenario {
    std::string name;
    Shape shape;
    Contender ours;
    std::vector<Contender> peers;
    std::vector<std::pair<std::string, std::string>> missing; /* peer, why */
};

/* A pair of samples, ours and a peer's, and what the probe said of it. */
struct Pair {
    size_t peer;
    double ours, theirs, before, after;
};

/* The pairs of one round: ours and each peer in turn. */
std::vector<Pair> take_pairs(Scenario &s, std::vector<Contender> &peers) {
    std::vector<Pair> pairs;
    double before = bench_round_trip_ns();
    for (size_t i = 0; i < peers.size(); i++) {
        if (peers[i].dead) continue;
        double o = sample(s.ours, s.shape), t = sample(peers[i], s.shape);
        double after = bench_round_trip_ns();
        trips[bench_regime(after)].push_back(after);
        pairs.push_back({i, o, t, before, after});
        before = after;
    }
    return pairs;
}

/* Figures by regime: near, far, and those of loaded rounds, which count if there are no others. */
struct Figures {
    std::vector<Series> by[3];
    Series best[3];
    explicit Figures(size_t peers) {
        for (auto &b : by) b.resize(peers);
    }

    static size_t slot(double before, double after, bool loaded) {
        regime what = bench_regime_between(before, after);
        return loaded ? 2 : what <= FAR ? size_t(what) : 3;
    }
    void add(const std::vector<Pair> &pairs, bool loaded) {
        std::vector<double> ours, theirs;
        for (auto &p : pairs) {
            size_t at = slot(p.before, p.after, loaded);
            if (p.theirs > 0 && p.ours > 0 && at < 3)
                by[at][p.peer].add(p.ours, p.theirs, p.before, p.after);
            ours.push_back(p.ours);
            theirs.push_back(p.theirs);
        }
        if (pairs.empty()) return;
        size_t at = slot(pairs.front().before, pairs.back().after, loaded);
        if (at < 3)
            best[at].add(median(ours), *std::max_element(theirs.begin(), theirs.end()),
                         pairs.front().before, pairs.back().after);
    }
    static void emit(const std::string &name, const Contender &peer, const Series *const s[3]) {
        for (size_t r = 0; r < 2; r++)
            if (!s[r]->ratio.empty()) emit_series(name, peer, regime_name[r], *s[r]);
        if (s[0]->ratio.empty() && s[1]->ratio.empty() && !s[2]->ratio.empty())
            emit_series(name, peer, regime_name[LOADED], *s[2]);
    }
};

/* A round in which others used the machine is taken again; as many as there are rounds, at most. */
void run_scenario(Scenario &s) {
    for (auto &m : s.missing) emit_skipped(s.name, m.first, m.second.c_str());
    std::vector<Contender> peers;
    for (auto &p : s.peers) {
        if (s.shape.processes && !p.shareable)
            emit_skipped(s.name, p.name, "holds pointers into one address space");
        else
            peers.push_back(p);
    }
    Figures figures(peers.size());
    sample(s.ours, s.shape);
    for (auto &p : peers) sample(p, s.shape);
    for (int round = 0, good = 0; good < rounds && round < 2 * rounds; round++) {
        double others = bench_others_seconds(), begin = now_s();
        std::vector<std::vector<Pair>> turns;
        do turns.push_back(take_pairs(s, peers));
        while (now_s() - begin < BENCH_ROUND_S && !turns.back().empty());
        others = (bench_others_seconds() - others) / (now_s() - begin);
        for (auto &pairs : turns) figures.add(pairs, others > BENCH_OTHERS_MOST);
        good += others <= BENCH_OTHERS_MOST;
    }
    for (size_t i = 0; i < peers.size(); i++) {
        const Series *of[3] = {&figures.by[0][i], &figures.by[1][i], &figures.by[2][i]};
        if (peers[i].dead)
            emit_skipped(s.name, peers[i].name, "twice did not finish a sample in 4 s");
        else
            Figures::emit(s.name, peers[i], of);
    }
    Contender all;
    all.name = "best";
    const Series *of[3] = {&figures.best[0], &figures.best[1], &figures.best[2]};
    Figures::emit(s.name, all, of);
}

template <template <class> class QT, class Rec, Mode M>
Contender contender(const char *version, const char *variant = "") {
    Contender c;
    c.name = QT<Rec>::name();
    c.version = version;
    c.variant = variant;
    c.shareable = QT<Rec>::shareable;
    c.main = sample_main<QT, Rec, M>;
    return c;
}

#ifdef HAVE_CK
template <class Rec> using CkSpsc = Ck<Rec, false>;
template <class Rec> using CkMpsc = Ck<Rec, true>;
#endif
#ifdef BENCH_DPDK
template <class Rec> using RteSpsc = Rte<Rec, false>;
template <class Rec> using RteMpsc = Rte<Rec, true>;
const std::string RTE_TEXT = std::to_string(RTE_VER_YEAR) + "." + std::to_string(RTE_VER_MONTH);
#endif
#ifndef BENCH_CK_VERSION
#define BENCH_CK_VERSION ""
#endif
#ifndef BENCH_MOODYCAMEL_VERSION
#define BENCH_MOODYCAMEL_VERSION ""
#endif
const char *const NO_CK = "libck-dev is not installed";
const char *const NO_DPDK = "libdpdk-dev is not installed";
const char *const NO_ATOMIC_QUEUE = "libatomic-queue-dev is not installed";
const char *const NO_RIGTORP = "no rigtorp/SPSCQueue.h on the include path; Debian has no package";
const char *const NO_BOOST = "libboost-dev is not installed";
const char *const NO_MOODYCAMEL = "libconcurrentqueue-dev, libreaderwriterqueue-dev not installed";

template <class Rec, Mode M> Scenario spsc(const char *name) {
    Scenario s;
    s.name = name;
    s.shape = Shape{M, 1, false};
    s.ours = contender<Dlp, Rec, M>("");
#ifdef HAVE_CK
    s.peers.push_back(contender<CkSpsc, Rec, M>(BENCH_CK_VERSION));
#else
    s.missing.push_back({"ck_ring", NO_CK});
#endif
#ifdef BENCH_DPDK
    s.peers.push_back(contender<RteSpsc, Rec, M>(RTE_TEXT.c_str()));
#else
    s.missing.push_back({"rte_ring", NO_DPDK});
#endif
#ifdef HAVE_BOOST
    s.peers.push_back(contender<BoostSpsc, Rec, M>(BOOST_LIB_VERSION));
#else
    s.missing.push_back({"boost", NO_BOOST});
#endif
#ifdef HAVE_MOODYCAMEL
    if constexpr (M == BURST)
        s.peers.push_back(contender<MoodyBulk, Rec, M>(BENCH_MOODYCAMEL_VERSION));
    else
        s.peers.push_back(contender<MoodySpsc, Rec, M>(BENCH_MOODYCAMEL_VERSION));
#else
    s.missing.push_back({"moodycamel", NO_MOODYCAMEL});
#endif
#ifdef HAVE_ATOMIC_QUEUE
    s.peers.push_back(contender<AtomicQueue, Rec, M>("", "SPSC"));
#else
    s.missing.push_back({"atomic_queue", NO_ATOMIC_QUEUE});
#endif
#ifdef HAVE_RIGTORP
    s.peers.push_back(contender<Rigtorp, Rec, M>(""));
#else
    s.missing.push_back({"rigtorp", NO_RIGTORP});
#endif
    s.peers.push_back(contender<Mutex, Rec, M>(""));
    s.peers.push_back(contender<Pipe, Rec, M>(""));
    return s;
}

Scenario mpsc(const char *name, unsigned producers) {
    Scenario s;
    s.name = name;
    s.shape = Shape{SINGLE, producers, false};
    s.ours = contender<DlpBundle, Rec8, SINGLE>("");
#ifdef HAVE_CK
    s.peers.push_back(contender<CkMpsc, Rec8, SINGLE>(BENCH_CK_VERSION));
#else
    s.missing.push_back({"ck_ring", NO_CK});
#endif
#ifdef BENCH_DPDK
    s.peers.push_back(
        contender<RteMpsc, Rec8, SINGLE>(RTE_TEXT.c_str(), producers > 1 ? "RTS" : ""));
#else
    s.missing.push_back({"rte_ring", NO_DPDK});
#endif
#ifdef HAVE_BOOST
    s.peers.push_back(contender<BoostQueue, Rec8, SINGLE>(BOOST_LIB_VERSION));
#else
    s.missing.push_back({"boost", NO_BOOST});
#endif
#ifdef HAVE_MOODYCAMEL
    s.peers.push_back(contender<MoodyBulk, Rec8, SINGLE>(BENCH_MOODYCAMEL_VERSION));
#else
    s.missing.push_back({"moodycamel", NO_MOODYCAMEL});
#endif
    s.peers.push_back(contender<Mutex, Rec8, SINGLE>(""));
    s.peers.push_back(contender<Pipe, Rec8, SINGLE>(""));
    return s;
}

Scenario block(const char *name, unsigned producers) {
    Scenario s;
    s.name = name;
    s.shape = Shape{BLOCKING, producers, false};
    s.ours = contender<DlpBundle, Rec8, BLOCKING>("");
#ifdef HAVE_MOODYCAMEL
    s.peers.push_back(contender<MoodyBlocking, Rec8, BLOCKING>(BENCH_MOODYCAMEL_VERSION));
    if (producers == 1)
        s.peers.push_back(contender<MoodyBlockingRing, Rec8, BLOCKING>(
            BENCH_MOODYCAMEL_VERSION, "BlockingReaderWriterCircularBuffer"));
#else
    s.missing.push_back({"moodycamel", NO_MOODYCAMEL});
#endif
    s.peers.push_back(contender<Mutex, Rec8, BLOCKING>(""));
    s.peers.push_back(contender<Pipe, Rec8, BLOCKING>(""));
    return s;
}

std::vector<Scenario> scenarios() {
    std::vector<Scenario> all;
    all.push_back(spsc<Rec8, SINGLE>("spsc_8B_single"));
    all.push_back(spsc<Rec64, SINGLE>("spsc_64B_single"));
    all.push_back(spsc<Rec8, BURST>("spsc_8B_burst32"));
    all.push_back(spsc<Rec64, BURST>("spsc_64B_burst32"));
    all.push_back(spsc<Rec8, ROUNDTRIP>("spsc_8B_roundtrip"));
    all.push_back(mpsc("mpsc_1p", 1));
    all.push_back(mpsc("mpsc_4p", 4));
    all.push_back(block("block_1p", 1));
    all.push_back(block("block_4p", 4));
    all.push_back(block("block_8p", 8));
    size_t n = all.size();
    for (size_t i = 0; i < n; i++) {
        Scenario s = all[i];
        s.name += "_proc";
        s.shape.processes = true;
        all.push_back(s);
    }
    return all;
}

void emit_trips() {
    for (size_t r = 0; r < 2; r++) {
        if (trips[r].empty()) continue;
        char text[256];
        snprintf(text, sizeof text,
                 "{\"bench\":\"line_roundtrip\",\"regime\":\"%s\",\"unit\":\"ns\",\"ours\":%.4g,"
                 "\"rounds\":%zu}",
                 regime_name[r], median(trips[r]), trips[r].size());
        emit(text);
        fprintf(stderr, "  line_roundtrip %s %.0f ns, %zu probes\n", regime_name[r],
                median(trips[r]), trips[r].size());
    }
}

bool wanted(const std::string &name, const std::vector<std::string> &prefixes) {
    for (auto &p : prefixes)
        if (name.compare(0, p.size(), p) == 0) return true;
    return prefixes.empty();
}

} // namespace

int main(int argc, char **argv) {
    std::vector<std::string> prefixes;
    for (int i = 1; i < argc; i++) {
        std::string a = argv[i];
        if (a == "-r" && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (a == "-t" && i + 1 < argc)
            sample_ms = atof(argv[++i]);
        else
            prefixes.push_back(a);
    }
    is_whole = prefixes.empty() && rounds >= 7;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &set)) cores.push_back(c);
    if (cores.size() < 2) {
        fprintf(stderr, "bench_queue: needs two cores\n");
        return 1;
    }
    mkdir("build", 0777);
    mkdir("build/bench", 0777);
    json_file = fopen("build/bench/queue.jsonl", "w");
    for (auto &s : scenarios())
        if (wanted(s.name, prefixes)) run_scenario(s);
    emit_trips();
    return 0;
}
