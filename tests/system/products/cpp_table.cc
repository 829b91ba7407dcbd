// dlpipe::table of examples/cpp/dlpipe.hpp: each verb gives what a plain loop gives; what callables
// throw comes out of next; what is wrong names its node; callables live as long as their pipes.
// Run by cpp.sh, in several builds. PROCESSES: with worker processes, too.
#include "cpp_rig.h"

#include <atomic>
#include <string>
#include <thread>
#include <unistd.h>

enum { ITEMS = 60, BATCH = 8 };

static dlpipe::field_desc x_field() { return dlpipe::field<std::uint32_t>("x", {2}); }
static dlpipe::field_desc y_field() { return dlpipe::field<double>("y"); }

static void write_x(dlpipe::item it) {
    const auto x = it.field<std::uint32_t>("x");
    x[0] = static_cast<std::uint32_t>(it.index());
    x[1] = x[0] + 1;
}
static void write_y(dlpipe::item it) { it.field<double>(0)[0] = double(it.index()) / 2; }

using values = std::vector<std::uint32_t>;

// x[0] of all rows in their order; check looks at each batch.
template <class Check> static values drained(dlpipe::pipe p, Check &&check) {
    values out;
    for (dlpipe::batch &b : p) {
        auto x = b.field<std::uint32_t>("x");
        check(b);
        for (std::size_t r = 0; r < b.count(); r++) out.push_back(x.row(r)[0]);
    }
    CHECK(p.code() == DLP_END);
    return out;
}
static values drained(dlpipe::pipe p) {
    return drained(std::move(p), [](const dlpipe::batch &) {});
}
static values sorted(values v) {
    std::sort(v.begin(), v.end());
    return v;
}

// ---- the verbs ----

static void list_fetch_batch_out__shuffled__each_item_once() {
    values all, two_epochs;
    for (std::uint32_t i = 0; i < ITEMS; i++) all.push_back(i);
    for (int workers = 0; workers < 3; workers++) {
        dlpipe::table t;
        t.desc.seed = 5;
        t.list("items", ITEMS)->list.shuffle = 1;
        t.fetch("read", {x_field()}, write_x).workers(workers);
        t.batch("batch", BATCH).capacity(3);
        t.out("train").from({"batch"});
        const values got = drained(t.open());
        CHECK(got != all && sorted(got) == all);
        if (workers == 0) two_epochs = got;
        CHECK(got == two_epochs);   // whatever the workers
        CHECK(t.plan().slots == 4); // three ahead, and that of the consumer
        CHECK(t.size() == 4 && std::strcmp(t.nodes()[3].from[0], "batch") == 0);
    }
}

// Two fetches, of which a field ends in a map that adds one; a guard, a cache, a map in place.
static void map_guard_cache_transfer__fields_by_name__as_a_loop() {
    dlpipe::table t;
    t.list("items", ITEMS);
    t.fetch("read", {dlpipe::field<std::uint16_t>("raw", {2}), x_field()}, [](dlpipe::item it) {
         for (auto &raw : it.field<std::uint16_t>("raw"))
             raw = static_cast<std::uint16_t>(it.index() + 3);
         write_x(it);
     }).workers(2);
    t.fetch("labels", {y_field()}, write_y);
    t.map(
         "decode",
         [](dlpipe::item it) {
             CHECK(it.get()->n_fields == 4);
             it.field<float>("sum")[0] = it.field<std::uint16_t>("raw")[1] +
                                         static_cast<float>(it.field<std::uint32_t>("x")[1]) +
                                         static_cast<float>(it.field<double>("y")[0]);
         },
         {dlpipe::field<float>("sum")}, "raw")
        .workers(2);
    t.map("more", [](dlpipe::item it) { // without raw, which has ended
        CHECK(it.get()->n_fields == 3 && thrown([&] { it.field<std::uint16_t>("raw"); }).code < 0);
        it.field<float>("sum")[0] += 1;
    });
    t.guard("sound", {{"sum", -1, 1e6}, {"y", 0, 20}})->workers.on_error = DLP_ON_ERROR_DROP;
    t.cache("kept", 1 << 16);
    t.batch("batch", BATCH);
    t.map("last", [](dlpipe::batch_view b) {
        for (float &sum : b.field<float>("sum").all()) sum *= 2;
    });
    t.transfer("device").capacity(2);
    t.desc.epochs = 2;
    std::size_t rows = 0, left = 0;
    drained(t.open(), [&](const dlpipe::batch &b) {
        for (std::size_t r = 0; r < b.count(); r++, rows++) {
            const auto i = static_cast<float>(b.index()[r]);
            left += b.valid()[r] == 0; // y of 41 and on is above 20
            CHECK((b.valid()[r] == 0) == (b.index()[r] > 40));
            if (b.valid()[r] == 0) continue;
            CHECK(b.field<float>("sum").row(r)[0] == 2 * (i + 3 + i + 1 + i / 2 + 1));
            CHECK(b.field<double>("y").row(r)[0] == static_cast<double>(b.index()[r]) / 2);
        }
        CHECK(b.get()->n_fields == 3);
    });
    CHECK(rows == 2 * ITEMS && left == 2 * (ITEMS - 41));
}

static void load_window__items_of_parts__each_once() {
    for (int counted = 0; counted < 2; counted++) {
        std::vector<std::uint64_t> counts;
        values want;
        for (std::uint32_t p = 0; p < 10; p++) {
            counts.push_back(p % 4);
            for (std::uint32_t i = 0; i < p % 4; i++) want.push_back(p * 100 + i);
        }
        dlpipe::table t;
        t.list("parts", 10)->list.shuffle = 1;
        dlpipe::node load = t.load("load", 64, [=](dlpipe::part_view p) {
            const std::uint64_t n = p.index() % 4;
            CHECK(p.room().size() == 64);
            for (std::uint64_t i = 0; i < n; i++)
                p.room()[i] = static_cast<unsigned char>(p.index() * 10 + i);
            if (counted)
                p.set(n);
            else
                p.set(n, n);
        });
        if (counted)
            load->load.items = counts.data();
        else
            load->load.max_items = 4;
        if (!counted) t.window("mixed", 5);
        t.fetch("read", {x_field()}, [](dlpipe::item it) {
            const dlpipe::part_view p = it.part();
            CHECK(p.items() == p.index() % 4 && p.bytes().size() == p.items());
            const auto byte = p.bytes()[p.item()];
            it.field<std::uint32_t>(0)[0] = byte / 10u * 100 + byte % 10;
            CHECK(thrown([&] { p.room(); }).code == DLP_ERR_STATE);
        });
        t.batch("batch", BATCH);
        const values got = drained(t.open());
        CHECK(sorted(got) == want && got != want);
    }
}

static bool odd(dlpipe::item_view it) { return it.field<std::uint32_t>("x")[0] % 2 == 1; }

// Odd inputs i become i % 5 items; of those every third is left out.
static void expand_filter_window__makers_in_a_row__as_a_loop() {
    values want;
    for (std::uint32_t i = 1; i < ITEMS; i += 2)
        for (std::uint32_t k = 0; k < i % 5; k++)
            if ((i * 10 + k) % 3 != 0) want.push_back(i * 10 + k);
    for (int mixed = 0; mixed < 2; mixed++) {
        dlpipe::table t;
        t.list("items", ITEMS);
        t.fetch("read", {x_field()}, write_x).workers(2);
        t.filter("odd", odd, 7);
        t.expand("pieces", 4, {dlpipe::field<std::uint32_t>("x"), y_field()},
                 [](dlpipe::expansion x) {
                     const std::uint32_t i = x.input().field<std::uint32_t>("x")[0];
                     for (std::uint32_t k = 0; k < i % 5; k++) {
                         dlpipe::item made = x.add();
                         made.field<std::uint32_t>("x")[0] = i * 10 + k;
                         made.field<double>("y")[0] = k;
                     }
                 });
        t.filter("some", [](dlpipe::item_view it) {
            CHECK(it.field<double>("y")[0] == it.field<std::uint32_t>("x")[0] % 10);
            return it.field<std::uint32_t>("x")[0] % 3 != 0;
        });
        if (mixed) t.window("mixed", 16);
        t.map("same", [](dlpipe::item it) { it.field<double>("y")[0] += 0.5; });
        t.batch("batch", BATCH);
        const values got = drained(t.open(), [](const dlpipe::batch &b) {
            for (std::size_t r = 0; r < b.count(); r++)
                CHECK(b.field<double>("y").row(r)[0] ==
                      b.field<std::uint32_t>("x").row(r)[0] % 10 + 0.5);
        });
        CHECK(sorted(got) == want && (got == want) == (mixed == 0));
    }
    dlpipe::table same; // the items have the fields of the input, and no fetch is needed
    same.list("items", ITEMS);
    same.expand("ones", 1, {x_field()}, [](dlpipe::expansion x) {
        x.add().field<std::uint32_t>("x")[0] = static_cast<std::uint32_t>(x.input().index());
    });
    same.batch("batch", BATCH);
    CHECK(drained(same.open()).size() == ITEMS);
}

// Items of two branches: one of each in a zip; three of the first, one of the second in a mix.
static void zip_mix__two_branches__fields_of_all_or_of_one() {
    dlpipe::table both;
    both.list("items", ITEMS);
    both.fetch("read", {x_field()}, write_x).workers(2);
    both.list("halves", ITEMS);
    both.fetch("half", {y_field()}, write_y);
    both.map("whole", [](dlpipe::item it) { it.field<double>("y")[0] *= 2; });
    both.zip("both", {"read", "whole"});
    both.filter("odd", odd);
    both.map("same", [](dlpipe::item it) {
        CHECK(it.field<double>("y")[0] == it.field<std::uint32_t>("x")[0]);
    });
    both.batch("batch", BATCH);
    values want, mixed;
    for (std::uint32_t i = 1; i < ITEMS; i += 2) want.push_back(i);
    CHECK(drained(both.open()) == want);

    dlpipe::table one;
    one.list("items", 3 * ITEMS);
    one.fetch("read", {x_field()}, write_x).workers(2);
    one.list("others", ITEMS);
    one.fetch("more", {x_field()}, [](dlpipe::item it) {
        it.field<std::uint32_t>("x")[0] = 1000 + static_cast<std::uint32_t>(it.index());
    });
    one.mix("one", {"read", "more"}, {3, 1});
    one.map("same", [](dlpipe::item it) { CHECK(it.field<std::uint32_t>("x").size() == 2); });
    one.batch("batch", BATCH);
    mixed = drained(one.open());
    CHECK(mixed.size() >= 4 * ITEMS - 4);
    for (std::size_t i = 0; i + 4 <= mixed.size(); i += 4)
        CHECK(std::count_if(mixed.begin() + long(i), mixed.begin() + long(i) + 4,
                            [](std::uint32_t x) { return x >= 1000; }) == 1);
}

// Documents of i % 7 tokens, cut into rows of 5.
static void pack__documents__rows_of_tokens() {
    const dlpipe::field_desc tokens = dlpipe::ragged<std::uint32_t>("x", {7});
    values want;
    for (std::uint32_t i = 0; i < ITEMS; i++)
        for (std::uint32_t k = 0; k < i % 7; k++) want.push_back(i * 10 + k);
    dlp_node_pack d = dlp_node_pack();
    d.tokens = 5;
    d.max_segments = 4;
    dlpipe::table t;
    t.list("documents", ITEMS);
    t.fetch("read", {tokens}, [](dlpipe::item it) {
         it.set_length(0, it.index() % 7);
         for (std::uint32_t k = 0; k < it.length(0); k++)
             it.field<std::uint32_t>(0)[k] = static_cast<std::uint32_t>(it.index()) * 10 + k;
     }).workers(1);
    t.pack("rows", d);
    t.map("look", [](dlpipe::item it) { // sees the fields of a row
        CHECK(it.field<std::uint32_t>("x").size() == 5);
        CHECK(it.field<std::int32_t>("position_ids").size() == 5);
        CHECK(it.field<std::int32_t>("cu_seqlens").size() == 5);
        CHECK(it.field<std::int32_t>("cu_seqlens")[0] == 0);
    });
    t.batch("batch", 4);
    values got;
    for (dlpipe::batch &b : t.open()) {
        auto x = b.field<std::uint32_t>("x");
        for (std::size_t r = 0; r < b.count(); r++)
            for (std::size_t k = 0; k < b.get()->fields[0].lengths[r]; k++)
                got.push_back(x.all()[r * 5 + k]);
    }
    CHECK(got == want);
}

static void push__by_a_thread__in_its_order() {
    dlpipe::table t;
    auto shared =
        std::make_unique<dlpipe::lanes>(std::vector<dlpipe::field_desc>{x_field(), y_field()});
    const dlpipe::lanes to = *shared;
    t.push("items", *shared);
    t.map("more", [](dlpipe::item it) { it.field<std::uint32_t>("x")[1] += 1; });
    t.batch("batch", BATCH);
    dlpipe::pipe p = t.open();
    t = dlpipe::table();
    shared.reset(); // the pipe has the lanes, too
    std::thread by([to] {
        dlpipe::pusher first = to.producer(), mine = std::move(first);
        for (std::uint32_t i = 0; i < ITEMS; i++) {
            const std::uint32_t x[2] = {i, 7};
            const double y = i;
            CHECK(mine.push({x, &y}) == DLP_OK);
        }
        CHECK(thrown([&] { mine.push({&mine}); }).code == DLP_ERR_ARG);
        CHECK(mine.end() == DLP_OK);
        CHECK(thrown([&] { mine.push({nullptr, nullptr}); }).code == DLP_ERR_STATE);
    });
    std::uint32_t n = 0;
    for (const std::uint32_t x : drained(std::move(p), [](const dlpipe::batch &b) {
             CHECK(b.field<std::uint32_t>("x").row(0)[1] == 8);
         }))
        CHECK(x == n++);
    by.join();
    CHECK(n == ITEMS);
    {
        dlpipe::pipe stopped;
        {
            const dlpipe::lanes lanes({x_field()});
            dlpipe::table of_lanes;
            of_lanes.push("items", lanes);
            of_lanes.batch("batch", BATCH);
            stopped = of_lanes.open();
            lanes.stop();
        }
        CHECK(!stopped.next() && stopped.code() == DLP_END);
    }
    CHECK(thrown([] { dlpipe::lanes none({}); }).code == DLP_ERR_ARG);
}

// Items of four rows each are cut into batches of six.
static void split__chunks__views() {
    dlp_node_split d = dlp_node_split();
    d.chunk_rows = 4;
    d.batch_size = 6;
    dlpipe::table t;
    t.list("chunks", 9);
    t.fetch("read", {dlpipe::field<std::uint32_t>("x", {4})}, [](dlpipe::item it) {
        for (std::uint32_t r = 0; r < 4; r++)
            it.field<std::uint32_t>(0)[r] = static_cast<std::uint32_t>(it.index()) * 4 + r;
    });
    t.batch("chunk", 1);
    t.split("batch", d);
    std::uint32_t n = 0;
    for (dlpipe::batch &b : t.open()) {
        CHECK(b.count() == 6);
        for (const std::uint32_t x : b.field<std::uint32_t>("x").all()) CHECK(x == n++);
    }
    CHECK(n == 36);
}

// A mix of two datasets: each has a fetch of its own, and the map sees x once.
static void fetch__of_a_mix__each_dataset() {
    const std::uint64_t n[] = {30, 10};
    dlp_mix_desc d = dlp_mix_desc();
    dlp_mix *mix = nullptr;
    dlp_error e;
    d.n = 2;
    d.n_items = n;
    d.weights = n;
    CHECK(dlp_mix_open(&mix, &d, &e) == DLP_OK);
    {
        dlpipe::table t;
        t.list("items")->list.mix = mix;
        t.fetch("one", {x_field()}, write_x, 1);
        t.fetch(
            "two", {x_field()},
            [](dlpipe::item it) {
                write_x(it);
                it.field<std::uint32_t>(0)[0] += 1000;
            },
            2);
        t.fetch("labels", {y_field()}, write_y);
        t.map("look", [](dlpipe::item it) {
            CHECK(it.get()->n_fields == 2 && it.field<double>("y")[0] >= 0);
        });
        t.batch("batch", BATCH);
        const values got = sorted(drained(t.open()));
        CHECK(got.size() == 40 && got[29] == 29 && got[30] == 1000 && got[39] == 1009);
    }
    dlp_mix_close(mix);
}

static int write_in_c(void *, dlp_item *it) {
    *static_cast<std::uint32_t *>(it->data[0]) = static_cast<std::uint32_t>(it->index) + 5;
    return 0;
}

static void fetch__a_source__its_items() {
    dlp_field f = dlp_field();
    dlp_dataset ds = dlp_dataset();
    dlp_source source = dlp_source();
    f.name = "x";
    f.dtype = DLP_U32;
    ds.n_items = 20;
    ds.fields = &f;
    ds.n_fields = 1;
    ds.fetch = write_in_c;
    source.dataset = &ds;
    dlpipe::table t;
    t.list("items");
    t.fetch("read", &source);
    t.map("more", [](dlpipe::item it) { it.field<std::uint32_t>("x")[0] += 1; });
    t.batch("batch", BATCH);
    const values got = drained(t.open());
    CHECK(got.size() == 20 && got[0] == 6 && got[19] == 25);
}

// ---- what is thrown ----

static dlpipe::table table_of(int thrower) {
    dlpipe::table t;
    t.list("items", ITEMS);
    t.fetch("read", {x_field()}, write_x).workers(1);
    t.filter("good", [=](dlpipe::item_view it) {
        if (thrower == 0 && it.index() == 20) throw std::runtime_error("no such filter");
        return true;
    });
    t.expand("twice", 2, {}, [=](dlpipe::expansion x) { // the fields of the input
        if (thrower == 1 && x.input().index() == 20) throw std::runtime_error("no such expand");
        for (int k = 0; k < (thrower == 2 && x.input().index() == 20 ? 3 : 2); k++)
            x.add().field<std::uint32_t>("x")[0] = x.input().field<std::uint32_t>("x")[0];
    });
    t.batch("batch", BATCH);
    return t;
}

static void makers__throw__next_throws() {
    static const char *const words[] = {"no such filter", "no such expand", "max_out"};
    for (int thrower = 0; thrower < 4; thrower++) {
        dlpipe::pipe p = table_of(thrower).open();
        std::size_t n = 0;
        const dlp_error e = thrown([&] {
            for (dlpipe::batch &b : p) n += b.count();
        });
        CHECK(n == (thrower < 3 ? 40 : 2 * ITEMS));
        if (thrower == 3) continue;
        CHECK(e.code == (thrower == 2 ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK));
        CHECK(says(e, words[thrower]));
        CHECK(std::strcmp(e.stage, thrower == 0 ? "good" : "twice") == 0);
        CHECK(thrown([&] { p.next(); }).code == e.code); // it stays
    }
}

static void load__throws__next_throws() {
    dlpipe::table t;
    t.list("parts", 5);
    t.load("load", 64, [](dlpipe::part_view p) {
         if (p.index() == 2) throw std::system_error(ENOENT, std::generic_category(), "a shard");
         p.set(1, 3);
     })->load.max_items = 3;
    t.fetch("read", {x_field()}, write_x);
    t.batch("batch", 6);
    dlpipe::pipe p = t.open();
    CHECK(p.next().has_value());
    const dlp_error e = thrown([&] { p.next(); });
    CHECK(e.errnum == ENOENT && says(e, "a shard") && std::strcmp(e.stage, "load") == 0);
}

// ---- what is wrong ----

static void table__wrong__names_the_node() {
    dlpipe::table t = table_of(3), no_batch, twice = table_of(3);
    dlp_error e = dlp_error();
    no_batch.list("items", 3);
    no_batch.fetch("read", {x_field()}, write_x);
    CHECK(!no_batch.open(e) && e.code == DLP_ERR_GRAPH);
    CHECK(thrown([&] { no_batch.open(); }).code == DLP_ERR_GRAPH);
    CHECK(thrown([&] { no_batch.plan(); }).code == DLP_ERR_GRAPH);
    twice.batch("again", BATCH);
    CHECK(thrown([&] { twice.open(); }).code == DLP_ERR_GRAPH);
    t.add("batch", DLP_OUT);
    e = thrown([&] { t.open(); });
    CHECK(e.code == DLP_ERR_ARG && std::strcmp(e.stage, "batch") == 0 && says(e, "rename"));
    dlpipe::table deep;
    std::int64_t n = 1;
    CHECK(thrown([&] {
              deep.fetch("read", {dlpipe::field<float>("x", {n, 1, 1, 1, 1, 1, 1, 1, 1})}, write_x);
          }).code == DLP_ERR_ARG);
}

static void plan__of_a_table__as_of_its_pipe() {
    dlpipe::table t = table_of(3);
    dlpipe::pipe p = t.open();
    dlp_plan of_pipe;
    CHECK(dlp_pipe_plan(p.get(), &of_pipe) == DLP_OK);
    CHECK(t.plan().total_bytes == of_pipe.total_bytes && of_pipe.total_bytes > 0);
}

// ---- what lives how long ----

static void callables__of_a_table__live_as_long_as_a_pipe() {
    auto token = std::make_shared<int>(0);
    dlpipe::pipe p;
    {
        dlpipe::table t;
        t.list("items", ITEMS);
        t.fetch("read", {x_field()}, [token](dlpipe::item it) { write_x(it); }).workers(1);
        t.filter("good", [token](dlpipe::item_view) { return true; });
        t.batch("batch", BATCH);
        dlpipe::table copy = t;
        CHECK(token.use_count() == 3); // shared
        p = t.open();
        dlpipe::pipe q = copy.open();
        t = dlpipe::table();
        CHECK(drained(std::move(q)).size() == ITEMS && token.use_count() == 3);
    }
    CHECK(token.use_count() == 3);
    CHECK(p.next().has_value());
    p = dlpipe::pipe();
    CHECK(token.use_count() == 1);
}

static std::atomic<int> alive;
struct counter {
    counter() { alive++; }
    counter(counter &&) noexcept { alive++; }
    ~counter() { alive--; }
    int n = 0;
};

static void worker_state__of_two_nodes__each_its_own() {
    dlpipe::table t;
    t.list("items", ITEMS);
    t.fetch("read", {x_field()},
            [](dlpipe::item it) {
                write_x(it);
                it.field<std::uint32_t>("x")[1] =
                    static_cast<std::uint32_t>(++it.state<counter>().n);
            })
        .workers(1)
        .worker_state([](int) { return counter(); });
    t.map("more", [](dlpipe::item it) { CHECK(it.state<int>() == 100); })
        .workers(2)
        .worker_state([](int) { return 100; });
    t.batch("batch", BATCH);
    std::uint32_t n = 0;
    drained(t.open(), [&](const dlpipe::batch &b) {
        for (std::size_t r = 0; r < b.count(); r++)
            CHECK(b.field<std::uint32_t>("x").row(r)[1] == ++n);
    });
    CHECK(n == ITEMS && alive == 0);
    t.map("wrong", [](dlpipe::batch_view) {}).workers(1).worker_state([](int w) -> int {
        throw std::runtime_error("no state " + std::to_string(w));
    });
    CHECK(says(thrown([&] { t.open().next(); }), "no state 0"));
}

static void state__of_a_table__goes_on_there() {
    dlpipe::table t = table_of(3);
    dlpipe::pipe p = t.open();
    for (int i = 0; i < 4; i++) p.next();
    const dlp_state four = p.state();
    const std::optional<dlpipe::batch> fifth = p.next(), same = t.resume(four).open().next();
    CHECK(fifth->index()[0] == same->index()[0] && fifth->in_epoch() == same->in_epoch());
}

#ifdef PROCESSES
static void processes__of_a_table__as_threads() {
    dlpipe::table t = table_of(3);
    const values threads = drained(t.open());
    dlpipe::table by;
    by.list("items", ITEMS);
    const pid_t here = getpid();
    by.fetch("read", {x_field()}, [=](dlpipe::item it) {
          if (getpid() == here) throw std::logic_error("in this process");
          write_x(it);
      }).workers(2, DLP_PLACE_PROCESSES);
    by.filter("good", [](dlpipe::item_view) { return true; });
    by.expand("twice", 2, {}, [](dlpipe::expansion x) {
        for (int k = 0; k < 2; k++)
            x.add().field<std::uint32_t>("x")[0] = x.input().field<std::uint32_t>("x")[0];
    });
    by.batch("batch", BATCH);
    CHECK(drained(by.open()) == threads && threads.size() == 2 * ITEMS);
}
#endif

int main() {
    list_fetch_batch_out__shuffled__each_item_once();
    map_guard_cache_transfer__fields_by_name__as_a_loop();
    load_window__items_of_parts__each_once();
    expand_filter_window__makers_in_a_row__as_a_loop();
    zip_mix__two_branches__fields_of_all_or_of_one();
    pack__documents__rows_of_tokens();
    push__by_a_thread__in_its_order();
    split__chunks__views();
    fetch__of_a_mix__each_dataset();
    fetch__a_source__its_items();
    makers__throw__next_throws();
    load__throws__next_throws();
    table__wrong__names_the_node();
    plan__of_a_table__as_of_its_pipe();
    callables__of_a_table__live_as_long_as_a_pipe();
    worker_state__of_two_nodes__each_its_own();
    state__of_a_table__goes_on_there();
#ifdef PROCESSES
    processes__of_a_table__as_threads();
#endif
    std::printf("cpp_table: %ld checks, %d failed\n", checks.load(), failures.load());
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
