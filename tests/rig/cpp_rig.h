/* What tests of dlpipe.hpp share. Only they include it: it is C++17. */
#ifndef CPP_RIG_H
#define CPP_RIG_H

#include "dlpipe.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static std::atomic<int> failures; // callables check, too
static std::atomic<long> checks;
#define CHECK(x) \
    do { \
        checks++; \
        if (!(x)) { \
            failures++; \
            std::printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #x); \
        } \
    } while (0)

template <class T>
constexpr bool moves_alone =
    std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
// The error that body throws; code 0: none.
template <class F> static dlp_error thrown(F &&body) {
    try {
        body();
    } catch (const dlpipe::error &e) {
        CHECK(std::strlen(e.what()) > 0 && e.code() == e.record().code);
        return e.record();
    }
    return dlp_error();
}

static bool says(const dlp_error &e, const char *text) {
    if (std::strstr(e.message, text) != nullptr) return true;
    std::printf("says \"%s\", not \"%s\"\n", e.message, text);
    return false;
}

#endif
