// dlpipe.hpp - dlpipe.h for C++17 and later: one file, no dependencies - MIT licence
//
// Copy it beside dlpipe.h, which must have all its kinds of stages. The implementation stays in a C
// file (examples/vendor/dlpipe.c):
//     #define DLPIPE_IMPLEMENTATION
//     #include "dlpipe.h"
//
// A pipe is written down as a table of nodes (>>graph in dlpipe.h). Each verb is a function that
// adds a node. A pipe is a range of batches:
//
//     dlpipe::table t;
//     t.list("items", 1000)->list.shuffle = 1;
//     t.fetch("read", {dlpipe::field<float>("x", {3})}, [](dlpipe::item it) {
//         for (float &x : it.field<float>(0)) x = float(it.index());
//     }).workers(4);
//     t.batch("batch", 64);
//     dlpipe::pipe pipe = t.open();
//     for (dlpipe::batch &b : pipe) step(b.field<float>("x").all());
//
// * A node's arrow is its dlp_node, with all fields of C: t.list("items")->list.n_items = 9. What a
//   pointer that is set so points to is borrowed as in C. t.desc is the dlp_pipe_desc.
// * A loader opens a pipe by a dlp_loader_desc: dlpipe::loader make(dlpipe::dataset(...)).
// * Callables (fetch, load, expand, collate, maps, worker states) return void, or an int as in C:
//   DLP_SKIP, DLP_END. A filter returns a bool. They are called by many workers at once. An
//   exception that leaves one ends there: it becomes dlp_fail() with its what(), goes through the
//   stage's policy (retries, on_error), and comes out of next(), or of the loop, as a
//   dlpipe::error that says which item it was. No exception crosses C code. A C function that is
//   set in a desc by hand must not throw.
// * The pipe keeps its callables alive until it is closed. If close gives up on one that still
//   runs (DLP_ERR_BUSY), the destructor leaves all of it in memory rather than free it under a
//   running thread.
// * pipe, batch and pusher move and do not copy. A table copies: the copies share their callables.
//   A batch goes back when its object ends, also when that is after the pipe, or by an exception.
//   A pipe is one thread's at a time, with its batches; stop() may be called by any.
// * Who wants codes: open(err), next(b, std::nothrow), close(std::nothrow).
// * With -fno-exceptions these calls are the same. A callable fails by what it returns, best
//   dlp_fail(item.get()->call, ...). What would throw writes the error to stderr and calls
//   std::abort; a loop over a pipe does so too. For other codes there is get() and the calls of C.
// * Worker processes (dlpipe_shm.h) work as in C, since they are forks; not those that begin by
//   exec, which find their callbacks by name.
#ifndef DLPIPE_HPP
#define DLPIPE_HPP
#if __cplusplus < 201703L
#error dlpipe.hpp is C++17: compile with -std=c++17 or later, or use dlpipe.h
#else

#include "dlpipe.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#if __cplusplus >= 202002L
#include <span>
#endif
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace dlpipe {

// ---- errors ----

namespace detail {

inline std::string words(const dlp_error &record) {
    char line[1024];
    dlp_error_format(&record, line, sizeof line);
    return line;
}

inline dlp_error make_error(int code, std::string_view field, std::string_view message) {
    dlp_error e = dlp_error();
    e.code = code;
    e.worker = -1;
    field.copy(e.field, sizeof e.field - 1);
    message.copy(e.message, sizeof e.message - 1);
    return e;
}

} // namespace detail

// What went wrong: what() is the line of dlp_error_format, record() has stage, worker, item, errno
// and the words of the callback.
class error : public std::runtime_error {
  public:
    explicit error(const dlp_error &record)
        : std::runtime_error(detail::words(record)), record_(record) {}
    error(int code, std::string_view message, std::string_view field = {})
        : error(detail::make_error(code, field, message)) {}
    int code() const noexcept { return record_.code; }
    const dlp_error &record() const noexcept { return record_; }

  private:
    dlp_error record_;
};

namespace detail {

// Throw an error, made of these arguments; without exceptions, say it and abort.
template <class... Args> [[noreturn]] void raise(Args &&...args) {
    error e(std::forward<Args>(args)...);
#ifdef __cpp_exceptions
    throw e;
#else
    std::fprintf(stderr, "dlpipe: %s\n", e.what());
    std::abort();
#endif
}

} // namespace detail

// ---- types of elements ----

// The dtype of a C++ type. For types of your own (half, bfloat16) say it so:
//     template <> struct dlpipe::dtype<half> { static constexpr dlp_dtype value = DLP_F16; };
template <class T, class = void> struct dtype;
template <> struct dtype<float> { static constexpr dlp_dtype value = DLP_F32; };
template <> struct dtype<double> { static constexpr dlp_dtype value = DLP_F64; };
template <> struct dtype<bool> { static constexpr dlp_dtype value = DLP_BOOL; };
template <class T> struct dtype<T, std::enable_if_t<std::is_integral_v<T>>> {
    static constexpr dlp_dtype value = DLP_DTYPE(std::is_signed_v<T> ? 0 : 1, 8 * sizeof(T));
};

inline std::string dtype_name(dlp_dtype d) {
    static const char *const kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex"};
    const std::uint32_t code = d >> 16;
    if (d == DLP_BOOL) return "bool";
    return (code < 6 ? kinds[code] : "code " + std::to_string(code) + " of ") +
           std::to_string(d & 0xffff);
}

// Elements that lie one after the other: std::span, or what C++17 needs of it.
#if __cplusplus >= 202002L
template <class T> using span = std::span<T>;
#else
template <class T> class span {
  public:
    using value_type = std::remove_cv_t<T>;
    using element_type = T;
    using iterator = T *;
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const {
        assert(i < size_);
        return data_[i];
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

// ---- fields ----

struct field_desc {
    std::string name;
    dlp_dtype type = 0;
    std::vector<std::int64_t> shape;
    bool is_ragged = false;
    std::int64_t max_per_batch = 0;
};

// A field of fixed size: {} is a scalar.
template <class T>
field_desc field(std::string name, std::initializer_list<std::int64_t> shape = {}) {
    return {std::move(name), dtype<T>::value, shape, false, 0};
}

// A ragged field: shape[0] is the most rows that an item may have.
template <class T>
field_desc ragged(std::string name, std::initializer_list<std::int64_t> shape,
                  std::int64_t max_per_batch = 0) {
    return {std::move(name), dtype<T>::value, shape, true, max_per_batch};
}

namespace detail {

// The fields of a dataset, or of a collate, as C wants them.
class schema {
  public:
    explicit schema(std::vector<field_desc> fields) : descs_(std::move(fields)) {
        for (const field_desc &d : descs_) add(d);
    }
    schema(const schema &) = delete; // its records point to its names
    schema &operator=(const schema &) = delete;

    const dlp_field *data() const noexcept { return fields_.data(); }
    std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(fields_.size()); }
    std::size_t elements(std::size_t f) const { return elements_[f]; }

    std::size_t find(std::string_view name) const {
        for (std::size_t f = 0; f < descs_.size(); f++)
            if (descs_[f].name == name) return f;
        detail::raise(DLP_ERR_ARG, "there is no field \"" + std::string(name) + "\"", name);
    }

  private:
    void add(const field_desc &d) {
        dlp_field f = dlp_field();
        std::size_t n = 1;
        if (d.shape.size() >= DLP_MAX_DIMS)
            detail::raise(DLP_ERR_ARG, "field \"" + d.name + "\" has too many dimensions", d.name);
        f.name = d.name.c_str();
        f.dtype = d.type;
        f.ragged = d.is_ragged;
        f.max_per_batch = d.max_per_batch;
        for (std::int64_t extent : d.shape) {
            f.shape[f.ndim++] = extent;
            n *= extent > 0 ? static_cast<std::size_t>(extent) : 0;
        }
        fields_.push_back(f);
        elements_.push_back(n);
    }

    std::vector<field_desc> descs_;
    std::vector<dlp_field> fields_;
    std::vector<std::size_t> elements_;
};

template <class T> void check_type(dlp_dtype has, const char *name) {
    if (has == dtype<std::remove_cv_t<T>>::value) return;
    detail::raise(DLP_ERR_ARG,
                  std::string("field \"") + name + "\" is " + dtype_name(has) + ", not " +
                      dtype_name(dtype<std::remove_cv_t<T>>::value),
                  name);
}

inline void check_number(std::size_t f, std::size_t n) {
    if (f < n) return;
    detail::raise(DLP_ERR_ARG, "field " + std::to_string(f) + " of " + std::to_string(n), "field");
}

inline std::size_t product(const std::int64_t *shape, int from, int to) {
    std::size_t n = 1;
    for (int i = from; i < to; i++) n *= static_cast<std::size_t>(shape[i]);
    return n;
}

// ---- the border: nothing that is thrown passes it ----

template <class F, class... Args> int result(F &f, Args &&...args) {
    if constexpr (std::is_void_v<std::invoke_result_t<F &, Args...>>) {
        f(std::forward<Args>(args)...);
        return DLP_OK;
    } else {
        return f(std::forward<Args>(args)...);
    }
}

inline int errnum_of(const std::error_code &code) noexcept {
    const bool of_errno =
        code.category() == std::generic_category() || code.category() == std::system_category();
    return of_errno ? code.value() : 0;
}

#ifdef __cpp_exceptions
template <class Body> int guarded(dlp_call *call, Body &&body) noexcept {
    try {
        return body();
    } catch (const error &e) {
        const int rc = dlp_fail(call, e.record().errnum, "%s", e.record().message);
        return e.code() == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : rc;
    } catch (const std::system_error &e) {
        return dlp_fail(call, errnum_of(e.code()), "%s", e.what());
    } catch (const std::exception &e) { return dlp_fail(call, 0, "%s", e.what()); } catch (...) {
        return dlp_fail(call, 0, "an exception that is no std::exception");
    }
}
#else
template <class Body> int guarded(dlp_call *, Body &&body) noexcept { return body(); }
#endif

// ---- the state of a worker: an object of any type, made in the worker, ended there ----

template <class S> struct type_tag { static constexpr char at = 0; };

struct any_state {
    const void *type;
};

template <class S> struct state_of : any_state {
    explicit state_of(S &&s) : any_state{&type_tag<S>::at}, value(std::move(s)) {}
    S value;
};

template <class S> S &state_in(void *state) {
    any_state *s = static_cast<any_state *>(state);
    if (s == nullptr || s->type != &type_tag<S>::at)
        detail::raise(DLP_ERR_STATE, "the worker has no state of this type");
    return static_cast<state_of<S> *>(s)->value;
}

// Why worker states could not be made: C has no words for that. The first one stays.
class note {
  public:
    void say(const char *text) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (text_[0] == 0) std::string_view(text).copy(text_, sizeof text_ - 1);
    }
    void clear() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::memset(text_, 0, sizeof text_);
    }
    void add_to(dlp_error &e) const noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (e.code != DLP_ERR_CALLBACK || e.has_item || text_[0] == 0) return;
        std::string_view(text_, sizeof text_).copy(e.message, sizeof e.message - 1);
    }

  private:
    mutable std::mutex mutex_;
    char text_[256] = {};
};

template <class F> struct worker_thing {
    using state = state_of<std::decay_t<std::invoke_result_t<F &, int>>>;
    F make;
    std::shared_ptr<note> why;

    static int begin(void *user, int worker, void **out) noexcept {
        worker_thing *t = static_cast<worker_thing *>(user);
#ifdef __cpp_exceptions
        try {
            *out = static_cast<any_state *>(new state(t->make(worker)));
            return 0;
        } catch (const std::exception &e) { t->why->say(e.what()); } catch (...) {
            t->why->say("an exception that is no std::exception");
        }
        return DLP_ERR_CALLBACK;
#else
        *out = static_cast<any_state *>(new state(t->make(worker)));
        return 0;
#endif
    }

    static void end(void *, int, void *s) noexcept {
        delete static_cast<state *>(static_cast<any_state *>(s));
    }
};

using things = std::vector<std::shared_ptr<void>>;

} // namespace detail

// ---- items ----

class part_view;

// An item that may be read: the input of expand, and what filter sees. Valid during the call only.
class item_view {
  public:
    item_view(const dlp_item *i, const detail::schema *fields) noexcept : i_(i), s_(fields) {}
    std::uint64_t index() const noexcept { return i_->index; }
    std::uint64_t epoch() const noexcept { return i_->epoch; }
    std::uint64_t position() const noexcept { return i_->position; }
    std::uint32_t attempt() const noexcept { return i_->attempt; }
    std::uint32_t worker() const noexcept { return i_->worker; }
    // A number for augmenting it, the same whichever worker runs it; salt tells draws apart.
    std::uint64_t random(std::uint64_t salt) const noexcept { return dlp_item_random(i_, salt); }
    part_view part() const; // after load: the part that has this item

    // Where a field of it is: all elements; of a ragged one as many as there may be.
    template <class T> span<const T> field(std::size_t f) const { return at<const T>(f); }
    template <class T> span<const T> field(std::string_view name) const {
        return field<T>(s_->find(name));
    }
    // Rows of a ragged field.
    std::uint64_t length(std::size_t f) const {
        detail::check_number(f, s_->size());
        return i_->length[f];
    }
    // What worker_state made for this worker.
    template <class S> S &state() const { return detail::state_in<S>(i_->worker_state); }
    const dlp_item *get() const noexcept { return i_; }

  protected:
    template <class T> span<T> at(std::size_t f) const {
        detail::check_number(f, s_->size());
        detail::check_type<T>(s_->data()[f].dtype, s_->data()[f].name);
        return {static_cast<T *>(i_->data[f]), s_->elements(f)};
    }

    const dlp_item *i_;
    const detail::schema *s_;
};

// An item that fetch is to write, a map to change, or expand to make.
class item : public item_view {
  public:
    item(dlp_item *i, const detail::schema *fields) noexcept : item_view(i, fields), own_(i) {}
    template <class T> span<T> field(std::size_t f) const { return at<T>(f); }
    template <class T> span<T> field(std::string_view name) const {
        return field<T>(s_->find(name));
    }
    // Rows of a ragged field: to be set by fetch.
    void set_length(std::size_t f, std::uint64_t rows) const {
        detail::check_number(f, s_->size());
        own_->length[f] = rows;
    }
    dlp_item *get() const noexcept { return own_; }

  private:
    dlp_item *own_;
};

// What expand sees: an input, of which it makes items. Valid during the call only.
class expansion {
  public:
    expansion(dlp_expand *x, const detail::schema *input, const detail::schema *made) noexcept
        : x_(x), input_(input), made_(made) {}
    item_view input() const noexcept { return {x_->item, input_}; }
    // The next item, zeros, to be written before the next call. Throws after max_out items.
    item add() const {
        dlp_item *i = dlp_expand_add(x_);
        if (i == nullptr) detail::raise(DLP_ERR_LENGTH, "an input makes more than max_out items");
        return {i, made_};
    }
    dlp_expand *get() const noexcept { return x_; }

  private:
    dlp_expand *x_;
    const detail::schema *input_, *made_;
};

// A part that load is to write; in fetch, the part that has the item. Valid during the call only.
class part_view {
  public:
    explicit part_view(dlp_part *p) noexcept : p_(p), c_(p) {}
    explicit part_view(const dlp_part *p) noexcept : c_(p) {}
    std::uint64_t index() const noexcept { return c_->index; }
    std::uint64_t item() const noexcept { return c_->item; } // in fetch: the item's number in it
    std::uint32_t worker() const noexcept { return c_->worker; }
    // In load: all the room that there is, and what of it is used. items: of unknown count.
    span<unsigned char> room() const {
        return {static_cast<unsigned char *>(own().data), std::size_t(c_->capacity)};
    }
    void set(std::uint64_t bytes) const { own().bytes = bytes; }
    void set(std::uint64_t bytes, std::uint64_t items) const {
        own().bytes = bytes;
        own().items = items;
    }
    std::uint64_t items() const noexcept { return c_->items; }
    // In fetch: what load has written.
    span<const unsigned char> bytes() const noexcept {
        return {static_cast<const unsigned char *>(c_->data), std::size_t(c_->bytes)};
    }
    template <class S> S &state() const { return detail::state_in<S>(c_->worker_state); }
    const dlp_part *get() const noexcept { return c_; }

  private:
    dlp_part &own() const {
        if (p_ == nullptr) detail::raise(DLP_ERR_STATE, "a part is written in load alone");
        return *p_;
    }
    dlp_part *p_ = nullptr;
    const dlp_part *c_;
};

inline part_view item_view::part() const {
    if (i_->part == nullptr) detail::raise(DLP_ERR_STATE, "the item is of no part");
    return part_view(i_->part);
}

// ---- batches ----

// A field of a batch, in host memory (after a transfer to a device only get() and DLPack say more).
template <class T> class tensor {
  public:
    tensor(const dlp_tensor *t, std::size_t count) noexcept : t_(t), count_(count) {}
    const char *name() const noexcept { return t_->name; }
    int ndim() const noexcept { return t_->ndim; }
    std::int64_t shape(int i) const noexcept { return t_->shape[i]; }
    T *data() const noexcept {
        return reinterpret_cast<T *>(static_cast<char *>(t_->data) + t_->byte_offset);
    }
    // All of it, rows one after the other, padding too.
    span<T> all() const noexcept { return {data(), detail::product(t_->shape, 0, t_->ndim)}; }
    // Row r: of a ragged or packed field what the item has, without padding.
    span<T> row(std::size_t r) const {
        if (r >= count_ || (t_->offsets == nullptr && !has_rows()))
            detail::raise(DLP_ERR_ARG, "there is no row " + std::to_string(r), t_->name);
        const std::size_t inner = detail::product(t_->shape, 1, t_->ndim);
        if (t_->offsets != nullptr) {
            const std::size_t from = static_cast<std::size_t>(t_->offsets[r]);
            const std::size_t to = static_cast<std::size_t>(t_->offsets[r + 1]);
            return {data() + from * inner, (to - from) * inner};
        }
        if (t_->lengths == nullptr) return {data() + r * inner, inner};
        return {data() + r * inner,
                static_cast<std::size_t>(t_->lengths[r]) * detail::product(t_->shape, 2, t_->ndim)};
    }
    const dlp_tensor *get() const noexcept { return t_; }

  private:
    bool has_rows() const noexcept {
        return t_->ndim > 0 && static_cast<std::size_t>(t_->shape[0]) == count_;
    }

    const dlp_tensor *t_;
    std::size_t count_;
};

// A batch as a batch map sees it, and what a batch tells.
class batch_view {
  public:
    batch_view() noexcept = default;
    explicit batch_view(dlp_batch *b, void *state = nullptr) noexcept : b_(b), state_(state) {}
    std::size_t count() const noexcept { return b_->count; }
    std::uint64_t sequence() const noexcept { return b_->sequence; }
    std::uint64_t epoch() const noexcept { return b_->epoch; }
    std::uint64_t position() const noexcept { return b_->position; }
    std::uint64_t in_epoch() const noexcept { return b_->in_epoch; }
    bool last() const noexcept { return (b_->flags & DLP_BATCH_LAST) != 0; }
    std::size_t valid_count() const noexcept { return b_->valid_count; }
    span<const std::uint64_t> index() const noexcept { return {b_->index, b_->count}; }
    span<const std::uint8_t> valid() const noexcept { return {b_->valid, b_->count}; }
    // With trace_rows, and not behind a pack; else they are empty.
    span<const std::uint16_t> list() const noexcept { return {b_->list, b_->list ? b_->count : 0}; }
    span<const std::uint32_t> number() const noexcept {
        return {b_->number, b_->number ? b_->count : 0};
    }

    template <class T> tensor<T> field(std::size_t f) const {
        detail::check_number(f, b_->n_fields);
        detail::check_type<T>(b_->fields[f].dtype, b_->fields[f].name);
        return {&b_->fields[f], b_->count};
    }
    template <class T> tensor<T> field(std::string_view name) const {
        for (std::size_t f = 0; f < b_->n_fields; f++)
            if (name == b_->fields[f].name) return field<T>(f);
        detail::raise(DLP_ERR_ARG, "there is no field \"" + std::string(name) + "\"", name);
    }
    // In a batch map: what its worker_state made.
    template <class S> S &state() const { return detail::state_in<S>(state_); }
    dlp_batch *get() const noexcept { return b_; }

  protected:
    dlp_batch *b_ = nullptr;
    void *state_ = nullptr;
};

struct tensor_deleter {
    void operator()(dlp_managed_tensor *t) const noexcept { t->deleter(t); }
};
// A DLManagedTensor; .release() it to whoever takes it over.
using tensor_ptr = std::unique_ptr<dlp_managed_tensor, tensor_deleter>;

// A batch that next has lent; it goes back when this object ends.
class batch : public batch_view {
  public:
    batch() noexcept = default;
    batch(dlp_pipe *p, dlp_batch *b) noexcept : batch_view(b), p_(p) {}
    batch(batch &&other) noexcept { take(other); }
    batch &operator=(batch &&other) noexcept {
        if (this == &other) return *this;
        release();
        take(other);
        return *this;
    }
    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;
    ~batch() { release(); }

    explicit operator bool() const noexcept { return b_ != nullptr; }
    // Give it back now; does nothing the second time.
    void release() noexcept {
        if (p_ != nullptr) dlp_pipe_release(p_, b_);
        p_ = lent_ = nullptr;
        b_ = nullptr;
    }

    // Field f as a tensor for numpy, PyTorch, ...; make all that are wanted one after the other.
    // From the first on the tensors hold the batch, this object no longer: read it before the last
    // of them is deleted.
    tensor_ptr dlpack(int f) {
        dlp_managed_tensor *t = nullptr;
        const int rc = dlp_batch_dlpack(owner(), b_, f, &t);
        if (rc != DLP_OK) detail::raise(rc, dlp_code_text(rc));
        return lent(t);
    }
    // Likewise what it says of its rows: DLP_ROWS_INDEX, VALID, LIST, NUMBER; LENGTHS and OFFSETS
    // of field f.
    tensor_ptr dlpack_rows(int what, int f = 0) {
        dlp_managed_tensor *t = nullptr;
        dlp_error e;
        if (dlp_batch_dlpack_rows(owner(), b_, what, f, &t, &e) != DLP_OK) detail::raise(e);
        return lent(t);
    }

  private:
    void take(batch &other) noexcept {
        b_ = std::exchange(other.b_, nullptr);
        p_ = std::exchange(other.p_, nullptr);
        lent_ = std::exchange(other.lent_, nullptr);
    }
    dlp_pipe *owner() const noexcept { return p_ != nullptr ? p_ : lent_; }
    tensor_ptr lent(dlp_managed_tensor *t) noexcept {
        lent_ = owner();
        p_ = nullptr;
        return tensor_ptr(t);
    }

    dlp_pipe *p_ = nullptr;    // to which it goes back
    dlp_pipe *lent_ = nullptr; // to which its tensors give it back
};

// What a collate sees: it reads rows in, and writes fields out. Valid during the call only.
class collation {
  public:
    explicit collation(dlp_collate *c) noexcept : c_(c) {}
    std::size_t count() const noexcept { return c_->count; }
    std::uint64_t epoch() const noexcept { return c_->epoch; }
    std::uint64_t position() const noexcept { return c_->position; }
    span<const std::uint64_t> index() const noexcept { return {c_->index, c_->count}; }
    span<const std::uint8_t> valid() const noexcept { return {c_->valid, c_->count}; }

    // Row r of field f: of a ragged one what the item has.
    template <class T> span<const T> in(std::size_t f, std::size_t r) const {
        detail::check_number(f, c_->n_in);
        const dlp_collate::dlp_collate_in &in = c_->in[f];
        detail::check_type<T>(in.field->dtype, in.field->name);
        if (r >= c_->count) detail::raise(DLP_ERR_ARG, "there is no row " + std::to_string(r));
        const char *at = static_cast<const char *>(in.data) + r * in.stride;
        const int ndim = in.field->ndim;
        const std::size_t n = in.lengths == nullptr ? detail::product(in.field->shape, 0, ndim)
                                                    : static_cast<std::size_t>(in.lengths[r]) *
                                                          detail::product(in.field->shape, 1, ndim);
        return {reinterpret_cast<const T *>(at), n};
    }
    // All the room there is for field f.
    template <class T> span<T> out(std::size_t f) const {
        dlp_collate::dlp_collate_out &out = output(f);
        detail::check_type<T>(out.field->dtype, out.field->name);
        return {static_cast<T *>(out.data), static_cast<std::size_t>(out.capacity / sizeof(T))};
    }
    // The shape that field f has in this batch; [count, shape...] unless set.
    void shape(std::size_t f, std::initializer_list<std::int64_t> shape) const {
        dlp_collate::dlp_collate_out &out = output(f);
        if (shape.size() > DLP_MAX_DIMS) detail::raise(DLP_ERR_ARG, "too many dimensions");
        out.ndim = 0;
        for (std::int64_t extent : shape) out.shape[out.ndim++] = extent;
    }
    span<std::uint64_t> lengths(std::size_t f) const { return {output(f).lengths, c_->count}; }
    // For a collate that packs; it has to be filled.
    span<std::uint64_t> offsets(std::size_t f) const {
        output(f).has_offsets = 1;
        return {output(f).offsets, std::size_t(c_->count) + 1};
    }
    template <class S> S &state() const { return detail::state_in<S>(c_->worker_state); }
    dlp_collate *get() const noexcept { return c_; }

  private:
    dlp_collate::dlp_collate_out &output(std::size_t f) const {
        detail::check_number(f, c_->n_out);
        return c_->out[f];
    }
    dlp_collate *c_;
};

// ---- callables as C callbacks ----

namespace detail {

struct data_thing {
    explicit data_thing(std::vector<field_desc> fields) : schema_(std::move(fields)) {}
    schema schema_;
    dlp_dataset c = dlp_dataset();
};

template <class F> struct fetch_thing : data_thing {
    fetch_thing(std::vector<field_desc> fields, F fetch)
        : data_thing(std::move(fields)), f(std::move(fetch)) {}
    F f;
    static int run(void *user, dlp_item *i) noexcept {
        fetch_thing *t = static_cast<fetch_thing *>(user);
        return guarded(i->call, [&] { return result(t->f, item(i, &t->schema_)); });
    }
};

// Callbacks of items. fields: what they see.
template <class F> struct item_thing {
    F f;
    schema fields;
    static int run(void *user, dlp_item *i) noexcept {
        item_thing *t = static_cast<item_thing *>(user);
        return guarded(i->call, [&] { return result(t->f, item(i, &t->fields)); });
    }
    static int keep(void *user, const dlp_item *i) noexcept {
        item_thing *t = static_cast<item_thing *>(user);
        return guarded(i->call, [&] { return static_cast<int>(t->f(item_view(i, &t->fields))); });
    }
};

template <class F> struct expand_thing {
    F f;
    schema input, made;
    static int run(void *user, dlp_expand *x) noexcept {
        expand_thing *t = static_cast<expand_thing *>(user);
        return guarded(x->call, [&] { return result(t->f, expansion(x, &t->input, &t->made)); });
    }
};

template <class F> struct load_thing {
    F f;
    static int run(void *user, dlp_part *p) noexcept {
        load_thing *t = static_cast<load_thing *>(user);
        return guarded(p->call, [&] { return result(t->f, part_view(p)); });
    }
};

template <class F> struct map_batch_thing {
    F f;
    static int run(void *user, dlp_batch *b, void *state) noexcept {
        map_batch_thing *t = static_cast<map_batch_thing *>(user);
        return guarded(b->call, [&] { return result(t->f, batch_view(b, state)); });
    }
};

template <class F> struct collate_thing {
    collate_thing(F collate, std::vector<field_desc> out)
        : f(std::move(collate)), schema_(std::move(out)) {}
    F f;
    schema schema_;
    static int run(void *user, dlp_collate *c) noexcept {
        collate_thing *t = static_cast<collate_thing *>(user);
        return guarded(c->call, [&] { return result(t->f, collation(c)); });
    }
};

// A started pipe, or one that is being wired, and all that it borrows.
struct core {
    core() = default;
    core(const core &) = delete;
    core &operator=(const core &) = delete;
    ~core() {
        if (p == nullptr || dlp_pipe_close(p) != DLP_ERR_BUSY) return;
        static_cast<void>(new (std::nothrow) things(std::move(kept))); // a callback still runs
    }

    dlp_error why(int rc) const noexcept {
        dlp_error e = p != nullptr ? *dlp_pipe_error(p) : dlp_error();
        if (e.code != rc) e = make_error(rc, "", dlp_code_text(rc));
        init->add_to(e);
        return e;
    }
    int next(batch &out, int timeout_ms) noexcept {
        dlp_batch *b = nullptr;
        out.release();
        code = p != nullptr ? dlp_pipe_next_timeout(p, &b, timeout_ms) : DLP_ERR_STATE;
        if (code == DLP_OK) out = batch(p, b);
        return code;
    }
    // For a call that must not fail.
    void must(int rc) const {
        if (rc < 0) detail::raise(why(rc));
    }

    dlp_pipe *p = nullptr;
    int code = DLP_OK; // of the last next
    things kept;
    std::shared_ptr<note> init;
};

template <class Desc, class Collate>
void set_collate(Desc &d, things &kept, Collate &&f, std::vector<field_desc> out) {
    using thing = collate_thing<std::decay_t<Collate>>;
    auto t = std::make_shared<thing>(std::forward<Collate>(f), std::move(out));
    d.collate = thing::run;
    d.collate_user = t.get();
    d.out_fields = t->schema_.size() > 0 ? t->schema_.data() : nullptr;
    d.n_out_fields = t->schema_.size();
    kept.push_back(std::move(t));
}

template <class F>
void set_worker_state(dlp_workers_desc &d, things &kept, const std::shared_ptr<note> &why, F &&f) {
    using thing = worker_thing<std::decay_t<F>>;
    auto t = std::shared_ptr<thing>(new thing{std::forward<F>(f), why});
    d.worker_init = thing::begin;
    d.worker_exit = thing::end;
    d.worker_user = t.get();
    kept.push_back(std::move(t));
}

} // namespace detail

// ---- pipes ----

struct end_mark {}; // behind the last batch

// A pipe that runs. As a range it gives batches until there are no more: until the end, a stop, or,
// with epoch_end, the end of an epoch; code() says which, and another loop goes on.
class pipe {
  public:
    // Moves, and holds the batch of this round: it goes back at the next, or when the loop is left,
    // unless it has been moved away (desc.pipe.max_held).
    class iterator {
      public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = batch;
        using difference_type = std::ptrdiff_t;
        explicit iterator(detail::core *c) : c_(c) { ++*this; }
        batch &operator*() const noexcept { return b_; }
        batch *operator->() const noexcept { return &b_; }
        iterator &operator++() {
            more_ = c_->next(b_, -1) == DLP_OK;
            c_->must(c_->code);
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &i, end_mark) noexcept { return !i.more_; }
        friend bool operator!=(const iterator &i, end_mark) noexcept { return i.more_; }
        friend bool operator==(end_mark, const iterator &i) noexcept { return !i.more_; }
        friend bool operator!=(end_mark, const iterator &i) noexcept { return i.more_; }

      private:
        detail::core *c_;
        mutable batch b_; // what * gives is the caller's, to be moved away too
        bool more_ = false;
    };

    pipe() noexcept = default;
    explicit pipe(std::unique_ptr<detail::core> c) noexcept : c_(std::move(c)) {}

    explicit operator bool() const noexcept { return get() != nullptr; }
    iterator begin() { return iterator(&core()); }
    end_mark end() const noexcept { return {}; }

    // The next batch, waiting at most timeout_ms (negative: without end). Empty where there is
    // none, and code() says why: DLP_END, DLP_EPOCH_END, DLP_STOPPED, DLP_TIMEOUT. Throws what is
    // an error.
    std::optional<batch> next(int timeout_ms = -1) {
        batch b;
        const int rc = core().next(b, timeout_ms);
        core().must(rc);
        if (rc != DLP_OK) return std::nullopt;
        return b;
    }
    // The same by codes; error_record() tells more. What out held goes back first.
    int next(batch &out, std::nothrow_t, int timeout_ms = -1) noexcept {
        out.release();
        return c_ ? c_->next(out, timeout_ms) : DLP_ERR_STATE;
    }
    int code() const noexcept { return c_ ? c_->code : DLP_ERR_STATE; }
    bool done() const noexcept { return code() == DLP_END || code() == DLP_STOPPED || code() < 0; }
    dlp_error error_record() const noexcept { return c_ ? c_->why(c_->code) : dlp_error(); }

    // All that has been given out, or all up to a batch that is held, is consumed.
    dlp_state state() const { return state_of(nullptr); }
    dlp_state state(const batch &upto) const { return state_of(upto.get()); }
    void seek(const dlp_state &s) {
        dlp_error e;
        if (dlp_pipe_seek(core().p, &s, &e) != DLP_OK) detail::raise(e);
    }
    void next_epoch() { core().must(dlp_pipe_next_epoch(core().p)); }
    // Any thread; in a signal handler dlp_pipe_stop(pipe.get()), with a pointer taken before.
    void stop() const noexcept { dlp_pipe_stop(get()); }
    std::int64_t batches_per_epoch() const { return dlp_pipe_batches_per_epoch(core().p); }
    std::string explain() const {
        std::string text(4096, '\0');
        for (;;) {
            const int n = dlp_pipe_explain(core().p, text.data(), text.size());
            core().must(n);
            const std::size_t size = static_cast<std::size_t>(n);
            const bool whole = size < text.size();
            text.resize(whole ? size : size + 256);
            if (whole) return text;
        }
    }
    // Close now. Throws DLP_ERR_BUSY where a callback has not returned within close_timeout_ms:
    // nothing is freed then, and it can be called again.
    void close() {
        const int rc = close(std::nothrow);
        if (rc == DLP_ERR_BUSY) detail::raise(c_->why(rc));
        if (rc != DLP_OK) detail::raise(rc, dlp_code_text(rc));
    }
    // The same by codes.
    int close(std::nothrow_t) noexcept {
        const int rc = *this ? dlp_pipe_close(c_->p) : DLP_OK;
        if (*this && rc != DLP_ERR_BUSY) c_->p = nullptr;
        return rc;
    }
    // For the calls that are not here.
    dlp_pipe *get() const noexcept { return c_ ? c_->p : nullptr; }

  private:
    detail::core &core() const {
        if (!*this) detail::raise(DLP_ERR_STATE, "the pipe is closed, or was moved away");
        return *c_;
    }
    dlp_state state_of(const dlp_batch *upto) const {
        dlp_state s;
        const int rc = dlp_pipe_state(core().p, upto, &s);
        if (rc != DLP_OK) detail::raise(rc, dlp_code_text(rc));
        return s;
    }

    std::unique_ptr<detail::core> c_;
};

namespace detail {

// A pipe that keeps these callables; one that is none if open fails.
template <class Open>
pipe opened(things kept, const std::shared_ptr<note> &init, dlp_error &err, Open &&open) {
    auto c = std::make_unique<core>();
    c->kept = std::move(kept);
    c->init = init;
    init->clear();
    if (open(&c->p) == DLP_OK) return pipe(std::move(c));
    c->p = nullptr;
    init->add_to(err);
    return pipe();
}

} // namespace detail

// ---- datasets, loaders ----

// Items: how many, their fields, and fetch(dlpipe::item), which writes one. Copies share it.
class dataset {
  public:
    template <class Fetch>
    dataset(std::uint64_t n_items, std::vector<field_desc> fields, Fetch &&fetch) {
        using thing = detail::fetch_thing<std::decay_t<Fetch>>;
        auto t = std::make_shared<thing>(std::move(fields), std::forward<Fetch>(fetch));
        t->c.n_items = n_items;
        t->c.fields = t->schema_.data();
        t->c.n_fields = t->schema_.size();
        t->c.fetch = thing::run;
        t->c.user = static_cast<thing *>(t.get());
        t_ = std::move(t);
    }
    // For what else there is: writes_all_bytes, open_end.
    dlp_dataset &desc() const noexcept { return t_->c; }
    const std::shared_ptr<detail::data_thing> &thing() const noexcept { return t_; }

  private:
    std::shared_ptr<detail::data_thing> t_;
};

// Opens pipes: as many as wanted, each with what desc says then.
class loader {
  public:
    dlp_loader_desc desc; // dataset and pipe.resume are set by open

    explicit loader(dataset d, const dlp_loader_desc &rest = dlp_loader_desc())
        : desc(rest), data_(std::move(d)) {}

    // collate(dlpipe::collation) makes a batch of items; out: its fields, if not the dataset's.
    template <class F> loader &collate(F &&f, std::vector<field_desc> out = {}) {
        detail::set_collate(desc, kept_, std::forward<F>(f), std::move(out));
        return *this;
    }
    // make(int worker) makes what fetch then has as item.state<T>(), in each worker.
    template <class F> loader &worker_state(F &&make) {
        detail::set_worker_state(desc.workers, kept_, init_, std::forward<F>(make));
        return *this;
    }
    loader &resume(const dlp_state &s) {
        resume_ = s;
        return *this;
    }
    // Throws what is wrong.
    pipe open() const {
        dlp_error e = dlp_error();
        pipe p = open(e);
        if (!p) detail::raise(e);
        return p;
    }
    // A pipe that is none (false) where that fails, and err says why.
    pipe open(dlp_error &err) const {
        dlp_loader_desc d = desc;
        detail::things kept = kept_;
        d.dataset = data_.desc();
        if (resume_) d.pipe.resume = &*resume_;
        kept.push_back(data_.thing());
        return detail::opened(std::move(kept), init_, err,
                              [&](dlp_pipe **out) { return dlp_loader_open(out, &d, &err); });
    }

  private:
    dataset data_;
    detail::things kept_;
    std::shared_ptr<detail::note> init_ = std::make_shared<detail::note>();
    std::optional<dlp_state> resume_;
};

// ---- what producers push ----

namespace detail {

struct push_thing {
    explicit push_thing(std::vector<field_desc> of) : descs(std::move(of)), fields(descs) {}
    push_thing(const push_thing &) = delete;
    push_thing &operator=(const push_thing &) = delete;
    ~push_thing() { dlp_push_close(p); }
    std::vector<field_desc> descs;
    schema fields;
    dlp_push *p = nullptr;
};

} // namespace detail

// A producer, of one thread at a time (>>push in dlpipe.h). Its place is free when it ends.
class pusher {
  public:
    explicit pusher(std::shared_ptr<detail::push_thing> to) : to_(std::move(to)) {
        dlp_pusher_desc d = dlp_pusher_desc();
        dlp_error e;
        d.push = to_->p;
        if (dlp_pusher_open(&p_, &d, &e) != DLP_OK) detail::raise(e);
    }
    pusher(pusher &&other) noexcept
        : to_(std::move(other.to_)), p_(std::exchange(other.p_, nullptr)) {}
    pusher &operator=(pusher &&other) noexcept {
        if (this == &other) return *this;
        dlp_pusher_close(p_);
        p_ = std::exchange(other.p_, nullptr);
        to_ = std::move(other.to_);
        return *this;
    }
    ~pusher() { dlp_pusher_close(p_); }

    // Push an item: the bytes of each field. Returns DLP_OK, DLP_TIMEOUT, DLP_FULL, DLP_STOPPED.
    int push(std::initializer_list<const void *> fields, int timeout_ms = -1) {
        if (fields.size() != to_->fields.size())
            detail::raise(DLP_ERR_ARG, std::to_string(fields.size()) + " fields of " +
                                           std::to_string(to_->fields.size()));
        return must(dlp_pusher_push(p_, fields.begin(), timeout_ms < 0 ? DLP_FOREVER : timeout_ms));
    }
    // The stream of this producer is over.
    int end(int timeout_ms = -1) {
        return must(dlp_pusher_end(p_, timeout_ms < 0 ? DLP_FOREVER : timeout_ms));
    }
    dlp_pusher *get() const noexcept { return p_; }

  private:
    static int must(int rc) {
        if (rc < 0) detail::raise(rc, dlp_code_text(rc));
        return rc;
    }
    std::shared_ptr<detail::push_thing> to_;
    dlp_pusher *p_ = nullptr;
};

// The lanes into which producers push. Copies share them. They live until the last copy, pusher,
// table and pipe is gone.
class lanes {
  public:
    // desc: fields are set here; writers 0: one.
    explicit lanes(std::vector<field_desc> fields, dlp_push_desc desc = dlp_push_desc())
        : t_(std::make_shared<detail::push_thing>(std::move(fields))) {
        dlp_error e;
        desc.fields = t_->fields.data();
        desc.n_fields = t_->fields.size();
        if (desc.writers == 0) desc.writers = 1;
        if (dlp_push_open(&t_->p, &desc, &e) != DLP_OK) detail::raise(e);
    }
    pusher producer() const { return pusher(t_); }
    void stop() const noexcept { dlp_push_stop(t_->p); }
    dlp_push *get() const noexcept { return t_->p; }
    const std::shared_ptr<detail::push_thing> &thing() const noexcept { return t_; }

  private:
    std::shared_ptr<detail::push_thing> t_;
};

// ---- tables ----

// What a guard looks at: any number (low and high 0), or a range.
struct guard_field {
    std::string name;
    double low = 0, high = 0;
    bool allow_nan = false, allow_inf = false;
};

class table;

// A node of a table, to say more about it. Valid as long as its table stays where it is.
class node {
  public:
    node(table *t, std::size_t at) noexcept : t_(t), at_(at) {}
    dlp_node *operator->() const noexcept;
    dlp_node &desc() const noexcept { return *operator->(); }
    node workers(int n, int placement = DLP_PLACE_THREADS) {
        desc().workers.num_workers = n;
        desc().workers.placement = placement;
        return *this;
    }
    node capacity(std::uint32_t n) {
        desc().queue.capacity = n;
        return *this;
    }
    // make(int worker) makes in each worker what the callables of the node have as state<T>().
    template <class F> node worker_state(F &&make);
    // The nodes from which records come, if that is not the node before.
    node from(std::vector<std::string> names);

  private:
    table *t_;
    std::size_t at_;
};

// A pipe as a table of nodes (>>graph in dlpipe.h). Each function adds the node of that verb; the
// first argument is the name of the node. Throws what is wrong with a field; open throws the rest.
class table {
  public:
    dlp_pipe_desc desc; // of the run: seed, epochs, ranks; resume is set by open

    explicit table(const dlp_pipe_desc &run = dlp_pipe_desc()) : desc(run) {}

    // A node of any verb, to be filled in by its arrow. Its callbacks are functions of C, which
    // must not throw.
    node add(std::string_view name, std::int32_t verb) {
        dlp_node n = dlp_node();
        n.name = keep(std::string(name))->c_str();
        n.verb = verb;
        nodes_.push_back(n);
        return {this, nodes_.size() - 1};
    }

    // n_items 0: a source of the fetch says how many.
    node list(std::string_view name, std::uint64_t n_items = 0) {
        begin_branch();
        node n = add(name, DLP_LIST);
        n->list.n_items = n_items;
        return n;
    }
    node push(std::string_view name, const lanes &from) {
        begin_branch();
        node n = add(name, DLP_PUSH);
        n->push.source = from.get();
        kept_.push_back(from.thing());
        append(from.thing()->descs);
        return n;
    }
    // f(dlpipe::part_view) loads a part. Say either load.items or load.max_items.
    template <class F> node load(std::string_view name, std::uint64_t max_part_bytes, F &&f) {
        using thing = detail::load_thing<std::decay_t<F>>;
        node n = add(name, DLP_LOAD);
        n->load.max_part_bytes = max_part_bytes;
        n->load.load = thing::run;
        n->load.user = keep(thing{std::forward<F>(f)});
        return n;
    }
    // f(dlpipe::item) writes the fields of an item. of: the number, from 1, of the dataset of the
    // list's mix; 0: all items.
    template <class F>
    node fetch(std::string_view name, std::vector<field_desc> fields, F &&f, std::uint32_t of = 0) {
        using thing = detail::item_thing<std::decay_t<F>>;
        node n = add(name, DLP_FETCH);
        thing *t = keep_new<thing>(std::forward<F>(f), fields);
        n->fetch.fetch = thing::run;
        n->fetch.user = t;
        n->fetch.fields = t->fields.data();
        n->fetch.n_fields = t->fields.size();
        n->fetch.of = of;
        if (of < 2) append(fields);
        return n;
    }
    // A source of the library, such as dlp_files_open gives. It is borrowed until the pipe is gone.
    node fetch(std::string_view name, const dlp_source *source) {
        node n = add(name, DLP_FETCH);
        n->fetch.source = source;
        if (source == nullptr || source->dataset == nullptr) return n; // open says so
        append(described(*source->dataset));
        return n;
    }
    // f(dlpipe::expansion) makes 0..max_out items of one. fields: of the items; {}: the input's.
    template <class F>
    node expand(std::string_view name, std::uint32_t max_out, std::vector<field_desc> fields,
                F &&f) {
        using thing = detail::expand_thing<std::decay_t<F>>;
        node n = add(name, DLP_EXPAND);
        thing *t = keep_new<thing>(std::forward<F>(f), alive_, fields.empty() ? alive_ : fields);
        n->expand.expand = thing::run;
        n->expand.user = t;
        n->expand.max_out = max_out;
        if (fields.empty()) return n;
        n->expand.fields = t->made.data();
        n->expand.n_fields = t->made.size();
        alive_ = std::move(fields);
        return n;
    }
    // f(dlpipe::item_view) returns whether to keep an item. id: part of a state's fingerprint.
    template <class F> node filter(std::string_view name, F &&f, std::uint64_t id = 0) {
        using thing = detail::item_thing<std::decay_t<F>>;
        node n = add(name, DLP_FILTER);
        n->filter.keep = thing::keep;
        n->filter.user = keep_new<thing>(std::forward<F>(f), alive_);
        n->filter.id = id;
        return n;
    }
    node pack(std::string_view name, const dlp_node_pack &desc_of) {
        node n = add(name, DLP_PACK);
        const std::int64_t t = desc_of.tokens, most = desc_of.max_segments;
        n->pack = desc_of;
        for (field_desc &f : alive_)
            if (!f.shape.empty()) f.shape[0] = t;
        append({field<std::int32_t>("cu_seqlens", {(most > 0 ? most
                                                    : t < 8  ? t
                                                             : 8) +
                                                   1}),
                field<std::int32_t>("position_ids", {t})});
        return n;
    }
    // Join branches, by the names of their last nodes: an item of each, with the fields of all.
    node zip(std::string_view name, std::vector<std::string> branches) {
        std::vector<field_desc> all;
        for (const auto &before : before_) all.insert(all.end(), before.begin(), before.end());
        alive_.insert(alive_.begin(), all.begin(), all.end());
        return add(name, DLP_ZIP).from(std::move(branches));
    }
    // ... an item of one, by weights (none: all alike). All branches have the same fields.
    node mix(std::string_view name, std::vector<std::string> branches,
             std::vector<std::uint64_t> weights = {}) {
        if (!weights.empty() && weights.size() != branches.size())
            detail::raise(DLP_ERR_ARG, "as many weights as branches", "mix.weights");
        node n = add(name, DLP_MIX);
        if (!weights.empty()) n->mix.weights = keep(std::move(weights))->data();
        return n.from(std::move(branches));
    }
    // group, by: items that stay together, sorted by the length of the field `by`.
    node window(std::string_view name, std::uint32_t items, std::uint32_t group = 0,
                std::string_view by = {}) {
        node n = add(name, DLP_WINDOW);
        n->window.items = items;
        n->window.group = group;
        if (!by.empty()) n->window.by = keep(std::string(by))->c_str();
        return n;
    }
    // Before the batch f(dlpipe::item) changes an item, or adds fields. ends: names of fields, with
    // blanks between them, that are in no later node. After the batch f(dlpipe::batch_view) changes
    // a batch.
    template <class F>
    node map(std::string_view name, F &&f, std::vector<field_desc> fields = {},
             std::string_view ends = {}) {
        node n = add(name, DLP_MAP);
        if constexpr (std::is_invocable_v<std::decay_t<F> &, item>) {
            using thing = detail::item_thing<std::decay_t<F>>;
            const std::size_t above = alive_.size();
            append(fields);
            thing *t = keep_new<thing>(std::forward<F>(f), alive_);
            n->map.item = thing::run;
            n->map.user = t;
            n->map.fields = fields.empty() ? nullptr : t->fields.data() + above;
            n->map.n_fields = static_cast<std::uint32_t>(fields.size());
            if (!ends.empty()) n->map.ends = keep(std::string(ends))->c_str();
            forget(ends, above);
        } else {
            using thing = detail::map_batch_thing<std::decay_t<F>>;
            n->map.batch = thing::run;
            n->map.user = keep(thing{std::forward<F>(f)});
        }
        return n;
    }
    node guard(std::string_view name, const std::vector<guard_field> &fields) {
        node n = add(name, DLP_GUARD);
        std::vector<dlp_guard_field> of;
        for (const guard_field &f : fields)
            of.push_back(
                {keep(std::string(f.name))->c_str(), f.low, f.high, f.allow_nan, f.allow_inf});
        n->guard.fields = keep(std::move(of))->data();
        n->guard.n_fields = static_cast<std::uint32_t>(fields.size());
        return n;
    }
    node cache(std::string_view name, std::uint64_t bytes) {
        node n = add(name, DLP_CACHE);
        n->cache.bytes = bytes;
        return n;
    }
    node batch(std::string_view name, std::uint32_t batch_size) {
        node n = add(name, DLP_BATCH);
        n->batch.batch_size = batch_size;
        return n;
    }
    // collate(dlpipe::collation) makes a batch of items. out: its fields; {}: those of the items.
    template <class F>
    node batch(std::string_view name, std::uint32_t batch_size, F &&collate,
               std::vector<field_desc> out = {}) {
        node n = batch(name, batch_size);
        detail::set_collate(n->batch, kept_, std::forward<F>(collate), std::move(out));
        return n;
    }
    // device: copied by open; NULL: the host.
    node transfer(std::string_view name, const dlp_device *device = nullptr) {
        node n = add(name, DLP_TRANSFER);
        n->transfer.device = device;
        return n;
    }
    node split(std::string_view name, const dlp_node_split &desc_of) {
        node n = add(name, DLP_SPLIT);
        n->split = desc_of;
        return n;
    }
    node out(std::string_view name) { return add(name, DLP_OUT); }

    table &resume(const dlp_state &s) {
        resume_ = s;
        return *this;
    }
    // A pipe that runs. A table opens as many as are wanted. Throws what is wrong.
    pipe open() const {
        dlp_error e = dlp_error();
        pipe p = open(e);
        if (!p) detail::raise(e);
        return p;
    }
    // A pipe that is none (false) where that fails, and err says why.
    pipe open(dlp_error &err) const {
        const dlp_pipe_desc d = run();
        return detail::opened(kept_, init_, err, [&](dlp_pipe **out) {
            return dlp_pipe_open(out, nodes_.data(), size(), &d, &err);
        });
    }
    // What the pipe would take. Nothing is started.
    dlp_plan plan() const {
        const dlp_pipe_desc d = run();
        dlp_plan out;
        dlp_error e = dlp_error();
        if (dlp_nodes_plan(nodes_.data(), size(), &d, &out, &e) != DLP_OK) detail::raise(e);
        return out;
    }
    const dlp_node *nodes() const noexcept { return nodes_.data(); }
    std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(nodes_.size()); }

  private:
    friend class node;

    template <class T> T *keep(T &&value) {
        auto t = std::shared_ptr<T>(new T{std::move(value)});
        kept_.push_back(t);
        return t.get();
    }
    // The fields of a branch are those of its own nodes.
    void begin_branch() {
        if (!nodes_.empty()) before_.push_back(std::move(alive_));
        alive_.clear();
    }
    // A thing of a callable and of what it sees.
    template <class Thing, class F, class... Seen> Thing *keep_new(F &&f, const Seen &...seen) {
        auto t = std::shared_ptr<Thing>(new Thing{std::forward<F>(f), detail::schema(seen)...});
        kept_.push_back(t);
        return t.get();
    }
    void append(const std::vector<field_desc> &fields) {
        alive_.insert(alive_.end(), fields.begin(), fields.end());
    }
    // The first `above` fields lose those that are named.
    void forget(std::string_view names, std::size_t above) {
        for (std::size_t at = 0, i; at < names.size(); at = i + 1) {
            i = std::min(names.find(' ', at), names.size());
            for (std::size_t f = 0; f < above; f++) {
                if (i == at || alive_[f].name != names.substr(at, i - at)) continue;
                alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(f));
                above--;
                break;
            }
        }
    }
    static std::vector<field_desc> described(const dlp_dataset &of) {
        std::vector<field_desc> fields;
        for (std::uint32_t i = 0; of.fields != nullptr && i < of.n_fields; i++) {
            const dlp_field &f = of.fields[i];
            fields.push_back(
                {f.name, f.dtype, {f.shape, f.shape + f.ndim}, f.ragged != 0, f.max_per_batch});
        }
        return fields;
    }
    dlp_pipe_desc run() const {
        dlp_pipe_desc d = desc;
        if (resume_) d.resume = &*resume_;
        return d;
    }

    std::vector<dlp_node> nodes_;
    std::vector<field_desc> alive_;               // fields of an item after the last node
    std::vector<std::vector<field_desc>> before_; // of each branch before that of the last node
    detail::things kept_;
    std::shared_ptr<detail::note> init_ = std::make_shared<detail::note>();
    std::optional<dlp_state> resume_;
};

inline dlp_node *node::operator->() const noexcept { return &t_->nodes_[at_]; }

template <class F> node node::worker_state(F &&make) {
    detail::set_worker_state(desc().workers, t_->kept_, t_->init_, std::forward<F>(make));
    return *this;
}

inline node node::from(std::vector<std::string> names) {
    const std::vector<std::string> &kept = *t_->keep(std::move(names));
    std::vector<const char *> at;
    for (const std::string &name : kept) at.push_back(name.c_str());
    at.push_back(nullptr);
    desc().from = t_->keep(std::move(at))->data();
    return *this;
}

} // namespace dlpipe
#endif // C++17
#endif // DLPIPE_HPP
