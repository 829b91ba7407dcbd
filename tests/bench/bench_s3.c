/* Objects of an S3 server: dlpipe's client in one thread beside curl, rclone, boto3's threads and,
   as the ceiling, wrk with presigned URLs, in interleaved rounds. bench_s3.mk starts
   servers.

   bench_s3 PLACE [-o lines.jsonl] [-s folder]

   PLACE loop: 100 KB objects at 16 and 64 in flight, processor time of each client, one object of
   256 MiB. 30ms: at 16, 64 and 256. faults: 600 objects through a front that spoils some; 503_N:
   one that answers N % of them with 503. list: all keys of "many", side by side, one page after the
   other (serial) and by peers, which take a tenth of them.
   The endpoint and keys are in the environment, the objects in bucket "many" (tests/servers/s3.py
   fill), the large one is "large/256m". */
#define DLPIPE_IMPLEMENTATION
#include "../../dlpipe.h"
#include "../../dlpipe_s3.h"

#include "bench_rig.h"

#include <sys/un.h>

enum { N_OBJECTS = 2000, OBJECT_BYTES = 100000, MAX_IN_FLIGHT = 256, LARGE_MIB = 256 };
enum { FAULTY_OBJECTS = 600, FAULTY_IN_FLIGHT = 64 };

/* One contender's sample: what its name is run for. */
struct run {
    const char *peer, *prefix;
    int in_flight, objects, n;   /* samples taken */
    double rate[MAX_ROUNDS];     /* objects/s; of the large one, GB/s; with faults, s */
    double cpu_ms[MAX_ROUNDS];   /* of the client, for an object */
    double requests[MAX_ROUNDS]; /* for an object; 0: not known */
};

static dlp_s3 *client;
static unsigned char *bodies; /* MAX_IN_FLIGHT objects, or the large one */
static const char *folder = "build/bench";
static const char *place = "";
static bool spoiled; /* objects come through a front that spoils some */

/* ---- ours ------------------------------------------------------------------------------------ */

/* As tests/servers/s3.py makes them. Looks at all of them only if it is asked to. */
static bool body_is_right(const unsigned char *body, uint64_t number, uint64_t bytes, bool all) {
    uint64_t words = bytes / 8;
    for (uint64_t i = 0; i < words; i += all ? 1 : words - 1) {
        uint64_t word;
        memcpy(&word, body + 8 * i, 8);
        if (word != (number << 32) + i) { return false; }
    }
    return true;
}

struct one_request {
    dlp_s3_request request;
    char key[32];
    uint64_t number;
};

/* Read n objects, beginning again after the last one. Returns those that were right. */
static int read_objects(dlp_s3_io *io, int n, int in_flight, bool all) {
    static struct one_request requests[MAX_IN_FLIGHT];
    dlp_s3_request *done[MAX_IN_FLIGHT];
    int begun = 0, over = 0, right = 0, idle = in_flight;
    for (int i = 0; i < in_flight; i++) {
        done[i] = &requests[i].request;
        requests[i].request.user = bodies + (size_t)i * OBJECT_BYTES;
    }
    while (over < n) {
        while (idle > 0 && begun < n) {
            struct one_request *f = (struct one_request *)(void *)done[--idle];
            f->number = (uint64_t)(begun++ % N_OBJECTS);
            snprintf(f->key, sizeof f->key, "%06" PRIu64 ".bin", f->number);
            f->request = (dlp_s3_request){.bucket = "many",
                                          .key = f->key,
                                          .body = f->request.user,
                                          .capacity = OBJECT_BYTES,
                                          .user = f->request.user};
            if (dlp_s3_submit(io, &f->request) != DLP_OK) { return right; }
        }
        int got = dlp_s3_reap(io, done + idle, in_flight - idle, 0);
        for (int i = 0; i < got; i++) {
            struct one_request *f = (struct one_request *)(void *)done[idle + i];
            bool good = f->request.code == DLP_OK && f->request.received == OBJECT_BYTES &&
                        body_is_right(f->request.body, f->number, OBJECT_BYTES, all);
            if (!good && f->request.code != DLP_OK) {
                char line[512];
                dlp_s3_error_format(&f->request.error, line, sizeof line);
                say(" [%s]", line);
            }
            right += good;
        }
        if (got <= 0) { return right; }
        idle += got;
        over += got;
    }
    return right;
}

static uint64_t requests_sent(void) {
    dlp_s3_stats stats;
    dlp_s3_stats_get(client, &stats);
    return stats.requests;
}

static bool take_ours(struct run *r, double *seconds) {
    dlp_s3_io *io = NULL;
    dlp_s3_error err;
    uint64_t requests = requests_sent();
    double begin = seconds_now(), cpu = own_cpu_seconds();
    bool right = dlp_s3_io_open(&io, client, &err) == DLP_OK;
    if (right && r->objects == 1) {
        uint64_t received = 0;
        right =
            dlp_s3_get(io, "large", "256m", bodies, LARGE_MIB * MIB, &received, &err) == DLP_OK &&
            received == LARGE_MIB * MIB;
    } else if (right) {
        right = read_objects(io, r->objects, r->in_flight, false) == r->objects;
    }
    *seconds = seconds_now() - begin;
    r->cpu_ms[r->n] = 1e3 * (own_cpu_seconds() - cpu) / r->objects;
    r->requests[r->n] = (double)(requests_sent() - requests) / r->objects;
    dlp_s3_io_close(io);
    return right && (r->objects > 1 || body_is_right(bodies, 0, LARGE_MIB * MIB, false));
}

/* List the keys that begin with a prefix. Returns whether there were so many. */
static bool take_list(struct run *r, double *seconds) {
    dlp_s3_io *io = NULL;
    dlp_s3_list *list = NULL;
    dlp_s3_object o;
    dlp_s3_error err;
    bool serial = strcmp(r->peer, "serial") == 0;
    dlp_s3_list_desc desc = {.bucket = "many", .prefix = r->prefix, .requests = serial};
    uint64_t requests = requests_sent();
    double begin = seconds_now(), cpu = own_cpu_seconds();
    int n = 0, code = dlp_s3_io_open(&io, client, &err);
    if (code == DLP_OK) { code = dlp_s3_list_open(&list, io, &desc, &err); }
    while (code == DLP_OK && (code = dlp_s3_list_next(list, &o, &err)) == DLP_OK) { n++; }
    *seconds = seconds_now() - begin;
    r->cpu_ms[r->n] = 1e3 * (own_cpu_seconds() - cpu) / r->objects;
    r->requests[r->n] = (double)(requests_sent() - requests) / r->objects * 1000;
    dlp_s3_list_close(list);
    dlp_s3_io_close(io);
    if (code != DLP_END) { say(" [%s]", err.message); }
    return code == DLP_END && n == r->objects;
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Requests that the front has seen, told by its statistics; 0 without a front. */
static double front_requests(void) {
    const char *path = getenv("S3_FAULTS_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char text[8192], *line;
    double requests = 0;
    size_t n = 0;
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (path == NULL || s < 0) { return 0; }
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (connect(s, (struct sockaddr *)&at, sizeof at) == 0 && write(s, "show stat\n", 10) == 10) {
        for (ssize_t k; (k = read(s, text + n, sizeof text - 1 - n)) > 0;) { n += (size_t)k; }
        text[n] = '\0';
        /* The 49th column of the front's line is req_tot. */
        for (line = strstr(text, "front,FRONTEND,"); line != NULL && n != 0;) {
            for (int i = 0; i < 48 && line != NULL; i++) {
                line = strchr(line, ',');
                line = line == NULL ? NULL : line + 1;
            }
            requests = line == NULL ? 0 : strtod(line, NULL);
            break;
        }
    }
    close(s);
    return requests;
}

static const char *from_env(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

/* Write what a peer is to read, once for each number of objects. */
static bool write_lists(int objects) {
    char path[512];
    snprintf(path, sizeof path, "%s/s3_urls_%d", folder, objects);
    FILE *f = fopen(path, "w");
    for (int i = 0; f != NULL && i < objects; i++) {
        fprintf(f, "url = \"%s/many/%06d.bin\"\noutput = \"/dev/null\"\n",
                from_env("AWS_ENDPOINT_URL"), i % N_OBJECTS);
    }
    if (f == NULL || fclose(f) != 0) { return false; }
    snprintf(path, sizeof path, "%s/s3_wrk.lua", folder);
    f = fopen(path, "w");
    if (f == NULL) { return false; }
    fprintf(f,
            "local requests, n = {}, 0\n"
            "function init()\n"
            "    for line in io.lines('%s/s3_signed') do\n"
            "        local path, range = line:match('^(%%S+) ?(%%S*)$')\n"
            "        local headers = range ~= '' and {Range = range} or nil\n"
            "        requests[#requests + 1] = wrk.format('GET', path, headers)\n"
            "    end\n"
            "end\n"
            "function request() n = n %% #requests + 1 return requests[n] end\n",
            folder);
    return fclose(f) == 0;
}

/* The command of a peer, for the shell, which is replaced by it. */
static bool peer_command(const struct run *r, char *command, size_t size) {
    bool large = r->objects == 1;
    const char *url = from_env("AWS_ENDPOINT_URL");
    int n = 0;
    if (strcmp(r->peer, "curl") == 0) {
        char what[300];
        snprintf(what, sizeof what, large ? "-o /dev/null %s/large/256m" : "-K %s/s3_urls_%d",
                 large ? url : folder, r->objects);
        n = snprintf(command, size,
                     "exec curl -sSfZ --parallel-immediate --parallel-max %d --retry 8 "
                     "--retry-all-errors -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --aws-sigv4 "
                     "aws:amz:%s:s3 --user '%s:%s' %s 2>/dev/null",
                     r->in_flight, from_env("AWS_REGION"), from_env("AWS_ACCESS_KEY_ID"),
                     from_env("AWS_SECRET_ACCESS_KEY"), what);
    } else if (strcmp(r->peer, "rclone") == 0) {
        char some[64] = "";
        if (r->objects == FAULTY_OBJECTS) {
            snprintf(some, sizeof some, "--include '000[0-5]??.bin'");
        }
        n = snprintf(command, size,
                     "RCLONE_CONFIG=/dev/null exec rclone copy \":s3,provider=Ceph,env_auth=true,"
                     "endpoint='%s',region=%s,force_path_style=true:%s\" /dev/shm/dlpipe-rclone "
                     "--transfers %d --checkers 8 --no-check-dest --ignore-checksum --no-traverse "
                     "--fast-list --stats 0 --multi-thread-streams %d --low-level-retries 20 %s",
                     url, from_env("AWS_REGION"), large ? "large/256m" : "many", r->in_flight,
                     r->in_flight, some);
    } else if (strcmp(r->peer, "boto3") == 0) {
        char what[32];
        snprintf(what, sizeof what, large ? "256m" : "%d", r->objects);
        n = snprintf(command, size, "exec /usr/bin/python3 tests/bench/bench_s3.py boto3 %s %s %d",
                     large ? "large" : "many", what, r->in_flight);
    } else if (strcmp(r->peer, "obstore") == 0) {
        n = snprintf(command, size,
                     "exec build/peers/bin/python tests/bench/bench_s3.py obstore "
                     "many %d %d",
                     r->objects, r->in_flight);
    } else if (strcmp(r->peer, "wrk") == 0) {
        n = snprintf(command, size, "exec wrk -t1 -c%d -d%d -s %s/s3_wrk.lua --timeout 10s %s",
                     r->in_flight,
                     quick                        ? 1
                     : strcmp(place, "30ms") == 0 ? 5
                                                  : 3,
                     folder, url);
    }
    return n > 0 && (size_t)n < size;
}

/* Run a command to its end. Returns whether it ended well; what it said is in text. */
static bool run_command(const char *command, char *text, size_t size, double *cpu) {
    const char *argv[] = {"sh", "-c", command, NULL};
    struct child c = {.most_s = 0};
    bool good = run_child(&c, "/bin/sh", argv, text, size);
    *cpu = bench_cpu_seconds(&c.used);
    return good;
}

static bool take_peer(struct run *r, double *seconds) {
    char command[2048], text[4096];
    double cpu = 0, requests = front_requests(), objects = r->objects;
    bool wrk = strcmp(r->peer, "wrk") == 0;
    if (r->prefix != NULL) {
        snprintf(command, sizeof command, "exec %s tests/bench/bench_s3.py list %s %s %d",
                 strcmp(r->peer, "obstore") == 0 ? "build/peers/bin/python" : "/usr/bin/python3",
                 r->peer, r->prefix, r->objects);
    } else if (!peer_command(r, command, sizeof command)) {
        return false;
    }
    double begin = seconds_now();
    bool good = run_command(command, text, sizeof text, &cpu);
    *seconds = seconds_now() - begin;
    if (good && (strcmp(r->peer, "boto3") == 0 || strcmp(r->peer, "obstore") == 0)) {
        good = sscanf(text, "%lf %lf", seconds, &cpu) == 2;
    } else if (good && wrk) {
        const char *rate = strstr(text, "Requests/sec:"), *n = strstr(text, " requests in");
        good = rate != NULL && n != NULL && strstr(text, "Non-2xx") == NULL;
        while (good && n > text && n[-1] >= '0' && n[-1] <= '9') { n--; }
        objects = good ? atof(n) : 1;
        *seconds = good ? r->objects / atof(rate + 13) : 0;
    } else if (strcmp(r->peer, "rclone") == 0) {
        double ignored;
        good = run_command("rm -rf /dev/shm/dlpipe-rclone", text, sizeof text, &ignored) && good;
    }
    r->cpu_ms[r->n] = 1e3 * cpu / objects;
    r->requests[r->n] = (front_requests() - requests) / r->objects;
    return good;
}

/* Take one sample: objects/s, or GB/s of the large one, or seconds with faults. */
static double sample(void *arg) {
    struct run *r = arg;
    double seconds = 0, rate = NAN;
    bool ours = strcmp(r->peer, "dlpipe") == 0 || strcmp(r->peer, "serial") == 0;
    if (!ours               ? take_peer(r, &seconds)
        : r->prefix != NULL ? take_list(r, &seconds)
                            : take_ours(r, &seconds)) {
        rate = spoiled ? seconds : r->objects / seconds;
        if (r->objects == 1) { /* wrk reads it in ranges of 8 MiB */
            double bytes = strcmp(r->peer, "wrk") == 0 ? 8 * MIB : LARGE_MIB * MIB;
            rate *= bytes * 1e-9;
        }
    } else {
        failures += ours;
        r->cpu_ms[r->n] = NAN;
        r->requests[r->n] = NAN;
    }
    r->rate[r->n++] = rate;
    return rate;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *const peers[] = {"dlpipe", "wrk",     "curl",  "rclone",
                                    "boto3",  "obstore", "serial"};
enum { N_PEERS = sizeof peers / sizeof *peers };
static char versions[N_PEERS][48];

static void look_for_peers(void) {
    static const char *const ask[N_PEERS] = {
        "true",
        "wrk -v 2>&1 | sed -n 's/^wrk [^0-9]*\\([0-9.]*\\).*/\\1/p'; true",
        "curl --version | sed -n '1s/^curl \\([0-9.]*\\).*/\\1/p'",
        "rclone version | sed -n '1s/^rclone v//p'",
        "/usr/bin/python3 -c 'import boto3; print(boto3.__version__)' 2>/dev/null",
        "build/peers/bin/python -c 'import obstore; print(obstore.__version__)' 2>/dev/null",
        "echo 1"};
    const char *some = getenv("PEERS");
    for (int i = 0; i < N_PEERS; i++) {
        double cpu;
        if (some != NULL && i > 0 && strcmp(peers[i], "serial") != 0 &&
            strstr(some, peers[i]) == NULL) {
            continue;
        }
        if (!run_command(ask[i], versions[i], sizeof versions[i], &cpu)) { versions[i][0] = '\0'; }
        versions[i][strcspn(versions[i], "\n")] = '\0';
    }
}

struct row {
    struct series series;
    struct run run[N_PEERS];
};

/* Whether a peer has a row of this place. */
static bool takes_part(const char *peer) {
    bool list = strcmp(place, "list") == 0, unavailable = strncmp(place, "503_", 4) == 0;
    if (strcmp(peer, "serial") == 0) { return list; }
    if (strcmp(peer, "obstore") == 0) { return list || unavailable; }
    if (strcmp(peer, "wrk") == 0) { return !list && !spoiled; }
    return !list || strcmp(peer, "boto3") == 0;
}

static void row_begin(struct row *row, int in_flight, int objects) {
    memset(row, 0, sizeof *row);
    row->series.any_distance = true;
    for (int i = 0; i < N_PEERS; i++) {
        struct run *r = &row->run[row->series.n_who];
        bool list = strcmp(place, "list") == 0;
        if ((i > 0 && versions[i][0] == '\0') || (i > 0 && !takes_part(peers[i]))) { continue; }
        *r = (struct run){.peer = peers[i], .in_flight = in_flight, .objects = objects};
        if (list) {
            r->prefix = i == 0 ? "k" : quick ? "k00000" : "k0000";
            r->objects = i == 0 ? objects : objects / 10;
        } else if (strcmp(peers[i], "boto3") == 0 && objects > FAULTY_OBJECTS) {
            r->objects = FAULTY_OBJECTS; /* the slowest by far */
        } else if (strcmp(peers[i], "rclone") == 0 && objects > N_OBJECTS) {
            r->objects = N_OBJECTS;
        }
        compete(&row->series, peers[i], versions[i], sample, r);
    }
}

/* Lines of one figure of all contenders, which may be another one than that of the rounds. */
static void row_put(struct row *row, const struct measure *m, size_t figure) {
    struct series s = row->series;
    for (int i = 0; i < s.n_who; i++) {
        memcpy(s.value[i], (char *)&row->run[i] + figure, sizeof row->run[i].rate);
    }
    put(m, &s, 0, s.n_who > 1 ? 1 : -1);
    for (int i = 2; i < s.n_who; i++) { put(m, &s, 0, i); }
}

static int rounds_of(int rounds) {
    return getenv("ROUNDS") != NULL ? atoi(getenv("ROUNDS")) : quick ? 1 : rounds;
}

static void bench_small(int in_flight, int objects) {
    static struct row row;
    char title[64];
    struct measure m = {.bench = title, .unit = "object/s"};
    snprintf(title, sizeof title, "s3_100k_%s_c%d", place, in_flight);
    write_lists(objects);
    row_begin(&row, in_flight, objects);
    run_rounds(&row.series, title, rounds_of(strcmp(place, "30ms") == 0 ? 3 : 5));
    row_put(&row, &m, offsetof(struct run, rate));
    m = (struct measure){.bench = "s3_cpu_ms_per_object", .unit = "ms", .lower_is_better = true};
    snprintf(m.extra, sizeof m.extra, ",\"at\":\"%s_c%d\"", place, in_flight);
    row_put(&row, &m, offsetof(struct run, cpu_ms));
}

static void bench_large(void) {
    static struct row row;
    struct measure m = {.bench = "s3_256m", .unit = "GB/s"};
    row_begin(&row, 8, 1);
    run_rounds(&row.series, m.bench, rounds_of(5));
    row_put(&row, &m, offsetof(struct run, rate));
}

static void bench_faults(void) {
    static struct row row;
    char seconds[32], requests[32];
    struct measure m = {.bench = seconds, .unit = "s", .lower_is_better = true};
    snprintf(seconds, sizeof seconds, "s3_%s_s", place);
    snprintf(requests, sizeof requests, "s3_%s_requests", place);
    write_lists(FAULTY_OBJECTS);
    row_begin(&row, FAULTY_IN_FLIGHT, FAULTY_OBJECTS);
    run_rounds(&row.series, m.bench, rounds_of(strcmp(place, "faults") == 0 ? 7 : 5));
    row_put(&row, &m, offsetof(struct run, rate));
    m = (struct measure){.bench = requests, .unit = "requests per object", .lower_is_better = true};
    row_put(&row, &m, offsetof(struct run, requests));
}

static void bench_list(void) {
    static struct row row;
    struct measure m = {.bench = "s3_list_75ms", .unit = "key/s"};
    row_begin(&row, 0, quick ? 100000 : 1000000);
    run_rounds(&row.series, m.bench, rounds_of(3));
    row_put(&row, &m, offsetof(struct run, rate));
}

/* Presign for wrk: all objects, or ranges of the large one. */
static bool presign(bool large) {
    char command[1024], text[256];
    double cpu;
    if (large) {
        snprintf(command, sizeof command,
                 "tests/servers/s3.py presign large 256m | awk '{ for (i = 0; i < 32; i++) "
                 "print $1, \"bytes=\" i * 8388608 \"-\" i * 8388608 + 8388607 }' >%s/s3_signed",
                 folder);
    } else {
        snprintf(command, sizeof command, "tests/servers/s3.py presign many %d >%s/s3_signed",
                 N_OBJECTS, folder);
    }
    return run_command(command, text, sizeof text, &cpu);
}

static int usage(void) {
    say("bench_s3 loop | 30ms | faults | 503_N | list [-o lines.jsonl] [-s folder]\n");
    return 2;
}

static bool options(int argc, char **argv) {
    bool good = true;
    for (int c; (c = getopt(argc, argv, "o:s:")) != -1;) {
        switch (c) {
        case 's': folder = optarg; break;
        case 'o': good = lines_to(optarg, "a"); break;
        default: return false;
        }
    }
    return good && optind + 1 == argc;
}

int main(int argc, char **argv) {
    dlp_s3_error err;
    quick = asked_for("QUICK");
    if (!options(argc, argv)) { return usage(); }
    place = argv[optind];
    spoiled = strcmp(place, "faults") == 0 || strncmp(place, "503_", 4) == 0;
    bodies = malloc(LARGE_MIB * MIB);
    dlp_s3_desc desc = {.max_requests = MAX_IN_FLIGHT};
    if (bodies == NULL || dlp_s3_open(&client, &desc, &err) != DLP_OK) {
        say("%s\n", bodies == NULL ? "no memory" : err.message);
        return 1;
    }
    memset(bodies, 0, LARGE_MIB * MIB);
    unsetenv("AWS_CA_BUNDLE"); /* rclone would refuse to start */
    look_for_peers();
    if (spoiled) {
        bench_faults();
    } else if (strcmp(place, "list") == 0) {
        bench_list();
    } else if (presign(false)) {
        bool far = strcmp(place, "30ms") == 0;
        for (int n = 16; n <= (far ? 256 : 64); n *= 4) {
            /* So many that the first and last latency of all in flight weigh little. */
            int times = !far || n == 16 ? 1 : n == 64 ? 2 : 6;
            bench_small(n, quick ? 1000 : times * N_OBJECTS);
        }
        if (!far && presign(true)) { bench_large(); }
    }
    dlp_s3_close(client);
    free(bodies);
    say("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
