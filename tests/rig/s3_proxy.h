/* A proxy of a few lines, with a thread for each connection: whatever host it is told, it leads to
   one port of this machine. It tunnels (CONNECT), and takes requests that have the whole URL.

     proxy *p = proxy_start(port);      http://127.0.0.1:p->port
     p->answer = "HTTP/1.1 407 No..."   under p->lock: what it says instead
     proxy_stop(p);

   Include behind s3_mock.h. */
#ifndef S3_PROXY_H
#define S3_PROXY_H

typedef struct proxy {
    int listener, port, stop;
    int target; /* the port of this machine that all hosts are */
    pthread_t thread;
    pthread_mutex_t lock; /* for: */
    const char *answer;   /* in place of its own; "hang": none; NULL: it does as it is told */
    int answers;          /* so many times; 0: always */
    int slow;             /* its answer comes byte by byte */
    int connections, tunnels;
    char head[4096]; /* the last request's */
} proxy;

typedef struct proxied {
    proxy *p;
    int fd;
} proxied;

/* Carry bytes both ways until one of them ends. */
static void proxy_carry(const proxy *p, int a, int b) {
    struct pollfd set[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    char bytes[65536];
    while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) {
        if (poll(set, 2, 50) < 0) return;
        for (int i = 0; i < 2; i++) {
            ssize_t got, put = 0;
            if (!set[i].revents) continue;
            got = recv(set[i].fd, bytes, sizeof bytes, 0);
            if (got <= 0) return;
            while (put < got) {
                ssize_t n = send(set[1 - i].fd, bytes + put, (size_t)(got - put), MSG_NOSIGNAL);
                if (n <= 0) return;
                put += n;
            }
        }
    }
}

static int proxy_dial(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

/* Read a head. Returns its bytes, or 0. */
static size_t proxy_hear(const proxy *p, int fd, char *to, size_t size) {
    size_t n = 0;
    while (n < size - 1) {
        struct pollfd set = {.fd = fd, .events = POLLIN};
        if (__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) return 0;
        if (poll(&set, 1, 50) != 1) continue;
        if (recv(fd, to + n, 1, 0) != 1) return 0;
        to[++n] = '\0';
        if (n >= 4 && memcmp(to + n - 4, "\r\n\r\n", 4) == 0) return n;
    }
    return 0;
}

static void proxy_answer(const proxy *p, int fd, const char *text) {
    size_t n = strlen(text);
    if (strcmp(text, "hang") == 0) {
        char byte;
        while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED) &&
               recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0)
            usleep(5000);
        return;
    }
    for (size_t i = 0; i < n && p->slow; i++)
        if (send(fd, text + i, 1, MSG_NOSIGNAL) == 1) usleep(1000);
    if (!p->slow && send(fd, text, n, MSG_NOSIGNAL) < 0) return;
}

static void *proxy_serve_one(void *arg) {
    proxied *c = arg;
    proxy *p = c->p;
    char head[4096], line[4200];
    const char *own = NULL;
    int to = -1;
    bool tunnel;
    while (to < 0 && proxy_hear(p, c->fd, head, sizeof head) > 0) {
        tunnel = strncmp(head, "CONNECT ", 8) == 0;
        pthread_mutex_lock(&p->lock);
        memcpy(p->head, head, sizeof head);
        own = p->answer;
        if (own && p->answers > 0 && --p->answers == 0) p->answer = NULL;
        p->tunnels += tunnel;
        pthread_mutex_unlock(&p->lock);
        if (own) {
            proxy_answer(p, c->fd, own);
            break;
        }
        to = proxy_dial(p->target);
        if (to < 0) break;
        if (tunnel) {
            proxy_answer(p, c->fd, "HTTP/1.1 200 Connection established\r\nVia: us\r\n\r\n");
            proxy_carry(p, c->fd, to);
        } else { /* "GET http://host/path ...": one request, then the connection is closed */
            char *path = strstr(head, "://"), *rest;
            path = path ? strchr(path + 3, '/') : NULL;
            rest = path ? strstr(path, "\r\n") : NULL;
            if (!rest) break;
            snprintf(line, sizeof line, "%.*s %.*s\r\nConnection: close%s", (int)strcspn(head, " "),
                     head, (int)(rest - path), path, rest);
            if (send(to, line, strlen(line), MSG_NOSIGNAL) > 0) proxy_carry(p, c->fd, to);
        }
    }
    if (to >= 0) close(to);
    close(c->fd);
    free(c);
    return NULL;
}

static void *proxy_serve(void *arg) {
    proxy *p = arg;
    pthread_t threads[256];
    int n = 0;
    while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) {
        struct pollfd set = {.fd = p->listener, .events = POLLIN};
        proxied *c;
        int fd;
        if (poll(&set, 1, 20) != 1 || (fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
            continue;
        c = malloc(sizeof *c);
        if (!c || n == 256) abort();
        *c = (proxied){p, fd};
        pthread_mutex_lock(&p->lock);
        p->connections++;
        pthread_mutex_unlock(&p->lock);
        if (pthread_create(&threads[n++], NULL, proxy_serve_one, c) != 0) abort();
    }
    while (n > 0) pthread_join(threads[--n], NULL);
    return NULL;
}

static proxy *proxy_start(int target) {
    proxy *p = calloc(1, sizeof *p);
    if (!p) abort();
    p->target = target;
    p->listener = s3_mock_socket(&p->port);
    if (p->listener < 0 || listen(p->listener, 64) != 0) abort();
    pthread_mutex_init(&p->lock, NULL);
    if (pthread_create(&p->thread, NULL, proxy_serve, p) != 0) abort();
    return p;
}

static void proxy_stop(proxy *p) {
    __atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
    pthread_join(p->thread, NULL);
    close(p->listener);
    free(p);
}

#endif
