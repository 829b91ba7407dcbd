/* Connections that do not block: begun, brought forward, read, written, refused, reset, ended;
   plain ones and those of a TLS library that is plugged in. Names, by a resolver that answers as it
   is told. */
/* own: hook: names are resolved by the test */
#define DLPI_S3_GETADDRINFO fake_getaddrinfo
#define DLPI_S3_FREEADDRINFO fake_freeaddrinfo
#define DLPIPE_IMPLEMENTATION
struct addrinfo;
static int fake_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                            struct addrinfo **list);
static void fake_freeaddrinfo(struct addrinfo *list);
#include "../../../dlpipe_s3.h"

#include "../../rig/s3_mock.h"
#include "../../rig/s3_transport.h"
#include <sys/time.h>

/* Connect to a listener of our own. Returns the server's end. */
static int connect_pair(dlpi_s3_conn *c, int listener, const dlpi_s3_address *a) {
    CHECK(dlpi_s3_conn_open(c, a, NULL, "localhost") == 0);
    CHECK(step_on(c) == 0);
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void echo_over(int family) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    char bytes[16] = "";
    int one = 0, listener = listen_on(family, &a), server;
    socklen_t n = sizeof one;
    if (listener < 0) {
        printf("no loopback for family %d: left out\n", family);
        return;
    }
    server = connect_pair(&c, listener, &a);
    CHECK(fcntl(c.fd, F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(c.fd, F_GETFD) & FD_CLOEXEC);
    CHECK(getsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, &n) == 0 && one != 0);
    CHECK(dlpi_s3_conn_read(&c, bytes, sizeof bytes) == DLP_S3_WANT_READ);
    CHECK(write_on(&c, "hello", 5) == 5);
    CHECK(recv(server, bytes, sizeof bytes, 0) == 5 && memcmp(bytes, "hello", 5) == 0);
    CHECK(send(server, "world", 5, MSG_NOSIGNAL) == 5);
    CHECK(read_on(&c, bytes, 3) == 3 && memcmp(bytes, "wor", 3) == 0);
    CHECK(read_on(&c, bytes, sizeof bytes) == 2 && memcmp(bytes, "ld", 2) == 0);
    CHECK(!dlpi_s3_conn_pending(&c));
    close(server);
    CHECK(read_on(&c, bytes, sizeof bytes) == 0);
    dlpi_s3_conn_close(&c);
    dlpi_s3_conn_close(&c);
    CHECK(c.fd == -1);
    close(listener);
}

static void conn__two_families__bytes_both_ways(void) {
    echo_over(AF_INET);
    echo_over(AF_INET6);
}

static void conn__nobody_listens__refused_with_address(void) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    char text[64];
    int bound = bound_to(AF_INET, &a), code; /* and so nobody else's */
    code = dlpi_s3_conn_open(&c, &a, NULL, "localhost");
    if (code == 0) code = step_on(&c);
    CHECK(code == DLP_S3_BROKEN && c.errnum == ECONNREFUSED);
    dlpi_s3_address_text(&a, text, sizeof text);
    CHECK(strstr(c.why, "cannot connect") != NULL && strstr(c.why, text) != NULL);
    dlpi_s3_conn_close(&c);
    close(bound);
}

static void conn__no_way_there__told_at_once(void) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    CHECK(dlpi_s3_address_numeric("255.255.255.255", 9, &a)); /* TCP has no broadcast */
    CHECK(dlpi_s3_conn_open(&c, &a, NULL, "") == DLP_S3_BROKEN);
    CHECK(c.errnum != 0 && strstr(c.why, "255.255.255.255:9") != NULL && c.fd == -1);
    a.at.any.sa_family = AF_MAX;
    CHECK(dlpi_s3_conn_open(&c, &a, NULL, "") == DLP_S3_BROKEN && c.fd == -1);
}

static void reset_now(int fd) {
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void conn__listener_closes_before_accept__reset(void) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    char byte;
    int listener = listen_on(AF_INET, &a);
    CHECK(dlpi_s3_conn_open(&c, &a, NULL, "") == 0 && step_on(&c) == 0);
    close(listener);
    CHECK(read_on(&c, &byte, 1) == DLP_S3_BROKEN && c.errnum == ECONNRESET);
    CHECK(strstr(c.why, "reading from 127.0.0.1") != NULL);
    dlpi_s3_conn_close(&c);
}

/* SIGPIPE has its default action: it would end this program. */
static void conn__reset__broken_and_no_sigpipe(void) {
    dlpi_s3_address a;
    int64_t code = 1;
    int listener = listen_on(AF_INET, &a);
    signal(SIGPIPE, SIG_DFL);
    for (int reading = 0; reading < 2; reading++) {
        dlpi_s3_conn c;
        char byte;
        int server = connect_pair(&c, listener, &a);
        reset_now(server);
        if (reading) CHECK(read_on(&c, &byte, 1) == DLP_S3_BROKEN && c.errnum == ECONNRESET);
        code = 1;
        for (int i = 0; i < 100 && code > 0; i++) code = write_on(&c, "x", 1);
        CHECK(code == DLP_S3_BROKEN && (c.errnum == EPIPE || c.errnum == ECONNRESET));
        CHECK(c.why[0]);
        dlpi_s3_conn_close(&c);
    }
    close(listener);
}

static void conn__half_closed__still_written(void) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    char bytes[8];
    int listener = listen_on(AF_INET, &a), server = connect_pair(&c, listener, &a);
    CHECK(send(server, "end", 3, MSG_NOSIGNAL) == 3 && shutdown(server, SHUT_WR) == 0);
    CHECK(read_on(&c, bytes, sizeof bytes) == 3);
    CHECK(read_on(&c, bytes, sizeof bytes) == 0);
    CHECK(read_on(&c, bytes, sizeof bytes) == 0);
    CHECK(write_on(&c, "more", 4) == 4);
    CHECK(recv(server, bytes, sizeof bytes, 0) == 4);
    dlpi_s3_conn_close(&c);
    CHECK(recv(server, bytes, sizeof bytes, 0) == 0);
    close(server);
    close(listener);
}

static int alarms;

static void on_alarm(int number) {
    (void)number;
    __atomic_add_fetch(&alarms, 1, __ATOMIC_RELAXED);
}

typedef struct {
    int fd;
    size_t n;
} drain;

static void *drain_slowly(void *user) {
    drain *d = user;
    char bytes[30000];
    ssize_t n;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    while ((n = recv(d->fd, bytes, sizeof bytes, 0)) > 0) {
        for (ssize_t i = 0; i < n; i++, d->n++)
            if (bytes[i] != (char)(d->n % 251)) return d;
    }
    return NULL;
}

static void conn__signals_and_full_socket__all_bytes_once(void) {
    enum { N = 3000000 };
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction act, before;
    dlpi_s3_address a;
    dlpi_s3_conn c;
    pthread_t thread;
    char *bytes = malloc(N);
    void *wrong = NULL;
    size_t put = 0;
    int listener = listen_on(AF_INET, &a), full = 0, small = 65536;
    drain d = {0, 0};
    memset(&act, 0, sizeof act);
    act.sa_handler = on_alarm; /* and calls are not taken up again by themselves */
    sigaction(SIGALRM, &act, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    d.fd = connect_pair(&c, listener, &a);
    while (d.fd < 0 && errno == EINTR) d.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (size_t i = 0; i < N; i++) bytes[i] = (char)(i % 251);
    setsockopt(c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    while (put < N) { /* until its socket is full: nobody reads yet */
        int64_t n = dlpi_s3_conn_write(&c, bytes + put, N - put);
        full += n == DLP_S3_WANT_WRITE;
        if (n <= 0) break;
        put += (size_t)n;
    }
    while (__atomic_load_n(&alarms, __ATOMIC_RELAXED) == 0) poll(NULL, 0, 10);
    CHECK(pthread_create(&thread, NULL, drain_slowly, &d) == 0);
    while (put < N) {
        int64_t n = dlpi_s3_conn_write(&c, bytes + put, N - put);
        CHECK(n > 0 || n == DLP_S3_WANT_WRITE);
        if (n == DLP_S3_WANT_WRITE && ++full) CHECK(wait_for(&c, n));
        if (n == DLP_S3_BROKEN) break;
        if (n > 0) put += (size_t)n;
    }
    dlpi_s3_conn_close(&c);
    pthread_join(thread, &wrong);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    CHECK(wrong == NULL && d.n == N && full > 0 && alarms > 0);
    close(d.fd);
    close(listener);
    free(bytes);
}

/* ---- a TLS library of another kind: it turns some bits around ---- */

static struct {
    int opened, closed, refuse;
    int64_t lie; /* not 0: what read and write return */
    char host[64];
} turned;

typedef struct {
    int fd, state;
    unsigned char there[64]; /* read ahead, and not yet asked for */
    size_t n;
} turning;

static int turn_open(void *user, int fd, const char *host, void **session, char *why, size_t size) {
    turning *s = calloc(1, sizeof *s);
    CHECK(user == &turned);
    if (turned.refuse == 1) {
        snprintf(why, size, "no session for %s", host);
        free(s);
        return DLP_S3_BROKEN;
    }
    s->fd = fd;
    turned.opened++;
    dlpi_s3_copy(turned.host, sizeof turned.host, host);
    *session = s;
    return 0;
}

/* Says one byte, and hears one. */
static int turn_handshake(void *session, char *why, size_t size) {
    turning *s = session;
    char byte = 'h';
    ssize_t n;
    if (s->state == 0) {
        if (send(s->fd, &byte, 1, MSG_NOSIGNAL) != 1) return DLP_S3_WANT_WRITE;
        s->state = 1;
    }
    n = recv(s->fd, &byte, 1, 0);
    if (n < 0) return DLP_S3_WANT_READ;
    if (n == 1 && byte == 'h') return 0;
    errno = EKEYREJECTED;
    if (turned.refuse == 2) snprintf(why, size, "it says '%c'", byte);
    return DLP_S3_BROKEN;
}

/* What a transport must not return, with words that do not end. */
static int64_t turn_lie(int64_t lie, char *why, size_t size) {
    memset(why, 'w', size);
    return lie;
}

static int64_t turn_read(void *session, void *to, size_t n, char *why, size_t size) {
    turning *s = session;
    ssize_t got = s->n ? 0 : recv(s->fd, s->there, sizeof s->there, 0);
    if (turned.lie) return turn_lie(turned.lie, why, size);
    if (got < 0) return errno == EAGAIN ? DLP_S3_WANT_READ : DLP_S3_BROKEN;
    if (got > 0) s->n = (size_t)got;
    if (n > s->n) n = s->n;
    for (size_t i = 0; i < n; i++) ((unsigned char *)to)[i] = s->there[i] ^ 0x55;
    memmove(s->there, s->there + n, s->n - n);
    s->n -= n;
    return (int64_t)n;
}

static int64_t turn_write(void *session, const void *from, size_t n, char *why, size_t size) {
    turning *s = session;
    unsigned char bytes[7];
    ssize_t put;
    if (turned.lie) return turn_lie(turned.lie, why, size);
    if (s->state == 1) { /* as if it had to agree on a new key first */
        s->state = 2;
        return DLP_S3_WANT_READ;
    }
    if (n > sizeof bytes) n = sizeof bytes;
    for (size_t i = 0; i < n; i++) bytes[i] = ((const unsigned char *)from)[i] ^ 0x55;
    put = send(s->fd, bytes, n, MSG_NOSIGNAL);
    return put > 0 ? put : errno == EAGAIN ? DLP_S3_WANT_WRITE : DLP_S3_BROKEN;
}

static int turn_pending(void *session) { return ((turning *)session)->n > 0; }

static void turn_close(void *session) {
    turning *s = session;
    ssize_t n = send(s->fd, "bye", 3, MSG_NOSIGNAL);
    (void)n;
    turned.closed++;
    free(s);
}

static const dlp_s3_transport turner = {&turned,    turn_open,    turn_handshake, turn_read,
                                        turn_write, turn_pending, turn_close};

static int turn_pair(dlpi_s3_conn *c) {
    dlpi_s3_address a;
    char byte = 0;
    int listener = listen_on(AF_INET, &a), server;
    CHECK(dlpi_s3_conn_open(c, &a, &turner, "turned.example") == 0);
    server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    while (dlpi_s3_conn_step(c) == DLP_S3_WANT_WRITE) CHECK(wait_for(c, DLP_S3_WANT_WRITE));
    CHECK(recv(server, &byte, 1, 0) == 1 && byte == 'h');
    CHECK(dlpi_s3_conn_step(c) == DLP_S3_WANT_READ);
    CHECK(send(server, "h", 1, MSG_NOSIGNAL) == 1);
    CHECK(step_on(c) == 0 && dlpi_s3_conn_step(c) == 0);
    close(listener);
    return server;
}

static void transport__plugged_in__all_bytes_through_it(void) {
    dlpi_s3_conn c;
    char bytes[16];
    int before = turned.opened, server = turn_pair(&c);
    CHECK(turned.opened == before + 1 && strcmp(turned.host, "turned.example") == 0);
    CHECK(dlpi_s3_conn_write(&c, "abcdefghij", 10) == DLP_S3_WANT_READ);
    CHECK(write_on(&c, "abcdefghij", 10) == 7);
    CHECK(recv(server, bytes, sizeof bytes, 0) == 7 && bytes[0] == ('a' ^ 0x55));
    CHECK(send(server, "\x55\x54\x57", 3, MSG_NOSIGNAL) == 3);
    CHECK(read_on(&c, bytes, 1) == 1 && bytes[0] == 0);
    CHECK(dlpi_s3_conn_pending(&c));
    CHECK(dlpi_s3_conn_read(&c, bytes, 5) == 2 && bytes[0] == 1 && bytes[1] == 2);
    CHECK(!dlpi_s3_conn_pending(&c));
    reset_now(server);
    CHECK(read_on(&c, bytes, 1) == DLP_S3_BROKEN && c.errnum == ECONNRESET && c.why[0]);
    dlpi_s3_conn_close(&c);
    CHECK(turned.closed == turned.opened);
}

/* What a transport says is checked before anything goes by it. */
static void transport__returns_what_cannot_be__broken(void) {
    static const int64_t lies[] = {17, INT64_MAX, -4, DLP_S3_BROKEN};
    for (int i = 0; i < 4; i++)
        for (int writes = 0; writes < 2; writes++) {
            char bytes[16] = {0};
            dlpi_s3_conn c;
            int server = turn_pair(&c);
            turned.lie = lies[i];
            CHECK((writes ? dlpi_s3_conn_write(&c, bytes, sizeof bytes)
                          : dlpi_s3_conn_read(&c, bytes, sizeof bytes)) == DLP_S3_BROKEN);
            CHECK(c.errnum != 0 && memchr(c.why, 0, sizeof c.why) != NULL);
            turned.lie = 0;
            dlpi_s3_conn_close(&c);
            close(server);
        }
}

static void transport__refuses__its_words_and_kind(void) {
    dlpi_s3_address a;
    dlpi_s3_conn c;
    int listener = listen_on(AF_INET, &a), server;
    turned.refuse = 1; /* no session: with words, and no kind */
    CHECK(dlpi_s3_conn_open(&c, &a, &turner, "bad.example") == 0);
    CHECK(step_on(&c) == DLP_S3_BROKEN && c.errnum == EPROTO);
    CHECK(strcmp(c.why, "no session for bad.example") == 0);
    dlpi_s3_conn_close(&c);
    server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(server);
    for (turned.refuse = 2; turned.refuse <= 3; turned.refuse++) { /* in the handshake; 3: mute */
        CHECK(dlpi_s3_conn_open(&c, &a, &turner, "bad.example") == 0);
        server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(send(server, "x", 1, MSG_NOSIGNAL) == 1);
        CHECK(step_on(&c) == DLP_S3_BROKEN && c.errnum == EKEYREJECTED);
        CHECK(turned.refuse == 2 ? strcmp(c.why, "it says 'x'") == 0 : c.why[0] != 0);
        close(server);
        dlpi_s3_conn_close(&c);
    }
    turned.refuse = 0;
    CHECK(turned.closed == turned.opened);
    close(listener);
}

static void transport__child_closes__parent_goes_on(void) {
    dlpi_s3_conn c;
    char bytes[16];
    int status = 1, server = turn_pair(&c);
    pid_t pid;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int closed = turned.closed;
        bool mine = dlpi_s3_conn_mine(&c);
        dlpi_s3_conn_close(&c);
        _exit(mine || turned.closed != closed + 1 || c.fd != -1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(recv(server, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno == EAGAIN); /* no "bye" */
    CHECK(dlpi_s3_conn_mine(&c));
    CHECK(send(server, "U", 1, MSG_NOSIGNAL) == 1);
    CHECK(read_on(&c, bytes, 1) == 1 && bytes[0] == 0);
    dlpi_s3_conn_close(&c);
    CHECK(recv(server, bytes, sizeof bytes, 0) == 3 && memcmp(bytes, "bye", 3) == 0);
    close(server);
}

/* ---- names ---- */

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fake_change = PTHREAD_COND_INITIALIZER;
static int fake_calls, fake_error, fake_addresses, fake_hang, fake_over;
static int fake_from;         /* of addresses: 127.0.0.1 and on, or so many later */
static sigset_t fake_signals; /* blocked in the thread that asks */

static int fake_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                            struct addrinfo **list) {
    struct addrinfo *a = NULL;
    int error, n, from;
    (void)host;
    (void)hints;
    pthread_mutex_lock(&fake_lock);
    fake_calls++;
    pthread_sigmask(SIG_SETMASK, NULL, &fake_signals);
    pthread_cond_broadcast(&fake_change);
    while (fake_hang) pthread_cond_wait(&fake_change, &fake_lock);
    fake_over++;
    pthread_cond_broadcast(&fake_change);
    error = fake_error;
    n = fake_addresses;
    from = fake_from;
    pthread_mutex_unlock(&fake_lock);
    *list = NULL;
    for (int i = n; i > 0 && !error; i--) {
        struct sockaddr_in *in;
        a = calloc(1, sizeof *a + sizeof *in);
        in = (struct sockaddr_in *)(void *)(a + 1);
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)(from + i));
        in->sin_port = htons((uint16_t)atoi(service));
        a->ai_family = AF_INET;
        a->ai_addr = (struct sockaddr *)in;
        a->ai_addrlen = sizeof *in;
        a->ai_next = *list;
        *list = a;
    }
    return error;
}

static void fake_freeaddrinfo(struct addrinfo *list) {
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

static void fake_set(int error, int addresses, int hang) {
    pthread_mutex_lock(&fake_lock);
    fake_error = error;
    fake_addresses = addresses;
    fake_hang = hang;
    pthread_cond_broadcast(&fake_change);
    pthread_mutex_unlock(&fake_lock);
}

static void fake_move(int from) {
    pthread_mutex_lock(&fake_lock);
    fake_from = from;
    pthread_mutex_unlock(&fake_lock);
}

static int fake_count(const int *what) {
    int n;
    pthread_mutex_lock(&fake_lock);
    n = *what;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static void fake_wait(const int *what, int n) {
    pthread_mutex_lock(&fake_lock);
    while (*what < n) pthread_cond_wait(&fake_change, &fake_lock);
    pthread_mutex_unlock(&fake_lock);
}

typedef struct {
    dlpi_s3_helper *h;
    dlpi_s3_address a;
    int errnum;
    char why[200];
} asked;

static int ask(asked *q, const char *host) {
    return dlpi_s3_helper_address(q->h, host, 9000, &q->a, &q->errnum, q->why, sizeof q->why);
}

/* Until there is news; false: there is none. */
static bool heard(const asked *q) {
    struct pollfd p = {.fd = dlpi_s3_helper_fd(q->h), .events = POLLIN};
    bool rang = poll(&p, 1, 20000) == 1;
    dlpi_s3_helper_heard(q->h);
    return rang;
}

static int ask_on(asked *q, const char *host) {
    int code;
    while ((code = ask(q, host)) == 1)
        if (!heard(q)) return 1;
    return code;
}

/* Let time have passed for all names. */
static void age(const asked *q, uint64_t ns) {
    pthread_mutex_lock(&q->h->lock);
    for (dlpi_s3_name *name = q->h->names; name; name = name->next) {
        name->found_ns -= ns;
        if (name->failed_ns) name->failed_ns -= ns;
        for (uint32_t i = 0; i < name->n; i++)
            name->bad_until_ns[i] -= name->bad_until_ns[i] < ns ? name->bad_until_ns[i] : ns;
    }
    pthread_mutex_unlock(&q->h->lock);
}

static int last_byte(const asked *q) { return (int)(ntohl(q->a.at.v4.sin_addr.s_addr) & 255); }

static void names__numbers__no_thread_no_resolver(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    int before = fake_count(&fake_calls);
    CHECK(ask(&q, "127.0.0.3") == 0 && last_byte(&q) == 3 && q.a.at.v4.sin_port == htons(9000));
    CHECK(ask(&q, "::1") == 0 && q.a.at.v6.sin6_family == AF_INET6 && q.a.n == sizeof q.a.at.v6);
    CHECK(!q.h->started && fake_count(&fake_calls) == before);
    dlpi_s3_helper_free(q.h);
}

/* Whether this address comes up among the next six. */
static bool gives(asked *q, const dlpi_s3_address *a) {
    bool seen = false;
    for (int i = 0; i < 6; i++) {
        CHECK(ask(q, "bucket.example") == 0);
        seen = seen || dlpi_s3_address_same(&q->a, a);
    }
    return seen;
}

/* Many connections to it that fail at once are one failure. */
static void names__address_fails_often_at_once__back_as_soon(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    dlpi_s3_address bad;
    fake_set(0, 3, 0);
    CHECK(ask_on(&q, "bucket.example") == 0);
    bad = q.a;
    for (int i = 0; i < 64; i++) CHECK(dlpi_s3_helper_tried(q.h, "bucket.example", &bad, false));
    CHECK(!gives(&q, &bad));
    age(&q, DLPI_S3_ADDRESS_BAD_NS);
    CHECK(gives(&q, &bad));
    dlpi_s3_helper_free(q.h);
}

static void names__three_addresses__in_turn_bad_ones_last(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    int first;
    dlpi_s3_address bad;
    fake_set(0, 3, 0);
    CHECK(ask(&q, "bucket.example") == 1);
    CHECK(ask_on(&q, "bucket.example") == 0);
    CHECK(sigismember(&fake_signals, SIGINT) == 1 && sigismember(&fake_signals, SIGCHLD) == 1);
    first = last_byte(&q);
    for (int i = 1; i < 7; i++) {
        CHECK(ask(&q, "bucket.example") == 0);
        CHECK(last_byte(&q) == (first - 1 + i) % 3 + 1);
    }
    bad = q.a;
    CHECK(dlpi_s3_helper_tried(q.h, "bucket.example", &bad, false));
    CHECK(!gives(&q, &bad));
    for (int i = 1; i <= 3; i++) { /* all bad: the one that has been for longest */
        q.a.at.v4.sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)i);
        if (!dlpi_s3_address_same(&q.a, &bad))
            (void)dlpi_s3_helper_tried(q.h, "bucket.example", &q.a, false);
    }
    CHECK(ask(&q, "bucket.example") == 0 && dlpi_s3_address_same(&q.a, &bad));
    CHECK(dlpi_s3_helper_tried(q.h, "bucket.example", &bad, true));
    CHECK(!dlpi_s3_helper_tried(q.h, "bucket.example", &bad, false));
    age(&q, DLPI_S3_ADDRESS_BAD_NS);
    CHECK(dlpi_s3_helper_tried(q.h, "bucket.example", &bad, false)); /* its second time: longer */
    age(&q, DLPI_S3_ADDRESS_BAD_NS);
    CHECK(!gives(&q, &bad));
    age(&q, DLPI_S3_ADDRESS_BAD_NS);
    CHECK(gives(&q, &bad));
    dlpi_s3_helper_free(q.h);
}

static void names__resolver_hangs__nobody_waits(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    uint64_t began = test_now_ns();
    int calls = fake_count(&fake_calls), over;
    fake_set(0, 1, 1);
    CHECK(ask(&q, "slow.example") == 1);
    fake_wait(&fake_calls, calls + 1);
    for (int i = 0; i < 100; i++) CHECK(ask(&q, "slow.example") == 1);
    CHECK(ask(&q, "127.0.0.1") == 0);
    over = fake_count(&fake_over);
    dlpi_s3_helper_free(q.h); /* the thread is still in there */
    CHECK_SOON(test_now_ns() - began < 2 * DLPI_S3_SECOND);
    CHECK(fake_count(&fake_calls) == calls + 1);
    fake_set(0, 1, 0);
    fake_wait(&fake_over, over + 1);
}

static void names__cached__old_ones_serve_while_asked_again(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    int calls, first;
    fake_set(0, 1, 0);
    CHECK(ask_on(&q, "a.example") == 0 && last_byte(&q) == 1);
    calls = fake_count(&fake_calls);
    age(&q, DLPI_S3_NAME_FRESH_NS - 10 * DLPI_S3_SECOND);
    CHECK(ask(&q, "a.example") == 0);
    CHECK(q.h->names->state == DLPI_S3_NAME_KNOWN && fake_count(&fake_calls) == calls);
    fake_set(0, 2, 1);
    age(&q, 10 * DLPI_S3_SECOND);
    CHECK(ask(&q, "a.example") == 0 && last_byte(&q) == 1);
    fake_wait(&fake_calls, calls + 1);
    CHECK(ask(&q, "a.example") == 0 && last_byte(&q) == 1); /* while it is asked for */
    fake_set(0, 2, 0);
    CHECK(heard(&q));
    CHECK(ask(&q, "a.example") == 0);
    first = last_byte(&q);
    CHECK(dlpi_s3_helper_tried(q.h, "a.example", &q.a, false));
    fake_set(0, 3, 0);
    age(&q, DLPI_S3_NAME_FRESH_NS);
    CHECK(dlpi_s3_helper_tried(q.h, "a.example", &q.a, false)); /* known as bad by others, too */
    CHECK(ask(&q, "a.example") == 0 && last_byte(&q) != first);
    CHECK(heard(&q));
    for (int i = 0; i < 6; i++) CHECK(ask(&q, "a.example") == 0 && last_byte(&q) != first);
    fake_set(EAI_AGAIN, 0, 0); /* a resolver that is out of order does no harm, for a time */
    age(&q, DLPI_S3_NAME_FRESH_NS);
    CHECK(ask(&q, "a.example") == 0);
    CHECK(heard(&q));
    CHECK(ask(&q, "a.example") == 0);
    age(&q, DLPI_S3_NAME_OLD_NS);
    CHECK(ask_on(&q, "a.example") == DLP_ERR_REMOTE && q.errnum == EAGAIN);
    dlpi_s3_helper_free(q.h);
}

static void names__all_addresses_fail__asked_again_after_a_second(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    int calls;
    fake_set(0, 1, 0);
    CHECK(ask_on(&q, "a.example") == 0 && last_byte(&q) == 1);
    calls = fake_count(&fake_calls);
    fake_move(7);
    CHECK(!dlpi_s3_helper_tried(q.h, "a.example", &q.a, false));
    CHECK(ask(&q, "a.example") == 0 && last_byte(&q) == 1 && fake_count(&fake_calls) == calls);
    age(&q, DLPI_S3_NAME_AGAIN_NS);
    CHECK(!dlpi_s3_helper_tried(q.h, "a.example", &q.a, false));
    CHECK(heard(&q) && fake_count(&fake_calls) == calls + 1);
    CHECK(ask(&q, "a.example") == 0 && last_byte(&q) == 8);
    fake_move(0);
    dlpi_s3_helper_free(q.h);
}

static void names__not_found__told_with_the_name(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    int calls;
    char host[300];
    fake_set(EAI_NONAME, 0, 0);
    CHECK(ask_on(&q, "none.example") == DLP_ERR_REMOTE && q.errnum == ENXIO);
    CHECK(strstr(q.why, "none.example") != NULL);
    calls = fake_count(&fake_calls);
    CHECK_SOON(ask(&q, "none.example") == DLP_ERR_REMOTE); /* remembered, for a while */
    CHECK_SOON(fake_count(&fake_calls) == calls);
    fake_set(EAI_AGAIN, 0, 0);
    age(&q, DLPI_S3_NAME_AGAIN_NS);
    CHECK(ask_on(&q, "none.example") == DLP_ERR_REMOTE && q.errnum == EAGAIN);
    CHECK_SOON(fake_count(&fake_calls) == calls + 1);
    memset(host, 'x', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    CHECK(ask(&q, host) == DLP_ERR_ARG && q.why[0]);
    dlpi_s3_helper_free(q.h);
}

static void names__many__the_long_unused_make_room(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    char host[32];
    int calls;
    fake_set(0, 1, 0);
    for (int i = 0; i < 3 * DLPI_S3_NAMES_MAX; i++) {
        snprintf(host, sizeof host, "bucket%d.example", i);
        CHECK(ask_on(&q, host) == 0);
    }
    CHECK(q.h->n_names == DLPI_S3_NAMES_MAX);
    calls = fake_count(&fake_calls);
    CHECK(ask(&q, host) == 0 && fake_count(&fake_calls) == calls);
    CHECK(ask(&q, "bucket0.example") == 1);
    CHECK(ask_on(&q, "bucket0.example") == 0);
    dlpi_s3_helper_free(q.h);
}

/* ---- credentials, as a job ---- */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int holders, runs, hang, code;
    uint64_t seen;
} fake_client;

/* hang: 1: until it is told to stop; 2: for longer. */
static int fake_refresh(void *user, uint64_t seen, bool force, const uint32_t *stop,
                        dlp_s3_error *err) {
    fake_client *f = user;
    int code;
    pthread_mutex_lock(&f->lock);
    f->runs++;
    f->seen = seen + force;
    pthread_cond_broadcast(&f->change);
    while (f->hang == 1 && !DLPI_LOAD_RLX(stop)) {
        pthread_mutex_unlock(&f->lock);
        poll(NULL, 0, 1);
        pthread_mutex_lock(&f->lock);
    }
    while (f->hang == 2) pthread_cond_wait(&f->change, &f->lock);
    code = f->code;
    pthread_mutex_unlock(&f->lock);
    return code ? dlpi_s3_set_error(err, code, 0, "no credentials") : 0;
}

static void fake_hold(void *user, int n) {
    fake_client *f = user;
    pthread_mutex_lock(&f->lock);
    f->holders += n;
    pthread_cond_broadcast(&f->change);
    pthread_mutex_unlock(&f->lock);
}

static void fake_keep(void *user) { fake_hold(user, 1); }

static void fake_drop(void *user) { fake_hold(user, -1); }

static void refresh__asked__ends_with_wake_word_and_code(void) {
    fake_client f = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0};
    dlpi_s3_owner owner = {&f, fake_refresh, fake_keep, fake_drop};
    asked q = {.h = dlpi_s3_helper_new(&owner)};
    dlp_s3_error err;
    CHECK(f.holders == 1);
    CHECK(dlpi_s3_helper_refreshed(q.h, &err) == 0);
    CHECK(dlpi_s3_helper_refresh(q.h, 4, true) == 0);
    CHECK(heard(&q));
    CHECK(dlpi_s3_helper_refreshed(q.h, &err) == 1 && err.code == 0 && f.seen == 5);
    f.code = DLP_ERR_REMOTE;
    CHECK(dlpi_s3_helper_refresh(q.h, 5, false) == 0);
    CHECK(heard(&q));
    CHECK(dlpi_s3_helper_refreshed(q.h, &err) == 2 && err.code == DLP_ERR_REMOTE);
    CHECK(strcmp(err.message, "no credentials") == 0);
    dlpi_s3_helper_free(q.h);
    CHECK(f.holders == 0);
    q.h = dlpi_s3_helper_new(NULL);
    CHECK(dlpi_s3_helper_refresh(q.h, 0, true) == DLP_ERR_ARG && !q.h->started);
    dlpi_s3_helper_free(q.h);
}

static dlpi_s3_helper *hang(fake_client *f, int how) {
    dlpi_s3_owner owner = {f, fake_refresh, fake_keep, fake_drop};
    dlpi_s3_helper *h = dlpi_s3_helper_new(&owner);
    f->hang = how;
    CHECK(dlpi_s3_helper_refresh(h, 1, false) == 0);
    pthread_mutex_lock(&f->lock);
    while (f->runs == 0) pthread_cond_wait(&f->change, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return h;
}

static void refresh__runs_at_close__given_up(void) {
    fake_client f = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0};
    dlpi_s3_helper_free(hang(&f, 1));
    CHECK(f.holders == 0); /* its thread has ended, too */
}

static void refresh__hangs_at_close__client_is_held_until_it_ends(void) {
    fake_client f = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0};
    dlpi_s3_helper_free(hang(&f, 2));
    pthread_mutex_lock(&f.lock);
    CHECK(f.holders == 1);
    f.hang = 0;
    pthread_cond_broadcast(&f.change);
    while (f.holders != 0) pthread_cond_wait(&f.change, &f.lock);
    pthread_mutex_unlock(&f.lock);
}

static void helper__in_child__refuses_names_and_frees(void) {
    asked q = {.h = dlpi_s3_helper_new(NULL)};
    int status = 1;
    pid_t pid;
    fake_set(0, 1, 0);
    CHECK(ask_on(&q, "a.example") == 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int bad = ask(&q, "a.example") != DLP_ERR_FORKED || ask(&q, "127.0.0.1") != 0 ||
                  dlpi_s3_helper_refresh(q.h, 1, true) == 0;
        dlpi_s3_helper_free(q.h);
        _exit(bad);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(ask_on(&q, "b.example") == 0);
    dlpi_s3_helper_free(q.h);
}

/* ---- names, under requests ---- */

static dlp_s3_io *io_for(const s3_mock *m, dlp_s3 **s3) {
    dlp_s3_desc desc = {
        .anonymous = 1, .style = DLP_S3_STYLE_VIRTUAL, .hedge_percent = -1, .backoff_max_ms = 200};
    char url[64];
    const char *port = strrchr(m->url, ':');
    dlp_s3_io *io = NULL;
    dlp_s3_error err;
    snprintf(url, sizeof url, "http://s3.test%s", port ? port : "");
    desc.endpoint = url;
    CHECK(dlp_s3_open(s3, &desc, &err) == DLP_OK && dlp_s3_io_open(&io, *s3, &err) == DLP_OK);
    return io;
}

static int get_one(dlp_s3_io *io, const char *bucket) {
    char body[64];
    uint64_t n = 0;
    dlp_s3_error err;
    int code = dlp_s3_get(io, bucket, "key", body, sizeof body, &n, &err);
    CHECK(code != DLP_OK || n == 50);
    return code;
}

static void request__name_hangs__others_go_on(void) {
    s3_mock *m = s3_mock_start();
    dlp_s3 *s3 = NULL;
    dlp_s3_io *io = io_for(m, &s3);
    dlp_s3_request slow, *done = NULL;
    char body[64];
    int calls;
    s3_mock_object(m, "/key", 50);
    fake_set(0, 1, 0);
    CHECK(get_one(io, "fast") == DLP_OK);
    calls = fake_count(&fake_calls);
    fake_set(0, 1, 1);
    memset(&slow, 0, sizeof slow);
    slow.bucket = "slow";
    slow.key = "key";
    slow.body = body;
    slow.capacity = sizeof body;
    CHECK(dlp_s3_submit(io, &slow) == DLP_OK);
    CHECK(dlp_s3_reap(io, &done, 1, DLP_NOWAIT) == 0);
    fake_wait(&fake_calls, calls + 1);
    for (int i = 0; i < 5; i++) CHECK(get_one(io, "fast") == DLP_OK);
    CHECK(dlp_s3_reap(io, &done, 1, DLP_NOWAIT) == 0);
    fake_set(0, 1, 0);
    CHECK(dlp_s3_reap(io, &done, 1, 20000) == 1 && done == &slow && slow.code == DLP_OK);

    fake_set(0, 1, 1); /* closed while a name is looked up: nobody waits, nothing is written */
    calls = fake_count(&fake_calls);
    slow.bucket = "slower";
    CHECK(dlp_s3_submit(io, &slow) == DLP_OK);
    CHECK(dlp_s3_reap(io, &done, 1, DLP_NOWAIT) == 0);
    fake_wait(&fake_calls, calls + 1);
    calls = fake_count(&fake_over);
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    CHECK(fake_count(&fake_over) == calls);
    fake_set(0, 1, 0);
    fake_wait(&fake_over, calls + 1);
    s3_mock_stop(m);
}

/* The server is at one of three addresses: which one is found out at once, and at no cost. */
static void request__dead_addresses__others_tried_at_once(void) {
    s3_mock *m = s3_mock_start();
    s3_mock_object(m, "/key", 50);
    fake_set(0, 3, 0);
    for (int i = 0; i < 6; i++) {
        dlp_s3 *s3 = NULL;
        dlp_s3_io *io = io_for(m, &s3);
        dlp_s3_stats stats;
        CHECK(get_one(io, "bucket") == DLP_OK);
        dlp_s3_stats_get(s3, &stats);
        CHECK(stats.retries == 0 && stats.objects == 1);
        dlp_s3_io_close(io);
        CHECK(dlp_s3_close(s3) == DLP_OK);
    }
    s3_mock_stop(m);
}

/* The server has moved: its name leads to another address, which the client learns soon. */
static void request__server_moved__found_soon(void) {
    s3_mock *m = s3_mock_start();
    dlp_s3 *s3 = NULL;
    dlp_s3_io *io = io_for(m, &s3);
    char body[64];
    dlp_s3_request r = {.bucket = "bucket", .key = "key", .body = body, .capacity = sizeof body};
    dlp_s3_request *done = NULL;
    s3_mock_object(m, "/key", 50);
    fake_set(0, 2, 0);
    fake_move(4);
    CHECK(dlp_s3_submit(io, &r) == DLP_OK && dlp_s3_reap(io, &done, 1, 500) == 0);
    fake_move(0);
    CHECK_SOON(dlp_s3_reap(io, &done, 1, 4000) == 1);
    CHECK(done == NULL || (done == &r && r.code == DLP_OK));
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(m);
}

/* A listener at another address with the same port, whose queue is full. */
static void be_silent(int fds[4], uint32_t address, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(address),
                            .sin_port = htons((uint16_t)port)};
    struct pollfd set = {.events = POLLOUT};
    int one = 1;
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fds[0], SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    CHECK(bind(fds[0], (struct sockaddr *)&a, sizeof a) == 0 && listen(fds[0], 0) == 0);
    for (int i = 1; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fds[i], (struct sockaddr *)&a, sizeof a);
        if (i == 1) set.fd = fds[i];
    }
    CHECK(poll(&set, 1, 20000) == 1);
}

/* One of two addresses says nothing: a lone request does not wait until it could not connect. */
static void request__silent_address__another_is_tried_beside_it(void) {
    s3_mock *m = s3_mock_start();
    int fds[2][4], port = m->port;
    s3_mock_object(m, "/key", 50);
    be_silent(fds[0], 0x7f000002u, port);
    for (int i = 0; i < 8; i++) {
        dlp_s3 *s3 = NULL;
        dlp_s3_io *io = io_for(m, &s3);
        dlp_s3_stats stats;
        uint64_t began = test_now_ns();
        fake_set(0, 2, 0);
        CHECK(get_one(io, "bucket") == DLP_OK);
        CHECK_SOON(test_now_ns() - began < 1500 * DLPI_S3_MS);
        dlp_s3_stats_get(s3, &stats);
        CHECK_SOON(stats.timeouts == 0 && stats.retries == 0);
        CHECK(io->last_origin->opening == 0 && io->last_origin->connections == stats.connections);
        for (int k = 0; k < 3; k++) CHECK(get_one(io, "bucket") == DLP_OK);
        dlp_s3_io_close(io);
        CHECK(dlp_s3_close(s3) == DLP_OK);
    }
    s3_mock_stop(m);
    be_silent(fds[1], 0x7f000001u, port); /* both: an error, in the time of the second */
    for (int i = 0; i < 2; i++) {
        dlp_s3_desc desc = {.anonymous = 1,
                            .style = DLP_S3_STYLE_VIRTUAL,
                            .max_attempts = 1,
                            .connect_timeout_ms = 700};
        uint64_t began = test_now_ns();
        char url[64];
        dlp_s3 *s3 = NULL;
        dlp_s3_io *io = NULL;
        dlp_s3_error err;
        snprintf(url, sizeof url, "http://s3.test:%d", port);
        desc.endpoint = url;
        CHECK(dlp_s3_open(&s3, &desc, &err) == DLP_OK && dlp_s3_io_open(&io, s3, &err) == DLP_OK);
        CHECK(get_one(io, "bucket") == DLP_ERR_REMOTE);
        CHECK_SOON(test_now_ns() - began < 2500 * DLPI_S3_MS);
        CHECK(test_now_ns() - began >= 1000 * DLPI_S3_MS);
        CHECK(io->last_origin->opening == 0 && io->connections_out == 0);
        dlp_s3_io_close(io);
        CHECK(dlp_s3_close(s3) == DLP_OK);
    }
    for (int i = 0; i < 8; i++) close(fds[i / 4][i % 4]);
}

/* Hosts beyond those that an io has room for: of those that nobody asks any more one makes room,
   whatever its connections are about; only where all are asked is there none. */
static void request__17_hosts__room_but_where_all_are_asked(void) {
    enum { HOSTS = DLPI_S3_ORIGINS };
    static dlp_s3_request r[HOSTS + 1];
    static char name[HOSTS + 1][16], body[HOSTS + 1][64];
    s3_mock *m = s3_mock_start();
    dlp_s3 *s3 = NULL;
    dlp_s3_io *io = io_for(m, &s3);
    dlp_s3_request *done[HOSTS + 1];
    int last = DLP_OK;
    fake_set(0, 1, 0);
    s3_mock_object(m, "/key", 50);
    for (int i = 0; i <= HOSTS; i++) {
        snprintf(name[i], sizeof name[i], "bucket-%d", i);
        CHECK(get_one(io, name[i]) == DLP_OK);
    }
    for (int i = 0; i <= HOSTS; i++) {
        memset(&r[i], 0, sizeof r[i]);
        r[i].bucket = name[i], r[i].key = "key", r[i].body = body[i], r[i].capacity = 64;
        last = dlp_s3_submit(io, &r[i]);
        CHECK(last == (i < HOSTS ? DLP_OK : DLP_FULL));
    }
    CHECK(dlp_s3_reap(io, done, 1, 10000) == 1);
    CHECK(dlp_s3_submit(io, &r[HOSTS]) == DLP_OK);
    for (int n = 0, got = 1; n < HOSTS && got > 0; n += got) {
        got = dlp_s3_reap(io, done, HOSTS, 10000);
        CHECK(got > 0 && done[0]->code == DLP_OK);
    }
    dlp_s3_io_close(io);
    CHECK(dlp_s3_io_open(&io, s3, NULL) == DLP_OK);
    s3_mock_object(m, "/long", 5000); /* the rest of its answer, wanted by nobody, is awaited */
    s3_mock_on(m, "/long", -1, (s3_mock_reply){.pause_at = 1000, .pause_ms = 5000});
    for (int i = 0; i < HOSTS; i++)
        CHECK(dlp_s3_get(io, name[i], "long", body[i], 10, NULL, NULL) == DLP_ERR_LENGTH);
    CHECK(io->connections_out == HOSTS && io->over.out == 0);
    CHECK(get_one(io, name[HOSTS]) == DLP_OK);
    dlp_s3_io_close(io);
    CHECK(dlp_s3_close(s3) == DLP_OK);
    s3_mock_stop(m);
}

static void resolve__many_kinds__those_of_tcp_with_a_route(void) {
    dlpi_s3_address at[2];
    char why[200];
    int errnum = 0;
    fake_set(0, 3, 0);
    CHECK(dlpi_s3_resolve("a.example", 80, at, 2, &errnum, why, sizeof why) == 2);
    CHECK(at[0].at.v4.sin_port == htons(80) && at[0].n == sizeof at[0].at.v4);
    CHECK(!dlpi_s3_address_same(&at[0], &at[1]));
    CHECK(dlpi_s3_resolve("::1", 80, at, 2, &errnum, why, sizeof why) == 1);
    fake_set(0, 0, 0);
    CHECK(dlpi_s3_resolve("a.example", 80, at, 2, &errnum, why, sizeof why) == DLP_ERR_REMOTE);
    CHECK(errnum == ENXIO && strstr(why, "a.example"));
}

int main(void) {
    request__name_hangs__others_go_on();
    request__dead_addresses__others_tried_at_once();
    test_tries(request__server_moved__found_soon);
    request__17_hosts__room_but_where_all_are_asked();
    resolve__many_kinds__those_of_tcp_with_a_route();
    test_tries(request__silent_address__another_is_tried_beside_it);
    names__numbers__no_thread_no_resolver();
    names__address_fails_often_at_once__back_as_soon();
    names__three_addresses__in_turn_bad_ones_last();
    test_tries(names__resolver_hangs__nobody_waits);
    names__cached__old_ones_serve_while_asked_again();
    names__all_addresses_fail__asked_again_after_a_second();
    test_tries(names__not_found__told_with_the_name);
    names__many__the_long_unused_make_room();
    refresh__asked__ends_with_wake_word_and_code();
    refresh__runs_at_close__given_up();
    refresh__hangs_at_close__client_is_held_until_it_ends();
    helper__in_child__refuses_names_and_frees();
    conn__two_families__bytes_both_ways();
    conn__nobody_listens__refused_with_address();
    conn__no_way_there__told_at_once();
    conn__listener_closes_before_accept__reset();
    conn__reset__broken_and_no_sigpipe();
    conn__half_closed__still_written();
    conn__signals_and_full_socket__all_bytes_once();
    transport__plugged_in__all_bytes_through_it();
    transport__returns_what_cannot_be__broken();
    transport__refuses__its_words_and_kind();
    transport__child_closes__parent_goes_on();
    return test_end("s3_transport");
}
