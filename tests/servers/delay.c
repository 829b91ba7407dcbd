/* A long link: two network namespaces, and between them two TUN devices that this program connects,
   keeping each packet for a while. For kernels without netem, and for users without rights.

   delay ONE_WAY_MS MTU SERVER.. -- CLIENT..

   CLIENT runs as 10.199.0.1 in one namespace, SERVER as 10.199.0.2 in the other. Each has a
   loopback of its own, and nothing else. When one of them ends, the other one gets SIGTERM; the
   exit code is that of the first, which should be CLIENT. However it ends, nothing is left: no
   namespace or device has a name. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PACKET = 65536 };
#define RING_BYTES ((uint64_t)256 << 20)

/* One direction. Packets lie in the ring one behind the other, each behind a stamp. Positions only
   grow; head is where the oldest lies. */
struct way {
    int from, to;
    uint64_t delay_ns, head, tail;
    unsigned char *ring; /* mapped twice in a row, so that no packet is in two parts */
};

struct stamp {
    uint64_t due_ns, bytes;
};

static void die(const char *what) {
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static unsigned char *ring_new(void) {
    int fd = memfd_create("delay", MFD_CLOEXEC);
    unsigned char *p = mmap(NULL, 2 * RING_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || ftruncate(fd, (off_t)RING_BYTES) != 0 || p == MAP_FAILED) {
        die("a ring of packets");
    }
    for (int i = 0; i < 2; i++) {
        if (mmap(p + (uint64_t)i * RING_BYTES, RING_BYTES, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            die("a ring of packets");
        }
    }
    close(fd);
    return p;
}

/* Take what has come, up to a number of packets. A full ring drops them, as routers do. */
static void take(struct way *w) {
    for (int i = 0; i < 64; i++) {
        struct stamp *s = (void *)(w->ring + w->tail % RING_BYTES);
        if (w->tail - w->head + sizeof *s + MAX_PACKET > RING_BYTES) { return; }
        ssize_t n = read(w->from, s + 1, MAX_PACKET);
        if (n <= 0) { return; }
        s->due_ns = now_ns() + w->delay_ns;
        s->bytes = (uint64_t)n;
        w->tail += sizeof *s + (((uint64_t)n + 7) & ~(uint64_t)7);
    }
}

/* Pass on what is due. Returns the nanoseconds until the next packet is, or UINT64_MAX. */
static uint64_t give(struct way *w) {
    uint64_t now = now_ns();
    while (w->head != w->tail) {
        struct stamp *s = (void *)(w->ring + w->head % RING_BYTES);
        if (s->due_ns > now && s->due_ns > (now = now_ns())) { return s->due_ns - now; }
        if (write(w->to, s + 1, s->bytes) < 0 && errno == EAGAIN) { return 20000; }
        w->head += sizeof *s + ((s->bytes + 7) & ~(uint64_t)7);
    }
    return UINT64_MAX;
}

static void *carry(void *arg) {
    struct way *w = arg;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        take(w);
        uint64_t left = give(w);
        struct pollfd in = {w->from, POLLIN, 0};
        struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        ppoll(&in, 1, left == UINT64_MAX ? NULL : &t, NULL);
    }
    return NULL;
}

/* Set an interface of this namespace up; address NULL: the loopback, which has one. */
static void up(const char *name, const char *address, int mtu) {
    struct ifreq r;
    struct sockaddr_in a = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memset(&r, 0, sizeof r);
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    if (address != NULL) {
        inet_pton(AF_INET, address, &a.sin_addr);
        memcpy(&r.ifr_addr, &a, sizeof a);
        if (ioctl(s, SIOCSIFADDR, &r) != 0) { die(address); }
        inet_pton(AF_INET, "255.255.255.252", &a.sin_addr);
        memcpy(&r.ifr_netmask, &a, sizeof a);
        if (ioctl(s, SIOCSIFNETMASK, &r) != 0) { die("its mask"); }
        r.ifr_mtu = mtu;
        if (ioctl(s, SIOCSIFMTU, &r) != 0) { die("the MTU"); }
        r.ifr_qlen = 20000;
        ioctl(s, SIOCSIFTXQLEN, &r); /* who may not has the usual 500 packets */
    }
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(s, SIOCSIFFLAGS, &r) != 0) { die(name); }
    close(s);
}

/* Move this process into a network namespace of its own, with one TUN device. Returns that. */
static int enter_namespace(const char *address, int mtu) {
    struct ifreq r;
    if (unshare(CLONE_NEWNET) != 0) { die("a network namespace"); }
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    memset(&r, 0, sizeof r);
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    snprintf(r.ifr_name, sizeof r.ifr_name, "long0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) != 0) { die("/dev/net/tun"); }
    up("lo", NULL, 0);
    up("long0", address, mtu);
    return fd;
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) { die(path); }
    close(fd);
}

/* Who is not root becomes it in a user namespace, where that is allowed. */
static void gain_rights(void) {
    char line[32];
    int uid = (int)geteuid(), gid = (int)getegid();
    if (uid == 0) { return; }
    if (unshare(CLONE_NEWUSER) != 0) { die("a user namespace"); }
    write_file("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "0 %d 1\n", uid);
    write_file("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "0 %d 1\n", gid);
    write_file("/proc/self/gid_map", line);
}

/* Send the descriptor to the other end of the socket, or take it from there (fd -1). */
static int pass(int s, int fd) {
    char byte = 0, space[CMSG_SPACE(sizeof fd)];
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    memset(space, 0, sizeof space);
    if (fd < 0) {
        if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != 1 || CMSG_FIRSTHDR(&m) == NULL) {
            exit(1); /* the child has said why */
        }
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
        return fd;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(s, &m, 0) == 1 ? 0 : -1;
}

/* Start a program in a namespace of its own, which ends when this one does. */
static pid_t start(char **command, const char *address, int mtu, int *tun) {
    int s[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) != 0) { die("a socket pair"); }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent || pass(s[0], enter_namespace(address, mtu)) != 0) { _exit(1); }
        execvp(command[0], command);
        die(command[0]);
    }
    close(s[0]);
    *tun = pass(s[1], -1);
    close(s[1]);
    return pid;
}

int main(int argc, char **argv) {
    int split = 4;
    while (split < argc && strcmp(argv[split], "--") != 0) { split++; }
    if (split < 4 || split + 1 >= argc) {
        fputs("delay ONE_WAY_MS MTU SERVER.. -- CLIENT..\n", stderr);
        return 2;
    }
    argv[split] = NULL;
    uint64_t ns = (uint64_t)(atof(argv[1]) * 1e6);
    int near, far, mtu = atoi(argv[2]), status = 0;
    gain_rights();
    pid_t server = start(argv + 3, "10.199.0.2", mtu, &far);
    pid_t client = start(argv + split + 1, "10.199.0.1", mtu, &near);
    static struct way way[2];
    way[0] = (struct way){near, far, ns, 0, 0, ring_new()};
    way[1] = (struct way){far, near, ns, 0, 0, ring_new()};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, carry, &way[i]) != 0) { die("a thread"); }
    }
    pid_t first, other;
    while ((first = wait(&status)) < 0 && errno == EINTR) {}
    other = first == client ? server : client;
    kill(other, SIGTERM);
    waitpid(other, NULL, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return first == client || code != 0 ? code : 1;
}
