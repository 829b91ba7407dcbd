// examples/cpp/dlpipe.hpp: exceptions at the border, what moves, what goes back when, typed fields.
// Run by cpp.sh, in several builds. PROCESSES: with worker processes, too.
#include "cpp_rig.h"

#include <atomic>
#include <chrono>
#include <thread>

static_assert(moves_alone<dlpipe::pipe> && moves_alone<dlpipe::batch> &&
              moves_alone<dlpipe::pusher>);
static_assert(dlpipe::dtype<long>::value == DLP_I64 && dlpipe::dtype<char>::value == DLP_I8 &&
              dlpipe::dtype<unsigned long long>::value == DLP_U64 &&
              dlpipe::dtype<bool>::value == DLP_BOOL);
#if __cplusplus >= 202002L
static_assert(std::input_iterator<dlpipe::pipe::iterator>);
static_assert(std::sentinel_for<dlpipe::end_mark, dlpipe::pipe::iterator>);
#endif

enum { ITEMS = 100, BATCH = 8, BATCHES = 13 };

static void write_item(dlpipe::item it) {
    for (float &x : it.field<float>("x")) x = static_cast<float>(it.index());
    it.field<std::int32_t>(1)[0] = static_cast<std::int32_t>(it.index()) * 2;
}

static std::vector<dlpipe::field_desc> fields() {
    return {dlpipe::field<float>("x", {2, 3}), dlpipe::field<std::int32_t>("y")};
}

template <class F> static dlpipe::loader loader_of(F fetch, int workers = 2) {
    dlpipe::loader make(dlpipe::dataset(ITEMS, fields(), std::move(fetch)));
    make.desc.batch_size = BATCH;
    make.desc.num_workers = workers;
    make.desc.shuffle = 1;
    make.desc.seed = 7;
    return make;
}

static bool good(const dlpipe::batch_view &b) {
    auto x = b.field<const float>("x");
    auto y = b.field<std::int32_t>("y");
    bool ok = x.ndim() == 3 && x.shape(0) == static_cast<std::int64_t>(b.count()) &&
              x.all().size() == b.count() * 6 && y.all().size() == b.count();
    for (std::size_t r = 0; ok && r < b.count(); r++) {
        for (float v : x.row(r)) ok &= v == static_cast<float>(b.index()[r]);
        ok &= x.row(r).size() == 6 && y.row(r)[0] == static_cast<std::int32_t>(b.index()[r]) * 2;
    }
    return ok;
}

static std::uint32_t held(const dlpipe::pipe &p) {
    dlp_stats s;
    return dlp_pipe_stats(p.get(), &s) == DLP_OK ? static_cast<std::uint32_t>(s.held) : 99;
}

// ---- batches ----

static void pipe__as_a_range__all_batches() {
    for (int workers = 0; workers < 3; workers++) {
        dlpipe::pipe p = loader_of(write_item, workers).open();
        std::uint64_t n = 0, sum = 0;
        CHECK(p && p.batches_per_epoch() == BATCHES);
        for (dlpipe::batch &b : p) {
            CHECK(good(b) && b.sequence() == n && b.last() == (n == BATCHES - 1));
            CHECK(b.valid_count() == b.count() && b.valid()[0] == 1 && b.in_epoch() == n);
            for (std::uint64_t i : b.index()) sum += i;
            n++;
        }
        CHECK(n == BATCHES && sum == ITEMS * (ITEMS - 1) / 2);
        CHECK(p.code() == DLP_END && p.done() && !p.next() && p.explain().size() > 20);
        p.close();
        p.close();
        CHECK(!p && thrown([&] { p.next(); }).code == DLP_ERR_STATE);
    }
}

static void epochs__asked_for__a_loop_each() {
    dlpipe::loader make = loader_of(write_item);
    make.desc.epochs = 3;
    make.desc.pipe.epoch_end = 1;
    dlpipe::pipe p = make.open();
    std::uint64_t epoch = 0, n = 0;
    for (; !p.done(); epoch++)
        for (dlpipe::batch &b : p) {
            CHECK(b.epoch() == epoch);
            n++;
        }
    CHECK(n == 3 * BATCHES && p.code() == DLP_END && epoch >= 3);
}

static void next__by_codes__does_not_throw() {
    dlpipe::pipe p = loader_of(write_item, 1).open(), none;
    dlpipe::batch b;
    int n = 0;
    while (p.next(b, std::nothrow) == DLP_OK) n += good(b);
    CHECK(n == BATCHES && !b && p.code() == DLP_END);
    CHECK(none.next(b, std::nothrow) == DLP_ERR_STATE && !none && none.get() == nullptr);
    CHECK(thrown([&] { none.state(); }).code == DLP_ERR_STATE);
    dlp_error e;
    dlpipe::loader wrong = loader_of(write_item);
    wrong.desc.batch_size = 0;
    CHECK(!wrong.open(e) && e.code == DLP_ERR_ARG);
    CHECK(thrown([&] { wrong.open(); }).code == DLP_ERR_ARG);
}

static void batch__thrown_over__goes_back() {
    dlpipe::pipe p = loader_of(write_item).open(); // max_held is 1
    for (int round = 0; round < 5; round++) {
        try {
            for (dlpipe::batch &b : p) {
                CHECK(good(b) && held(p) == 1);
                throw round;
            }
        } catch (int) {}
        CHECK(held(p) == 0);
        for (dlpipe::batch &b : p) {
            CHECK(good(b));
            break;
        }
        CHECK(held(p) == 0);
    }
    CHECK(p.next()->sequence() == 10);
}

static void batch__moved__one_owner() {
    dlpipe::loader make = loader_of(write_item);
    make.desc.pipe.max_held = 3;
    dlpipe::pipe p = make.open();
    std::vector<dlpipe::batch> kept;
    for (dlpipe::batch &b : p) {
        kept.push_back(std::move(b));
        if (kept.size() == 3) break;
    }
    CHECK(held(p) == 3 && kept[0].sequence() == 0 && kept[2].sequence() == 2);
    CHECK(thrown([&] { p.next(); }).code == DLP_ERR_HELD);
    kept[0] = std::move(kept[1]); // the first goes back
    CHECK(held(p) == 2 && good(kept[0]) && kept[0].sequence() == 1 && !kept[1]);
    dlpipe::batch &self = kept[0];
    kept[0] = std::move(self);
    CHECK(held(p) == 2 && good(kept[0]));
    kept[0].release();
    kept[0].release();
    CHECK(held(p) == 1);
    p.close(); // the last batch outlives it
    CHECK(good(kept[2]));
    dlpipe::batch last = std::move(kept[2]);
    last.release(); // and with it the pipe: what was moved away knows nothing of it
}

static void pipe__moved__goes_on() {
    dlpipe::pipe a = loader_of(write_item).open(), b;
    std::optional<dlpipe::batch> first = a.next();
    b = std::move(a);
    CHECK(!a && b && good(*first));
    CHECK(thrown([&] { a.next(); }).code == DLP_ERR_STATE);
    CHECK(thrown([&] {
              for (dlpipe::batch &x : a) CHECK(good(x));
          }).code == DLP_ERR_STATE);
    first.reset();
    auto i = b.begin(); // goes on where the pipe is
    CHECK(i != b.end() && i->sequence() == 1);
    dlpipe::pipe c(std::move(b));
    ++i;
    CHECK(i != c.end() && (*i).sequence() == 2 && good(*i));
    c = loader_of(write_item).open(); // the old one is closed, its batch stays
    CHECK(good(*i) && c.next()->sequence() == 0);
}

// ---- what is thrown ----

static void fetch__throws__next_throws() {
    for (int workers = 0; workers < 3; workers++) {
        dlpipe::loader make = loader_of(
            [](dlpipe::item it) {
                write_item(it);
                if (it.position() == 20) throw std::runtime_error("no such picture");
            },
            workers);
        dlpipe::pipe p = make.open();
        std::uint64_t n = 0;
        const dlp_error e = thrown([&] {
            for (dlpipe::batch &b : p) n += good(b);
        });
        CHECK(n == 2 && e.code == DLP_ERR_CALLBACK && says(e, "no such picture"));
        CHECK(e.has_item && e.position == 20 && std::strcmp(e.stage, "fetch") == 0);
        CHECK(thrown([&] { p.next(); }).position == 20); // it stays
        dlpipe::batch b;
        CHECK(p.next(b, std::nothrow) == DLP_ERR_CALLBACK && says(p.error_record(), "picture"));
    }
}

template <class F> static dlp_error first_error(F fetch) {
    dlpipe::pipe p = loader_of(std::move(fetch)).open();
    return thrown([&] { p.next(); });
}

static void fetch__throws_anything__said() {
    dlp_error e = first_error(
        [](dlpipe::item) { throw std::system_error(ENOENT, std::generic_category(), "cat.jpeg"); });
    CHECK(e.errnum == ENOENT && says(e, "cat.jpeg"));
    e = first_error([](dlpipe::item) { throw std::system_error(7, std::iostream_category()); });
    CHECK(e.code == DLP_ERR_CALLBACK && e.errnum == 0);
    e = first_error([](dlpipe::item) { throw 7; });
    CHECK(e.code == DLP_ERR_CALLBACK && says(e, "no std::exception"));
    e = first_error([](dlpipe::item) { throw std::runtime_error("100%s %n %d"); });
    CHECK(says(e, "100%s %n %d"));
    e = first_error([](dlpipe::item) { throw std::runtime_error(std::string(5000, 'w')); });
    CHECK(says(e, "wwwwww"));
    e = first_error([](dlpipe::item it) { return dlp_fail(it.get()->call, 0, "as in C"); });
    CHECK(says(e, "as in C"));
    e = first_error([](dlpipe::item it) { it.field<double>(0); });
    CHECK(says(e, "field \"x\" is float32, not float64"));
    e = first_error([](dlpipe::item it) { it.field<float>("z"); });
    CHECK(says(e, "there is no field \"z\""));
    e = first_error([](dlpipe::item it) { it.set_length(2, 1); });
    CHECK(says(e, "field 2 of 2"));
    e = first_error([](dlpipe::item it) { it.state<int>(); });
    CHECK(says(e, "no state of this type"));
}

static void fetch__throws__policies_hold() {
    std::atomic<int> calls{0};
    dlpipe::loader make = loader_of([&](dlpipe::item it) {
        calls++;
        write_item(it);
        if (it.index() % 10 == 3 && it.attempt() == 0) throw std::bad_alloc();
        if (it.index() == 50) throw std::out_of_range("always");
        return it.index() == 51 ? DLP_SKIP : DLP_OK;
    });
    make.desc.workers.retries = 1;
    make.desc.workers.on_error = DLP_ON_ERROR_DROP;
    dlpipe::pipe p = make.open();
    std::size_t valid = 0, rows = 0;
    for (dlpipe::batch &b : p) {
        for (std::size_t r = 0; r < b.count(); r++)
            CHECK((b.valid()[r] == 0) == (b.index()[r] == 50 || b.index()[r] == 51));
        valid += b.valid_count();
        rows += b.count();
    }
    CHECK(rows == ITEMS && valid == ITEMS - 2 && calls == ITEMS + 11);
}

// A table of the nodes that take callables; one of them throws, at position 20 or batch 2.
static dlpipe::pipe wired(int thrower) {
    dlpipe::table t;
    t.list("items", ITEMS);
    t.fetch("read", fields(), write_item);
    t.map("one", [=](dlpipe::item it) {
        it.field<std::int32_t>(1)[0] += 1;
        if (thrower == 1 && it.position() == 20) throw std::runtime_error("map");
    });
    t.batch("batch", BATCH, [=](dlpipe::collation c) {
        if (thrower == 2 && c.position() == 16) throw std::runtime_error("collate");
        for (std::size_t r = 0; r < c.count(); r++) {
            const dlpipe::span<const float> in = c.in<float>(0, r);
            std::copy(in.begin(), in.end(), c.out<float>(0).begin() + static_cast<int>(r) * 6);
            c.out<std::int32_t>(1)[r] = c.in<std::int32_t>(1, r)[0] + 1;
        }
    });
    t.map("two", [=](dlpipe::batch_view b) {
         if (thrower == 3 && b.sequence() == 2) throw std::runtime_error("map_batch");
         for (std::int32_t &y : b.field<std::int32_t>("y").all()) y -= 2;
     }).workers(2);
    return t.open();
}

static void stages__throw__next_throws() {
    static const char *const words[] = {"", "map", "collate", "map_batch"};
    for (int thrower = 0; thrower < 4; thrower++) {
        dlpipe::pipe p = wired(thrower);
        int n = 0;
        const dlp_error e = thrown([&] {
            for (dlpipe::batch &b : p) n += good(b);
        });
        CHECK(n == (thrower ? 2 : BATCHES));
        CHECK(e.code == (thrower ? DLP_ERR_CALLBACK : 0) && says(e, words[thrower]));
    }
}

// ---- ragged fields ----

static std::vector<dlpipe::field_desc> ragged_fields() {
    return {dlpipe::ragged<std::uint16_t>("words", {7, 2}), dlpipe::field<std::uint8_t>("n")};
}

static dlpipe::loader ragged_loader() {
    dlpipe::loader make(dlpipe::dataset(ITEMS, ragged_fields(), [](dlpipe::item it) {
        const std::uint64_t n = it.index() % 8;
        it.set_length(0, n);
        for (std::uint64_t i = 0; i < 2 * n; i++)
            it.field<std::uint16_t>(0)[i] = static_cast<std::uint16_t>(it.index() * 100 + i);
        it.field<std::uint8_t>(1)[0] = static_cast<std::uint8_t>(it.length(0));
    }));
    make.desc.batch_size = BATCH;
    make.desc.num_workers = 1;
    return make;
}

static void ragged__in_place_padded_packed__rows() {
    for (int how = 0; how < 3; how++) {
        dlpipe::loader make = ragged_loader();
        int n = 0;
        if (how > 0) make.desc.collate = how == 1 ? dlp_collate_pad : dlp_collate_pack;
        dlpipe::pipe p = make.open();
        for (dlpipe::batch &b : p) {
            auto words = b.field<std::uint16_t>("words");
            for (std::size_t r = 0; r < b.count(); r++, n++) {
                const dlpipe::span<std::uint16_t> row = words.row(r);
                CHECK(row.size() == b.index()[r] % 8 * 2);
                CHECK(row.size() == 2u * b.field<std::uint8_t>(1).row(r)[0]);
                for (std::size_t i = 0; i < row.size(); i++)
                    CHECK(row[i] == b.index()[r] * 100 + i);
            }
            CHECK(thrown([&] { words.row(b.count()); }).code == DLP_ERR_ARG);
        }
        CHECK(n == ITEMS);
    }
}

// A collate of the user's, which packs, into fields of its own.
static void collate__other_fields__packed() {
    dlpipe::loader make = ragged_loader();
    make.collate(
        [](dlpipe::collation c) {
            std::int64_t at = 0;
            for (std::size_t r = 0; r < c.count(); r++) {
                const auto row = c.in<std::uint16_t>(0, r);
                c.offsets(0)[r] = static_cast<std::uint64_t>(at);
                for (std::uint16_t w : row) c.out<double>(0)[static_cast<std::size_t>(at++)] = w;
            }
            c.offsets(0)[c.count()] = static_cast<std::uint64_t>(at);
            c.shape(0, {at});
        },
        {dlpipe::ragged<double>("all", {14})});
    dlpipe::pipe p = make.open();
    int n = 0;
    for (dlpipe::batch &b : p) {
        auto all = b.field<double>("all");
        for (std::size_t r = 0; r < b.count(); r++, n++) {
            CHECK(all.row(r).size() == b.index()[r] % 8 * 2);
            if (!all.row(r).empty())
                CHECK(all.row(r)[0] == static_cast<double>(b.index()[r] * 100));
        }
        CHECK(thrown([&] { b.field<float>(0); }).code == DLP_ERR_ARG);
        CHECK(says(thrown([&] { b.field<float>("n"); }), "no field \"n\""));
        CHECK(thrown([&] { b.field<float>(1); }).code == DLP_ERR_ARG);
    }
    CHECK(n == ITEMS);
    make.collate([](dlpipe::collation c) { c.out<float>(7); });
    dlpipe::pipe wrong = make.open();
    CHECK(says(thrown([&] { wrong.next(); }), "field 7 of 2"));
    std::int64_t many = 1;
    dlpipe::field_desc deep = dlpipe::field<float>("deep", {many, 1, 1, 1, 1, 1, 1, 1, 1});
    CHECK(thrown([&] { dlpipe::dataset(1, {deep}, write_item); }).code == DLP_ERR_ARG);
}

// ---- states of the pipe, and of workers ----

static void state__saved__resumes_there() {
    dlpipe::loader make = loader_of(write_item);
    make.desc.pipe.max_held = 2;
    dlpipe::pipe p = make.open();
    for (int i = 0; i < 3; i++) p.next();
    const dlp_state three = p.state();
    std::optional<dlpipe::batch> a = p.next(), b = p.next();
    const dlp_state four = p.state(*a);
    CHECK(thrown([&] { p.state(dlpipe::batch()); }).code == 0); // as NULL: all that was given
    a.reset();
    b.reset();
    p.seek(three);
    CHECK(p.next()->in_epoch() == 3);
    dlpipe::pipe q = make.resume(four).open();
    CHECK(q.next()->in_epoch() == 4);
    dlpipe::loader copy = make;
    copy.desc.seed = 8;
    CHECK(thrown([&] { copy.open(); }).code == DLP_ERR_RESUME);
    CHECK(thrown([&] { p.seek(dlp_state()); }).code == DLP_ERR_CORRUPT);
    q.next_epoch();
    CHECK(!q.next() && q.code() == DLP_END);
    q.stop();
}

static std::atomic<int> alive;
struct decoder {
    explicit decoder(int w) : worker(w) { alive++; }
    decoder(decoder &&other) noexcept : worker(other.worker) { alive++; }
    ~decoder() { alive--; }
    int worker;
};

static void worker_state__of_any_type__made_and_ended() {
    std::atomic<int> made{0};
    for (int workers = 0; workers < 3; workers++) {
        dlpipe::loader make = loader_of(
            [](dlpipe::item it) {
                write_item(it);
                if (it.state<decoder>().worker != static_cast<int>(it.worker()))
                    throw std::logic_error("another worker's");
            },
            workers);
        make.worker_state([&](int worker) {
            made++;
            return decoder(worker);
        });
        dlpipe::pipe p = make.open();
        int n = 0;
        for (dlpipe::batch &b : p) n += good(b);
        p.close();
        CHECK(n == BATCHES && alive == 0);
    }
    CHECK(made >= 3);
    dlpipe::loader wrong = loader_of([](dlpipe::item it) { it.state<int>(); });
    wrong.worker_state([](int worker) { return decoder(worker); });
    CHECK(says(thrown([&] { wrong.open().next(); }), "no state of this type"));
    CHECK(alive == 0);
}

static void worker_state__throws__said() {
    for (int workers = 0; workers < 2; workers++) {
        dlpipe::loader make = loader_of(write_item, workers);
        make.worker_state([](int worker) -> decoder {
            if (worker >= 0) throw std::runtime_error("no decoder of this kind");
            return decoder(worker);
        });
        const dlp_error e = thrown([&] { make.open().next(); });
        CHECK(e.code == DLP_ERR_CALLBACK && says(e, "no decoder of this kind"));
    }
}

// ---- what lives how long ----

static void callables__of_a_closed_pipe__freed() {
    auto token = std::make_shared<int>(5);
    {
        dlpipe::loader make = loader_of([token](dlpipe::item it) { write_item(it); });
        make.collate([token](dlpipe::collation c) { c.out<float>(0)[0] = 1; });
        dlpipe::pipe p = make.open(), q = make.open();
        make = loader_of(write_item);
        CHECK(token.use_count() == 3); // both pipes have them, the loader no longer
        CHECK(p.next().has_value());
        p.close();
        CHECK(q.next().has_value());
    }
    CHECK(token.use_count() == 1);
}

struct only_moves { // a functor
    std::unique_ptr<int> factor = std::make_unique<int>(1);
    void operator()(dlpipe::item it) const {
        write_item(it);
        it.field<float>(0)[0] *= static_cast<float>(*factor);
    }
};

static void functor__that_only_moves__taken() {
    dlpipe::loader make(dlpipe::dataset(ITEMS, fields(), only_moves()));
    make.desc.batch_size = BATCH;
    dlpipe::pipe p = make.open();
    CHECK(good(*p.next()));
    auto lambda = [](dlpipe::item it) { write_item(it); };
    dlpipe::dataset by_name(ITEMS, fields(), lambda);
    by_name.desc().writes_all_bytes = 1;
    CHECK(by_name.desc().n_items == ITEMS);
}

static void close__callback_runs__busy_and_again() {
    std::atomic<bool> go{false}, inside{false};
    dlpipe::loader make = loader_of([&](dlpipe::item it) {
        write_item(it);
        inside = true;
        while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    make.desc.pipe.close_timeout_ms = 20;
    dlpipe::pipe p = make.open();
    CHECK(!p.next(0) && p.code() == DLP_TIMEOUT);
    while (!inside) std::this_thread::yield();
    CHECK(thrown([&] { p.close(); }).code == DLP_ERR_BUSY && p);
    go = true;
    for (int i = 0; i < 500 && p; i++) thrown([&] { p.close(); });
    CHECK(!p);
}

static void tensors__of_a_batch__hold_it() {
    dlpipe::pipe p = loader_of(write_item).open();
    std::optional<dlpipe::batch> b = p.next();
    dlpipe::tensor_ptr x = b->dlpack(0), index = b->dlpack_rows(DLP_ROWS_INDEX);
    const float first = *static_cast<float *>(x->dl_tensor.data);
    CHECK(first == static_cast<float>(*static_cast<std::int64_t *>(index->dl_tensor.data)));
    CHECK(says(thrown([&] { b->dlpack_rows(DLP_ROWS_LENGTHS, 1); }), "\"y\" has no lengths"));
    CHECK(thrown([&] { b->dlpack(2); }).code == DLP_ERR_ARG && good(*b));
    b.reset(); // gives nothing back
    CHECK(thrown([&] { p.next(); }).code == DLP_ERR_HELD);
    x.reset();
    index.reset();
    b = p.next();
    CHECK(b && b->sequence() == 1);
    x = b->dlpack(0);
    p.close();
    b.reset();
    CHECK(x->dl_tensor.ndim == 3); // the pipe goes with it
}

#ifdef PROCESSES
static void processes__throw__next_throws() {
    dlpipe::loader make = loader_of([](dlpipe::item it) {
        write_item(it);
        if (it.position() == 20) throw std::system_error(EIO, std::generic_category(), "disk");
    });
    make.desc.workers.placement = DLP_PLACE_PROCESSES;
    dlpipe::pipe p = make.open();
    int n = 0;
    const dlp_error e = thrown([&] {
        for (dlpipe::batch &b : p) n += good(b);
    });
    CHECK(n == 2 && e.has_item && e.position == 20 && e.errnum == EIO && says(e, "disk"));
}
#endif

int main() {
    pipe__as_a_range__all_batches();
    epochs__asked_for__a_loop_each();
    next__by_codes__does_not_throw();
    batch__thrown_over__goes_back();
    batch__moved__one_owner();
    pipe__moved__goes_on();
    fetch__throws__next_throws();
    fetch__throws_anything__said();
    fetch__throws__policies_hold();
    stages__throw__next_throws();
    ragged__in_place_padded_packed__rows();
    collate__other_fields__packed();
    state__saved__resumes_there();
    worker_state__of_any_type__made_and_ended();
    worker_state__throws__said();
    callables__of_a_closed_pipe__freed();
    functor__that_only_moves__taken();
    close__callback_runs__busy_and_again();
    tensors__of_a_batch__hold_it();
#ifdef PROCESSES
    processes__throw__next_throws();
#endif
    std::printf("cpp: %ld checks, %d failed\n", checks.load(), failures.load());
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
