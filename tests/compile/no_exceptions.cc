// examples/cpp/dlpipe.hpp with -fno-exceptions: calls by codes, a callable that fails by what it
// returns, and the words of what would throw, in a child that aborts.
#include "../../examples/cpp/dlpipe.hpp"

#include <sys/wait.h>
#include <unistd.h>

#ifdef __cpp_exceptions
#error compile with -fno-exceptions
#endif

static int failures;
#define CHECK(x) \
    do { \
        if (!(x)) failures++, std::printf("line %d: %s\n", __LINE__, #x); \
    } while (0)

static dlpipe::table numbers(int odd) {
    dlpipe::table t;
    t.list("items", 100);
    t.fetch("read", {dlpipe::field<float>("x", {3})}, [odd](dlpipe::item it) {
        if (it.index() == static_cast<std::uint64_t>(odd))
            return dlp_fail(it.get()->call, 0, "item %d is odd", odd);
        for (float &x : it.field<float>(0)) x = static_cast<float>(it.index());
        return DLP_OK + 0;
    });
    t.batch("batch", 10);
    return t;
}

static void calls__by_codes__say_it(void) {
    dlp_error err = dlp_error();
    dlpipe::batch b;
    float sum = 0;
    dlpipe::pipe whole = numbers(-1).open(err);
    CHECK(whole);
    while (whole.next(b, std::nothrow) == DLP_OK)
        for (float x : b.field<float>("x").all()) sum += x;
    CHECK(sum == 3 * 4950.0f && whole.code() == DLP_END);
    CHECK(whole.close(std::nothrow) == DLP_OK && !whole);
    CHECK(whole.close(std::nothrow) == DLP_OK && whole.next(b, std::nothrow) == DLP_ERR_STATE);

    dlpipe::pipe fails = numbers(42).open(err);
    CHECK(fails);
    while (fails.next(b, std::nothrow) == DLP_OK) continue;
    CHECK(fails.code() == DLP_ERR_CALLBACK && fails.error_record().index == 42);
    CHECK(std::string_view(fails.error_record().message) == "item 42 is odd");

    dlpipe::table none;
    CHECK(!none.open(err) && err.code < 0 && err.message[0] != 0);
}

static void would_throw__says_the_error_and_aborts(void) {
    char said[1024] = {};
    int ends[2], status = 0;
    if (pipe(ends) != 0) std::abort();
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        dlp_error err;
        dlpipe::pipe p = numbers(42).open(err);
        for (dlpipe::batch &b : p) static_cast<void>(b);
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(std::strstr(said, "dlpipe: DLP_ERR_CALLBACK") == said);
    CHECK(std::strstr(said, "item 42 is odd") != nullptr);
}

int main() {
    calls__by_codes__say_it();
    would_throw__says_the_error_and_aborts();
    return failures != 0;
}
