/* dlpipe_s3.h - v0.2.0 - S3 objects for C programs - MIT licence - header-only, Linux
   Made from src/ by "make headers": edit there.

   dlpipe_s3.h is a small client that reads objects: GET of a whole object or a part, HEAD, lists.
   PUT fills a bucket. One thread has many requests in flight. With dlpipe.h it is also a source of
   items, parts and chunks for pipes.

   >>s3-use         DO THIS, THEN THAT
   1  Copy this file into your project. In the one C file that has the implementation:
          #define DLPIPE_IMPLEMENTATION
          #include "dlpipe.h"           // only with pipes: the client does not need it
          #include "dlpipe_s3.h"
   2  For https: #define DLPIPE_S3_OPENSSL before it, and link -lssl -lcrypto.
   3  Call dlp_s3_open once, before workers start. Call dlp_s3_io_open in each thread that sends
      requests. Then call dlp_s3_get, or dlp_s3_submit and dlp_s3_reap. In a pipe, call
      dlp_s3_source_open (>>s3-source).
   4  To try it with a server of your own: make s3-server. A training program: examples/s3_train.c.

   >>contents       search for the anchor
   >>s3-use         DO THIS, THEN THAT
   >>s3-example     A WHOLE PROGRAM
   >>s3-concepts    WHO HOLDS WHAT, WHAT HAPPENS TO A REQUEST
   >>s3-faults      WHAT GOES WRONG, AND WHAT FOLLOWS
   >>s3-memory      THREADS, MEMORY, SECRETS
   >>s3-stores      OTHER STORES THAN AMAZON'S
   >>s3-options     COMPILE-TIME OPTIONS
   >>s3-limits      LIMITS AND CAVEATS
   >>errors         CODES AND ERROR RECORDS
   >>atomics        THE ONE SHIM OVER THE COMPILER'S ATOMICS
   >>s3-client      ENDPOINT, REGION, CREDENTIALS, TIME-OUTS
   >>s3-requests    ONE OBJECT, OR MANY AT ONCE
   >>s3-list        WHAT IS IN A BUCKET
   >>s3-source      ITEMS, PARTS AND CHUNKS OF A PIPE
   >>s3-parts       OBJECTS AS PARTS
   >>s3-chunks      OBJECTS AS CHUNKS
   The implementation:
   >>s3-impl-base >>s3-impl-text >>s3-impl-sign >>s3-impl-http >>s3-impl-transport
   >>s3-impl-patience >>s3-impl-credentials >>s3-impl-helper >>s3-impl-engine >>s3-impl-client
   >>s3-impl-list >>s3-impl-source >>s3-history >>s3-licence

   >>s3-example     A WHOLE PROGRAM
     #define DLPIPE_IMPLEMENTATION
     #include "dlpipe_s3.h"

     int main(int argc, char **argv) { // program URL bucket key..: what 32 objects begin with
         static char body[32][1024];
         static dlp_s3_request r[32];
         dlp_s3_desc desc = {.endpoint = argc > 1 ? argv[1] : NULL};
         dlp_s3_request *done;
         dlp_s3_error err;
         dlp_s3 *s3 = NULL;
         dlp_s3_io *io = NULL;
         if (dlp_s3_open(&s3, &desc, &err) != DLP_OK || dlp_s3_io_open(&io, s3, &err) != DLP_OK) {
             printf("%s\n", err.message);
             return 1;
         }
         for (int i = 0; i < 32 && i + 3 < argc; i++) {
             r[i] = (dlp_s3_request){.bucket = argv[2], .key = argv[i + 3], .body = body[i],
                                     .capacity = sizeof body[i], .length = 16};
             if (dlp_s3_submit(io, &r[i]) < 0) printf("%s\n", r[i].error.message);
         }
         while (dlp_s3_reap(io, &done, 1, 0) > 0) { // in the order in which they come
             char line[800];
             dlp_s3_error_format(&done->error, line, sizeof line);
             printf("%s: %s\n", done->key, done->code == DLP_OK ? (char *)done->body : line);
         }
         dlp_s3_io_close(io);
         return dlp_s3_close(s3) != DLP_OK;
     }

   >>s3-concepts    WHO HOLDS WHAT, WHAT HAPPENS TO A REQUEST
   client      dlp_s3: endpoint, region, credentials, counters. One for a program. All threads, and
               processes that are forked later, use it at once
   io          dlp_s3_io: sockets and requests of one thread; only this thread calls it
   request     what to fetch, where the bytes go, and the result. Its memory is the caller's. The
               library uses it from submit until reap or io_close
   part        a range of an object larger than part_bytes. Each part is a request of its own on the
               wire. The parts are fetched side by side, into one body

               submit                 a connection is free
     caller's ---------> waiting ---------------------------> on the wire --> first head --> body
        ^                   ^                                   |                |             |
        |                   |   back-off, or at once            |    another's   |  broken off |
        |                   +-----------------------------------+<---------------+-------------+
        |  reap             retry, where >>s3-faults allows it                                |
        +-------- done <----------------------------------------------------------------------+
                    code 0, all bytes there; or what went wrong, and where

   Requests make progress only while their thread is in submit, reap or do. All requests of a thread
   are in one epoll set, so the thread sleeps as long as nothing comes. A connection carries one
   request at a time. A free connection is used before a new one is opened; the one used last comes
   first. Bodies are read from the socket straight to their place. The first 2 KiB of an answer,
   chunks and pieces below 4 KiB are copied.

   A request without length reads the whole object, and learns its size from the answer. If its
   capacity is larger than part_bytes, the first part is requested, not a HEAD. The answer to the
   first part tells the size and the ETag, which further parts must match.

   >>s3-faults      WHAT GOES WRONG, AND WHAT FOLLOWS
   Delivered bytes are always, byte for byte, those of one version of one object. Status, range,
   lengths and ETag of each answer are compared with the request. A request that cannot be answered
   as a whole is an error. (If a server gives no ETag at all, parts are compared by the object's
   size alone.) A 200 with Content-Range counts as that range. A 200 without it, in answer to a
   range, is the whole object; it serves if the range begins at the object's beginning.

     what goes wrong                          what follows
     no connection, none in time, reset, no   sent again, on another connection or address, after a
     first byte in time, half a head          random pause (see below)
     a body ends, is reset, stands still      goes on at the next byte, by Range and If-Match; bytes
                                              that came stay (no ETag: from the beginning).
                                              max_attempts, if set, counts attempts without
                                              progress. If the whole object comes (200), the bytes
                                              that came before are skipped
     a body far slower than others of its     goes on over another connection, as above; checked
     size                                     each fifth of stall_timeout_ms
     no connection after 300 ms               another address is tried, too, if the host has one
     an idle connection had been closed       sent again at once on a new one, at no cost
     408 429 499 500 502 503 504, 520..524,   sent again after a random pause
     529 530, RequestTimeout,
     InternalError, SlowDown, Throttling...   and not before Retry-After
     more than 1/4 of answers throttled, 1/6  fewer in flight (x 7/10, once in 4 * backoff_ms, down
     after a cut; and a cut helps             to 1/8), no hedges; then good answers double the
                                              number, up to half of the old one; from there it rises
                                              to all within 128 * backoff_ms
     a slow first byte                        sent a second time, and a third: the first head wins
     ETag changed, missing or new, 412 to an  from the beginning, 3 times at most
     If-Match of ours, or 416 in its place;
     another version id or Content-Encoding;
     no ETag, and another Last-Modified
     bytes of a whole object that do not      from the beginning over another connection, once;
     have the checksum that the server tells  then an error that names the object
     an ETag that if_match does not name      an error at once, even if the server ignores If-Match
     a manifest's ETag that a proxy weakens   serves for whole objects; if it is answered by 412,
     (W/"...")                                requests are sent without If-Match, and the answers'
                                              ETags are compared
     416, 501 to a range of the client's own  the whole object is requested
     400, 501 that name x-amz-checksum, if    this dlp_s3_io requests no checksums from then on
     checksums is 0
     wrong range, wrong length or none, not   sent again twice at most, since the server is likely
     HTTP; a page of HTML, or <Error>, with   to do it again; then DLP_ERR_LENGTH, _REMOTE. (An
     200 and no word of an object             <Error> of InternalError or SlowDown: as with 503)
     another region (301, 400)                sent there, and later requests go there at once
     301, 302, 307, 308 with Location         followed, 5 times at most; up to 8 KiB long. What
                                              comes from there must look like an object (limits)
     RequestTimeTooSkewed; Date 4 minutes off signed by the server's clock from then on
     ExpiredToken and the like                credentials are fetched again, once for all requests;
                                              if given as options or variables: an error
     other 4xx: NoSuchKey, AccessDenied...    an error at once
     a certificate that is not trusted        an error at once
     a proxy refuses (407, 403, other 4xx)    an error at once, which names the proxy
     another answer of a proxy to CONNECT     sent again after a random pause
     more bytes than capacity                 DLP_ERR_LENGTH at once; object_bytes tells how many

   Retry n waits for backoff_ms * 2^n, at most backoff_max_ms. Half of that time is fixed, half is
   random. A request ends after progress_timeout_ms without progress, so a server may be away for a
   minute. It also ends by request_timeout_ms and max_attempts, if they are set. A byte that an
   earlier attempt had brought is no progress. If all workers of a client together have had
   retry_tokens more retries than successes, most requests fail. Each retry then waits for
   backoff_max_ms or half of it, until some succeed. If no answer came for a second or more, the
   first answer wakes all waiting requests, in all workers. After 16 failures without an answer the
   log no longer gets each failure. Every 5 seconds it gets the time without an answer, and in the
   end the news that an answer has come. dlp_s3_stats.away_ns is that time; dlp_pipe_explain tells
   it for a source.

   A second request (hedge) is sent if the first byte is late. The limit is 1.5 times the 95th
   percentile of first bytes of like sizes (up to 16 KiB, 256 KiB, 4 MiB, above). At least 16 such
   times must be known. If hedges of that size did not come first, the limit grows. All hedges are
   at most hedge_percent of requests, and 4 more; 32 may be saved up. Each dlp_s3_io counts for
   itself.

   An error record names bucket, key, range and attempts. It also has the last answer's status, S3
   code and request id. Its message, and lines of the log, hold no secret: no key, token or
   signature.

   >>s3-memory      THREADS, MEMORY, SECRETS
     what                              threads                         waits for
     dlp_s3_open                       any                             files, names, credentials
     dlp_s3_close, dlp_s3_stats_get    any                             nothing
     dlp_s3_io_open                    any, from then on its owner     nothing
     dlp_s3_submit                     the owner of the io             nothing
     dlp_s3_reap, dlp_s3_do, lists     the owner of the io             answers
     log                               is called by all of them, and by helpers: several at once

   A dlp_s3_io works only in the calls of its owner. It has one more thread, the helper. The helper
   starts with the first name to look up, or the first credentials to fetch again. With numeric
   hosts and keys that were given, it never starts. Helpers have all signals blocked, and end with
   their io. If a helper is stuck in a resolver, it holds the client's memory until the resolver
   returns; nobody waits for it.

   Processes that are forked after dlp_s3_open use the same client. They share memory for its
   credentials, its counters, and what it learned of regions, throttling and clocks. The locks of
   this memory survive the death of a holder. Connections are not shared. A child opens its own
   dlp_s3_io, and closes the inherited one or leaves it alone.

   A list has 20 KB. Each page in flight has 16 KB and memory for its answer: 256 KiB, or more if
   answers are larger, at most 16 MiB. Each range of keys has 13 KB; there are at most five times as
   many ranges as requests. Keys that come before their turn are kept, too, and folders at which a
   list may be split: up to 64 pages of them (>>s3-list).

   A client is a shared mapping of 70 KB. A dlp_s3_io maps 0.5 MB, and 84 KB for each of
   max_requests. Pages of it that were never used take no memory. Requests allocate nothing. Names,
   lists, OpenSSL (160 KB a connection) and the fetch of credentials (310 KB) do. The kernel writes
   bodies into the caller's memory; with TLS, OpenSSL does.

   Keys and tokens are kept in these mappings alone. Core dumps leave the mappings out. They go back
   to the kernel with the last process that has them. Files, answers and tokens that keys were read
   from are wiped. Keys are in no region that other programs may look at, and in no message. If a
   file is wrong, the message has the file's name and line. If a server refuses, the message has the
   status and a code of letters. The caller must guard what it passes in dlp_s3_desc, and the
   environment. It must also guard the command of a credential_process, whose first word is named in
   messages, and the memory of a TLS library, through which requests and answers pass.

   >>s3-stores      OTHER STORES THAN AMAZON'S
   Set endpoint (or AWS_ENDPOINT_URL), region (or AWS_REGION), and access_key with secret_key (or
   the two variables). Buckets are then named in the path (style). "run" marks the servers that the
   tests of this library run. For the others only their documentation is known here.

   Google Cloud Storage   not run
     endpoint   https://storage.googleapis.com
     region     auto
     keys       HMAC keys of a service account ("Interoperability"): GOOG1..., and its secret
     differs    The server decompresses an object that is stored with Content-Encoding gzip, unless
                gzip is accepted; so the client accepts it there. Through another host name the
                first such object is requested twice. The CRC32C of x-goog-hash is compared. The
                server does not understand requester_pays.

   Cloudflare R2          not run
     endpoint   https://ACCOUNT.r2.cloudflarestorage.com; in the EU ACCOUNT.eu.r2...
     region     auto
     keys       an API token's Access Key ID and Secret Access Key
     differs    No known difference that this library meets. It has no requester_pays.

   MinIO                  run: its gateway in JuiceFS 1.4; MinIO itself is not run
     endpoint   http://HOST:9000
     region     us-east-1, unless MINIO_REGION says otherwise
     keys       MINIO_ROOT_USER and _PASSWORD, or a user's
     differs    Objects are kept as files. A key that is a folder of another key ("a", "a/b") cannot
                be made, nor keys with empty, "." or ".." steps. Virtual hosts need MINIO_DOMAIN.

   Ceph                   run: radosgw 16.2, plain and with TLS, by path and by virtual host
     endpoint   http://HOST:7480, or where rgw_frontends listens
     region     the zonegroup's name ("default"); radosgw takes any
     keys       of radosgw-admin user create
     differs    Virtual hosts need rgw_dns_name. For a certificate of your own set ca_file.

   Others                 run: OpenStack Swift 2.30 (its S3 layer wants the right region), SeaweedFS
                          4.48, rclone serve s3 1.75
     differs    rclone answers a range with 200 and the whole object, and ignores If-Match. The
                client still compares the ETag with if_match. SeaweedFS and rclone keep objects as
                files, as MinIO does.

   Lists are split by default (>>s3-list) on the stores that are named above, and on rclone, which
   says that it is AmazonS3. On Swift and SeaweedFS they are split if dlp_s3_list_desc.requests is
   set. SeaweedFS walks a tree of folders. For it the start-after "a" lies behind all keys of the
   folder "a". The start-after "a//" makes it name keys that do not exist. Do not set start_after to
   such a text. Beside a folder "data" it lists "data!x" and "data-old" too late, behind the keys in
   "data". Such a list ends with an error that names the key; any_order accepts it.

   >>s3-options     COMPILE-TIME OPTIONS
   [impl] where DLPIPE_IMPLEMENTATION is defined; [all TUs] in every file that includes this.

     DLPIPE_IMPLEMENTATION  [one TU]   compile the functions here, after dlpipe.h's if that is used
     DLPIPE_STATIC          [all TUs]  every function is static
     DLPIPE_S3_OPENSSL      [impl]     https by OpenSSL 1.1.1 or later: link -lssl -lcrypto
     DLPIPE_NO_SIMD         [impl]     SHA-256 and checksums without the processor's own
                                       instructions

   As with dlpipe.h, include the implementation before the first system header, or compile the file
   with -D_GNU_SOURCE. Link -lpthread if your libc needs it.

   >>s3-limits      LIMITS AND CAVEATS
   * Linux (epoll, eventfd), 64 bits, gcc or clang; C11, declarations C++11.
   * HTTP/1.1 only: HTTP/2 would carry many requests over one connection, and no more bytes.
   * Without a strong ETag, a body that breaks off begins again from its first byte. If the object
     changes between its parts, weak ETags, version id, size, Content-Encoding or Last-Modified tell
     the parts apart. If none of these differs, the change is not noticed.
   * A 200 whose length only the end of the connection tells is refused for objects: it looks like
     an answer that was cut off. (Lists have an end of their own.)
   * CRC64NVME, CRC32C and CRC32 are compared if a whole object is read and the server tells one of
     type FULL_OBJECT. AWS does so for the whole object, and for a range that is a part as it was
     uploaded. It does not for other ranges, in which larger objects are read (part_bytes). Google's
     server tells a CRC32C (x-goog-hash), for ranges too. Other checksums, such as MD5, are not
     computed. There, and for PUT, the checksums of TCP and TLS must do.
   * Bodies come as they are stored: a Content-Encoding is not decoded.
   * If an answer 200 lacks an ETag, Last-Modified or Content-Length, and its body begins with
     <Error>, it counts as an error; so does a list's. If it lacks ETag, Last-Modified and request
     id, a page of HTML counts as an error, too. So such objects cannot be read from servers that
     tell so little.
   * PUT sends one body from memory, up to the 5 GB that S3 takes at once. There are no multipart
     uploads and no deletes. If an answer is lost, the PUT may happen again, with the same bytes.
   * Each io uses up to 16 hosts at once (buckets by host name; regions). For more, submit returns
     DLP_FULL until all requests to one of them have ended.
   * An io maps about 67 KB for each connection. Most of that is never touched.
   * getaddrinfo looks up names, in a thread. The thread starts when there is a name to look up (not
     for numeric hosts) or when credentials must be fetched again.
   * Redirects are followed without credentials, unless they lead to the endpoint's host and port,
     to a host below it at that port, or from AWS' S3 to AWS' S3. An answer from elsewhere must have
     an ETag or a request id. If the endpoint has no TLS and the Location no signature, anybody may
     have redirected the request. A whole object from there must have both, or the ETag of if_match,
     and must not be of type text/html.
   * Accelerated endpoints, access points by their ARNs and directory buckets (S3 Express) are
     refused, not ignored (>>s3-client). Proxies must be of http.
*/

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_S3_IMPLEMENTATION_DONE) && \
    !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* asked for here, before the first system header; taken back at the end */
#define DLPI_S3_ASKED_GNU_SOURCE
#endif

#ifdef DLPIPE_S3_H
#define DLPI_S3_INCLUDED_EARLIER
#endif

#ifndef DLPIPE_S3_H
#define DLPIPE_S3_H

#if !defined(__GNUC__) && !defined(__clang__) /* clang-cl is no __GNUC__ */
#error dlpipe_s3.h wants gcc or clang, whose builtins for atomics it uses: compile with one of them
#elif __SIZEOF_POINTER__ != 8 || !defined(__linux__)
#error dlpipe_s3.h wants 64-bit Linux, without -m32 or -mx32; elsewhere, a Linux container or VM
#define DLPIPE_S3_IMPLEMENTATION_DONE
#endif

#ifndef DLPIPE_H
#define DLPIPE_S3_ALONE
#endif

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef DLPDEF
#define DLPIPE_VERSION_MAJOR 0
#define DLPIPE_VERSION_MINOR 2
#define DLPIPE_VERSION_PATCH 0
#define DLPI_TEXT_(x) #x
#define DLPI_TEXT(x) DLPI_TEXT_(x)
#define DLPIPE_VERSION /* "0.2.0"; dlp_version() tells the implementation's */ \
    DLPI_TEXT(DLPIPE_VERSION_MAJOR) \
    "." DLPI_TEXT(DLPIPE_VERSION_MINOR) "." DLPI_TEXT(DLPIPE_VERSION_PATCH)

/* DLPIPE_STATIC [impl and all TUs]: make every function static. Each file that includes this header
   then has an implementation of its own. */
#if defined(DLPIPE_STATIC) && !defined(DLPIPE_IMPLEMENTATION)
#error DLPIPE_STATIC: define DLPIPE_IMPLEMENTATION, too, above the first include of this header
#undef DLPIPE_STATIC
#endif

/* Structs of the program and of the library must have one layout. */
struct dlpi_layout {
    char byte;
    uint64_t word;
};
#ifdef __cplusplus
static_assert(
#else
_Static_assert(
#endif
    sizeof(struct dlpi_layout) == 16,
    "dlpipe.h: compile without -fpack-struct, and include it outside of #pragma pack");

/* What a compiler's dialect adds to C stands here alone. DLPI_UNREAD marks a parameter, or a
   function, that some programs do not use. DLPI_USED: the object has it, used or not. DLPI_PRINTF:
   the format is argument `format`, and what it prints begins with argument `first`. */
#define DLPI_UNREAD __attribute__((unused))
#define DLPI_USED __attribute__((used))
#define DLPI_NOINLINE __attribute__((noinline))
#define DLPI_PRINTF(format, first) __attribute__((__format__(__printf__, format, first)))
#define DLPI_TARGET(features) __attribute__((target(features)))
#define DLPI_VECTOR(bytes) __attribute__((vector_size(bytes)))
#define DLPI_PREFETCH(at) __builtin_prefetch(at)
#define DLPI_CTZ(x) ((uint32_t)__builtin_ctzll(x)) /* zeros below the lowest one of 64 bits */
#define DLPI_CLZ(x) ((uint32_t)__builtin_clzll(x)) /* zeros above the highest one */
#define DLPI_ONES(x) __builtin_popcountll(x)
#define DLPI_BYTES_AT(at) __builtin_object_size(at, 0) /* SIZE_MAX: not known */
#define DLPI_LIKELY(x) __builtin_expect(!!(x), 1)
#define DLPI_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Marks a function that runs seldom: the compiler makes it small rather than fast. With -Os all
   functions are small already, and with this mark clang would make them larger. */
#ifdef __OPTIMIZE_SIZE__
#define DLPI_COLD
#else
#define DLPI_COLD __attribute__((cold))
#endif
#ifdef __OPTIMIZE__
#define DLPI_INLINE static inline __attribute__((always_inline))
#else /* without optimisation, always_inline makes gcc warn of branches that are dead */
#define DLPI_INLINE static inline __attribute__((unused))
#endif

#ifdef DLPIPE_STATIC
#define DLPDEF static DLPI_UNREAD
#elif defined(__cplusplus)
#define DLPDEF extern "C"
#else
#define DLPDEF extern
#endif
#endif

/* Makes the use of a call an error: the call belongs to a part that is left out (>>options). */
#if defined(__clang__) && __clang_major__ < 14
#define DLPI_LESS(no, with) __attribute__((unavailable("compile without " no)))
#else
#define DLPI_LESS(no, with) \
    __attribute__((error("it is left out: compile without " no ", or beside " \
                         "DLPIPE_ONLY_LOADER with " with)))
#endif

/* ---------------------------------------------------------------------------------------------
   >>errors     CODES AND ERROR RECORDS
   Code 0 is OK, a positive code is flow control, a negative code is an error. Codes of flow control
   begin at 4096. No errno of Linux is above 4095, so a callback that returns errno has failed. */

#ifndef DLP_CODES
#define DLP_CODES(X) \
    X(OK, 0, "ok", "") \
    X(FULL, 4096, "queue is full", "take records out, or wait") \
    X(EMPTY, 4097, "queue is empty", "put records in, or wait") \
    X(TIMEOUT, 4098, "nothing came within the time-out", \
      "call again, or look at dlp_pipe_explain") \
    X(END, 4099, "no more batches", "close the pipe") \
    X(EPOCH_END, 4100, "an epoch ended", "call next again for the next epoch") \
    X(STOPPED, 4101, "the pipe was stopped", "close the pipe") \
    X(SKIP, 4102, "this item is left out", "returned by a callback, see the error policies") \
    X(ERR_ARG, -1, "a parameter or desc field is out of range", "") \
    X(ERR_MEMORY, -2, "there is not enough memory", \
      "free memory, or ask for fewer or smaller batches") \
    X(ERR_LIMIT, -3, "the plan is above a byte limit", "lower prefetch_factor or batch_size") \
    X(ERR_GRAPH, -4, "the nodes do not form a pipeline", "write rows in the order of the data") \
    X(ERR_STATE, -5, "a call came at the wrong time, or a name is taken", \
      "open, start, then next and release, in one thread at a time; or choose another name") \
    X(ERR_HELD, -6, "max_held batches are held already", "release one, or raise max_held") \
    X(ERR_CALLBACK, -7, "a callback failed", "") \
    X(ERR_LENGTH, -8, "a callback wrote a wrong length", "") \
    X(ERR_DEADLINE, -9, "a callback is past its deadline", "raise deadline_ms") \
    X(ERR_BUSY, -10, "a callback is still running", "call close again when it has returned") \
    X(ERR_RESUME, -11, "a saved state does not fit", "open the pipe as it was opened then") \
    X(ERR_CORRUPT, -12, "shared memory or a state is damaged", "do not use it") \
    X(ERR_SYSTEM, -13, "a system call failed", "") \
    X(ERR_DEVICE, -14, "the device backend failed", "") \
    X(ERR_BUDGET, -15, "more items failed than max_skips allows", \
      "mend the data, or raise max_skips") \
    X(ERR_UNSUPPORTED, -16, "not available on this system", "") \
    X(ERR_KILLED, -17, "worker processes were killed", "look for crashes and memory limits") \
    X(ERR_FORKED, -18, "this process is a fork of the owner", "use the pipe in its own process") \
    X(ERR_REMOTE, -19, "the server refused, or did not answer", "")

enum {
#define DLPI_X(name, value, text, hint) DLP_##name = value,
    DLP_CODES(DLPI_X)
#undef DLPI_X
        DLP_CODES_END_ = 8191
};

/* Special values of fields and parameters. Zero always means the documented default. */
#define DLP_NONE (-1)    /* none; in some fields: inline */
#define DLP_FOREVER (-2) /* without end, without limit */
#define DLP_NOWAIT (-1)  /* for time-outs: do not wait */
#endif

/* ---------------------------------------------------------------------------------------------
   >>atomics    THE ONE SHIM OVER THE COMPILER'S ATOMICS
   These macros stand before the queues, whose fast paths are inline in every file that includes
   this header. Each use carries a label and names its partner. A checker may define its own macros
   before it includes this header. */
#ifndef DLPI_LINE
#ifndef DLPI_LOAD_RLX
#define DLPI_LOAD_RLX(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define DLPI_LOAD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define DLPI_LOAD_SEQ(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define DLPI_STORE_RLX(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define DLPI_STORE_REL(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define DLPI_STORE_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_XCHG_SEQ(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_SEQ(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_ADD_RLX(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define DLPI_OR_SEQ(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define DLPI_AND_SEQ(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
/* Strong compare-and-swap. On failure *e gets the value that was found. */
#define DLPI_CAS_SEQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define DLPI_CAS_ACQ(p, e, v) \
    __atomic_compare_exchange_n((p), (e), (v), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif

/* Keep the compiler from moving memory accesses across this point. It emits no instruction. It is
   enough only if the other side issues a heavy barrier (see dlpi_await), or if a crash must see
   stores in program order. */
#ifndef DLPI_KEEP_ORDER
#define DLPI_KEEP_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

#define DLPI_LINE 128u /* two cache lines: the adjacent-line prefetcher moves pairs */
#define DLPI_UNUSED(x) ((void)(x))

/* Tell the CPU that this thread spins. It saves power, and leaves more of the core to its other
   thread. */
DLPI_INLINE void dlpi_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Begin to fetch a cache line that is written soon, so that its other owner gives it up at once.
   __builtin_prefetch(at, 1) fetches the line for reading if the compiler may not use prefetchw, as
   on x86-64 by default. Then the write makes a trip of its own. 64-bit processors that do not know
   prefetchw take it for a nop. */
DLPI_INLINE void dlpi_prefetch_write(const void *at) {
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* A word of a record. The user may see any type there. */
typedef uint64_t __attribute__((may_alias)) dlpi_word;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
   >>s3-client      ENDPOINT, REGION, CREDENTIALS, TIME-OUTS */

/* The client looks for credentials in this order, as AWS' own tools do. It takes the first place
   that has something; that place must be complete.

     dlp_s3_desc            anonymous; access_key with secret_key
     environment            AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
     web identity           AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, AWS_ROLE_SESSION_NAME:
                            asked of STS (AWS_ENDPOINT_URL_STS), which wants TLS
     profile                web_identity_token_file with role_arn; role_arn with source_profile or
                            credential_source; aws_access_key_id with aws_secret_access_key;
                            credential_process
     container              AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI; with
                            AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, or _TOKEN
     machine                IMDSv2, unless AWS_EC2_METADATA_DISABLED is true

   If a program has more rights than the user who started it (setuid), the client reads none of its
   environment variables, not even HOME. If the program names a profile (desc.profile), the profile
   comes before the environment. AWS_DEFAULT_PROFILE names the profile if AWS_PROFILE is not set. If
   both are set and differ, dlp_s3_open refuses them. Profiles lie in two files:
   AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), which comes first, and AWS_CONFIG_FILE
   (~/.aws/config). The client starts a credential_process without a shell, in its own process
   group. The process has three open descriptors: its output, standard error and an empty input. It
   must end within a minute. The client supports neither single sign-on nor the codes of an MFA
   device (mfa_serial). It says so in an error; use a credential_process for them.

   STS gives the credentials of a role_arn. The client asks STS with the credentials of the profile
   source_profile, or of credential_source: Environment, EcsContainer or Ec2InstanceMetadata. STS
   also gets role_session_name, external_id and duration_seconds. The source profile may have a role
   too; at most 3 roles follow each other. If a source profile has keys and a role, its keys count.
   A profile that names itself as its source must have keys. If profiles lead in a circle, the error
   names them.

   dlp_s3_open refuses settings of AWS' tools that would send requests elsewhere and that it does
   not support. It returns DLP_ERR_UNSUPPORTED; the message says what is set, and where:

     profile: below s3 use_accelerate_endpoint, "true"
     AWS_RETRY_MODE; profile: retry_mode: all but "standard" and "adaptive"; this client's retries
     are a kind of both
     names of regions that stand for endpoints (fips-us-east-1, aws-global, ...), if no endpoint is
     set
     dualstack and fips together with an endpoint
     proxies that are reached by TLS or SOCKS; any proxy on the way to STS

   Requests and lists refuse some names of buckets with DLP_ERR_ARG: ARNs; at AWS also names of
   directory buckets (--x-s3: S3 Express) and of S3 on Outposts, which other hosts serve.

   Connections use a proxy if desc.proxy names one, or else if the environment names one:
   HTTPS_PROXY or HTTP_PROXY, by the scheme of the endpoint, or ALL_PROXY. The names of the
   variables may also be in small letters. NO_PROXY lists hosts that are reached without a proxy. An
   entry is "*", a host, a domain above it, an address, or a range of addresses such as 10.0.0.0/8.
   A host or domain may have a port. Connections to this machine use no proxy, unless desc.proxy
   names one. For https the client sends the proxy a CONNECT; for http it sends the proxy the whole
   URL. Credentials are never fetched through a proxy.

   Credentials that expire are fetched again about 5 minutes before. One process fetches them for
   all processes of the client. If that fails, the old credentials stay in use while they are valid.
   The next attempts come after 1 to 48 seconds. If the server says that keys of a profile have
   expired, the client reads the profile again. A metadata service, a container's service or STS may
   answer 429 or 5xx, because many ask it at once. The client asks it again for 15 seconds, with the
   pauses of requests (backoff_ms). If it is silent, the client asks 2 or 3 times. The variable
   AWS_METADATA_SERVICE_NUM_ATTEMPTS sets that number for the metadata service.

   Sources: AWS SDKs and Tools reference, "standardized credential providers", "file format",
   "service-specific endpoints", "container credential provider", "IMDS credential provider". */

/* What went wrong, and where. All strings end with a zero byte; a string that does not apply is "".
   No string has a secret in it. */
typedef struct dlp_s3_error {
    int32_t code;         /* DLP_ERR_*, or 0 */
    int32_t errnum;       /* errno, or 0 */
    int32_t http_status;  /* HTTP status, 100..599; 0: there was no answer */
    int32_t attempts;     /* number of requests that were sent */
    uint64_t first, last; /* first and last byte of the object that were requested; 0, 0: all; last
                                UINT64_MAX: to the end */
    char bucket[64];
    char key[256];    /* key of the object; the front is cut off if the key is longer */
    char s3_code[64]; /* error code of the server, such as "NoSuchKey" */
    char request_id[96];
    char message[256]; /* one line of text */
} dlp_s3_error;

/* Write the whole error record as one line of text.
   err: not NULL; buf: [size], may be NULL if size is 0. Returns the length of the whole line, as
   snprintf does. Any thread may call it. */
DLPDEF int dlp_s3_error_format(const dlp_s3_error *err, char *buf, size_t size);

/* Results of a transport's read and write, beside a number of bytes. */
enum { DLP_S3_WANT_READ = -1, DLP_S3_WANT_WRITE = -2, DLP_S3_BROKEN = -3 };

/* Functions of another TLS library, which replace OpenSSL. One thread at a time uses a session.
   Several threads call open, also in processes that are forked later. fd is a connected socket that
   does not block; the caller closes it. No function may wait, or raise SIGPIPE. why: [size]; a
   function that fails writes one line without secrets there, and sets errno. errno EKEYREJECTED
   means that the server is not trusted: the client does not try again. errno 0 counts as EPROTO.
   The child of a fork calls close too: what close writes there reaches no server. */
typedef struct dlp_s3_transport {
    void *user; /* passed to open */
    /* Begin a session. host: name of the server, to send (SNI) and to verify. Returns 0 or
       DLP_S3_BROKEN. */
    int (*open)(void *user, int fd, const char *host, void **session, char *why, size_t size);
    /* Go on with the handshake. Returns 0 if it is done and the server is verified; else
       DLP_S3_WANT_READ, DLP_S3_WANT_WRITE or DLP_S3_BROKEN. */
    int (*handshake)(void *session, char *why, size_t size);
    /* Read at most n bytes. Returns the number of bytes read, 1..n; 0 if the server ended the
       session; else DLP_S3_WANT_READ, DLP_S3_WANT_WRITE or DLP_S3_BROKEN. */
    int64_t (*read)(void *session, void *to, size_t n, char *why, size_t size);
    /* Write at most n bytes. Returns the number of bytes written, 1..n; else DLP_S3_BROKEN, or
       DLP_S3_WANT_*: the caller offers the same bytes again. */
    int64_t (*write)(void *session, const void *from, size_t n, char *why, size_t size);
    /* Return 1 if read may return bytes before the socket becomes readable. */
    int (*pending)(void *session);
    /* End the session and free it; fd stays open. */
    void (*close)(void *session);
} dlp_s3_transport;

enum { DLP_S3_STYLE_AUTO = 0, DLP_S3_STYLE_PATH, DLP_S3_STYLE_VIRTUAL };

/* Settings of a client. 0 and NULL select the default. A comment lists variables of the environment
   ("environment") and settings of the profile ("profile") that are read if the field is not set. */
typedef struct dlp_s3_desc {
    /* Where. NULL: the environment, then the profile, then AWS. */
    const char *endpoint; /* URL of the server: "http://host:port", "https://..."; environment:
                                    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; profile: s3.endpoint_url
                                    of the section that "services" names, then endpoint_url; if
                                    AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is "true", none of these */
    const char *region;   /* name of the region; environment: AWS_REGION, AWS_DEFAULT_REGION;
                                    profile: region; else us-east-1 */
    const char *profile;  /* name of the profile; environment: AWS_PROFILE, AWS_DEFAULT_PROFILE;
                                    else "default" */
    int32_t style;        /* DLP_S3_STYLE_*: the bucket's name is in the path or host name. AUTO:
                                    profile: addressing_style below s3; else the path for a custom
                                    endpoint and for buckets that cannot be host names */
    /* Credentials. All NULL and 0: see above. */
    int32_t anonymous;      /* 1: requests are not signed */
    const char *access_key; /* key of the user, with secret_key; copied */
    const char *secret_key;
    const char *session_token; /* NULL: none */
    int32_t unsigned_payload;  /* 1: PUT bodies are not hashed (UNSIGNED-PAYLOAD) */
    int32_t presign;           /* 1: the signature is in the query, not in headers */
    /* TLS. */
    const char *ca_file;         /* path of a PEM file of trusted certificates; environment:
                                    AWS_CA_BUNDLE; profile: ca_bundle; else the system's file */
    const dlp_s3_transport *tls; /* TLS library; NULL: OpenSSL if it was compiled in; copied */
    /* Patience. */
    int32_t connect_timeout_ms;    /* milliseconds to connect, with the TLS handshake; 0: 3,000 */
    int32_t first_byte_timeout_ms; /* milliseconds from the delivery of the request's last byte to
                                    the answer's first byte; 0: 10,000 */
    int32_t stall_timeout_ms;      /* milliseconds without a byte inside a body; 0: 5,000 */
    int32_t request_timeout_ms;    /* milliseconds of a request with all its attempts, even if it
                                    makes progress; 0: no limit, but see progress_timeout_ms */
    int32_t max_attempts;          /* attempts of a request that make no progress, 1..100;
                                    environment: AWS_MAX_ATTEMPTS; profile: max_attempts; else no
                                    limit, but see progress_timeout_ms */
    int32_t backoff_ms;            /* milliseconds, 1..60,000; 0: 50. Retry n waits for backoff_ms *
                                    2^n, at most backoff_max_ms; half of that time is random */
    int32_t backoff_max_ms;        /* milliseconds, 1..3,600,000; 0: 5,000 */
    int32_t retry_tokens;          /* retries that all workers together may have ahead of successes;
                                    beyond it each retry waits as the last ones do; 0: 500;
                                    DLP_NONE (-1): no limit */
    int32_t hedge_percent; /* second requests for slow ones, 1..100 percent of all requests; 0: 5;
                              -1: none */
    /* Limits of each dlp_s3_io. */
    int32_t max_requests;    /* requests in flight, 1..4096; 0: 64. An io has as many connections at
                                    most, and max_requests / 8 + 4 for hedges */
    uint64_t max_bytes;      /* bytes of the bodies in flight; 0: no limit. One request alone may
                                    have more */
    uint64_t part_bytes;     /* bytes of a part, 64 KiB..1 GiB; 0: 8 MiB. Larger objects are fetched
                                    in parts, side by side */
    int32_t idle_timeout_ms; /* milliseconds until an unused connection is closed; 0: 20,000 */
    int32_t max_idle;        /* connections that are kept for later, up to 8,192; 0: max_requests */
    void (*log)(void *user, const char *line); /* function that gets a line for each retry,
                                    redirect and refresh of credentials; NULL: none; any thread that
                                    works for this client calls it, several at once */
    void *log_user;
    int32_t progress_timeout_ms; /* milliseconds in which a request, with all its attempts, gets no
                                    new byte; 0: request_timeout_ms if it is set, else 120,000 */
    int32_t requester_pays;      /* 1: the requester pays, as some buckets of others want; not with
                                    anonymous; environment: AWS_REQUEST_PAYER, "requester" */
    int32_t checksums;           /* 1: compare an object that is read whole with the CRC64NVME,
                                    CRC32C or CRC32 that the server tells. -1: do not. 0: compare if
                                    that is cheap (x86-64 with VPCLMULQDQ), unless "when_required"
                                    is set.
                                    environment: AWS_RESPONSE_CHECKSUM_VALIDATION; profile:
                                    response_checksum_validation */
    const char *proxy;           /* URL of the proxy of all connections: "http://host:port",
                                    "http://user:password@host:port", user and password URI-encoded;
                                    "": no proxy; NULL: as the environment says; copied */
    int32_t dualstack;           /* 1: use the hosts of AWS that also have IPv6 addresses;
                                    environment: AWS_USE_DUALSTACK_ENDPOINT; profile:
                                    use_dualstack_endpoint, also below s3 */
    int32_t fips;                /* 1: use the hosts of AWS with FIPS 140; environment:
                                    AWS_USE_FIPS_ENDPOINT; profile: use_fips_endpoint */
} dlp_s3_desc;

typedef struct dlp_s3 dlp_s3;

/* Make a client: find the endpoint, the region and the credentials. The client is one shared
   mapping: processes that are forked later share it, and core dumps leave it out. The call leaves
   no socket and no thread open.
   out: to be closed; desc: copied; NULL: all defaults; err: zeroed, or what failed; may be NULL.
   Returns DLP_OK; DLP_ERR_ARG (the message names the field); DLP_ERR_MEMORY; DLP_ERR_UNSUPPORTED
   (https without TLS, or settings as above); DLP_ERR_SYSTEM; DLP_ERR_REMOTE (no credentials). Any
   thread may call it. It may wait for credentials. */
DLPDEF int dlp_s3_open(dlp_s3 **out, const dlp_s3_desc *desc, dlp_s3_error *err);

/* Free the client in this process. Other processes that share the client (parent and children) keep
   it. s3: NULL is fine. Returns DLP_OK; DLP_ERR_BUSY if a dlp_s3_io of this process is still open.
   Any thread may call it. It does not wait. */
DLPDEF int dlp_s3_close(dlp_s3 *s3);

/* Counters of a client, over all threads and processes that use it. */
typedef struct dlp_s3_stats {
    uint64_t requests; /* requests sent, with retries and hedges */
    uint64_t objects;  /* requests of the user that ended well */
    uint64_t failed;   /* requests of the user that failed */
    uint64_t bytes;    /* bytes of bodies, received or sent */
    uint64_t retries;  /* requests sent again, after a failure or because a body was slow */
    uint64_t replays;  /* those retries that cost nothing: an idle connection had been closed */
    uint64_t resumes;  /* those retries that went on inside a body */
    uint64_t hedges, hedges_won; /* second requests, and those that got the first answer */
    uint64_t throttled;   /* answers that ask for fewer requests: 503 SlowDown, 429 and the like */
    uint64_t connections; /* connections opened */
    uint64_t timeouts;
    uint64_t refreshes; /* refreshes of the credentials, without the first in dlp_s3_open */
    uint64_t away_ns;   /* nanoseconds for which requests have failed and none has had its answer;
                                 0: the last finished request had its answer */
} dlp_s3_stats;

/* Read the counters of a client. Each counter is exact; two counters may be a few requests apart.
   s3, out: not NULL. Any thread may call it. */
DLPDEF void dlp_s3_stats_get(const dlp_s3 *s3, dlp_s3_stats *out);

/* ---------------------------------------------------------------------------------------------
   >>s3-requests    ONE OBJECT, OR MANY AT ONCE */

enum { DLP_S3_GET = 0, DLP_S3_HEAD, DLP_S3_PUT };

/* A piece of memory that gets a part of a body. */
typedef struct dlp_s3_piece {
    void *to; /* memory for the bytes; NULL: the bytes are thrown away */
    uint64_t bytes;
} dlp_s3_piece;

/* A request, and then its result. The record lies in the caller's memory. Set it to zero before you
   fill it in. The record and all that it points to must stay until dlp_s3_reap returns it. */
typedef struct dlp_s3_request {
    int32_t method;   /* DLP_S3_GET, _HEAD, _PUT */
    int32_t no_hedge; /* 1: never sent twice at once */
    const char *bucket;
    const char *key;   /* key of the object, 1..1024 bytes, any but NUL; PUT: "" makes the bucket;
                                GET, HEAD: "" only with query */
    const char *query; /* parameters as "a=b&c=", in order, values URI-encoded; NULL: none */
    uint64_t offset;   /* GET: first byte */
    uint64_t length;   /* GET: number of bytes, exactly; 0: to the object's end */
    const char *if_match; /* ETag that the object must have; the answer must tell it, too. A strong
                                ETag, a list of them, or "*": any; NULL: no condition */
    void *body;           /* GET: memory for the body; PUT: the body, which is not written to */
    uint64_t capacity; /* bytes at body; GET: a larger body is DLP_ERR_LENGTH; PUT: all are sent */
    const dlp_s3_piece *pieces; /* GET with length: memory for the body in place of body, in order;
                                the sum of their bytes is length; NULL: body is used */
    uint32_t n_pieces;
    void *user; /* for the caller; the library does not read it */

    int32_t code;          /* result: DLP_OK; DLP_ERR_REMOTE, _LENGTH, _ARG, _SYSTEM, _MEMORY */
    uint64_t received;     /* GET: bytes in body */
    uint64_t object_bytes; /* bytes of the whole object, if known; HEAD of a key: always */
    char etag[72];         /* ETag with its quotes; "" if there was none, or it was longer */
    dlp_s3_error error;    /* what went wrong; all zero if code is 0 */
    void *internal;
    const char *version_id; /* version of the object to read; an answer that tells another version
                                is refused; not with query or PUT; NULL: the newest */
} dlp_s3_request;

/* The sockets of one thread, and its requests in flight. After a fork, the child can only close it,
   or leave it alone. */
typedef struct dlp_s3_io dlp_s3_io;

/* Make the I/O of one thread. It allocates all that requests need later, except memory for TLS,
   names and lists.
   out: to be closed; s3: borrowed until close; any number of dlp_s3_io may use one client; err:
   zeroed, or what failed; may be NULL. Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_MEMORY; DLP_ERR_SYSTEM.
   Any thread may call it; only that thread may then use the dlp_s3_io. It does not wait. */
DLPDEF int dlp_s3_io_open(dlp_s3_io **out, dlp_s3 *s3, dlp_s3_error *err);

/* Close the I/O of a thread and drop its requests in flight. The library does not touch their
   memory any more. io: NULL is fine. */
DLPDEF void dlp_s3_io_close(dlp_s3_io *io);

/* Begin a request. r: stays until dlp_s3_reap returns it. Returns DLP_OK: the request has begun;
   DLP_FULL: max_requests, max_bytes or 16 hosts are in use, so reap first; DLP_ERR_ARG (r->error
   names the field); DLP_ERR_FORKED. The thread of io calls it. It neither waits nor allocates. */
DLPDEF int dlp_s3_submit(dlp_s3_io *io, dlp_s3_request *r);

/* Return requests that have ended, with code, received and error set. It waits for the first one,
   and returns at once if no request is in flight. Requests make progress only in this call, in
   dlp_s3_submit and in dlp_s3_do.
   done: [max]; timeout_ms: longest wait; DLP_NOWAIT: no wait; 0: no limit. Returns the number of
   requests, 0..max; or DLP_ERR_ARG, DLP_ERR_FORKED, DLP_ERR_SYSTEM. The thread of io calls it. */
DLPDEF int dlp_s3_reap(dlp_s3_io *io, dlp_s3_request **done, int max, int timeout_ms);

/* Do one request and wait for its end. Other requests in flight go on meanwhile; a later
   dlp_s3_reap returns them. Returns r->code, or what dlp_s3_submit returns. The thread of io calls
   it. */
DLPDEF int dlp_s3_do(dlp_s3_io *io, dlp_s3_request *r);

/* Read a whole object into memory, and wait for it.
   body: [capacity]; received: gets the number of bytes in body, may be NULL; err: may be NULL.
   Returns the codes of dlp_s3_do. The thread of io calls it. */
DLPDEF int dlp_s3_get(dlp_s3_io *io, const char *bucket, const char *key, void *body,
                      uint64_t capacity, uint64_t *received, dlp_s3_error *err);

/* ---------------------------------------------------------------------------------------------
   >>s3-list        WHAT IS IN A BUCKET */

/* What to list. Names are copied. They have at most 1,024 bytes (bucket: 255) and are not
   escaped. */
typedef struct dlp_s3_list_desc {
    const char *bucket;
    const char *prefix;      /* what all keys begin with; NULL: "" */
    const char *delimiter;   /* "/": list one level, as a directory; NULL: none */
    const char *start_after; /* key after which the list begins, which need not exist; NULL: from
                                the beginning */
    int32_t page;            /* keys in a page, 1..1000; 0: 1,000 */
    int32_t any_order;       /* 1: accept keys in the server's order, if it does not sort (directory
                                buckets); some keys that come twice are then not found */
    int32_t requests; /* pages that may be in flight at once; 1: one after the other, as always with
                         a delimiter or any_order. 0: 32, or half of max_requests if that is less,
                         on a store that is known to sort its lists; else 1 */
} dlp_s3_list_desc;

typedef struct dlp_s3_object {
    const char *key;    /* key, with a zero byte at its end; valid until the next call */
    uint64_t key_bytes; /* bytes of key without the zero byte */
    uint64_t bytes;     /* bytes of the object */
    int64_t modified_s; /* Unix time in seconds; 0: the server told none, -1: it is not readable */
    int32_t is_prefix;  /* 1: a common prefix, as a directory: no bytes, no time */
    char etag[72];      /* ETag with its quotes; "" if there was none, or it was longer */
} dlp_s3_object;

typedef struct dlp_s3_list dlp_s3_list;

/* Begin a list of objects and common prefixes, in the order of their bytes. No request is sent yet.
   Pages are requested side by side if the server sorts its lists. The header Server of the first
   page tells: AmazonS3, UploadServer (Google), cloudflare, MinIO or Ceph Object Gateway; older
   releases of Ceph are known by their request ids. On other servers pages are requested one after
   the other, unless "requests" is set. The list is split into ranges of keys, at folders that exist
   (one request with a delimiter finds up to a page of them), else where the first pages suggest.
   Each range is listed by itself (start-after). A range must begin with the key that the range in
   front of it sees behind its end. If it does not, the range in front goes on in its place, page
   after page, and the log is told. Each key is returned once, in order. A key that comes before its
   turn is kept. It takes about 100 bytes; all such keys take at most 256 MiB, half of which is for
   the ranges whose turn is next. At worst the list takes twice as many pages, and twice "requests"
   more, than one page after the other. Between calls its pages stay in flight. They count for
   max_requests, and dlp_s3_reap does not return them. Some servers refuse a start-after that is no
   key, or ignore it. Then the log is told, and pages are requested one after the other. A list from
   a key on may even end too early, or go on in another order. Then the whole list is requested once
   more, page after page; keys that were returned are not returned again.
   S3 sorts its lists, except those of directory buckets. Set any_order for a server that does not
   sort.
   out: to be closed, before io; desc: copied; err: zeroed, or what failed; may be NULL. Returns
   DLP_OK; DLP_ERR_ARG (the message names the field); DLP_ERR_MEMORY. The thread of io calls it. It
   allocates and does not wait. Source: ListObjectsV2 of the S3 API. */
DLPDEF int dlp_s3_list_open(dlp_s3_list **out, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                            dlp_s3_error *err);

/* Get the next object. It waits for a page, and may allocate memory for it.
   A page is checked as a whole before its first object is returned. It is an error if keys come
   twice, are out of order, or were not requested. It is also an error if the server leads in a
   circle. If a later page fails, its error is returned when its turn comes. The error of a request
   names the key after which its page begins.
   out: gets the object; err: written on failure, may be NULL. Returns DLP_OK; DLP_END after the
   last object; the codes of dlp_s3_do; or for a page: DLP_ERR_REMOTE (not what S3 sends),
   DLP_ERR_LIMIT (above 16 MiB), DLP_ERR_MEMORY. After an error a new call tries the page again. The
   thread of io calls it. */
DLPDEF int dlp_s3_list_next(dlp_s3_list *list, dlp_s3_object *out, dlp_s3_error *err);

/* Free the list, at any point of it. list: NULL is fine. The thread of io calls it. */
DLPDEF void dlp_s3_list_close(dlp_s3_list *list);

#ifdef DLPIPE_H
/* ---------------------------------------------------------------------------------------------
   >>s3-source      ITEMS, PARTS AND CHUNKS OF A PIPE
   This section needs dlpipe.h, included before. A manifest lists ranges of objects: its entries.
   Entry i is item i, part i, or a range of rows. A source fetches the entries for a pipe.

     dlp_s3_manifest_open(&manifest, &err);
     dlp_s3_manifest_list(manifest, io, &list_desc, &err);   // or _read a file, or _add entries
     dlp_s3_source_desc source_desc = {.s3 = s3, .bucket = "photos", .manifest = manifest,
                                       .fields = &field, .n_fields = 1};
     dlp_s3_source_open(&source, &source_desc, &err);
     desc.source = source; // a loader's
     ... the pipe, until it is closed; dlp_source_close(source)

   A source works with every topology, placement and fetcher. A worker fetches one item at a time;
   or it has in_flight threads, each with a dlp_s3_io; or, asynchronous, its one thread has one
   dlp_s3_io with in_flight items under way. Workers make each dlp_s3_io themselves, so after a
   fork. It ends with a killed process: nothing writes into a row after that. Without a decode,
   bodies go from the socket into the row of field 0. If the field is ragged, its length is set. If
   not, the body must have exactly the field's bytes. Errors name bucket, key, range, status, code
   and request id. If the pipe is stopped, it waits for no server. */

#define DLP_S3_WHOLE UINT64_MAX
#define DLP_S3_EMPTY UINT64_MAX /* length of a whole object that has no bytes */

/* An entry of a manifest: a whole object, or a range of its bytes. */
typedef struct dlp_s3_entry {
    const char *key;  /* key of the object, 1..1024 bytes */
    uint64_t offset;  /* first byte; DLP_S3_WHOLE: the whole object */
    uint64_t length;  /* bytes; 0: to the object's end; of a whole object: bytes that it must have,
                                0: any number, DLP_S3_EMPTY: none */
    uint64_t items;   /* items in a part; else not read; 0: not known */
    const char *etag; /* strong ETag that the object must have, with its quotes; another version
                               is an error; a whole object's may come back weak; NULL or "": any
                               version */
} dlp_s3_entry;

typedef struct dlp_s3_manifest dlp_s3_manifest;

/* Make an empty manifest. It may have 2^40 entries and 2^32 - 2 different keys. Each key is stored
   once. An entry takes 20 bytes, or 28 if an entry gives items. A key takes 8 bytes, its own bytes
   and those of its ETag.
   out: to be closed; err: written on failure, may be NULL. Returns DLP_OK; DLP_ERR_ARG;
   DLP_ERR_MEMORY. Any thread may call it. One thread at a time may change a manifest, and none
   while a source uses it. It does not wait. */
DLPDEF int dlp_s3_manifest_open(dlp_s3_manifest **out, dlp_s3_error *err);
/* Free a manifest. No source may still use it. m: NULL is fine. */
DLPDEF void dlp_s3_manifest_close(dlp_s3_manifest *m);

/* Add an entry at the end. entry: copied, with its key and ETag. Returns DLP_OK; DLP_ERR_ARG;
   DLP_ERR_MEMORY; DLP_ERR_LIMIT (too many). After a failure the manifest is unchanged. It does not
   wait. */
DLPDEF int dlp_s3_manifest_add(dlp_s3_manifest *m, const dlp_s3_entry *entry, dlp_s3_error *err);

/* Add the objects of a list, in its order, as whole objects with their sizes and strong ETags.
   Common prefixes are left out. So are empty objects with '/' at the end, which stand for
   directories.
   Returns the codes of dlp_s3_list_open, dlp_s3_list_next and dlp_s3_manifest_add. After a failure
   the manifest is unchanged. The thread of io calls it. It waits for the pages. */
DLPDEF int dlp_s3_manifest_list(dlp_s3_manifest *m, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                                dlp_s3_error *err);

/* Add the entries of a text file. Each line is one entry:
     key
     key <tab> offset <tab> length
     key <tab> offset <tab> length <tab> items
     key <tab> offset <tab> length <tab> items <tab> etag
   The key is URI-encoded: control characters, space, '%' and '#' must be escaped; '/' need not be.
   Numbers are decimal. '*' is the offset of a whole object, '-' the length of an empty one. Lines
   that begin with '#' are comments. Any other line is an error that names the file and the line.
   Returns DLP_OK; DLP_ERR_ARG (a wrong line); DLP_ERR_SYSTEM (the file cannot be read); the codes
   of dlp_s3_manifest_add. After a failure the manifest is unchanged. It reads the file. */
DLPDEF int dlp_s3_manifest_read(dlp_s3_manifest *m, const char *path, dlp_s3_error *err);

/* Write a manifest as a text file that dlp_s3_manifest_read reads. It writes path.tmp first and
   then renames it to path. Returns DLP_OK; DLP_ERR_ARG; DLP_ERR_SYSTEM. */
DLPDEF int dlp_s3_manifest_write(const dlp_s3_manifest *m, const char *path, dlp_s3_error *err);

/* Get entry i. out: its key and ETag ("": none) belong to the manifest, and are valid until it is
   changed. Returns DLP_OK; DLP_ERR_ARG. Any thread may call it. */
DLPDEF int dlp_s3_manifest_get(const dlp_s3_manifest *m, uint64_t i, dlp_s3_entry *out);

/* Return the number of entries (count); a hash of all entries without their ETags, for manifest_id
   of a part queue (id); the bytes of memory (bytes). m: NULL is 0. Any thread may call them. */
DLPDEF uint64_t dlp_s3_manifest_count(const dlp_s3_manifest *m);
DLPDEF uint64_t dlp_s3_manifest_id(const dlp_s3_manifest *m);
DLPDEF uint64_t dlp_s3_manifest_bytes(const dlp_s3_manifest *m);

typedef struct dlp_s3_source_desc {
    dlp_s3 *s3;                      /* client; required; borrowed until close */
    const char *bucket;              /* name of the bucket; required; copied */
    const dlp_s3_manifest *manifest; /* entries, at least one; required; borrowed until close */
    const dlp_field *fields; /* [n_fields] fields of an item, as in dlp_dataset; borrowed until
                                start; NULL: the source gives no items */
    uint32_t n_fields;
    /* Write the fields of an item, out of the n bytes of its object; valid during the call.
       Returns 0 or a failure, as dlp_dataset.fetch does. It runs in the worker itself. NULL: the
       bytes are field 0. */
    int (*decode)(void *user, void *worker_state, dlp_item *item, const void *bytes, uint64_t n);
    void *user;           /* argument of all callbacks here; borrowed until close */
    uint64_t max_bytes;   /* with a decode: most bytes of an item, up to 2^40; 0: those of the
                                longest entry (all lengths must be known). Without a decode, or
                                with direct: 0 */
    int32_t direct;       /* 1: bytes go into field 0 even with a decode, which finds them there
                                and writes the other fields */
    int32_t in_flight;    /* items (of chunks: requests) that a worker fetches at once, 1..1024;
                                0: 16; if the stage's in_flight is larger, the rest waits */
    int64_t gap_bytes;    /* ASYNC: bytes between two ranges of one object that one request still
                                joins; it throws the gap away. 0: 64 KiB; DLP_NONE: never join. One
                                request joins up to in_flight / 2 ranges, 64 at most, that are
                                wanted at about the same time. If it fails, each range is requested
                                by itself */
    uint64_t joint_bytes; /* most bytes of a joint request, and of each request of a chunk; 0:
                                8 MiB */
    uint64_t row_bytes;   /* for chunks: bytes of a row. The entries, laid end to end, are the
                                rows; all lengths are known, and whole rows. 0: not for chunks */
    int32_t writes_all_bytes; /* 1: decode promises what dlp_dataset.writes_all_bytes says */
    /* Make and free decode's worker_state, as in dlp_workers_desc; NULL: none. */
    int (*worker_init)(void *user, int worker, void **state);
    void (*worker_exit)(void *user, int worker, void *state);
    int32_t any_version; /* 1: the ETags of the manifest are not compared, nor with a state's;
                                needed if a proxy strips ETags from answers */
    int32_t moved;       /* 1: the keys may be others than when a state was saved (>>state). Not
                            for parts: dlp_s3_manifest_id has the keys */
} dlp_s3_source_desc;

/* Make a source. Its fetcher is DLP_FETCH_ASYNC.
   out: to be closed by dlp_source_close, before client and manifest; desc: copied; err: written on
   failure, may be NULL. Returns DLP_OK; DLP_ERR_ARG (the message names the field); DLP_ERR_MEMORY.
   Any thread may call it. It allocates its own record; workers make the connections. */
DLPDEF int dlp_s3_source_open(dlp_source **out, const dlp_s3_source_desc *desc, dlp_s3_error *err);

/* Return the bytes that each worker allocates when it begins, without those of its dlp_s3_io. The
   bytes are not in the pipe's plan. source: not NULL. Any thread may call it. */
DLPDEF uint64_t dlp_s3_source_worker_bytes(const dlp_source *source);

/* ---------------------------------------------------------------------------------------------
   >>s3-parts   OBJECTS AS PARTS
   Entry i of the source's manifest is part i. The source's load reads it straight into the part's
   cell:

     {.name = "shards", .verb = DLP_LOAD, .load = {.source = source, .shuffle_items = 1}}, // or
     desc.parts.source = source; // of a loader

   The manifest gives the counts of items, unless items, count or max_items is set. If
   max_part_bytes is 0, it becomes the bytes of the longest entry. For a cache of the objects in a
   directory, or other ways to read, write a load of your own. The source still gives its workers
   their connections:

     dlp_part_files files = {.files = names, .n_files = n, .dir = "/cache",
                             .download = dlp_s3_part_download, .user = source};
     .load = {.source = source, .load = dlp_part_files_load, .user = &files}
     ... or, in a load: return part->index < split ? dlp_s3_part_load(source, part) : mine(part); */

/* Read a part from its entry: the load that the source gives. source: the source itself; part: as
   load gets it. Returns 0, DLP_ERR_CALLBACK or DLP_ERR_LENGTH. Only load may call it. It waits. */
DLPDEF DLPI_LESS_PARTS
int dlp_s3_part_load(void *source, dlp_part *part);

/* Write entry part->index into a file: for dlp_part_files.download, with the source as its user. If
   the load has this source, or one of its client, each worker has one dlp_s3_io for all its
   downloads. Else each download opens a dlp_s3_io. Returns 0, DLP_ERR_CALLBACK or DLP_ERR_LENGTH.
   It waits. */
DLPDEF DLPI_LESS_PARTS
int dlp_s3_part_download(void *source, const dlp_part *part, const char *path, int fd);

/* ---------------------------------------------------------------------------------------------
   >>s3-chunks  OBJECTS AS CHUNKS
   If row_bytes of its desc is set, a source loads the rows of chunks straight into the chunk:

     dlp_chunks_desc desc = {.source = source, .fields = &pixels, .n_fields = 1, ...};

   For several fields write a load of your own. desc.source gives its workers their connections:

     static int load(void *user, dlp_chunk *chunk) {
         int rc = dlp_s3_chunk_read(images, chunk, 0);
         return rc != 0 ? rc : dlp_s3_chunk_read(labels, chunk, 1);
     }
     desc.source = images; desc.load = load; */

/* Read the rows of one field of a chunk from a source. It is for a load of your own, if each of
   several fields has a source. All these sources must have the client of desc.source.
   chunk: as load gets it; field: below chunk->n_fields. Returns 0, or DLP_ERR_CALLBACK with a
   message. Only load may call it. It waits. */
DLPDEF DLPI_LESS_SPLIT
int dlp_s3_chunk_read(dlp_source *source, dlp_chunk *chunk, uint32_t field);

#endif /* DLPIPE_H */

#ifdef __cplusplus
}
#endif
#endif /* DLPIPE_S3_H */

/* ---------------------------------------------------------------------------------------------- */

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_S3_IMPLEMENTATION_DONE)
#if defined(__cplusplus)
#error define DLPIPE_IMPLEMENTATION in a C file (C11); C++ files include dlpipe_s3.h without it
#undef DLPIPE_IMPLEMENTATION
#elif defined(__GLIBC__) && !defined(__USE_GNU) && defined(DLPI_S3_INCLUDED_EARLIER)
#error dlpipe_s3.h was included earlier: DLPIPE_IMPLEMENTATION goes above that, or -D_GNU_SOURCE
#undef DLPIPE_IMPLEMENTATION
#elif defined(__GLIBC__) && !defined(__USE_GNU)
#error include dlpipe_s3.h with DLPIPE_IMPLEMENTATION before any system header, or -D_GNU_SOURCE
#undef DLPIPE_IMPLEMENTATION
#endif
#endif
#undef DLPI_S3_INCLUDED_EARLIER

#if defined(DLPIPE_IMPLEMENTATION) && !defined(DLPIPE_S3_IMPLEMENTATION_DONE)
#define DLPIPE_S3_IMPLEMENTATION_DONE

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-base         SYSTEM HEADERS, SMALL THINGS
   Labels of atomics in this file: S and a number, one for each word or group of words that threads
   or processes share. */

#include <errno.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef DLPI_DESCRIPTORS /* both dlpipe.h and dlpipe_s3.h have it */
#define DLPI_DESCRIPTORS
#if !defined(_WIN32)

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Return fd or, if it is 0, 1 or 2, a copy of it above 2, and close fd. So no descriptor of ours is
   one of the first three: if a program has closed those (a daemon), what somebody prints would go
   into our file. Returns -1 with errno if fd is -1 or no descriptor is left. */
DLPI_UNREAD static int dlpi_fd_above(int fd) {
    int above, errnum;
    if (fd < 0 || fd > 2) return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    errnum = errno;
    close(fd);
    errno = errnum;
    return above;
}

/* Move two descriptors above 2. rc: what pipe2 or socketpair, which opened them, returned. Returns
   0, or -1 with errno; then both are closed. */
DLPI_UNREAD static int dlpi_pair_above(int rc, int *fd) {
    if (rc != 0) return rc;
    fd[0] = dlpi_fd_above(fd[0]);
    fd[1] = dlpi_fd_above(fd[1]);
    if (fd[0] >= 0 && fd[1] >= 0) return 0;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    fd[0] = fd[1] = -1;
    return -1;
}

/* Return the limit on the numbers of descriptors (ulimit -n) of this process. */
DLPI_UNREAD static uint64_t dlpi_fd_limit(void) {
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
    return most.rlim_cur;
}

/* True if a file may be as large as that. If not, errno is EFBIG. Growing a file past the limit on
   files (ulimit -f) would end the program, by SIGXFSZ. */
DLPI_UNREAD static bool dlpi_file_may_be(uint64_t bytes) {
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        bytes <= most.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* Open a text file as a stream. flags: for open; mode: for fdopen. Returns NULL with errno. */
DLPI_UNREAD static FILE *dlpi_stream_open(const char *path, int flags, const char *mode) {
    int fd = dlpi_fd_above(open(path, flags | O_CLOEXEC, 0666));
    FILE *f = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (f == NULL && fd >= 0) close(fd);
    return f;
}

#endif
#endif

#define DLPI_S3_LINE 128u     /* what different threads write lies so far apart */
#define DLPI_S3_MS 1000000ull /* in nanoseconds */

static inline uint64_t dlpi_s3_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Return the Unix time. */
static inline int64_t dlpi_s3_real_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

/* Copy a string, cut if it is too long, always terminated. Returns true if all of it fitted. */
static bool dlpi_s3_copy(char *to, size_t size, const char *from) {
    size_t n = strlen(from), take;
    if (size == 0) return false;
    take = n < size ? n : size - 1;
    memmove(to, from, take);
    to[take] = '\0';
    return n < size;
}

/* Replace the control bytes of a text, which keys may hold, so that it is one line. */
static inline void dlpi_s3_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 32 || *text == 127) *text = '?';
}

/* True if a list, with blanks around each word, has the word. NULL and "" are in no list. */
static bool dlpi_s3_listed(const char *list, const char *word) {
    size_t n = word ? strlen(word) : 0;
    if (n == 0 || strchr(word, ' ')) return false;
    while ((list = strstr(list, word)) != NULL && (list[-1] != ' ' || list[n] != ' ')) list++;
    return list != NULL;
}

/* Zero what was secret. explicit_bzero is a call that the optimiser does not take out. */
static inline void dlpi_s3_wipe(void *at, size_t n) { explicit_bzero(at, n); }

/* Set code, errnum and message of *err, if err is not NULL. Returns code. */
DLPI_PRINTF(4, 5)
static int dlpi_s3_set_error(dlp_s3_error *err, int code, int errnum, const char *format, ...) {
    va_list args;
    if (!err) return code;
    err->code = code;
    err->errnum = errnum;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

/* Return the next of a series of random numbers (xorshift64*; Vigna 2016). *state must not be 0. */
static inline uint64_t dlpi_s3_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Dull;
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-text         HASHES, URIS, TIMES, XML */

/* Bytes of somebody else's memory. */
typedef struct dlpi_s3_span {
    const char *at;
    size_t n;
} dlpi_s3_span;

static bool dlpi_s3_span_is(dlpi_s3_span s, const char *text) {
    return strlen(text) == s.n && memcmp(s.at, text, s.n) == 0;
}

/* ---- SHA-256 (FIPS 180-4) and HMAC (RFC 2104). By the processor's instructions for it, where it
   has them: 1.6 GB/s or so on x86, against 0.3 GB/s. */

typedef struct dlpi_s3_sha {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64]; /* the last bytes % 64 of what came */
} dlpi_s3_sha;

static const uint32_t dlpi_s3_sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define DLPI_S3_ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define DLPI_S3_ROUND(a, b, c, d, e, f, g, h, i) \
    do { \
        uint32_t t_ = (h) + (DLPI_S3_ROR(e, 6) ^ DLPI_S3_ROR(e, 11) ^ DLPI_S3_ROR(e, 25)) + \
                      (((e) & ((f) ^ (g))) ^ (g)) + dlpi_s3_sha_k[i] + w[(i)&15]; \
        (d) += t_; \
        (h) = t_ + (DLPI_S3_ROR(a, 2) ^ DLPI_S3_ROR(a, 13) ^ DLPI_S3_ROR(a, 22)) + \
              (((a) & (b)) | ((c) & ((a) | (b)))); \
    } while (0)

/* Compute the next 16 words of the schedule, in place. */
static inline void dlpi_s3_sha_schedule(uint32_t w[16]) {
    for (int i = 0; i < 16; i++) {
        uint32_t x = w[(i + 1) & 15], y = w[(i + 14) & 15];
        w[i] += (DLPI_S3_ROR(x, 7) ^ DLPI_S3_ROR(x, 18) ^ x >> 3) + w[(i + 9) & 15] +
                (DLPI_S3_ROR(y, 17) ^ DLPI_S3_ROR(y, 19) ^ y >> 10);
    }
}

/* Hash blocks of 64 bytes, without special instructions of the CPU. */
static void dlpi_s3_sha_plain(uint32_t state[8], const uint8_t *p, size_t blocks) {
    for (; blocks > 0; blocks--, p += 64) {
        uint32_t w[16], s[8];
        memcpy(s, state, sizeof s);
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
                   (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 0; i < 64; i += 8) {
            if (i > 0 && i % 16 == 0) dlpi_s3_sha_schedule(w);
            DLPI_S3_ROUND(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], i);
            DLPI_S3_ROUND(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], i + 1);
            DLPI_S3_ROUND(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], i + 2);
            DLPI_S3_ROUND(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], i + 3);
            DLPI_S3_ROUND(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], i + 4);
            DLPI_S3_ROUND(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], i + 5);
            DLPI_S3_ROUND(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], i + 6);
            DLPI_S3_ROUND(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], i + 7);
        }
        for (int i = 0; i < 8; i++) state[i] += s[i];
    }
}

#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
#include <cpuid.h>
#include <immintrin.h>

/* Four rounds: words 4 * i .. 4 * i + 3, which for i >= 4 come from the four groups before them. */
#define DLPI_S3_SHA_FOUR(i) \
    { \
        if ((i) >= 4) \
            m[(i)&3] = _mm_sha256msg2_epu32( \
                _mm_add_epi32(_mm_sha256msg1_epu32(m[(i)&3], m[((i) + 1) & 3]), \
                              _mm_alignr_epi8(m[((i) + 3) & 3], m[((i) + 2) & 3], 4)), \
                m[((i) + 3) & 3]); \
        kw = _mm_add_epi32( \
            m[(i)&3], _mm_loadu_si128((const __m128i *)(const void *)(dlpi_s3_sha_k + 4 * (i)))); \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, kw); \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(kw, 0x0E)); \
    }

#define DLPI_S3_SHA_ALL(x) \
    x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14) x(15)

/* Hash blocks of 64 bytes by the SHA instructions of x86-64. The CPU must have them. */
DLPI_TARGET("sha,sse4.1,ssse3")
static void dlpi_s3_sha_fast(uint32_t state[8], const uint8_t *p, size_t blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)(const void *)state);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    __m128i m[4], kw, feba, dchg;
    for (; blocks > 0; blocks--, p += 64) {
        __m128i abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 4; i++) {
            m[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
            m[i] = _mm_shuffle_epi8(m[i], swap);
        }
        DLPI_S3_SHA_ALL(DLPI_S3_SHA_FOUR)
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static bool dlpi_s3_sha_has_fast(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}
#elif defined(__aarch64__) && !defined(__AARCH64EB__) && \
    (defined(__ARM_FEATURE_SHA2) || \
     !defined(__clang__)) /* clang has them only if always allowed */
#include <arm_neon.h>
#include <sys/auxv.h>

/* Hash blocks of 64 bytes by the SHA instructions of Arm. The CPU must have them. */
DLPI_TARGET("+crypto")
static void dlpi_s3_sha_fast(uint32_t state[8], const uint8_t *p, size_t blocks) {
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4), m[4];
    for (; blocks > 0; blocks--, p += 64) {
        uint32x4_t abcd_before = abcd, efgh_before = efgh;
        for (int i = 0; i < 4; i++) m[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
        for (int i = 0; i < 16; i++) {
            uint32x4_t kw, before = abcd;
            if (i >= 4)
                m[i & 3] = vsha256su1q_u32(vsha256su0q_u32(m[i & 3], m[(i + 1) & 3]),
                                           m[(i + 2) & 3], m[(i + 3) & 3]);
            kw = vaddq_u32(m[i & 3], vld1q_u32(dlpi_s3_sha_k + 4 * i));
            abcd = vsha256hq_u32(abcd, efgh, kw);
            efgh = vsha256h2q_u32(efgh, before, kw);
        }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

static bool dlpi_s3_sha_has_fast(void) {
    return (getauxval(AT_HWCAP) & 1u << 6) != 0; /* HWCAP_SHA2 */
}
#else
#define dlpi_s3_sha_fast dlpi_s3_sha_plain
static bool dlpi_s3_sha_has_fast(void) { return false; }
#endif

/* Hash blocks of 64 bytes in the fastest way that the CPU has. */
static void dlpi_s3_sha_blocks(uint32_t state[8], const uint8_t *p, size_t blocks) {
    static int32_t way; /* 0: not looked yet, which several threads may do; each finds the same */
    int32_t w = DLPI_LOAD_RLX(&way);
    if (w == 0) {
        w = dlpi_s3_sha_has_fast() ? 2 : 1;
        DLPI_STORE_RLX(&way, w);
    }
    if (w == 2)
        dlpi_s3_sha_fast(state, p, blocks);
    else
        dlpi_s3_sha_plain(state, p, blocks);
}

static void dlpi_s3_sha_begin(dlpi_s3_sha *s) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, first, sizeof first);
    s->bytes = 0;
}

/* Hash n more bytes of a message. */
static void dlpi_s3_sha_add(dlpi_s3_sha *s, const void *data, size_t n) {
    const uint8_t *p = data;
    size_t have = (size_t)(s->bytes & 63), take;
    if (n == 0) return;
    s->bytes += n;
    if (have > 0) {
        take = n < 64 - have ? n : 64 - have;
        memcpy(s->block + have, p, take);
        if (have + take < 64) return;
        dlpi_s3_sha_blocks(s->state, s->block, 1);
        p += take;
        n -= take;
    }
    if (n >= 64) dlpi_s3_sha_blocks(s->state, p, n / 64);
    if (n % 64 > 0) memcpy(s->block, p + n / 64 * 64, n % 64);
}

static void dlpi_s3_sha_adds(dlpi_s3_sha *s, const char *text) {
    dlpi_s3_sha_add(s, text, strlen(text));
}

/* Write the hash of a message. The state cannot be used any more then. */
static void dlpi_s3_sha_end(dlpi_s3_sha *s, uint8_t out[32]) {
    uint64_t bits = s->bytes * 8;
    size_t have = (size_t)(s->bytes & 63);
    s->block[have++] = 0x80;
    if (have > 56) {
        memset(s->block + have, 0, 64 - have);
        dlpi_s3_sha_blocks(s->state, s->block, 1);
        have = 0;
    }
    memset(s->block + have, 0, 56 - have);
    for (int i = 0; i < 8; i++) s->block[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
    dlpi_s3_sha_blocks(s->state, s->block, 1);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void dlpi_s3_sha256(const void *data, size_t n, uint8_t out[32]) {
    dlpi_s3_sha s;
    dlpi_s3_sha_begin(&s);
    dlpi_s3_sha_add(&s, data, n);
    dlpi_s3_sha_end(&s, out);
}

/* A key made ready: what the two hashes are after their first block. */
typedef struct dlpi_s3_hmac_key {
    uint32_t inner[8], outer[8];
} dlpi_s3_hmac_key;

/* Prepare a key of n bytes for messages. *k is as secret as the key. */
static void dlpi_s3_hmac_begin(dlpi_s3_hmac_key *k, const void *key, size_t n) {
    dlpi_s3_sha s;
    uint8_t pad[64] = {0};
    if (n > sizeof pad)
        dlpi_s3_sha256(key, n, pad);
    else if (n > 0)
        memcpy(pad, key, n);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    dlpi_s3_sha_begin(&s);
    memcpy(k->inner, s.state, sizeof k->inner);
    memcpy(k->outer, s.state, sizeof k->outer);
    dlpi_s3_sha_blocks(k->inner, pad, 1);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    dlpi_s3_sha_blocks(k->outer, pad, 1);
    dlpi_s3_wipe(pad, sizeof pad);
}

/* Begin to hash a message under a key; end it by dlpi_s3_hmac_end, not by dlpi_s3_sha_end. */
static void dlpi_s3_hmac_message(dlpi_s3_sha *s, const dlpi_s3_hmac_key *k) {
    memcpy(s->state, k->inner, sizeof s->state);
    s->bytes = 64;
}

/* Write the HMAC of a message that dlpi_s3_hmac_message began. */
static void dlpi_s3_hmac_end(dlpi_s3_sha *s, const dlpi_s3_hmac_key *k, uint8_t out[32]) {
    uint8_t inner[32];
    dlpi_s3_sha_end(s, inner);
    memcpy(s->state, k->outer, sizeof s->state);
    s->bytes = 64;
    dlpi_s3_sha_add(s, inner, sizeof inner);
    dlpi_s3_sha_end(s, out);
}

/* Write the HMAC of one message. `out` may be the key or the data. */
static void dlpi_s3_hmac(const void *key, size_t key_bytes, const void *data, size_t n,
                         uint8_t out[32]) {
    dlpi_s3_hmac_key k;
    dlpi_s3_sha s;
    dlpi_s3_hmac_begin(&k, key, key_bytes);
    dlpi_s3_hmac_message(&s, &k);
    dlpi_s3_sha_add(&s, data, n);
    dlpi_s3_hmac_end(&s, &k, out);
    dlpi_s3_wipe(&k, sizeof k);
    dlpi_s3_wipe(&s, sizeof s);
}

/* Write 2 * n small hex digits and a terminator. */
static void dlpi_s3_hex(char *to, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        to[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    to[2 * n] = '\0';
}

/* ---- CRC-32C, CRC-64/NVME and CRC-32 (ISO-HDLC), of bodies ----
   All are one computation: reflected, with all ones before and after. A CRC of 32 bits with
   polynomial P is one of 64 bits with P * x^32, whose upper half stays 0. Bit i of a word is the
   coefficient of x^(63 - i). A processor that multiplies polynomials folds bits over those that
   follow (Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel,
   2009). Others look eight bytes up at once. Tables and constants are made from the polynomial,
   when a client is opened. */

enum { DLPI_S3_CRC_NONE = 0, DLPI_S3_CRC32C, DLPI_S3_CRC64NVME, DLPI_S3_CRC32, DLPI_S3_CRCS };

typedef struct dlpi_s3_crc_table {
    uint64_t poly, ones;
    uint64_t wide[2], all[2], next[2]; /* x^n for folding over 256 bytes, 128 and 16 */
    uint64_t byte[8][256];             /* byte[k][b]: b with k zero bytes after it */
    int32_t way; /* 0: tables; 1, 2: products of 128 bits, and of twice as many */
} dlpi_s3_crc_table;

static dlpi_s3_crc_table dlpi_s3_crc_tables[DLPI_S3_CRCS] = {
    [DLPI_S3_CRC32C] = {.poly = 0x82f63b78, .ones = 0xffffffff},
    [DLPI_S3_CRC64NVME] = {.poly = 0x9a6c9329ac4bc9b5, .ones = UINT64_MAX},
    [DLPI_S3_CRC32] = {.poly = 0xedb88320, .ones = 0xffffffff}};

static const char *dlpi_s3_crc_name(int kind) {
    static const char *const names[] = {"none", "CRC32C", "CRC64NVME", "CRC32"};
    return names[kind];
}

/* Multiply two polynomials, modulo the table's. */
static uint64_t dlpi_s3_crc_times(const dlpi_s3_crc_table *t, uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    for (; a; a <<= 1) {
        sum ^= b & (0 - (a >> 63));
        b = b >> 1 ^ (t->poly & (0 - (b & 1)));
    }
    return sum;
}

/* Return x^n, modulo the table's polynomial. */
static uint64_t dlpi_s3_crc_power(const dlpi_s3_crc_table *t, uint64_t n) {
    uint64_t power = 1ull << 63, square = 1ull << 62;
    for (; n; n >>= 1) {
        if (n & 1) power = dlpi_s3_crc_times(t, power, square);
        square = dlpi_s3_crc_times(t, square, square);
    }
    return power;
}

/* Return what a piece with this CRC contributes to the CRC of a whole in which so many bytes follow
   it. The CRC of the whole is the exclusive or of the contributions of its pieces. */
static uint64_t dlpi_s3_crc_shift(int kind, uint64_t crc, uint64_t bytes) {
    const dlpi_s3_crc_table *t = &dlpi_s3_crc_tables[kind];
    uint64_t eight = bytes ? dlpi_s3_crc_power(t, 8) : 0; /* 8 * bytes might not fit */
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) crc = dlpi_s3_crc_times(t, crc, eight);
        eight = dlpi_s3_crc_times(t, eight, eight);
    }
    return crc;
}

/* Return the register after n bytes, by tables. */
static uint64_t dlpi_s3_crc_plain(const dlpi_s3_crc_table *t, uint64_t crc, const uint8_t *p,
                                  size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        for (int i = 0; i < 8; i++) crc ^= (uint64_t)p[i] << (8 * i);
        crc = t->byte[7][crc & 255] ^ t->byte[6][crc >> 8 & 255] ^ t->byte[5][crc >> 16 & 255] ^
              t->byte[4][crc >> 24 & 255] ^ t->byte[3][crc >> 32 & 255] ^
              t->byte[2][crc >> 40 & 255] ^ t->byte[1][crc >> 48 & 255] ^ t->byte[0][crc >> 56];
    }
    for (; n > 0; p++, n--) crc = crc >> 8 ^ t->byte[0][(crc ^ *p) & 255];
    return crc;
}

#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
typedef __m128i dlpi_s3_lane;
#define DLPI_S3_CRC_TARGET DLPI_TARGET("pclmul,sse2")
#define DLPI_S3_LANE(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define DLPI_S3_LANE_KEEP(p, lane) _mm_storeu_si128((__m128i *)(void *)(p), lane)
#define DLPI_S3_LANE_XOR(a, b) _mm_xor_si128(a, b)
#define DLPI_S3_LANE_LOWS(a, b) _mm_clmulepi64_si128(a, b, 0x00)
#define DLPI_S3_LANE_HIGHS(a, b) _mm_clmulepi64_si128(a, b, 0x11)
static int dlpi_s3_crc_way(void) {
    if (!__builtin_cpu_supports("pclmul")) return 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") ? 2 : 1;
}
#elif defined(__aarch64__) && !defined(__AARCH64EB__) && !defined(DLPIPE_NO_SIMD) && \
    (defined(__ARM_FEATURE_AES) || !defined(__clang__))
typedef uint64x2_t dlpi_s3_lane;
#define DLPI_S3_CRC_TARGET DLPI_TARGET("+crypto")
#define DLPI_S3_LANE(p) vreinterpretq_u64_u8(vld1q_u8((const uint8_t *)(p)))
#define DLPI_S3_LANE_KEEP(p, lane) vst1q_u8(p, vreinterpretq_u8_u64(lane))
#define DLPI_S3_LANE_XOR(a, b) veorq_u64(a, b)
#define DLPI_S3_LANE_TIMES(a, b, i) \
    vreinterpretq_u64_p128(vmull_p64(vgetq_lane_u64(a, i), vgetq_lane_u64(b, i)))
#define DLPI_S3_LANE_LOWS(a, b) DLPI_S3_LANE_TIMES(a, b, 0)
#define DLPI_S3_LANE_HIGHS(a, b) DLPI_S3_LANE_TIMES(a, b, 1)
static int dlpi_s3_crc_way(void) { return (getauxval(AT_HWCAP) & 1u << 4) != 0; /* HWCAP_PMULL */ }
#else
#define DLPI_S3_CRC_PLAIN
#endif

/* Eight lanes side by side, each in a register. */
#define DLPI_S3_LANES(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7)

#ifndef DLPI_S3_CRC_PLAIN
#define DLPI_S3_LANE_FOLD(lane, by, more) \
    DLPI_S3_LANE_XOR(DLPI_S3_LANE_XOR(DLPI_S3_LANE_LOWS(lane, by), DLPI_S3_LANE_HIGHS(lane, by)), \
                     more)
#define DLPI_S3_LANE_BEGIN(i) dlpi_s3_lane lane##i = DLPI_S3_LANE(p + 16 * (i));
#define DLPI_S3_LANE_STEP(i) lane##i = DLPI_S3_LANE_FOLD(lane##i, all, DLPI_S3_LANE(p + 16 * (i)));
#define DLPI_S3_LANE_JOIN(i) one = DLPI_S3_LANE_FOLD(one, next, lane##i);

/* Return the register after n bytes, a multiple of 16 and at least 128, by products. */
DLPI_S3_CRC_TARGET static uint64_t dlpi_s3_crc_fast(const dlpi_s3_crc_table *t, uint64_t crc,
                                                    const uint8_t *p, size_t n) {
    dlpi_s3_lane all = DLPI_S3_LANE(t->all), next = DLPI_S3_LANE(t->next), one;
    uint64_t first[2] = {crc, 0};
    uint8_t last[16] = {0};
    DLPI_S3_LANES(DLPI_S3_LANE_BEGIN)
    lane0 = DLPI_S3_LANE_XOR(lane0, DLPI_S3_LANE(first));
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) { DLPI_S3_LANES(DLPI_S3_LANE_STEP) }
    one = DLPI_S3_LANE(last);
    DLPI_S3_LANES(DLPI_S3_LANE_JOIN)
    for (; n; p += 16, n -= 16) one = DLPI_S3_LANE_FOLD(one, next, DLPI_S3_LANE(p));
    DLPI_S3_LANE_KEEP(last, one);
    return dlpi_s3_crc_plain(t, 0, last, 16);
}
#else
#define dlpi_s3_crc_fast dlpi_s3_crc_plain
static int dlpi_s3_crc_way(void) { return 0; }
#endif

#if defined(__x86_64__) && !defined(DLPIPE_NO_SIMD)
#define DLPI_S3_WIDE(i) _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * (i)))
#define DLPI_S3_WIDE_BEGIN(i) __m256i lane##i = DLPI_S3_WIDE(i);
#define DLPI_S3_WIDE_STEP(i) \
    lane##i = _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(lane##i, by, 0x00), \
                                                _mm256_clmulepi64_epi128(lane##i, by, 0x11)), \
                               DLPI_S3_WIDE(i));
#define DLPI_S3_WIDE_KEEP(i) _mm256_storeu_si256((__m256i *)(void *)(left + 32 * (i)), lane##i);

/* Return the register after n bytes, a multiple of 256, by products that are twice as wide. What
   they leave stands for all bytes before it. */
DLPI_TARGET("avx2,vpclmulqdq")
static uint64_t dlpi_s3_crc_wide(const dlpi_s3_crc_table *t, uint64_t crc, const uint8_t *p,
                                 size_t n) {
    __m256i by = _mm256_broadcastsi128_si256(DLPI_S3_LANE(t->wide));
    uint8_t left[256];
    DLPI_S3_LANES(DLPI_S3_WIDE_BEGIN)
    lane0 = _mm256_xor_si256(lane0, _mm256_set_epi64x(0, 0, 0, (int64_t)crc));
    for (p += 256, n -= 256; n; p += 256, n -= 256) { DLPI_S3_LANES(DLPI_S3_WIDE_STEP) }
    DLPI_S3_LANES(DLPI_S3_WIDE_KEEP)
    return dlpi_s3_crc_fast(t, 0, left, sizeof left);
}
#else
#define dlpi_s3_crc_wide dlpi_s3_crc_fast
#endif

/* Compute the tables of all CRCs, and find out the fastest way to use them. It runs once in a
   process. */
DLPI_COLD static void dlpi_s3_crc_make(void) {
    for (int kind = 1; kind < DLPI_S3_CRCS; kind++) {
        dlpi_s3_crc_table *t = &dlpi_s3_crc_tables[kind];
        for (uint64_t b = 0; b < 256; b++) {
            uint64_t crc = b;
            for (int k = 0; k < 8; k++) {
                for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (t->poly & (0 - (crc & 1)));
                t->byte[k][b] = crc;
            }
        }
        t->all[0] = dlpi_s3_crc_power(t, 1024 + 63);
        t->all[1] = dlpi_s3_crc_power(t, 1024 - 1);
        t->next[0] = dlpi_s3_crc_power(t, 128 + 63);
        t->next[1] = dlpi_s3_crc_power(t, 127);
        t->wide[0] = dlpi_s3_crc_power(t, 2048 + 63);
        t->wide[1] = dlpi_s3_crc_power(t, 2047);
        t->way = dlpi_s3_crc_way();
    }
}

/* Make the tables, before the first dlpi_s3_crc_add. Returns true if the CRC of a body costs
   little. Products of 256 bits take 2.7 us for 100 KB, products of 128 bits 4.4 us, tables 100 us
   (Xeon of 2023). A request for such a body takes 17 to 39 us. */
static bool dlpi_s3_crc_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, dlpi_s3_crc_make);
    return dlpi_s3_crc_tables[DLPI_S3_CRC32C].way == 2;
}

/* Return the CRC of bytes that follow others. crc: the CRC of the others; 0 if there are none. */
static uint64_t dlpi_s3_crc_add(int kind, uint64_t crc, const void *bytes, size_t n) {
    const dlpi_s3_crc_table *t = &dlpi_s3_crc_tables[kind];
    const uint8_t *p = (const uint8_t *)bytes;
    size_t wide = t->way == 2 && n >= 4096 ? n / 256 * 256 : 0, narrow; /* else as fast without */
    crc ^= t->ones;
    if (wide) crc = dlpi_s3_crc_wide(t, crc, p, wide);
    p += wide;
    n -= wide;
    narrow = t->way && n >= 128 ? n / 16 * 16 : 0;
    if (narrow) crc = dlpi_s3_crc_fast(t, crc, p, narrow);
    return dlpi_s3_crc_plain(t, crc, p + narrow, n - narrow) ^ t->ones;
}

static bool dlpi_s3_is_blank(char c) { return c == ' ' || c == '\t'; }

/* Leave out the blanks at both ends of a text. */
static void dlpi_s3_trim(const char **s, size_t *n) {
    while (*n && dlpi_s3_is_blank(**s)) (*s)++, (*n)--;
    while (*n && dlpi_s3_is_blank((*s)[*n - 1])) (*n)--;
}

/* ---- URIs (RFC 3986). Signing wants exactly the unreserved characters left alone, and escapes
   in capitals. */

static inline bool dlpi_s3_uri_plain(unsigned char c) {
    static const uint64_t map[4] = {0x03ff600000000000u, 0x47fffffe87fffffeu, 0, 0}; /* -. 0-9... */
    return (map[c >> 6] >> (c & 63) & 1) != 0;
}

/* Escape n bytes, but not '/' with keep_slash. Writes what fits, whole characters and a terminator.
   Returns the whole length, as snprintf does. */
static size_t dlpi_s3_uri_encode(char *to, size_t size, const char *from, size_t n,
                                 bool keep_slash) {
    size_t at = 0, end = 0; /* end: of what was written */
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        bool plain = dlpi_s3_uri_plain(c) || (c == '/' && keep_slash);
        size_t more = plain ? 1 : 3;
        if (at + more < size) { /* if not, then none after it either */
            to[at] = plain ? (char)c : '%';
            if (!plain) to[at + 1] = "0123456789ABCDEF"[c >> 4];
            if (!plain) to[at + 2] = "0123456789ABCDEF"[c & 15];
            end += more;
        }
        at += more;
    }
    if (size > 0) to[end] = '\0';
    return at;
}

static int dlpi_s3_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Undo escapes, in place if to == from. plus: '+' is a space, as in forms. The text is terminated.
   Returns its length, or -1 if an escape is bad or there are more than size - 1 bytes. */
static int64_t dlpi_s3_uri_decode(char *to, size_t size, const char *from, size_t n, bool plus) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%') {
            int high = i + 2 < n ? dlpi_s3_hex_digit(from[i + 1]) : -1;
            int low = i + 2 < n ? dlpi_s3_hex_digit(from[i + 2]) : -1;
            if (high < 0 || low < 0) return -1;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (at + 1 >= size) return -1;
        to[at++] = c;
    }
    if (size == 0) return -1;
    to[at] = '\0';
    return (int64_t)at;
}

/* Read a number of 4 or 8 bytes, the highest first, from its whole base64 with padding (RFC 4648).
   Returns false, and leaves *out as it is, if the text is none. */
static bool dlpi_s3_base64_number(const char *s, size_t n, size_t bytes, uint64_t *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bits = 8 * bytes;
    uint64_t value = 0;
    if (n != (bytes + 2) / 3 * 4) return false;
    for (size_t i = 0; i < n; i++) {
        size_t take = bits < 6 ? bits : 6; /* of the digit's bits; the others are 0 */
        const char *digit = s[i] ? strchr(digits, s[i]) : NULL;
        if (take == 0 ? s[i] != '=' : !digit) return false;
        if (take == 0) continue;
        if ((size_t)(digit - digits) & ((1u << (6 - take)) - 1)) return false;
        value = value << take | (uint64_t)(digit - digits) >> (6 - take);
        bits -= take;
    }
    *out = value;
    return true;
}

/* ---- Times. */

/* Return the days from 1970-01-01 to a date of the Gregorian calendar (Hinnant, "chrono-compatible
   low-level date algorithms"). */
static int64_t dlpi_s3_days(int64_t year, int64_t month, int64_t day) {
    int64_t y = year - (month <= 2), era = (y >= 0 ? y : y - 399) / 400, in_era = y - era * 400;
    int64_t in_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

static void dlpi_s3_digits(char *to, int64_t value, int n) {
    for (int i = n - 1; i >= 0; i--, value /= 10) to[i] = (char)('0' + value % 10);
}

/* Write a time as "20130524T000000Z". unix_s: from year 0 to 9999; others become 1970. */
static void dlpi_s3_date(int64_t unix_s, char iso[17]) {
    int64_t days, z, era, in_era, y, in_year, m, second;
    if (unix_s < -62135596800 || unix_s > 253402300799) unix_s = 0;
    second = ((unix_s % 86400) + 86400) % 86400;
    days = (unix_s - second) / 86400;
    z = days + 719468;
    era = z / 146097;
    in_era = z - era * 146097;
    y = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    in_year = in_era - (365 * y + y / 4 - y / 100);
    m = (5 * in_year + 2) / 153;
    dlpi_s3_digits(iso + 6, in_year - (153 * m + 2) / 5 + 1, 2);
    m += m < 10 ? 3 : -9;
    dlpi_s3_digits(iso + 4, m, 2);
    dlpi_s3_digits(iso, y + era * 400 + (m <= 2), 4);
    dlpi_s3_digits(iso + 9, second / 3600, 2);
    dlpi_s3_digits(iso + 11, second / 60 % 60, 2);
    dlpi_s3_digits(iso + 13, second % 60, 2);
    iso[8] = 'T', iso[15] = 'Z', iso[16] = '\0';
}

/* Return a time in Unix seconds, or -1: out of range. A leap second is the one before it. */
static int64_t dlpi_s3_unix(int64_t year, int64_t month, int64_t day, int64_t h, int64_t min,
                            int64_t s) {
    static const int8_t most[12] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1) return -1;
    if (day > most[month - 1] || h < 0 || h > 23 || min < 0 || min > 59 || s < 0 || s > 60)
        return -1;
    if (month == 2 && day == 29 && (year % 4 != 0 || (year % 100 == 0 && year % 400 != 0)))
        return -1;
    return dlpi_s3_days(year, month, day) * 86400 + h * 3600 + min * 60 + (s == 60 ? 59 : s);
}

/* Read exactly n digits. Returns their value, or -1 if there is something else or it is above
   INT64_MAX. */
static int64_t dlpi_s3_number(const char *at, size_t n) {
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t digit = at[i] - '0';
        if (digit < 0 || digit > 9 || v > (INT64_MAX - digit) / 10) return -1;
        v = v * 10 + digit;
    }
    return v;
}

/* Read a number of n digits, at least one. Returns false if it is none, with *out as it was. */
static bool dlpi_s3_decimal(const char *at, size_t n, uint64_t *out) {
    int64_t v = n > 0 ? dlpi_s3_number(at, n) : -1;
    if (v >= 0) *out = (uint64_t)v;
    return v >= 0;
}

/* Read "2009-10-12T17:50:30.000Z", with or without a fraction, "+01:00" in place of Z; or
   "20091012T175030Z". Returns Unix seconds, or -1. */
static int64_t dlpi_s3_time_iso(const char *at, size_t n) {
    int64_t t, h, m;
    const char *zone;
    if (n == 16 && at[8] == 'T' && at[15] == 'Z')
        return dlpi_s3_unix(dlpi_s3_number(at, 4), dlpi_s3_number(at + 4, 2),
                            dlpi_s3_number(at + 6, 2), dlpi_s3_number(at + 9, 2),
                            dlpi_s3_number(at + 11, 2), dlpi_s3_number(at + 13, 2));
    if (n < 20 || at[4] != '-' || at[7] != '-' || (at[10] != 'T' && at[10] != ' ')) return -1;
    if (at[13] != ':' || at[16] != ':') return -1;
    t = dlpi_s3_unix(dlpi_s3_number(at, 4), dlpi_s3_number(at + 5, 2), dlpi_s3_number(at + 8, 2),
                     dlpi_s3_number(at + 11, 2), dlpi_s3_number(at + 14, 2),
                     dlpi_s3_number(at + 17, 2));
    zone = at + 19;
    if (*zone == '.') {
        zone++;
        while (zone < at + n && *zone >= '0' && *zone <= '9') zone++;
        if (zone == at + 20) return -1;
    }
    n -= (size_t)(zone - at);
    if (t < 0 || (n == 1 && *zone == 'Z')) return t;
    if (n != 6 || (*zone != '+' && *zone != '-') || zone[3] != ':') return -1;
    h = dlpi_s3_number(zone + 1, 2), m = dlpi_s3_number(zone + 4, 2);
    if (h < 0 || h > 23 || m < 0 || m > 59) return -1;
    t += (*zone == '-' ? 1 : -1) * (h * 3600 + m * 60);
    return t < 0 ? -1 : t;
}

/* Return the month 1..12 with this English name of three letters, or -1. */
static int dlpi_s3_month(const char *at, size_t n) {
    static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
    if (n != 3) return -1;
    for (int i = 0; i < 12; i++)
        if (strncasecmp(at, names + 3 * (size_t)i, 3) == 0) return i + 1;
    return -1;
}

/* Read a date of HTTP in any of its three forms (RFC 9110, 5.6.7): a month's name, a time, a day of
   one or two digits, then a year of two or four, in whatever order the others stand. Returns Unix
   seconds, or -1. */
static int64_t dlpi_s3_time_http(const char *at, size_t n) {
    const char *end = at + n;
    int64_t day = -1, month = -1, year = -1, h = -1, m = -1, s = -1;
    while (at < end) {
        const char *word = at;
        int64_t v;
        while (at < end && *at != ' ' && *at != ',' && *at != '-') at++;
        n = (size_t)(at - word);
        if (at < end) at++;
        v = n >= 1 && n <= 4 ? dlpi_s3_number(word, n) : -1;
        if (n == 8 && word[2] == ':' && word[5] == ':' && h < 0) {
            h = dlpi_s3_number(word, 2);
            m = dlpi_s3_number(word + 3, 2), s = dlpi_s3_number(word + 6, 2);
        } else if (v >= 0 && n <= 2 && day < 0) {
            day = v;
        } else if (v >= 0 && n == 2 && year < 0) {
            year = v + (v < 70 ? 2000 : 1900);
        } else if (v >= 0 && n == 4 && year < 0) {
            year = v;
        } else if (month < 0 && dlpi_s3_month(word, n) > 0) {
            month = dlpi_s3_month(word, n);
        }
    }
    return dlpi_s3_unix(year, month, day, h, m, s);
}

/* ---- Endpoints: "http://host:port/prefix". */

typedef struct dlpi_s3_endpoint {
    int32_t tls;
    int32_t is_default_port; /* 80, or 443 with tls */
    int32_t custom;          /* given by somebody; 0: AWS, by region */
    int32_t fips, dualstack; /* which of AWS' hosts */
    uint16_t port;
    char host[256];   /* without brackets, in small letters */
    char prefix[256]; /* of paths, before the bucket: "" or "/x", as it is sent */
} dlpi_s3_endpoint;

/* True if a host is a name in lower case, or an IP address. A name may end in a dot. */
static bool dlpi_s3_host_ok(const char *host) {
    unsigned char address[16];
    size_t label = 0;
    if (strchr(host, ':')) return inet_pton(AF_INET6, host, address) == 1;
    for (const char *p = host;; p++) {
        if (*p == '.' || *p == '\0') {
            if (label == 0 || label > 63) return *p == '\0' && p > host && label == 0;
            label = 0;
            if (*p == '\0') return true;
            continue;
        }
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9') && *p != '-' && *p != '_')
            return false;
        label++;
    }
}

/* Split "host", "host:80" or "[::1]:80" into the host, in small letters and without brackets, and
   *port, which stays as it is if there is none. Returns NULL or an error text. */
static const char *dlpi_s3_authority(const char *at, size_t n, char host[256], uint16_t *port) {
    const char *colon, *end = at + n;
    size_t host_n;
    int64_t number = 0;
    if (n > 0 && *at == '[') {
        const char *close = memchr(at, ']', n);
        if (!close) return "a bracket is not closed";
        at++;
        host_n = (size_t)(close - at);
        colon = close + 1;
        if (colon < end && *colon != ':') return "something follows the bracket";
        if (!memchr(at, ':', host_n)) return "no IPv6 address in brackets";
    } else {
        colon = memchr(at, ':', n);
        if (!colon) colon = end;
        host_n = (size_t)(colon - at);
    }
    if (host_n == 0) return "it has no host";
    if (host_n > 255) return "the host is too long";
    for (size_t i = 0; i < host_n; i++)
        host[i] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] - 'A' + 'a' : at[i]);
    host[host_n] = '\0';
    if (!dlpi_s3_host_ok(host)) return "the host is neither a name nor an address";
    if (colon == end) return NULL;
    n = (size_t)(end - colon) - 1;
    if (n >= 1 && n <= 5) number = dlpi_s3_number(colon + 1, n);
    if (number < 1 || number > 65535) return "the port must be 1..65535";
    *port = (uint16_t)number;
    return NULL;
}

/* Keep the path of an endpoint's URL as its prefix. Returns NULL or an error text. */
static const char *dlpi_s3_endpoint_path(dlpi_s3_endpoint *e, const char *path) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    if (n >= sizeof e->prefix) return "the path is too long";
    for (size_t i = 0; i < n; i++) {
        bool escape = path[i] == '%' && i + 2 < n && dlpi_s3_hex_digit(path[i + 1]) >= 0 &&
                      dlpi_s3_hex_digit(path[i + 2]) >= 0;
        if (!dlpi_s3_uri_plain((unsigned char)path[i]) && !strchr("/!$&'()*+,;=:@", path[i]) &&
            !escape)
            return "the path has a character that must be escaped";
    }
    memcpy(e->prefix, path, n);
    e->prefix[n] = '\0';
    return NULL;
}

/* Take an endpoint's URL apart. Returns DLP_OK, or DLP_ERR_ARG with *why, an error text without any
   of the URL, which might hold a password. */
static int dlpi_s3_endpoint_parse(dlpi_s3_endpoint *out, const char *url, const char **why) {
    dlpi_s3_endpoint e;
    const char *at = url;
    size_t n;
    memset(&e, 0, sizeof e);
    e.custom = 1;
    if (strncasecmp(url, "http://", 7) == 0) {
        at += 7, e.port = 80;
    } else if (strncasecmp(url, "https://", 8) == 0) {
        at += 8, e.port = 443, e.tls = 1;
    } else {
        *why = "it does not begin with http:// or https://";
        return DLP_ERR_ARG;
    }
    n = strcspn(at, "/?#");
    *why = NULL;
    if (memchr(at, '@', n)) *why = "it has a user's name, which is refused";
    if (strpbrk(at, "?#")) *why = "it has a query or a fragment";
    if (!*why) *why = dlpi_s3_authority(at, n, e.host, &e.port);
    if (!*why) *why = dlpi_s3_endpoint_path(&e, at + n);
    if (*why) return DLP_ERR_ARG;
    e.is_default_port = e.port == (e.tls ? 443 : 80);
    *out = e;
    return DLP_OK;
}

/* Write the Host header of an endpoint. */
static void dlpi_s3_endpoint_host(const dlpi_s3_endpoint *e, char *to, size_t size) {
    int n = snprintf(to, size, strchr(e->host, ':') ? "[%s]" : "%s", e->host);
    if (!e->is_default_port && n < (int)size)
        snprintf(to + n, size - (size_t)n, ":%u", (unsigned)e->port);
}

/* Split "http://host:port/path?query": e gets no prefix, and *rest begins with the path, or what is
   there of it. Returns NULL or an error text without any of the URL. */
static const char *dlpi_s3_url_split(dlpi_s3_endpoint *e, const char *url, const char **rest) {
    char front[300];
    const char *at = strstr(url, "://"), *why = NULL;
    size_t n = at ? (size_t)(at - url) + 3 + strcspn(at + 3, "/?#") : sizeof front;
    if (n >= sizeof front) return "the URL must be http(s)://HOST[:PORT][/PATH]";
    memcpy(front, url, n);
    front[n] = '\0';
    *rest = url + n;
    return dlpi_s3_endpoint_parse(e, front, &why) == DLP_OK ? NULL : why;
}

/* Return AWS' domain that a region is in. */
static const char *dlpi_s3_aws_domain(const char *region) {
    static const char *const partitions[][2] = {
        {"cn-", "amazonaws.com.cn"},    {"us-isob-", "sc2s.sgov.gov"},  {"us-iso-", "c2s.ic.gov"},
        {"eu-isoe-", "cloud.adc-e.uk"}, {"us-isof-", "csp.hci.ic.gov"}, {"eusc-", "amazonaws.eu"}};
    const char *domain = "amazonaws.com";
    for (size_t i = 0; i < sizeof partitions / sizeof partitions[0]; i++)
        if (strncmp(region, partitions[i][0], strlen(partitions[i][0])) == 0)
            domain = partitions[i][1];
    return domain;
}

/* Name AWS' endpoint of a region: "s3.eu-west-1.amazonaws.com", "s3-fips.dualstack...". */
static void dlpi_s3_aws_host(const dlpi_s3_endpoint *e, const char *region, char *host,
                             size_t size) {
    snprintf(host, size, "s3%s%s.%s.%s", e->fips ? "-fips" : "", e->dualstack ? ".dualstack" : "",
             region, dlpi_s3_aws_domain(region));
}

/* Make the endpoint of AWS in a region. */
static void dlpi_s3_endpoint_aws(dlpi_s3_endpoint *out, const char *region) {
    memset(out, 0, sizeof *out);
    out->tls = out->is_default_port = 1;
    out->port = 443;
    dlpi_s3_aws_host(out, region, out->host, sizeof out->host);
}

/* ---- Characters of XML and JSON, into a buffer that keeps what fits. */

typedef struct dlpi_s3_out {
    char *to;
    size_t size, n; /* n: bytes that all of it would take */
} dlpi_s3_out;

DLPI_COLD
static void dlpi_s3_out_add(dlpi_s3_out *o, const char *bytes, size_t n) {
    if (o->n < o->size) memcpy(o->to + o->n, bytes, n < o->size - o->n ? n : o->size - o->n);
    o->n += n;
}

/* Terminate the text. Returns true if all of it fitted. */
DLPI_COLD
static bool dlpi_s3_out_end(dlpi_s3_out *o) {
    if (o->size == 0) return false;
    o->to[o->n < o->size ? o->n : o->size - 1] = '\0';
    return o->n < o->size;
}

/* Add a character as UTF-8. Returns false if there is none of this number, or it is NUL. */
DLPI_COLD
static bool dlpi_s3_out_char(dlpi_s3_out *o, uint32_t c) {
    char u[4];
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return false;
    if (c < 0x80) {
        u[0] = (char)c;
        dlpi_s3_out_add(o, u, 1);
    } else if (c < 0x800) {
        u[0] = (char)(0xc0 | c >> 6), u[1] = (char)(0x80 | (c & 63));
        dlpi_s3_out_add(o, u, 2);
    } else if (c < 0x10000) {
        u[0] = (char)(0xe0 | c >> 12), u[1] = (char)(0x80 | (c >> 6 & 63));
        u[2] = (char)(0x80 | (c & 63));
        dlpi_s3_out_add(o, u, 3);
    } else {
        u[0] = (char)(0xf0 | c >> 18), u[1] = (char)(0x80 | (c >> 12 & 63));
        u[2] = (char)(0x80 | (c >> 6 & 63)), u[3] = (char)(0x80 | (c & 63));
        dlpi_s3_out_add(o, u, 4);
    }
    return true;
}

/* ---- XML, as much of it as answers of S3 have: elements, text, CDATA; comments and attributes are
   passed over, a document type (and with it entities of one's own) is refused. */

#define DLPI_S3_XML_DEPTH 16

enum {
    DLPI_S3_XML_BAD = -1,
    DLPI_S3_XML_END = 0,
    DLPI_S3_XML_OPEN,  /* an element begins: name, depth with it */
    DLPI_S3_XML_TEXT,  /* a run of text: text, with references in it */
    DLPI_S3_XML_CDATA, /* the same, as it is */
    DLPI_S3_XML_CLOSE  /* name, depth without it */
};

typedef struct dlpi_s3_xml {
    const char *at, *end;
    const char *why;   /* BAD: in words */
    const char *where; /* BAD: the place */
    dlpi_s3_span name; /* without its namespace */
    dlpi_s3_span text;
    dlpi_s3_span open[DLPI_S3_XML_DEPTH]; /* whole names of what is open */
    int32_t depth;
    int32_t closes; /* 1: "<a/>" was opened, to be closed next */
    int32_t begun;  /* 1: the outermost element has been seen */
} dlpi_s3_xml;

DLPI_COLD
static void dlpi_s3_xml_begin(dlpi_s3_xml *x, const char *xml, size_t n) {
    memset(x, 0, sizeof *x);
    if (n >= 3 && memcmp(xml, "\xef\xbb\xbf", 3) == 0) xml += 3, n -= 3;
    x->at = xml;
    x->end = xml + n;
}

/* Refuse the text, for good. Returns DLPI_S3_XML_BAD. */
DLPI_COLD
static int dlpi_s3_xml_bad(dlpi_s3_xml *x, const char *why) {
    x->why = why;
    x->where = x->at;
    x->at = x->end;
    x->closes = 0;
    x->depth = x->begun = 0; /* it stays bad */
    return DLPI_S3_XML_BAD;
}

DLPI_COLD
static bool dlpi_s3_is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Go on behind the next mark. Returns where the mark begins, or NULL if there is none. */
DLPI_COLD
static const char *dlpi_s3_xml_pass(dlpi_s3_xml *x, const char *mark) {
    const char *found = memmem(x->at, (size_t)(x->end - x->at), mark, strlen(mark));
    if (found) x->at = found + strlen(mark);
    return found;
}

DLPI_COLD
static bool dlpi_s3_xml_at(const dlpi_s3_xml *x, const char *text) {
    size_t n = strlen(text);
    return (size_t)(x->end - x->at) >= n && memcmp(x->at, text, n) == 0;
}

/* True if a byte ends a name: NUL, white space, any of "&'/<=>. */
static inline bool dlpi_s3_xml_ends(unsigned char c) {
    return c < 64 && ((uint64_t)0x700080c500002601u >> c & 1) != 0;
}

/* Read the name of a tag. Returns it whole; x->name gets it without its namespace. */
DLPI_COLD
static dlpi_s3_span dlpi_s3_xml_name(dlpi_s3_xml *x) {
    dlpi_s3_span whole = {x->at, 0};
    x->name.at = x->at;
    while (x->at < x->end && !dlpi_s3_xml_ends((unsigned char)*x->at)) {
        if (*x->at == ':') x->name.at = x->at + 1;
        x->at++;
    }
    whole.n = (size_t)(x->at - whole.at);
    x->name.n = (size_t)(x->at - x->name.at);
    return whole;
}

/* Read an end tag, "</a>", from behind its slash. Returns DLPI_S3_XML_CLOSE or _BAD. */
DLPI_COLD
static int dlpi_s3_xml_close(dlpi_s3_xml *x) {
    dlpi_s3_span whole = dlpi_s3_xml_name(x), *open;
    while (x->at < x->end && dlpi_s3_is_space(*x->at)) x->at++;
    if (x->at == x->end || *x->at != '>') return dlpi_s3_xml_bad(x, "a tag does not end");
    x->at++;
    if (x->depth == 0) return dlpi_s3_xml_bad(x, "an end without a beginning");
    open = &x->open[x->depth - 1];
    if (open->n != whole.n || memcmp(open->at, whole.at, whole.n) != 0)
        return dlpi_s3_xml_bad(x, "elements overlap");
    x->depth--;
    return DLPI_S3_XML_CLOSE;
}

/* Read a tag, "<a b='c'>", from behind its bracket. Returns DLPI_S3_XML_OPEN or _BAD. */
DLPI_COLD
static int dlpi_s3_xml_open(dlpi_s3_xml *x) {
    dlpi_s3_span whole = dlpi_s3_xml_name(x);
    if (x->name.n == 0) return dlpi_s3_xml_bad(x, "a tag has no name");
    if (x->depth == 0 && x->begun) return dlpi_s3_xml_bad(x, "a second outermost element");
    if (x->depth == DLPI_S3_XML_DEPTH) return dlpi_s3_xml_bad(x, "elements are nested too deep");
    while (x->at < x->end && *x->at != '>') {
        char c = *x->at++;
        if (c == '<') return dlpi_s3_xml_bad(x, "a tag inside a tag");
        if (c == '"' || c == '\'') {
            const char *quote = memchr(x->at, c, (size_t)(x->end - x->at));
            if (!quote) return dlpi_s3_xml_bad(x, "an attribute does not end");
            x->at = quote + 1;
        }
        x->closes = c == '/' && x->at < x->end && *x->at == '>';
    }
    if (x->at == x->end) return dlpi_s3_xml_bad(x, "a tag does not end");
    x->at++;
    x->open[x->depth++] = whole;
    x->begun = 1;
    return DLPI_S3_XML_OPEN;
}

/* Read the next piece of the text. Returns DLPI_S3_XML_OPEN, TEXT, CDATA, CLOSE, END or BAD. */
DLPI_COLD
static int dlpi_s3_xml_next(dlpi_s3_xml *x) {
    if (x->closes) {
        x->closes = 0;
        x->depth--;
        return DLPI_S3_XML_CLOSE;
    }
    while (x->at < x->end) {
        if (*x->at != '<') {
            const char *from = x->at, *to = memchr(from, '<', (size_t)(x->end - from));
            x->at = to ? to : x->end;
            x->text = (dlpi_s3_span){from, (size_t)(x->at - from)};
            if (x->depth > 0) return DLPI_S3_XML_TEXT;
            while (from < x->at && dlpi_s3_is_space(*from)) from++;
            if (from < x->at) return dlpi_s3_xml_bad(x, "text outside of all elements");
        } else if (dlpi_s3_xml_at(x, "<?")) {
            if (!dlpi_s3_xml_pass(x, "?>")) return dlpi_s3_xml_bad(x, "a comment does not end");
        } else if (dlpi_s3_xml_at(x, "<!--")) {
            x->at += 4;
            if (!dlpi_s3_xml_pass(x, "-->")) return dlpi_s3_xml_bad(x, "a comment does not end");
        } else if (dlpi_s3_xml_at(x, "<![CDATA[") && x->depth > 0) {
            x->at += 9;
            x->text.at = x->at;
            if (!dlpi_s3_xml_pass(x, "]]>")) return dlpi_s3_xml_bad(x, "CDATA does not end");
            x->text.n = (size_t)(x->at - 3 - x->text.at);
            return DLPI_S3_XML_CDATA;
        } else if (dlpi_s3_xml_at(x, "<!")) {
            return dlpi_s3_xml_bad(x, "a document type, which is refused");
        } else if (dlpi_s3_xml_at(x, "</")) {
            x->at += 2;
            return dlpi_s3_xml_close(x);
        } else {
            x->at++;
            return dlpi_s3_xml_open(x);
        }
    }
    if (x->why) return DLPI_S3_XML_BAD; /* it stays bad */
    if (x->depth > 0 || !x->begun) return dlpi_s3_xml_bad(x, "the answer ends early");
    return DLPI_S3_XML_END;
}

/* Add the character of "&name;". Returns false if XML itself has no such name. */
DLPI_COLD
static bool dlpi_s3_xml_reference(dlpi_s3_out *o, dlpi_s3_span name) {
    static const char *const known[][2] = {
        {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}};
    bool hex = name.n > 1 && name.at[1] == 'x';
    uint32_t c = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!dlpi_s3_span_is(name, known[i][0])) continue;
        dlpi_s3_out_add(o, known[i][1], 1);
        return true;
    }
    if (name.n < (hex ? 3u : 2u) || name.n > 16 || name.at[0] != '#') return false;
    for (size_t i = hex ? 2 : 1; i < name.n; i++) {
        int d = dlpi_s3_hex_digit(name.at[i]);
        if (d < 0 || (d > 9 && !hex)) return false;
        c = c * (hex ? 16u : 10u) + (uint32_t)d;
        if (c > 0x10ffff) return false;
    }
    return dlpi_s3_out_char(o, c);
}

/* Add a run of text with its references resolved. Returns false if one of them is bad. */
DLPI_COLD
static bool dlpi_s3_xml_decode(dlpi_s3_out *o, dlpi_s3_span text) {
    while (text.n > 0) {
        const char *and = memchr(text.at, '&', text.n), *end;
        size_t plain = and? (size_t)(and-text.at) : text.n;
        dlpi_s3_out_add(o, text.at, plain);
        if (!and) return true;
        end = memchr(and, ';', text.n - plain);
        if (!end) return false;
        if (!dlpi_s3_xml_reference(o, (dlpi_s3_span){and+1, (size_t)(end - and) - 1})) return false;
        text.n -= (size_t)(end + 1 - text.at);
        text.at = end + 1;
    }
    return true;
}

/* Add all text directly inside the element that was just opened, up to its end. Returns false if x
   or a reference is bad. */
DLPI_COLD
static bool dlpi_s3_xml_inside(dlpi_s3_xml *x, dlpi_s3_out *o) {
    int32_t depth = x->depth;
    for (;;) {
        int what = dlpi_s3_xml_next(x);
        if (what <= DLPI_S3_XML_END) return false;
        if (what == DLPI_S3_XML_CLOSE && x->depth < depth) return true;
        if (x->depth > depth) continue;
        if (what == DLPI_S3_XML_TEXT && !dlpi_s3_xml_decode(o, x->text)) return false;
        if (what == DLPI_S3_XML_CDATA) dlpi_s3_out_add(o, x->text.at, x->text.n);
    }
}

/* Return the n-th part of a path, "a/b/c". */
DLPI_COLD
static dlpi_s3_span dlpi_s3_path_part(const char *path, int32_t n) {
    for (; n > 0; n--) path += strcspn(path, "/") + 1;
    return (dlpi_s3_span){path, strcspn(path, "/")};
}

/* Read the text of the first element with a path, such as "Error/Code". out is always terminated,
   "" if there is none. Returns true if all of it fitted. */
DLPI_COLD
static bool dlpi_s3_xml_text(const char *xml, size_t n, const char *path, char *out, size_t size) {
    dlpi_s3_xml x;
    dlpi_s3_out o = {out, size, 0};
    int32_t found = 0; /* levels of the path that are open */
    bool whole = false;
    dlpi_s3_xml_begin(&x, xml, n);
    for (;;) {
        int what = dlpi_s3_xml_next(&x);
        dlpi_s3_span part = dlpi_s3_path_part(path, found);
        if (what <= DLPI_S3_XML_END) break;
        if (what == DLPI_S3_XML_CLOSE && x.depth < found) found = x.depth;
        if (what != DLPI_S3_XML_OPEN || x.depth != found + 1) continue;
        if (x.name.n != part.n || memcmp(x.name.at, part.at, part.n) != 0) continue;
        found++;
        if (part.at[part.n] != '\0') continue;
        whole = dlpi_s3_xml_inside(&x, &o);
        break;
    }
    return dlpi_s3_out_end(&o) && whole;
}

/* ---- JSON (RFC 8259): one member of the outermost object. The whole text must be right. */

#define DLPI_S3_JSON_DEPTH 32

typedef struct dlpi_s3_json {
    const char *at, *end;
} dlpi_s3_json;

/* Return the next character that is no white space; NUL at the end. */
DLPI_COLD
static char dlpi_s3_json_peek(dlpi_s3_json *j) {
    while (j->at < j->end && dlpi_s3_is_space(*j->at)) j->at++;
    return j->at < j->end ? *j->at : '\0';
}

/* Pass over c, if it is the next character. Returns whether it was. */
DLPI_COLD
static bool dlpi_s3_json_take(dlpi_s3_json *j, char c) {
    if (c == '\0' || dlpi_s3_json_peek(j) != c) return false;
    j->at++;
    return true;
}

/* Pass over a string. inside: gets what is between its quotes. Returns false if there is none. */
DLPI_COLD
static bool dlpi_s3_json_string(dlpi_s3_json *j, dlpi_s3_span *inside) {
    if (!dlpi_s3_json_take(j, '"')) return false;
    inside->at = j->at;
    for (; j->at < j->end; j->at++) {
        if (*j->at == '"') {
            inside->n = (size_t)(j->at - inside->at);
            j->at++;
            return true;
        }
        if ((unsigned char)*j->at < 0x20) return false;
        if (*j->at == '\\' && ++j->at == j->end) return false;
    }
    return false;
}

DLPI_COLD
static size_t dlpi_s3_json_digits(dlpi_s3_json *j) {
    const char *from = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') j->at++;
    return (size_t)(j->at - from);
}

/* Pass over a number. Returns false if the text is no number of JSON. */
DLPI_COLD
static bool dlpi_s3_json_number(dlpi_s3_json *j) {
    const char *from;
    if (j->at < j->end && *j->at == '-') j->at++;
    from = j->at;
    if (dlpi_s3_json_digits(j) == 0 || (*from == '0' && j->at > from + 1)) return false;
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        if (dlpi_s3_json_digits(j) == 0) return false;
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
        if (dlpi_s3_json_digits(j) == 0) return false;
    }
    return true;
}

/* Pass over a value that is neither an object nor an array. */
DLPI_COLD
static bool dlpi_s3_json_scalar(dlpi_s3_json *j) {
    static const char *const words[] = {"true", "false", "null"};
    dlpi_s3_span s;
    if (dlpi_s3_json_peek(j) == '"') return dlpi_s3_json_string(j, &s);
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(j->end - j->at) < n || memcmp(j->at, words[i], n) != 0) continue;
        j->at += n;
        return true;
    }
    return dlpi_s3_json_number(j);
}

DLPI_COLD
static bool dlpi_s3_json_name(dlpi_s3_json *j, dlpi_s3_span *name) {
    return dlpi_s3_json_string(j, name) && dlpi_s3_json_take(j, ':');
}

/* Pass over a value and all that is in it, without recursion: objects has a bit for each level that
   is open. Returns false if that is no JSON. */
DLPI_COLD
static bool dlpi_s3_json_value(dlpi_s3_json *j) {
    uint64_t objects = 0;
    int depth = 0;
    dlpi_s3_span name;
    for (;;) {
        char c = dlpi_s3_json_peek(j);
        bool opened = c == '{' || c == '[';
        if (opened) {
            if (depth++ == DLPI_S3_JSON_DEPTH) return false;
            objects = objects << 1 | (c == '{');
            j->at++;
            if (dlpi_s3_json_peek(j) != (c == '{' ? '}' : ']')) {
                if (c == '{' && !dlpi_s3_json_name(j, &name)) return false;
                continue;
            }
        } else if (!dlpi_s3_json_scalar(j)) {
            return false;
        }
        while (depth > 0 && dlpi_s3_json_take(j, (objects & 1) ? '}' : ']')) {
            depth--;
            objects >>= 1;
        }
        if (depth == 0) return true;
        if (!dlpi_s3_json_take(j, ',')) return false;
        if ((objects & 1) && !dlpi_s3_json_name(j, &name)) return false;
    }
}

/* Read four hex digits after "\u". Returns their value, or -1. */
DLPI_COLD
static int32_t dlpi_s3_json_hex(const char *at, const char *end) {
    int32_t v = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int d = dlpi_s3_hex_digit(at[i]);
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Add the inside of a string, with its escapes resolved. Returns false if an escape is bad. */
DLPI_COLD
static bool dlpi_s3_json_decode(dlpi_s3_out *o, dlpi_s3_span s) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *end = s.at + s.n;
    for (const char *p = s.at; p < end; p++) {
        const char *known;
        int32_t c, low;
        if (*p != '\\') {
            dlpi_s3_out_add(o, p, 1);
            continue;
        }
        if (++p == end || *p == '\0') return false;
        known = strchr(from, *p);
        if (known) {
            dlpi_s3_out_add(o, &to[known - from], 1);
            continue;
        }
        c = *p == 'u' ? dlpi_s3_json_hex(p + 1, end) : -1;
        if (c < 0) return false;
        p += 4;
        if (c >= 0xd800 && c <= 0xdbff && end - p > 2 && p[1] == '\\' && p[2] == 'u') {
            low = dlpi_s3_json_hex(p + 3, end);
            if (low < 0xdc00 || low > 0xdfff) return false;
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            p += 6;
        }
        if (!dlpi_s3_out_char(o, (uint32_t)c)) return false;
    }
    return true;
}

DLPI_COLD
static bool dlpi_s3_json_same(dlpi_s3_span name, const char *wanted) {
    char buf[128];
    dlpi_s3_out o = {buf, sizeof buf, 0};
    return dlpi_s3_json_decode(&o, name) && dlpi_s3_out_end(&o) && strcmp(buf, wanted) == 0;
}

/* Read a member of the outermost object as text: a string, a number, true or false. out is always
   terminated. Returns false, with "" in out, if the member is missing, is something else (null),
   does not fit, or the text is not JSON. Of two members of one name the first counts. */
DLPI_COLD
static bool dlpi_s3_json_text(const char *json, size_t n, const char *name, char *out,
                              size_t size) {
    dlpi_s3_json j = {json, json + n};
    dlpi_s3_span member, value = {NULL, 0};
    dlpi_s3_out o = {out, size, 0};
    bool good = false;
    if (size > 0) out[0] = '\0';
    if (!dlpi_s3_json_take(&j, '{')) return false;
    if (!dlpi_s3_json_take(&j, '}')) {
        do {
            const char *from;
            if (!dlpi_s3_json_name(&j, &member)) return false;
            dlpi_s3_json_peek(&j);
            from = j.at;
            if (!dlpi_s3_json_value(&j)) return false;
            if (!value.at && dlpi_s3_json_same(member, name))
                value = (dlpi_s3_span){from, (size_t)(j.at - from)};
        } while (dlpi_s3_json_take(&j, ','));
        if (!dlpi_s3_json_take(&j, '}')) return false;
    }
    if (dlpi_s3_json_peek(&j) != '\0' || j.at != j.end || !value.at) return false;
    if (*value.at == '"') {
        good = dlpi_s3_json_decode(&o, (dlpi_s3_span){value.at + 1, value.n - 2});
    } else if (*value.at != '{' && *value.at != '[' && *value.at != 'n') {
        dlpi_s3_out_add(&o, value.at, value.n);
        good = true;
    }
    if (dlpi_s3_out_end(&o) && good) return true;
    if (size > 0) out[0] = '\0';
    return false;
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-sign         REQUESTS, SIGNED */

typedef struct dlpi_s3_credentials {
    int32_t anonymous, pad;
    int64_t expires_s; /* Unix time; 0: never */
    uint64_t version;
    char access[160], secret[160], token[8192]; /* token "": none */
} dlpi_s3_credentials;

/* The signing key of a day: four HMACs that need not be done for each request. Zeroed before its
   first use; used by one thread; holds secrets. */
typedef struct dlpi_s3_key_cache {
    char date[9], region[64], service[32], secret[160]; /* what it was made of */
    dlpi_s3_hmac_key key;
} dlpi_s3_key_cache;

/* A request, as it is to be sent. Strings are borrowed. */
typedef struct dlpi_s3_head {
    const char *method;
    const char *host;     /* with the port, unless it is the scheme's usual port */
    const char *path;     /* escaped */
    const char *query;    /* NULL or "": none; else as dlp_s3_request's */
    const char *range;    /* "bytes=0-9", or NULL */
    const char *if_match; /* an ETag, or NULL */
    const void *body;
    uint64_t body_bytes;
    bool has_body; /* Content-Length is sent, for 0 bytes too */
    bool unsigned_payload;
    bool presign; /* the signature is in the query */
    bool requester_pays;
    bool checksum; /* the answer should have the checksum of its body */
    bool close;
    int32_t expires_s;              /* presign: seconds for which the URL is valid; 0: 900 */
    const char *region;             /* at most 63 bytes; not NULL if the request is signed */
    const char *service;            /* NULL: "s3" */
    const dlpi_s3_credentials *who; /* NULL: anonymous */
    int64_t now_s;
    dlpi_s3_key_cache *keys; /* or NULL */
    const char *proxy;       /* header line for a proxy, which gets the whole URL; NULL: no proxy */
    const char *extra;       /* "Name: value\r\n" lines that need no signature, or NULL */
} dlpi_s3_head;

/* ---- Signature Version 4 ("Create a signed AWS API request", "Authenticating Requests" in the S3
   API reference). The canonical request is never laid out: it is hashed as it is walked through. */

#define DLPI_S3_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DLPI_S3_MAX_PARAMS 64
#define DLPI_S3_AGENT "User-Agent: dlpipe/" DLPIPE_VERSION "\r\n"

typedef struct dlpi_s3_header {
    const char *name; /* in small letters, which is how it is sent too */
    const char *value;
} dlpi_s3_header;

/* A parameter of a query, escaped. */
typedef struct dlpi_s3_param {
    dlpi_s3_span name, value;
} dlpi_s3_param;

typedef struct dlpi_s3_signing {
    const char *method, *path;
    const char *payload;           /* hash of the body in hex, or UNSIGNED-PAYLOAD */
    const dlpi_s3_header *headers; /* in order of their names */
    size_t n_headers;
    dlpi_s3_param *params; /* sorted by signing */
    size_t n_params;
    const char *iso; /* the time, as dlpi_s3_date */
    const char *region, *service;
    const dlpi_s3_credentials *who;
    dlpi_s3_key_cache *keys;
} dlpi_s3_signing;

DLPI_COLD
static int dlpi_s3_span_order(dlpi_s3_span a, dlpi_s3_span b) {
    int order = memcmp(a.at, b.at, a.n < b.n ? a.n : b.n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

/* Split "a=b&c&d=". Returns the number of parameters, or -1 if there are more than max. */
DLPI_COLD
static int dlpi_s3_query_split(const char *query, dlpi_s3_param *params, int max) {
    int n = 0;
    if (!query || *query == '\0') return 0;
    for (const char *at = query;; at++) {
        size_t all = strcspn(at, "&");
        const char *is = memchr(at, '=', all);
        size_t name = is ? (size_t)(is - at) : all;
        if (n == max) return -1;
        params[n].name = (dlpi_s3_span){at, name};
        params[n++].value = (dlpi_s3_span){is ? is + 1 : at + all, is ? all - name - 1 : 0};
        at += all;
        if (*at == '\0') return n;
    }
}

/* Sort parameters by name, then value: they are few, and mostly in order. */
DLPI_COLD
static void dlpi_s3_params_sort(dlpi_s3_param *p, size_t n) {
    for (size_t i = 1; i < n; i++) {
        dlpi_s3_param moved = p[i];
        size_t at = i;
        for (; at > 0; at--) {
            int order = dlpi_s3_span_order(p[at - 1].name, moved.name);
            if (order == 0) order = dlpi_s3_span_order(p[at - 1].value, moved.value);
            if (order <= 0) break;
            p[at] = p[at - 1];
        }
        p[at] = moved;
    }
}

/* Hash a header's value without the spaces around it, and with one space for each run of them. */
DLPI_COLD
static void dlpi_s3_sha_value(dlpi_s3_sha *s, const char *v) {
    size_t n;
    v += strspn(v, " ");
    for (;; v += n) {
        n = strcspn(v, " ");
        dlpi_s3_sha_add(s, v, n);
        v += n;
        n = strspn(v, " ");
        if (v[n] == '\0') return;
        dlpi_s3_sha_add(s, " ", 1);
    }
}

DLPI_COLD
static void dlpi_s3_sha_names(dlpi_s3_sha *s, const dlpi_s3_signing *g) {
    for (size_t i = 0; i < g->n_headers; i++) {
        if (i > 0) dlpi_s3_sha_add(s, ";", 1);
        dlpi_s3_sha_adds(s, g->headers[i].name);
    }
}

/* Write the hash of the canonical request, as Signature Version 4 has it. The parameters are sorted
   in place. */
DLPI_COLD
static void dlpi_s3_canonical(const dlpi_s3_signing *g, uint8_t out[32]) {
    dlpi_s3_sha s;
    dlpi_s3_sha_begin(&s);
    dlpi_s3_sha_adds(&s, g->method);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_adds(&s, g->path);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_params_sort(g->params, g->n_params);
    for (size_t i = 0; i < g->n_params; i++) {
        const dlpi_s3_param *p = &g->params[i];
        if (i > 0) dlpi_s3_sha_add(&s, "&", 1);
        dlpi_s3_sha_add(&s, p->name.at, p->name.n);
        dlpi_s3_sha_add(&s, "=", 1);
        dlpi_s3_sha_add(&s, p->value.at, p->value.n);
    }
    dlpi_s3_sha_add(&s, "\n", 1);
    for (size_t i = 0; i < g->n_headers; i++) {
        dlpi_s3_sha_adds(&s, g->headers[i].name);
        dlpi_s3_sha_add(&s, ":", 1);
        dlpi_s3_sha_value(&s, g->headers[i].value);
        dlpi_s3_sha_add(&s, "\n", 1);
    }
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_names(&s, g);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_adds(&s, g->payload);
    dlpi_s3_sha_end(&s, out);
}

/* Derive the signing key of a day, region and service. */
DLPI_COLD
static void dlpi_s3_key_make(dlpi_s3_key_cache *c) {
    char first[4 + sizeof c->secret];
    uint8_t key[32];
    int n = snprintf(first, sizeof first, "AWS4%s", c->secret);
    dlpi_s3_hmac(first, (size_t)n, c->date, strlen(c->date), key);
    dlpi_s3_hmac(key, sizeof key, c->region, strlen(c->region), key);
    dlpi_s3_hmac(key, sizeof key, c->service, strlen(c->service), key);
    dlpi_s3_hmac(key, sizeof key, "aws4_request", 12, key);
    dlpi_s3_hmac_begin(&c->key, key, sizeof key);
    dlpi_s3_wipe(first, sizeof first);
    dlpi_s3_wipe(key, sizeof key);
}

/* Get the signing key, from the cache if it was made of the same secret, day, region, service. */
DLPI_COLD
static void dlpi_s3_key_get(const dlpi_s3_signing *g, dlpi_s3_hmac_key *out) {
    dlpi_s3_key_cache own, *c = g->keys;
    if (!c) {
        c = &own;
        memset(c, 0, sizeof *c);
    }
    if (memcmp(c->date, g->iso, 8) != 0 || strcmp(c->region, g->region) != 0 ||
        strcmp(c->service, g->service) != 0 || strcmp(c->secret, g->who->secret) != 0) {
        memcpy(c->date, g->iso, 8);
        c->date[8] = '\0';
        dlpi_s3_copy(c->region, sizeof c->region, g->region);
        dlpi_s3_copy(c->service, sizeof c->service, g->service);
        dlpi_s3_copy(c->secret, sizeof c->secret, g->who->secret);
        dlpi_s3_key_make(c);
    }
    *out = c->key;
    if (c == &own) dlpi_s3_wipe(c, sizeof *c);
}

/* Write a request's signature: 64 hex digits and a terminator. */
DLPI_COLD
static void dlpi_s3_sign(const dlpi_s3_signing *g, char out[65]) {
    uint8_t hash[32];
    char hex[65];
    dlpi_s3_hmac_key key;
    dlpi_s3_sha s;
    dlpi_s3_canonical(g, hash);
    dlpi_s3_hex(hex, hash, sizeof hash);
    dlpi_s3_key_get(g, &key);
    dlpi_s3_hmac_message(&s, &key);
    dlpi_s3_sha_adds(&s, "AWS4-HMAC-SHA256\n");
    dlpi_s3_sha_adds(&s, g->iso);
    dlpi_s3_sha_add(&s, "\n", 1);
    dlpi_s3_sha_add(&s, g->iso, 8);
    dlpi_s3_sha_add(&s, "/", 1);
    dlpi_s3_sha_adds(&s, g->region);
    dlpi_s3_sha_add(&s, "/", 1);
    dlpi_s3_sha_adds(&s, g->service);
    dlpi_s3_sha_adds(&s, "/aws4_request\n");
    dlpi_s3_sha_add(&s, hex, 64);
    dlpi_s3_hmac_end(&s, &key, hash);
    dlpi_s3_hex(out, hash, sizeof hash);
    dlpi_s3_wipe(&key, sizeof key);
}

/* ---- Heads. */

DLPI_COLD
static void dlpi_s3_out_adds(dlpi_s3_out *o, const char *text) {
    dlpi_s3_out_add(o, text, strlen(text));
}

DLPI_COLD
static void dlpi_s3_out_escaped(dlpi_s3_out *o, const char *text) {
    size_t n = strlen(text), room = o->n < o->size ? o->size - o->n : 0;
    o->n += dlpi_s3_uri_encode(room > 0 ? o->to + o->n : NULL, room, text, n, false);
}
/* Add a parameter to a query or form, unless its value is NULL or "". */
DLPI_COLD
static void dlpi_s3_out_param(dlpi_s3_out *o, const char *name, const char *value) {
    if (!value || !value[0]) return;
    if (o->n > 0) dlpi_s3_out_add(o, "&", 1);
    dlpi_s3_out_adds(o, name);
    dlpi_s3_out_add(o, "=", 1);
    dlpi_s3_out_escaped(o, value);
}

DLPI_COLD
static void dlpi_s3_out_header(dlpi_s3_out *o, const char *name, const char *value) {
    dlpi_s3_out_adds(o, name);
    dlpi_s3_out_add(o, ": ", 2);
    dlpi_s3_out_adds(o, value);
    dlpi_s3_out_add(o, "\r\n", 2);
}

/* Parts of a request's head that are used while it is written. */
typedef struct dlpi_s3_head_parts {
    dlpi_s3_header headers[8];
    size_t n_headers;
    dlpi_s3_param params[DLPI_S3_MAX_PARAMS + 8];
    size_t n_params;
    char iso[17], payload[65], credential[352], names[128], expires[16];
} dlpi_s3_head_parts;

DLPI_COLD
static void dlpi_s3_head_header(dlpi_s3_head_parts *p, const char *name, const char *value) {
    if (!value) return;
    p->headers[p->n_headers].name = name;
    p->headers[p->n_headers++].value = value;
}

DLPI_COLD
static void dlpi_s3_head_param(dlpi_s3_head_parts *p, const char *name, const char *value) {
    dlpi_s3_param *q = &p->params[p->n_params++];
    q->name = (dlpi_s3_span){name, strlen(name)};
    q->value = (dlpi_s3_span){value, strlen(value)};
}

/* Write the hash of the body in hex, or the words that stand for it in the signature. */
DLPI_COLD
static void dlpi_s3_head_payload(const dlpi_s3_head *h, char out[65]) {
    uint8_t hash[32];
    if (h->presign || (h->unsigned_payload && h->has_body)) {
        dlpi_s3_copy(out, 65, "UNSIGNED-PAYLOAD");
    } else if (!h->has_body || h->body_bytes == 0) {
        dlpi_s3_copy(out, 65, DLPI_S3_EMPTY_SHA256);
    } else {
        dlpi_s3_sha256(h->body, (size_t)h->body_bytes, hash);
        dlpi_s3_hex(out, hash, sizeof hash);
    }
}

/* Write "AKIDEXAMPLE/20130524/us-east-1/s3/aws4_request". Returns false if it is too long. */
DLPI_COLD
static bool dlpi_s3_head_credential(const dlpi_s3_head *h, dlpi_s3_head_parts *p) {
    const char *service = h->service ? h->service : "s3";
    int n = snprintf(p->credential, sizeof p->credential, "%s/%.8s/%s/%s/aws4_request",
                     h->who->access, p->iso, h->region, service);
    return n > 0 && (size_t)n < sizeof p->credential &&
           strlen(h->region) < sizeof h->keys->region && /* or a key would be made of less */
           strlen(service) < sizeof h->keys->service;
}

/* Write the signature of a request in hex. The parts must be complete. */
DLPI_COLD
static void dlpi_s3_head_sign(const dlpi_s3_head *h, dlpi_s3_head_parts *p, char out[65]) {
    dlpi_s3_signing g = {0};
    g.method = h->method, g.path = h->path, g.payload = p->payload;
    g.headers = p->headers, g.n_headers = p->n_headers;
    g.params = p->params, g.n_params = p->n_params;
    g.iso = p->iso, g.region = h->region, g.service = h->service ? h->service : "s3";
    g.who = h->who, g.keys = h->keys;
    dlpi_s3_sign(&g, out);
}

/* List the headers to sign, in order: those for the service, and what changes the answer. */
DLPI_COLD
static void dlpi_s3_head_signed(const dlpi_s3_head *h, dlpi_s3_head_parts *p) {
    dlpi_s3_out names = {p->names, sizeof p->names, 0};
    dlpi_s3_head_header(p, "host", h->host);
    if (!h->presign) {
        dlpi_s3_head_header(p, "if-match", h->if_match);
        dlpi_s3_head_header(p, "range", h->range);
        dlpi_s3_head_header(p, "x-amz-checksum-mode", h->checksum ? "ENABLED" : NULL);
        dlpi_s3_head_header(p, "x-amz-content-sha256", p->payload);
        dlpi_s3_head_header(p, "x-amz-date", p->iso);
        dlpi_s3_head_header(p, "x-amz-request-payer", h->requester_pays ? "requester" : NULL);
        dlpi_s3_head_header(p, "x-amz-security-token", h->who->token[0] ? h->who->token : NULL);
    }
    for (size_t i = 0; i < p->n_headers; i++) {
        if (i > 0) dlpi_s3_out_add(&names, ";", 1);
        dlpi_s3_out_adds(&names, p->headers[i].name);
    }
    dlpi_s3_out_end(&names);
}

/* Write "GET /path?query". The query has all that presigning adds, but for the signature. */
DLPI_COLD
static void dlpi_s3_head_line(const dlpi_s3_head *h, dlpi_s3_head_parts *p, dlpi_s3_out *o) {
    size_t before = p->n_params;
    const char *mark = "?";
    dlpi_s3_out_adds(o, h->method);
    dlpi_s3_out_adds(o, h->proxy ? " http://" : " ");
    if (h->proxy) dlpi_s3_out_adds(o, h->host);
    dlpi_s3_out_adds(o, h->path);
    if (h->query && h->query[0]) {
        dlpi_s3_out_add(o, "?", 1);
        dlpi_s3_out_adds(o, h->query);
        mark = "&";
    }
    if (!p->iso[0] || !h->presign) return;
    snprintf(p->expires, sizeof p->expires, "%d", h->expires_s > 0 ? (int)h->expires_s : 900);
    dlpi_s3_head_param(p, "X-Amz-Algorithm", "AWS4-HMAC-SHA256");
    dlpi_s3_head_param(p, "X-Amz-Credential", p->credential);
    dlpi_s3_head_param(p, "X-Amz-Date", p->iso);
    dlpi_s3_head_param(p, "X-Amz-Expires", p->expires);
    if (h->who->token[0]) dlpi_s3_head_param(p, "X-Amz-Security-Token", h->who->token);
    dlpi_s3_head_param(p, "X-Amz-SignedHeaders", p->names);
    if (h->checksum) dlpi_s3_head_param(p, "x-amz-checksum-mode", "ENABLED");
    if (h->requester_pays) dlpi_s3_head_param(p, "x-amz-request-payer", "requester");
    for (size_t i = before; i < p->n_params; i++, mark = "&") {
        size_t from;
        dlpi_s3_out_adds(o, mark);
        dlpi_s3_out_adds(o, p->params[i].name.at);
        dlpi_s3_out_add(o, "=", 1);
        from = o->n;
        dlpi_s3_out_escaped(o, p->params[i].value.at);
        if (o->n >= o->size) return;
        p->params[i].value = (dlpi_s3_span){o->to + from, o->n - from}; /* to be signed as sent */
    }
}

/* True if a value (may be NULL) has no control bytes, one of which would end its header. */
DLPI_COLD
static bool dlpi_s3_head_ok(const char *value) {
    if (!value) return true;
    for (; *value; value++)
        if ((unsigned char)*value < ' ' || *value == 127) return false;
    return true;
}

/* True if a text (may be NULL) has no blanks and is printable ASCII, for the first line. */
DLPI_COLD
static bool dlpi_s3_head_line_ok(const char *escaped) {
    if (!escaped) return true;
    for (; *escaped; escaped++)
        if ((unsigned char)*escaped <= ' ' || (unsigned char)*escaped >= 127) return false;
    return true;
}

/* Write the headers behind the line: host, signed ones, those of the body and the connection. */
DLPI_COLD
static void dlpi_s3_head_rest(const dlpi_s3_head *h, const dlpi_s3_head_parts *p, bool sign,
                              const char *signature, dlpi_s3_out *o) {
    char length[24];
    dlpi_s3_out_adds(o, " HTTP/1.1\r\n");
    dlpi_s3_out_header(o, "Host", h->host);
    if (h->range) dlpi_s3_out_header(o, "Range", h->range);
    if (h->if_match) dlpi_s3_out_header(o, "If-Match", h->if_match);
    if (h->checksum && !(sign && h->presign))
        dlpi_s3_out_header(o, "x-amz-checksum-mode", "ENABLED");
    if (sign && !h->presign) {
        dlpi_s3_out_header(o, "x-amz-content-sha256", p->payload);
        dlpi_s3_out_header(o, "x-amz-date", p->iso);
        if (h->requester_pays) dlpi_s3_out_header(o, "x-amz-request-payer", "requester");
        if (h->who->token[0]) dlpi_s3_out_header(o, "x-amz-security-token", h->who->token);
        dlpi_s3_out_adds(o, "Authorization: AWS4-HMAC-SHA256 Credential=");
        dlpi_s3_out_adds(o, p->credential);
        dlpi_s3_out_adds(o, ", SignedHeaders=");
        dlpi_s3_out_adds(o, p->names);
        dlpi_s3_out_adds(o, ", Signature=");
        dlpi_s3_out_add(o, signature, 64);
        dlpi_s3_out_add(o, "\r\n", 2);
    }
    if (h->has_body) {
        snprintf(length, sizeof length, "%llu", (unsigned long long)h->body_bytes);
        dlpi_s3_out_header(o, "Content-Length", length);
    }
    if (h->close) dlpi_s3_out_header(o, "Connection", "close");
    if (h->extra) dlpi_s3_out_adds(o, h->extra);
    if (h->proxy) dlpi_s3_out_adds(o, h->proxy);
    dlpi_s3_out_add(o, "\r\n", 2);
}

/* Write the head of a request, signed, up to its empty line; it need not be terminated. Returns its
   bytes, or -1 if it does not fit, has more than 64 parameters, or a value that its line cannot
   hold. */
DLPI_COLD
static int dlpi_s3_head_write(const dlpi_s3_head *h, char *to, size_t size) {
    dlpi_s3_head_parts p;
    dlpi_s3_out o = {to, size, 0};
    bool sign = h->who && !h->who->anonymous;
    char signature[65] = "";
    int n = dlpi_s3_query_split(h->query, p.params, DLPI_S3_MAX_PARAMS);
    if (n < 0 || !dlpi_s3_head_ok(h->host)) return -1;
    if (!dlpi_s3_head_ok(h->range) || !dlpi_s3_head_ok(h->if_match)) return -1;
    if (!dlpi_s3_head_line_ok(h->path) || !dlpi_s3_head_line_ok(h->query)) return -1;
    p.n_params = (size_t)n;
    p.n_headers = 0;
    p.iso[0] = '\0';
    if (sign) {
        dlpi_s3_date(h->now_s, p.iso);
        if (!dlpi_s3_head_credential(h, &p)) return -1;
        if (!dlpi_s3_head_ok(p.credential) || !dlpi_s3_head_ok(h->who->token)) return -1;
        dlpi_s3_head_payload(h, p.payload);
        dlpi_s3_head_signed(h, &p);
    }
    dlpi_s3_head_line(h, &p, &o);
    if (o.n >= o.size) return -1;
    if (sign) dlpi_s3_head_sign(h, &p, signature);
    if (sign && h->presign) {
        dlpi_s3_out_adds(&o, "&X-Amz-Signature=");
        dlpi_s3_out_adds(&o, signature);
    }
    dlpi_s3_head_rest(h, &p, sign, signature, &o);
    return o.n <= o.size && o.n <= INT32_MAX ? (int)o.n : -1;
}

/* ---- Where a bucket is. */

/* True if a bucket's name can be the first label of a host's name. With TLS it must have no dots,
   which certificates do not cover. */
DLPI_COLD
static bool dlpi_s3_bucket_fits(const char *bucket, bool tls) {
    size_t n = strlen(bucket);
    if (n < 3 || n > 63) return false;
    for (size_t i = 0; i < n; i++) {
        char c = bucket[i];
        bool sign = c == '-' || (c == '.' && !tls);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && !sign) return false;
        if (sign && (i == 0 || i == n - 1 || bucket[i - 1] == '.')) return false;
        if (c == '.' && bucket[i - 1] == '-') return false;
    }
    return strspn(bucket, "0123456789.") < n || !strchr(bucket, '.');
}

DLPI_COLD
static bool dlpi_s3_region_ok(const char *region) {
    size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && n < 64 && region[n] == '\0';
}

/* Return an error text if a bucket's name stands for something else, or NULL. Endings such as
   "--x-s3" do so only at AWS; elsewhere they are names like any other. */
DLPI_COLD
static const char *dlpi_s3_bucket_beyond(const dlpi_s3_endpoint *e, const char *bucket) {
    static const char *const kinds[][2] = {
        {"--x-s3", "a directory bucket (S3 Express), which is not supported; use another bucket"},
        {"--xa-s3", "an access point of S3 Express, which is not supported; use another bucket"},
        {"--op-s3",
         "an access point of S3 on Outposts, which is not supported; use another bucket"}};
    size_t n = strlen(bucket);
    if (strcmp(bucket, ".") == 0 || strcmp(bucket, "..") == 0)
        return "must not be '.' or '..', which are steps of a path";
    if (strncmp(bucket, "arn:", 4) == 0) return "an ARN; give the alias of the access point";
    if (e->custom && !strstr(e->host, ".amazonaws.com")) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t k = strlen(kinds[i][0]);
        if (n > k && strcmp(bucket + n - k, kinds[i][0]) == 0) return kinds[i][1];
    }
    return NULL;
}

/* Write the host and the path of an object, or of the bucket itself (key ""). host: the Host
   header, with an unusual port. path: escaped once and never made simpler, so that "a//b", "./c"
   and "a+b" stay other keys than "a/b", "c" and "a b". Returns DLP_OK, or DLP_ERR_ARG: no bucket,
   one that cannot be in a host's name but must be, a region that is no name, or too long. */
DLPI_COLD
static int dlpi_s3_place(const dlpi_s3_endpoint *e, const char *region, int style,
                         const char *bucket, const char *key, char *host, size_t host_size,
                         char *path, size_t path_size) {
    bool address = strchr(e->host, ':') || strspn(e->host, "0123456789.") == strlen(e->host);
    bool fits = !address && dlpi_s3_bucket_fits(bucket, e->tls != 0), in_host;
    char name[300];
    dlpi_s3_out h = {host, host_size, 0}, p = {path, path_size, 0};
    if (bucket[0] == '\0' || (!e->custom && !dlpi_s3_region_ok(region))) return DLP_ERR_ARG;
    if (style == DLP_S3_STYLE_VIRTUAL && !fits) return DLP_ERR_ARG;
    in_host = style == DLP_S3_STYLE_VIRTUAL || (style == DLP_S3_STYLE_AUTO && !e->custom && fits);
    if (e->custom)
        dlpi_s3_endpoint_host(e, name, sizeof name);
    else
        dlpi_s3_aws_host(e, region, name, sizeof name);
    if (in_host) {
        dlpi_s3_out_adds(&h, bucket);
        dlpi_s3_out_add(&h, ".", 1);
    }
    dlpi_s3_out_adds(&h, name);
    dlpi_s3_out_adds(&p, e->prefix);
    dlpi_s3_out_add(&p, "/", 1);
    if (!in_host) {
        dlpi_s3_out_escaped(&p, bucket);
        if (key[0]) dlpi_s3_out_add(&p, "/", 1);
    }
    if (p.n < p.size) p.n += dlpi_s3_uri_encode(path + p.n, p.size - p.n, key, strlen(key), true);
    return dlpi_s3_out_end(&h) && dlpi_s3_out_end(&p) ? DLP_OK : DLP_ERR_ARG;
}

/* Split a Host header into the name to look up and the port. Returns DLP_OK or DLP_ERR_ARG. */
DLPI_COLD
static int dlpi_s3_place_address(const char *host, bool tls, char name[256], uint16_t *port) {
    *port = tls ? 443 : 80;
    return dlpi_s3_authority(host, strlen(host), name, port) ? DLP_ERR_ARG : DLP_OK;
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-http         ANSWERS, PARSED AT ANY BYTE
   One parser per answer (HTTP/1.1, RFC 9112; meanings by RFC 9110). Bytes are fed as they come, cut
   anywhere, and what is found does not depend on where they were cut. Whole lines are looked at in
   the caller's bytes; only a line that is cut is put together in h->line. Bodies are not copied:
   feed says where a run of them lies, or the caller reads them straight to where they belong
   (direct, took).

       begin -> status line -> header lines -> HEAD -> body, by one of ---------------> END
                 ^                 |                   none     HEAD, 204, 304, length 0
                 +---- 1xx --------+                   length   Content-Length bytes
                                                       chunks   size line, bytes, CRLF; trailers
                                                       close    until the connection ends

   Anything that is not right ends it with BAD, for good, and h->why says it: a client has nobody in
   front of it whose mistakes it must live with, and a retry costs little. In particular:

   - A line ends with CR LF. A bare LF may be accepted (9112, 2.2); it is not: no server of objects
     sends it, and where two programs disagree on line ends, one's body is the other's header. A
     bare CR, NUL and other control bytes are refused (9112, 2.2; 9110, 5.5), in trailers and chunk
     extensions too, and so are folded lines (9112, 5.2) and white space before a colon (5.1).
   - "HTTP/1.1 200" without the space that should follow is accepted (9112, 4); versions are 1.x,
     of which all but 1.0 mean 1.1 (9110, 2.5); codes are 100..599 (9110, 15).
   - 1xx are passed over, a bounded number (9110, 15.2), but for 101: nobody asked for it (15.2.2).
   - Content-Length may be said twice, if it is the same twice (9110, 8.6). With Transfer-Encoding
     it is refused (9112, 6.1 and 6.3, "ought to be handled as an error"). The only transfer
     coding is "chunked", once, and not in HTTP/1.0 (9112, 6.1).
   - Answers to HEAD, 204 and 304 have no body whatever they say (9112, 6.3).
   - A body without a length ends with the connection (9112, 6.3), h->until_close: whether that is
     all of it, the caller must know otherwise.
   - Content-Range that makes no sense is refused in a 206 (9110, 14.4), and ignored elsewhere.
   - The connection is used again as 9112, 9.3 says: "close" wins; 1.1 stays; 1.0 only with
     "keep-alive"; not after a body until close; and not if bytes follow the answer, which nobody
     asked for: they would be taken for the next one.

   Limits: a line of 8 KiB, 64 KiB of head, all 1xx included, and again of trailers and of chunk
   extensions; 16 hexadecimal digits of a chunk's size, 256 bytes of its line. */

enum { /* what feed and eof return */
       DLPI_S3_HTTP_BAD = -1,
       DLPI_S3_HTTP_MORE,
       DLPI_S3_HTTP_HEAD,
       DLPI_S3_HTTP_BODY,
       DLPI_S3_HTTP_END
};

enum {
    DLPI_S3_HTTP_LINE = 8192, /* bytes, CR LF included */
    DLPI_S3_HTTP_CHUNK_LINE = 256,
    DLPI_S3_HTTP_HEAD_BYTES = 65536,
    DLPI_S3_HTTP_INTERIMS = 16,
    DLPI_S3_HTTP_DIGITS = 16
};

enum { /* what the next byte belongs to */
       DLPI_S3_AT_STATUS,
       DLPI_S3_AT_FIELD,
       DLPI_S3_AT_LENGTH, /* a body of known length */
       DLPI_S3_AT_CLOSE,  /* a body until the connection ends */
       DLPI_S3_AT_SIZE,   /* a chunk's line */
       DLPI_S3_AT_CHUNK,
       DLPI_S3_AT_CHUNK_END, /* the CR LF after it */
       DLPI_S3_AT_TRAILER,
       DLPI_S3_AT_END,
       DLPI_S3_AT_BAD
};

typedef struct dlpi_s3_http {
    /* What the answer says; valid once the head was reported. */
    int32_t status;
    int32_t version_minor; /* of HTTP/1.x */
    bool head_done;
    bool done;       /* its last byte was used */
    bool keep_alive; /* final when done: the connection may carry another request */
    bool chunked;
    bool has_length;
    bool until_close;
    bool has_range;      /* Content-Range: range_first..range_last */
    bool is_page;        /* Content-Type: text/html */
    bool encoded;        /* Content-Encoding, other than "identity" */
    bool stored_encoded; /* x-goog-stored-content-encoding, other than "identity" */
    bool sorts;          /* Server, or the request's id, is of a store that sorts its lists */
    bool began;          /* a byte of it came */
    bool no_body;
    int64_t content_length; /* -1: not said */
    uint64_t range_first, range_last;
    uint64_t range_total;       /* UINT64_MAX: not said; a 416 may give only this */
    uint64_t etag_sum;          /* of all its bytes, also of one that is not kept; 0: none */
    uint64_t encoding_sum;      /* of Content-Encoding, but "identity"; 0: none */
    uint64_t version_sum;       /* of x-amz-version-id */
    uint64_t modified_sum;      /* of Last-Modified */
    uint64_t crc[DLPI_S3_CRCS]; /* x-amz-checksum-crc32c, -crc64nvme, -crc32, */
    bool has_crc[DLPI_S3_CRCS];
    bool crc_whole;        /* which x-amz-checksum-type says are of the whole object */
    bool crc_google;       /* crc[DLPI_S3_CRC32C] is of the whole object, as x-goog-hash says */
    int64_t date_s;        /* the server's clock, Unix time; -1: not said */
    int64_t retry_after_s; /* from the answer on; -1: not said */
    const char *why;       /* BAD: in words, static or in line; else NULL */
    /* Where it stands. */
    uint64_t left;      /* of the body, or of this chunk */
    int64_t retry_at_s; /* Retry-After as a date; -1 */
    uint32_t head_bytes, interims, extension_bytes, line_n;
    int32_t at;       /* DLPI_S3_AT_* */
    bool close, stay; /* Connection said so */
    bool range_bad, range_seen;
    /* Of these only the first bytes are cleared. */
    char etag[72]; /* with its quotes; "": none, or a longer one */
    char request_id[96];
    char location[DLPI_S3_HTTP_LINE]; /* "": none, or not printable */
    char region[64];                  /* x-amz-bucket-region */
    char line[DLPI_S3_HTTP_LINE];     /* the beginning of a line that is cut */
} dlpi_s3_http;

/* ---- characters ---- */

static bool dlpi_s3_http_is_token(unsigned char c) { /* 9110, 5.6.2 */
    static const uint32_t set[8] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff, 0, 0, 0, 0};
    return (set[c >> 5] >> (c & 31)) & 1;
}

/* True if a text has no control bytes but tabs. It looks at eight bytes at a time: a byte below 32
   borrows, a byte of 127 becomes zero. */
static bool dlpi_s3_http_is_text(const char *s, size_t n) {
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x, del;
        memcpy(&x, s + i, 8);
        del = x ^ (ones * 127);
        if (((((x - ones * 32) & ~x) | ((del - ones) & ~del)) & highs) == 0) continue;
        for (size_t k = i; k < i + 8; k++)
            if (((unsigned char)s[k] < 32 && s[k] != '\t') || s[k] == 127) return false;
    }
    for (; i < n; i++)
        if (((unsigned char)s[i] < 32 && s[i] != '\t') || s[i] == 127) return false;
    return true;
}

/* True if the n bytes at s are word, which is in lower case; s may be in any case. */
static bool dlpi_s3_http_is(const char *s, const char *word, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c | 32);
        if (c != word[i]) return false;
    }
    return true;
}

/* Take the next element off a comma-separated list, *s (9110, 5.6.1). False: there is none. */
static bool dlpi_s3_http_element(const char **s, size_t *n, const char **element, size_t *length) {
    while (*n > 0) {
        const char *comma = memchr(*s, ',', *n);
        *element = *s;
        *length = comma ? (size_t)(comma - *s) : *n;
        *s += *length + (comma != NULL);
        *n -= *length + (comma != NULL);
        dlpi_s3_trim(element, length);
        if (*length > 0) return true;
    }
    return false;
}

/* ---- header fields ---- */

/* Refuse the answer, for good. Returns DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_bad(dlpi_s3_http *h, const char *why) {
    h->at = DLPI_S3_AT_BAD;
    h->keep_alive = false;
    h->why = why;
    return DLPI_S3_HTTP_BAD;
}

/* What to do about all of them. */
static const char dlpi_s3_http_cure[] = "; check endpoint and proxy, which must speak HTTP/1.1";

/* Keep a value that fits, else "". */
static void dlpi_s3_http_keep(char *to, size_t size, const char *s, size_t n) {
    to[0] = 0;
    if (n >= size) return;
    memcpy(to, s, n);
    to[n] = 0;
}

/* Keep as much of a value as fits, printable, to show it. */
static void dlpi_s3_http_keep_shown(char *to, size_t size, const char *s, size_t n) {
    if (n >= size) n = size - 1;
    for (size_t i = 0; i < n; i++) to[i] = s[i] > 32 && s[i] < 127 ? s[i] : '?';
    to[n] = 0;
}

/* Refuse an answer for the value s of a header; must: what it has to be. h->line, which is not
   needed any more, gets the message. Returns BAD. */
DLPI_COLD static int dlpi_s3_http_bad_value(dlpi_s3_http *h, const char *name, const char *s,
                                            size_t n, const char *must) {
    char said[32];
    dlpi_s3_http_keep_shown(said, sizeof said, s, n);
    snprintf(h->line, sizeof h->line, "%s is \"%s\", must be %s", name, said, must);
    return dlpi_s3_http_bad(h, h->line);
}

static void dlpi_s3_http_keep_location(dlpi_s3_http *h, const char *s, size_t n) {
    h->location[0] = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= 32 || s[i] >= 127) return;
    dlpi_s3_http_keep(h->location, sizeof h->location, s, n);
}

/* Return the FNV-1a hash of a value, which tells two values apart that are not kept. */
static uint64_t dlpi_s3_http_sum(const char *s, size_t n) {
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) sum = (sum ^ (unsigned char)s[i]) * 1099511628211u;
    return sum;
}

static void dlpi_s3_http_keep_etag(dlpi_s3_http *h, const char *s, size_t n) {
    h->etag_sum = dlpi_s3_http_sum(s, n);
    dlpi_s3_http_keep(h->etag, sizeof h->etag, s, n);
}

static void dlpi_s3_http_keep_region(dlpi_s3_http *h, const char *s, size_t n) {
    h->region[0] = 0;
    for (size_t i = 0; i < n; i++)
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-') return;
    dlpi_s3_http_keep(h->region, sizeof h->region, s, n);
}

/* Take a Content-Length, which may be a list of equal numbers. Returns 0 or DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_on_length(dlpi_s3_http *h, const char *s, size_t n) {
    const char *one;
    size_t length;
    uint64_t x;
    if (n == 0) return dlpi_s3_http_bad(h, "Content-Length is empty");
    while (dlpi_s3_http_element(&s, &n, &one, &length)) {
        if (!dlpi_s3_decimal(one, length, &x))
            return dlpi_s3_http_bad_value(h, "Content-Length", one, length, "a number below 2^63");
        if (h->has_length && h->content_length != (int64_t)x)
            return dlpi_s3_http_bad_value(h, "a second Content-Length", one, length,
                                          "as the first");
        h->has_length = true;
        h->content_length = (int64_t)x;
    }
    return h->has_length ? 0 : dlpi_s3_http_bad(h, "Content-Length is empty");
}

static int dlpi_s3_http_on_coding(dlpi_s3_http *h, const char *s, size_t n) {
    if (h->chunked || n != 7 || !dlpi_s3_http_is(s, "chunked", 7))
        return dlpi_s3_http_bad_value(h, "Transfer-Encoding", s, n, "chunked, once");
    h->chunked = true;
    return 0;
}

/* Take a Connection field: note if the server closes the connection, or keeps it. */
static void dlpi_s3_http_on_connection(dlpi_s3_http *h, const char *s, size_t n) {
    const char *one;
    size_t length;
    while (dlpi_s3_http_element(&s, &n, &one, &length)) {
        if (length == 5 && dlpi_s3_http_is(one, "close", 5)) h->close = true;
        if (length == 10 && dlpi_s3_http_is(one, "keep-alive", 10)) h->stay = true;
    }
}

/* True if a list of encodings has another one than "identity". */
static bool dlpi_s3_http_encodes(const char *s, size_t n) {
    const char *one;
    size_t length;
    while (dlpi_s3_http_element(&s, &n, &one, &length))
        if (length != 8 || !dlpi_s3_http_is(one, "identity", 8)) return true;
    return false;
}

static void dlpi_s3_http_on_encoding(dlpi_s3_http *h, const char *s, size_t n) {
    if (!dlpi_s3_http_encodes(s, n)) return;
    h->encoded = true;
    h->encoding_sum = h->encoding_sum * 31 + dlpi_s3_http_sum(s, n);
}

/* Parse "bytes 0-9/100", or with a star for the total, or for first and last (9110, 14.4). Each
   number that a star replaces is UINT64_MAX. Returns false if it is no such text. */
static bool dlpi_s3_http_range(const char *s, size_t n, uint64_t *first, uint64_t *last,
                               uint64_t *total) {
    const char *slash, *dash;
    size_t before;
    if (n < 6 || !dlpi_s3_http_is(s, "bytes ", 6)) return false;
    s += 6;
    n -= 6;
    if ((slash = memchr(s, '/', n)) == NULL) return false;
    before = (size_t)(slash - s);
    *total = UINT64_MAX;
    if (n - before != 2 || slash[1] != '*')
        if (!dlpi_s3_decimal(slash + 1, n - before - 1, total)) return false;
    if (before == 1 && s[0] == '*') {
        *first = *last = UINT64_MAX;
        return *total != UINT64_MAX;
    }
    if ((dash = memchr(s, '-', before)) == NULL) return false;
    return dlpi_s3_decimal(s, (size_t)(dash - s), first) &&
           dlpi_s3_decimal(dash + 1, (size_t)(slash - dash) - 1, last) && *first <= *last &&
           *last < *total;
}

/* Take a Content-Range. If it is not valid, or differs from an earlier one, range_bad is set. */
static void dlpi_s3_http_on_range(dlpi_s3_http *h, const char *s, size_t n) {
    uint64_t first, last, total;
    if (!dlpi_s3_http_range(s, n, &first, &last, &total)) {
        h->range_bad = true;
        return;
    }
    if (h->range_seen &&
        (h->range_first != first || h->range_last != last || h->range_total != total))
        h->range_bad = true;
    h->range_seen = true;
    h->has_range = first != UINT64_MAX;
    h->range_first = first;
    h->range_last = last;
    h->range_total = total;
}

/* True if Server names a store that lists keys in the order of their bytes: Amazon's, Google's,
   Cloudflare's, MinIO or Ceph. */
static bool dlpi_s3_http_server_sorts(const char *s, size_t n) {
    static const struct {
        const char *name;
        bool version; /* '/' or a blank may follow, and what release it is */
    } all[] = {{"AmazonS3", false},
               {"UploadServer", false},
               {"cloudflare", false},
               {"MinIO", true},
               {"Ceph Object Gateway", true}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        size_t k = strlen(all[i].name);
        if (n < k || memcmp(s, all[i].name, k) != 0) continue;
        if (n == k || (all[i].version && (s[k] == '/' || s[k] == ' '))) return true;
    }
    return false;
}

/* True if a request's id is one of Ceph's, whose older releases name no Server: "tx", 21 digits, 10
   digits, some digits and the zone's name, with '-' between them. Digits are hexadecimal. */
static bool dlpi_s3_http_id_sorts(const char *s, size_t n) {
    static const size_t want[] = {21, 10, 0};
    size_t at = 2;
    if (n < 2 || memcmp(s, "tx", 2) != 0) return false;
    for (int i = 0; i < 3; i++) {
        size_t from = at;
        while (at < n && ((s[at] >= '0' && s[at] <= '9') || (s[at] >= 'a' && s[at] <= 'f'))) at++;
        if (at == from || (want[i] > 0 && at - from != want[i])) return false;
        if (at == n || s[at++] != '-') return false;
    }
    return at < n;
}

static void dlpi_s3_http_on_id(dlpi_s3_http *h, const char *s, size_t n) {
    h->sorts = h->sorts || dlpi_s3_http_id_sorts(s, n);
    dlpi_s3_http_keep_shown(h->request_id, sizeof h->request_id, s, n);
}

/* Take a Retry-After, which is a number of seconds or a date. */
static void dlpi_s3_http_on_retry(dlpi_s3_http *h, const char *s, size_t n) {
    uint64_t x;
    if (dlpi_s3_decimal(s, n, &x))
        h->retry_after_s = (int64_t)x;
    else
        h->retry_at_s = dlpi_s3_time_http(s, n);
}

/* Read the CRC32C out of "crc32c=AAAAAA==,md5=..."; its line may come once for each of them. */
static void dlpi_s3_http_on_hash(dlpi_s3_http *h, const char *s, size_t n) {
    const char *one;
    size_t length;
    uint64_t crc;
    while (dlpi_s3_http_element(&s, &n, &one, &length)) {
        if (length < 7 || !dlpi_s3_http_is(one, "crc32c=", 7)) continue;
        if (!dlpi_s3_base64_number(one + 7, length - 7, 4, &crc)) continue;
        h->crc[DLPI_S3_CRC32C] = crc;
        h->has_crc[DLPI_S3_CRC32C] = h->crc_google = true;
    }
}

/* True if the head tells a checksum of this kind that is of the whole object, or of a whole part as
   it was uploaded. */
static bool dlpi_s3_http_tells(const dlpi_s3_http *h, int kind) {
    return h->has_crc[kind] && (h->crc_whole || (kind == DLPI_S3_CRC32C && h->crc_google));
}

/* Take in one header field, whose name has k bytes. Returns 0 or BAD. */
static int dlpi_s3_http_on_field(dlpi_s3_http *h, const char *name, size_t k, const char *s,
                                 size_t n) {
#define DLPI_S3_NAMED(word) (k == sizeof word - 1 && dlpi_s3_http_is(name, word, k))
    if (DLPI_S3_NAMED("content-length")) return dlpi_s3_http_on_length(h, s, n);
    if (DLPI_S3_NAMED("transfer-encoding")) return dlpi_s3_http_on_coding(h, s, n);
    if (DLPI_S3_NAMED("etag"))
        dlpi_s3_http_keep_etag(h, s, n);
    else if (DLPI_S3_NAMED("date"))
        h->date_s = dlpi_s3_time_http(s, n);
    else if (DLPI_S3_NAMED("location"))
        dlpi_s3_http_keep_location(h, s, n);
    else if (DLPI_S3_NAMED("connection"))
        dlpi_s3_http_on_connection(h, s, n);
    else if (DLPI_S3_NAMED("retry-after"))
        dlpi_s3_http_on_retry(h, s, n);
    else if (DLPI_S3_NAMED("content-range"))
        dlpi_s3_http_on_range(h, s, n);
    else if (DLPI_S3_NAMED("last-modified"))
        h->modified_sum = dlpi_s3_http_sum(s, n);
    else if (DLPI_S3_NAMED("server"))
        h->sorts = h->sorts || dlpi_s3_http_server_sorts(s, n);
    else if (DLPI_S3_NAMED("content-encoding"))
        dlpi_s3_http_on_encoding(h, s, n);
    else if (DLPI_S3_NAMED("content-type"))
        h->is_page = n >= 9 && dlpi_s3_http_is(s, "text/html", 9);
    else if (DLPI_S3_NAMED("x-amz-request-id"))
        dlpi_s3_http_on_id(h, s, n);
    else if (!h->request_id[0] &&
             (DLPI_S3_NAMED("x-guploader-uploadid") || DLPI_S3_NAMED("x-ms-request-id") ||
              DLPI_S3_NAMED("x-amz-cf-id")))
        dlpi_s3_http_keep_shown(h->request_id, sizeof h->request_id, s, n);
    else if (DLPI_S3_NAMED("x-amz-version-id"))
        h->version_sum = dlpi_s3_http_sum(s, n);
    else if (DLPI_S3_NAMED("x-amz-bucket-region"))
        dlpi_s3_http_keep_region(h, s, n);
    else if (DLPI_S3_NAMED("x-amz-checksum-type"))
        h->crc_whole = n == 11 && dlpi_s3_http_is(s, "full_object", 11);
    else if (DLPI_S3_NAMED("x-amz-checksum-crc32c") && !h->crc_google)
        h->has_crc[DLPI_S3_CRC32C] = dlpi_s3_base64_number(s, n, 4, &h->crc[DLPI_S3_CRC32C]);
    else if (DLPI_S3_NAMED("x-amz-checksum-crc32"))
        h->has_crc[DLPI_S3_CRC32] = dlpi_s3_base64_number(s, n, 4, &h->crc[DLPI_S3_CRC32]);
    else if (DLPI_S3_NAMED("x-goog-hash"))
        dlpi_s3_http_on_hash(h, s, n);
    else if (DLPI_S3_NAMED("x-amz-checksum-crc64nvme"))
        h->has_crc[DLPI_S3_CRC64NVME] = dlpi_s3_base64_number(s, n, 8, &h->crc[DLPI_S3_CRC64NVME]);
    else if (DLPI_S3_NAMED("x-goog-stored-content-encoding"))
        h->stored_encoded = dlpi_s3_http_encodes(s, n);
    return 0;
#undef DLPI_S3_NAMED
}

/* Parse a line of the head or of trailers, which mean nothing (9110, 6.5). Returns 0 or BAD. */
static int dlpi_s3_http_field(dlpi_s3_http *h, const char *s, size_t n) {
    const char *value = s;
    size_t k = 0;
    while (k < n && dlpi_s3_http_is_token((unsigned char)s[k])) k++;
    if (k == 0 && (s[0] == ' ' || s[0] == '\t'))
        return dlpi_s3_http_bad(h, "a header line goes on in the next (folded)");
    if (k == 0 || k == n || s[k] != ':')
        return dlpi_s3_http_bad(h, "a header line has no name and colon");
    if (h->at == DLPI_S3_AT_TRAILER) return 0;
    value += k + 1;
    n -= k + 1;
    dlpi_s3_trim(&value, &n);
    return dlpi_s3_http_on_field(h, s, k, value, n);
}

/* ---- lines ---- */

/* Clear what a head tells, for the next head: also after a 1xx. */
static void dlpi_s3_http_clear(dlpi_s3_http *h) {
    h->chunked = h->has_length = h->has_range = h->encoded = h->stored_encoded = false;
    h->close = h->stay = h->range_bad = h->range_seen = h->crc_whole = h->is_page = false;
    h->crc_google = h->sorts = false;
    memset(h->has_crc, 0, sizeof h->has_crc);
    h->content_length = h->date_s = h->retry_after_s = h->retry_at_s = -1;
    h->range_first = h->range_last = h->range_total = UINT64_MAX;
    h->etag_sum = h->encoding_sum = h->version_sum = h->modified_sum = 0;
    h->etag[0] = h->request_id[0] = h->location[0] = h->region[0] = 0;
    h->at = DLPI_S3_AT_STATUS;
}

/* Take the status line of n bytes. Header fields follow. Returns 0 or DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_status(dlpi_s3_http *h, const char *s, size_t n) {
    h->version_minor = n < 12 ? -1 : (int32_t)dlpi_s3_number(s + 7, 1);
    h->status = n < 12 ? -1 : (int32_t)dlpi_s3_number(s + 9, 3);
    if (h->version_minor < 0 || h->status < 0 || s[8] != ' ' || (n > 12 && s[12] != ' '))
        return dlpi_s3_http_bad(h, "the status line is not HTTP/1.x and a number");
    if (h->status < 100 || h->status > 599)
        return dlpi_s3_http_bad_value(h, "the status", s + 9, 3, "100..599");
    h->at = DLPI_S3_AT_FIELD;
    return 0;
}

/* Turn a Retry-After date into seconds from now, by the server's clock if it tells it. */
static void dlpi_s3_http_retry(dlpi_s3_http *h) {
    int64_t now = h->date_s >= 0 ? h->date_s : dlpi_s3_real_s();
    if (h->retry_at_s < 0 || h->retry_after_s >= 0) return;
    h->retry_after_s = h->retry_at_s > now ? h->retry_at_s - now : 0;
}

/* Find out how the body ends (9112, 6.3), and whether the connection stays (9112, 9.3). */
static void dlpi_s3_http_frame(dlpi_s3_http *h) {
    bool lies = h->status == 204 && (h->chunked || h->content_length > 0);
    h->no_body = h->no_body || h->status == 204 || h->status == 304;
    h->until_close = !h->no_body && !h->chunked && !h->has_length;
    h->keep_alive = !h->close && (h->version_minor > 0 || h->stay) && !h->until_close && !lies;
    h->left = h->has_length && !h->no_body ? (uint64_t)h->content_length : 0;
    h->at = h->until_close              ? DLPI_S3_AT_CLOSE
            : h->chunked && !h->no_body ? DLPI_S3_AT_SIZE
            : h->left                   ? DLPI_S3_AT_LENGTH
                                        : DLPI_S3_AT_END;
    h->done = h->at == DLPI_S3_AT_END;
    h->head_done = true;
}

/* Judge a head that is whole. Returns HEAD; 0 after a 1xx: another head follows; or BAD. */
static int dlpi_s3_http_head_end(dlpi_s3_http *h) {
    if (h->status == 101)
        return dlpi_s3_http_bad(h, "the answer is 101, and no other protocol was asked for");
    if (h->status < 200) {
        if (++h->interims > DLPI_S3_HTTP_INTERIMS)
            return dlpi_s3_http_bad(h, "more than 16 answers of 1xx");
        dlpi_s3_http_clear(h);
        return 0;
    }
    if (h->chunked && h->has_length)
        return dlpi_s3_http_bad(h, "the answer has both Content-Length and Transfer-Encoding");
    if (h->chunked && h->version_minor == 0)
        return dlpi_s3_http_bad(h, "the answer has Transfer-Encoding, but is HTTP/1.0");
    if (h->status == 206 && h->range_bad)
        return dlpi_s3_http_bad(h, "the answer is 206, but its Content-Range is damaged");
    if (h->range_bad) h->has_range = false;
    if (h->range_bad) h->range_first = h->range_last = h->range_total = UINT64_MAX;
    dlpi_s3_http_retry(h);
    dlpi_s3_http_frame(h);
    return DLPI_S3_HTTP_HEAD;
}

/* Parse a chunk's line: hexadecimal digits, perhaps extensions (9112, 7.1). Returns 0 or BAD. */
static int dlpi_s3_http_size(dlpi_s3_http *h, const char *s, size_t n) {
    uint64_t size = 0;
    size_t k = 0, digits;
    for (; k < n && k <= DLPI_S3_HTTP_DIGITS && dlpi_s3_hex_digit(s[k]) >= 0; k++)
        size = size << 4 | (uint64_t)dlpi_s3_hex_digit(s[k]); /* beyond 16 digits it is refused */
    digits = k;
    if (digits == 0) return dlpi_s3_http_bad(h, "a chunk of the body has no size");
    if (digits > DLPI_S3_HTTP_DIGITS || size > (uint64_t)INT64_MAX)
        return dlpi_s3_http_bad(h, "a chunk's size is not below 2^63");
    h->extension_bytes += (uint32_t)(n - digits);
    if (h->extension_bytes > DLPI_S3_HTTP_HEAD_BYTES)
        return dlpi_s3_http_bad(h, "chunk extensions have more than 64 KiB");
    while (k < n && (s[k] == ' ' || s[k] == '\t')) k++;
    if (digits < n && (k == n || s[k] != ';'))
        return dlpi_s3_http_bad(h, "a chunk's size is not a number");
    h->left = size;
    h->at = size ? DLPI_S3_AT_CHUNK : DLPI_S3_AT_TRAILER;
    h->head_bytes = 0; /* of the trailers */
    return 0;
}

/* Parse a whole line, its LF included. Returns 0 to go on, HEAD or BAD. */
static int dlpi_s3_http_line(dlpi_s3_http *h, const char *s, size_t n) {
    if (n < 2 || s[n - 2] != '\r') return dlpi_s3_http_bad(h, "a line ends without CR");
    if (!dlpi_s3_http_is_text(s, n - 2)) return dlpi_s3_http_bad(h, "a control byte in a line");
    if (h->at == DLPI_S3_AT_SIZE) return dlpi_s3_http_size(h, s, n - 2);
    h->head_bytes += (uint32_t)n;
    if (h->head_bytes > DLPI_S3_HTTP_HEAD_BYTES)
        return dlpi_s3_http_bad(h, "header lines have more than 64 KiB");
    if (h->at == DLPI_S3_AT_STATUS) return dlpi_s3_http_status(h, s, n - 2);
    if (n > 2) return dlpi_s3_http_field(h, s, n - 2);
    if (h->at == DLPI_S3_AT_FIELD) return dlpi_s3_http_head_end(h);
    h->at = DLPI_S3_AT_END;
    h->done = true;
    return 0;
}

/* True if a status line may begin with these bytes. It is asked before the line is whole, because
   what is not HTTP may never send a line's end. */
static bool dlpi_s3_http_begins(const dlpi_s3_http *h, const char *s, size_t n) {
    static const char words[] = "HTTP/1.";
    for (size_t i = h->line_n; i < 7 && i < h->line_n + n; i++)
        if (s[i - h->line_n] != words[i]) return false;
    return true;
}

/* Take a line, or keep its beginning; *used counts it. Returns 0 to go on, or HEAD, or BAD. */
static int dlpi_s3_http_take(dlpi_s3_http *h, const char *s, size_t n, size_t *used) {
    size_t most = h->at == DLPI_S3_AT_SIZE ? DLPI_S3_HTTP_CHUNK_LINE : DLPI_S3_HTTP_LINE;
    size_t look = n < most - h->line_n ? n : most - h->line_n;
    const char *lf = memchr(s, '\n', look);
    if (lf) look = (size_t)(lf - s) + 1;
    if (h->at == DLPI_S3_AT_STATUS && !dlpi_s3_http_begins(h, s, look))
        return dlpi_s3_http_bad(h,
                                "the answer does not begin with HTTP/1 (https, or another port?)");
    *used += look;
    if (lf && h->line_n == 0) return dlpi_s3_http_line(h, s, look);
    memcpy(h->line + h->line_n, s, look);
    h->line_n += (uint32_t)look;
    if (lf) {
        look = h->line_n;
        h->line_n = 0;
        return dlpi_s3_http_line(h, h->line, look);
    }
    if (h->line_n < most) return 0;
    return dlpi_s3_http_bad(h, h->at == DLPI_S3_AT_SIZE ? "a chunk's line is longer than 256 bytes"
                                                        : "a header line is longer than 8 KiB");
}

/* ---- bodies ---- */

/* Return how many body bytes may be read straight to their place before feed is called again; 0:
   feed must see what comes. */
static uint64_t dlpi_s3_http_direct(const dlpi_s3_http *h) {
    if (h->at == DLPI_S3_AT_LENGTH || h->at == DLPI_S3_AT_CHUNK) return h->left;
    return h->at == DLPI_S3_AT_CLOSE ? (uint64_t)INT64_MAX : 0;
}

/* Note that n bytes were read straight (dlpi_s3_http_direct). Returns MORE, END, BAD: too many. */
static int dlpi_s3_http_took(dlpi_s3_http *h, uint64_t n) {
    if (n > dlpi_s3_http_direct(h)) return dlpi_s3_http_bad(h, "more was read than the answer has");
    if (h->at == DLPI_S3_AT_CLOSE || n == 0) return DLPI_S3_HTTP_MORE;
    h->left -= n;
    if (h->left > 0) return DLPI_S3_HTTP_MORE;
    h->done = h->at == DLPI_S3_AT_LENGTH;
    h->at = h->done ? DLPI_S3_AT_END : DLPI_S3_AT_CHUNK_END;
    return h->done ? DLPI_S3_HTTP_END : DLPI_S3_HTTP_MORE;
}

/* Take one byte of the line end behind a chunk. The size of the next chunk follows the second byte.
   Returns 0 or DLPI_S3_HTTP_BAD. */
static int dlpi_s3_http_chunk_end(dlpi_s3_http *h, char c) {
    if (c != "\r\n"[h->line_n]) return dlpi_s3_http_bad(h, "a chunk does not end where it should");
    h->line_n++;
    if (h->line_n < 2) return 0;
    h->line_n = 0;
    h->at = DLPI_S3_AT_SIZE;
    return 0;
}

/* Begin an answer. no_body: the request was HEAD. */
static void dlpi_s3_http_begin(dlpi_s3_http *h, bool no_body) {
    memset(h, 0, offsetof(dlpi_s3_http, etag));
    h->no_body = no_body;
    dlpi_s3_http_clear(h);
}

/* Parse n bytes more; *used of them belong to the answer and need not be offered again. Returns
   MORE: all are used; HEAD: the head is whole, once, before any byte of the body is used; BODY: a
   run of the body is at *body, inside the bytes given; END: the answer is whole, the rest belongs
   to nobody; or BAD. Call again, with the rest, until MORE, END or BAD. */
static int dlpi_s3_http_feed(dlpi_s3_http *h, const char *bytes, size_t n, size_t *used,
                             const char **body, size_t *body_n) {
    int rc = 0;
    *used = *body_n = 0;
    *body = NULL;
    h->began = h->began || n > 0;
    while (rc == 0) {
        size_t left = n - *used;
        uint64_t direct = dlpi_s3_http_direct(h);
        if (h->at == DLPI_S3_AT_BAD) return DLPI_S3_HTTP_BAD;
        if (h->at == DLPI_S3_AT_END) {
            h->keep_alive = h->keep_alive && left == 0;
            return DLPI_S3_HTTP_END;
        }
        if (left == 0) return DLPI_S3_HTTP_MORE;
        if (direct) {
            *body = bytes + *used;
            *body_n = left < direct ? left : (size_t)direct;
            *used += *body_n;
            dlpi_s3_http_took(h, *body_n);
            return DLPI_S3_HTTP_BODY;
        }
        if (h->at == DLPI_S3_AT_CHUNK_END)
            rc = dlpi_s3_http_chunk_end(h, bytes[(*used)++]);
        else
            rc = dlpi_s3_http_take(h, bytes + *used, left, used);
    }
    return rc;
}

/* Take in that the connection has ended. Returns END if the answer is whole, else BAD. */
static int dlpi_s3_http_eof(dlpi_s3_http *h) {
    if (h->at == DLPI_S3_AT_CLOSE) {
        h->at = DLPI_S3_AT_END;
        h->done = true;
    }
    if (h->at == DLPI_S3_AT_END) {
        h->keep_alive = false;
        return DLPI_S3_HTTP_END;
    }
    if (h->at == DLPI_S3_AT_BAD) return DLPI_S3_HTTP_BAD;
    return dlpi_s3_http_bad(h, h->head_done ? "the connection ended inside the body"
                               : h->began   ? "the connection ended inside the head"
                                            : "the connection ended before an answer");
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-transport    SOCKETS, TLS
   Connections that never block. One is begun by open, brought forward by step until that returns 0,
   and then read and written; whatever cannot go on says what it waits for. Nothing in here raises
   SIGPIPE, and no handler is set for it: each send carries MSG_NOSIGNAL. */

/* An address, of a size that is known. */
typedef struct dlpi_s3_address {
    socklen_t n;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
} dlpi_s3_address;

enum { DLPI_S3_CONNECTING = 1, DLPI_S3_TUNNEL, DLPI_S3_HANDSHAKE, DLPI_S3_READY };

typedef struct dlpi_s3_conn {
    int32_t fd; /* -1: none */
    int32_t state;
    int32_t errnum;              /* errno, if the connection is DLP_S3_BROKEN */
    pid_t pid;                   /* process that opened it */
    const dlp_s3_transport *tls; /* NULL: no TLS */
    const char *host;            /* borrowed until step has returned 0 */
    void *session;
    dlpi_s3_address address;
    const char *tunnel; /* request that a proxy gets first, borrowed as host; NULL: no proxy */
    uint32_t tunnel_n, tunnel_at, heard; /* its bytes; bytes sent; bytes of the answer */
    char line[13];                       /* the begin of the proxy's answer: "HTTP/1.1 200" */
    uint8_t ends;                        /* bytes of "\r\n\r\n" that have come */
    char why[160];                       /* text, if the connection is DLP_S3_BROKEN */
} dlpi_s3_conn;

/* Write an address as text: "127.0.0.1:80", "[::1]:80". */
static void dlpi_s3_address_text(const dlpi_s3_address *a, char *to, size_t size) {
    char ip[INET6_ADDRSTRLEN] = "?";
    if (a->at.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->at.v6.sin6_addr, ip, sizeof ip);
        snprintf(to, size, "[%s]:%u", ip, (unsigned)ntohs(a->at.v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &a->at.v4.sin_addr, ip, sizeof ip);
        snprintf(to, size, "%s:%u", ip, (unsigned)ntohs(a->at.v4.sin_port));
    }
}

/* True if two addresses are of the same host; their ports may differ. */
static bool dlpi_s3_address_same(const dlpi_s3_address *a, const dlpi_s3_address *b) {
    if (a->at.any.sa_family != b->at.any.sa_family) return false;
    if (a->at.any.sa_family == AF_INET6)
        return memcmp(&a->at.v6.sin6_addr, &b->at.v6.sin6_addr, 16) == 0 &&
               a->at.v6.sin6_scope_id == b->at.v6.sin6_scope_id;
    return a->at.v4.sin_addr.s_addr == b->at.v4.sin_addr.s_addr;
}

/* Make the address of a host that is given as a number. Returns false if host is a name. */
static bool dlpi_s3_address_numeric(const char *host, uint16_t port, dlpi_s3_address *out) {
    dlpi_s3_address a;
    memset(&a, 0, sizeof a);
    if (inet_pton(AF_INET, host, &a.at.v4.sin_addr) == 1) {
        a.at.v4.sin_family = AF_INET;
        a.at.v4.sin_port = htons(port);
        a.n = sizeof a.at.v4;
    } else if (inet_pton(AF_INET6, host, &a.at.v6.sin6_addr) == 1) {
        a.at.v6.sin6_family = AF_INET6;
        a.at.v6.sin6_port = htons(port);
        a.n = sizeof a.at.v6;
    } else {
        return false;
    }
    *out = a;
    return true;
}

/* Note an errno and an error text for a connection. Returns DLP_S3_BROKEN. */
static int dlpi_s3_conn_fail(dlpi_s3_conn *c, const char *what, int errnum) {
    char to[64];
    dlpi_s3_address_text(&c->address, to, sizeof to);
    snprintf(c->why, sizeof c->why, "%s %s: %s", what, to, strerror(errnum));
    c->errnum = errnum;
    return DLP_S3_BROKEN;
}

/* Set errnum, and why if the transport left it empty, for a transport that failed. EKEYREJECTED:
   the server is not trusted, which no retry mends. Returns DLP_S3_BROKEN. */
static int dlpi_s3_conn_fail_tls(dlpi_s3_conn *c) {
    c->errnum = errno ? errno : EPROTO;
    c->why[sizeof c->why - 1] = '\0';
    if (!c->why[0]) snprintf(c->why, sizeof c->why, "TLS: %s", strerror(c->errnum));
    return DLP_S3_BROKEN;
}

/* Return the code of a transport's read or write of n bytes; if invalid, or an error,
   DLP_S3_BROKEN. */
static int64_t dlpi_s3_conn_told(dlpi_s3_conn *c, int64_t code, size_t n) {
    if (code > DLP_S3_BROKEN && (code < 0 || (uint64_t)code <= n)) return code;
    return dlpi_s3_conn_fail_tls(c);
}

/* True if this process made the connection: a child leaves its parent's connections alone. */
static inline bool dlpi_s3_conn_mine(const dlpi_s3_conn *c) { return c->pid == getpid(); }

/* End the session and close the socket, if it is open. The child of a fork must not end a session
   that its parent goes on with: there the session's last bytes go to a file that takes none. */
static void dlpi_s3_conn_close(dlpi_s3_conn *c) {
    bool mute = true;
    if (c->fd < 0) return;
    if (c->session && !dlpi_s3_conn_mine(c)) {
        int null = dlpi_fd_above(open("/dev/null", O_RDONLY | O_CLOEXEC));
        mute = null >= 0 && dup3(null, c->fd, O_CLOEXEC) >= 0;
        if (null >= 0) close(null);
    }
    if (c->session && mute) c->tls->close(c->session);
    close(c->fd);
    c->session = NULL;
    c->fd = -1;
    c->state = 0;
}

/* Begin to connect. tls: NULL for a plain connection. host: the name that TLS verifies, borrowed
   until dlpi_s3_conn_step has returned 0. Returns 0: go on with dlpi_s3_conn_step, at once if you
   like; or DLP_S3_BROKEN with why and errnum, and nothing to close. */
static int dlpi_s3_conn_open(dlpi_s3_conn *c, const dlpi_s3_address *address,
                             const dlp_s3_transport *tls, const char *host) {
    int one = 1, errnum;
    memset(c, 0, sizeof *c);
    c->address = *address;
    c->tls = tls;
    c->host = host;
    c->pid = getpid();
    c->state = DLPI_S3_CONNECTING;
    c->fd = socket(address->at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    c->fd = dlpi_fd_above(c->fd);
    if (c->fd < 0) return dlpi_s3_conn_fail(c, "no socket for", errno);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, &address->at.any, address->n) == 0 || errno == EINPROGRESS || errno == EINTR)
        return 0;
    errnum = errno;
    dlpi_s3_conn_close(c);
    return dlpi_s3_conn_fail(c, "cannot connect to", errnum);
}

/* Look whether the socket is connected. Returns 0: it is; DLP_S3_WANT_WRITE; or DLP_S3_BROKEN. */
static int dlpi_s3_conn_connected(dlpi_s3_conn *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    int errnum = 0;
    socklen_t n = sizeof errnum;
    if (poll(&p, 1, 0) <= 0) return DLP_S3_WANT_WRITE; /* EINTR: asked again soon */
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &errnum, &n) != 0) errnum = errno;
    if (errnum) return dlpi_s3_conn_fail(c, "cannot connect to", errnum);
    c->state = c->tunnel ? DLPI_S3_TUNNEL : c->tls ? DLPI_S3_HANDSHAKE : DLPI_S3_READY;
    return 0;
}

/* Judge a proxy's answer. why: NULL, or why it is not whole. Returns 0, or DLP_S3_BROKEN. */
static int dlpi_s3_conn_tunnelled(dlpi_s3_conn *c, const char *why) {
    int64_t status = memcmp(c->line, "HTTP/1.", 7) == 0 ? dlpi_s3_number(c->line + 9, 3) : -1;
    if (!why && status >= 200 && status < 300) {
        c->state = c->tls ? DLPI_S3_HANDSHAKE : DLPI_S3_READY;
        return 0;
    }
    c->errnum = status >= 400 && status < 500 ? EACCES : ECONNREFUSED;
    if (!why)
        why = status == 407   ? "it wants another user and password (http://USER:WORD@HOST:PORT)"
              : status == 403 ? "it may not connect there"
              : status >= 500 ? "it cannot reach the server"
                              : "that is no answer to CONNECT";
    if (status < 0)
        snprintf(c->why, sizeof c->why, "the proxy does not open a tunnel: %s", why);
    else
        snprintf(c->why, sizeof c->why, "the proxy answers %d: %s", (int)status, why);
    return DLP_S3_BROKEN;
}

/* Ask the proxy for a tunnel. A TLS server speaks only when it is asked, so nothing follows the
   head of the answer. Returns 0: the tunnel is open; DLP_S3_WANT_*; or DLP_S3_BROKEN. */
static int dlpi_s3_conn_tunnel(dlpi_s3_conn *c) {
    char byte;
    while (c->tunnel_at < c->tunnel_n) {
        ssize_t put =
            send(c->fd, c->tunnel + c->tunnel_at, c->tunnel_n - c->tunnel_at, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) return DLP_S3_WANT_WRITE;
        if (put < 0) return dlpi_s3_conn_fail(c, "writing to the proxy", errno);
        c->tunnel_at += (uint32_t)put;
    }
    while (c->ends < 4) {
        ssize_t got = recv(c->fd, &byte, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return DLP_S3_WANT_READ;
        if (got < 0) return dlpi_s3_conn_fail(c, "reading from the proxy", errno);
        if (got == 0) return dlpi_s3_conn_tunnelled(c, "it closes the connection");
        if (c->heard < sizeof c->line - 1) c->line[c->heard] = byte;
        if (++c->heard > 16384) return dlpi_s3_conn_tunnelled(c, "its answer does not end");
        if (byte != "\r\n"[c->ends % 2])
            c->ends = byte == '\r';
        else
            c->ends++;
    }
    return dlpi_s3_conn_tunnelled(c, NULL);
}

/* Go on opening a connection. Returns 0: it can be read and written; DLP_S3_WANT_READ or _WRITE:
   call again when the socket is ready for that; DLP_S3_BROKEN, with why and errnum: close it. */
static int dlpi_s3_conn_step(dlpi_s3_conn *c) {
    int code = 0;
    if (c->state == DLPI_S3_CONNECTING) code = dlpi_s3_conn_connected(c);
    if (code == 0 && c->state == DLPI_S3_TUNNEL) code = dlpi_s3_conn_tunnel(c);
    if (code != 0 || c->state == DLPI_S3_READY) return code;
    errno = 0;
    if (!c->session)
        code = c->tls->open(c->tls->user, c->fd, c->host, &c->session, c->why, sizeof c->why);
    if (code == 0) code = c->tls->handshake(c->session, c->why, sizeof c->why);
    if (code == DLP_S3_BROKEN) return dlpi_s3_conn_fail_tls(c);
    if (code == 0) c->state = DLPI_S3_READY;
    return code;
}

/* Read at most n bytes (not 0) that are there. Returns how many; 0 if the server has properly ended
   the stream; DLP_S3_WANT_*; or DLP_S3_BROKEN. */
static int64_t dlpi_s3_conn_read(dlpi_s3_conn *c, void *to, size_t n) {
    ssize_t got;
    if (c->tls) {
        errno = 0;
        return dlpi_s3_conn_told(c, c->tls->read(c->session, to, n, c->why, sizeof c->why), n);
    }
    do got = recv(c->fd, to, n, 0);
    while (got < 0 && errno == EINTR);
    if (got >= 0) return got;
    if (errno == EAGAIN) return DLP_S3_WANT_READ;
    return dlpi_s3_conn_fail(c, "reading from", errno);
}

/* Write what fits, of n bytes. Returns how many; DLP_S3_WANT_*: offer them again; DLP_S3_BROKEN. */
static int64_t dlpi_s3_conn_write(dlpi_s3_conn *c, const void *from, size_t n) {
    ssize_t put;
    if (c->tls) {
        errno = 0;
        return dlpi_s3_conn_told(c, c->tls->write(c->session, from, n, c->why, sizeof c->why), n);
    }
    do put = send(c->fd, from, n, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put >= 0) return put;
    if (errno == EAGAIN) return DLP_S3_WANT_WRITE;
    return dlpi_s3_conn_fail(c, "writing to", errno);
}

/* True if the session may have bytes of which the socket knows nothing: read before you wait. */
static bool dlpi_s3_conn_pending(dlpi_s3_conn *c) {
    return c->session && c->tls->pending(c->session) == 1;
}

/* ---- TLS by OpenSSL ----
   Certificates and host names are verified, always. Each process makes what its sessions share when
   it first needs it, never uses what its parent made (whose locks may be held for ever), and keeps
   the tickets by which servers take a session up again. Sockets are reached by functions of our
   own, because those of OpenSSL may raise SIGPIPE. */

#ifdef DLPIPE_S3_OPENSSL
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#if OPENSSL_VERSION_NUMBER < 0x10101000L
#error DLPIPE_S3_OPENSSL wants OpenSSL 1.1.1 or later
#endif

enum { DLPI_S3_TICKETS = 16, DLPI_S3_TLS_READ_AHEAD = 64 * 1024 };

typedef struct dlpi_s3_ticket {
    char host[256];
    SSL_SESSION *session;
    uint64_t used_ns;
} dlpi_s3_ticket;

/* What the sessions of one process share. */
typedef struct dlpi_s3_tls_own {
    pid_t pid;
    SSL_CTX *ctx;
    BIO_METHOD *method;
    pthread_mutex_t lock; /* guards tickets */
    dlpi_s3_ticket tickets[DLPI_S3_TICKETS];
} dlpi_s3_tls_own;

typedef struct dlpi_s3_tls {
    dlpi_s3_tls_own *own; /* replaced once in each process that needs one: O1, O2 */
    char ca_file[];       /* "": the system's */
} dlpi_s3_tls;

typedef struct dlpi_s3_session {
    SSL *ssl;
    dlpi_s3_tls_own *own;
    int fd;
    int errnum; /* errno of the last call of the socket */
    bool ended; /* the socket has no more bytes */
    int broken; /* errno of the failure, which each later call returns, with why; 0: none */
    char why[160];
    char host[256];
    bool demanded; /* the server has asked for a certificate of ours */
} dlpi_s3_session;

/* Callback of OpenSSL: send n bytes. Returns how many were sent, or -1. If the socket is full,
   OpenSSL is told to try again. */
static int dlpi_s3_bio_write(BIO *b, const char *from, int n) {
    dlpi_s3_session *s = (dlpi_s3_session *)BIO_get_data(b);
    ssize_t put;
    BIO_clear_retry_flags(b);
    do put = send(s->fd, from, (size_t)n, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put >= 0) return (int)put;
    if (errno == EAGAIN)
        BIO_set_retry_write(b);
    else
        s->errnum = errno;
    return -1;
}

/* Callback of OpenSSL: receive at most n bytes. Returns how many, 0 if the server has ended, or -1.
   If nothing has come, OpenSSL is told to try again. */
static int dlpi_s3_bio_read(BIO *b, char *to, int n) {
    dlpi_s3_session *s = (dlpi_s3_session *)BIO_get_data(b);
    ssize_t got;
    BIO_clear_retry_flags(b);
    do got = recv(s->fd, to, (size_t)n, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) return (int)got;
    if (got == 0)
        s->ended = true;
    else if (errno == EAGAIN)
        BIO_set_retry_read(b);
    else
        s->errnum = errno;
    return got == 0 ? 0 : -1;
}

/* Callback of OpenSSL: say whether the server has ended, and that a flush is done. */
static long dlpi_s3_bio_ctrl(BIO *b, int what, long number, void *at) {
    const dlpi_s3_session *s = (const dlpi_s3_session *)BIO_get_data(b);
    (void)number;
    (void)at;
    if (what == BIO_CTRL_FLUSH) return 1;
    return what == BIO_CTRL_EOF ? s->ended : 0;
}

/* Keep a new ticket that OpenSSL offers, in place of the host's last one or of the one unused for
   longest. Returns 1: the ticket is ours to free. */
static int dlpi_s3_ticket_keep(SSL *ssl, SSL_SESSION *session) {
    const dlpi_s3_session *s = (const dlpi_s3_session *)SSL_get_app_data(ssl);
    dlpi_s3_ticket *t = s->own->tickets;
    pthread_mutex_lock(&s->own->lock);
    for (int i = 0; i < DLPI_S3_TICKETS; i++) {
        dlpi_s3_ticket *k = &s->own->tickets[i];
        if (k->used_ns < t->used_ns) t = k;
        if (strcmp(k->host, s->host) == 0) {
            t = k;
            break;
        }
    }
    SSL_SESSION_free(t->session);
    t->session = session;
    t->used_ns = dlpi_s3_now_ns();
    dlpi_s3_copy(t->host, sizeof t->host, s->host);
    pthread_mutex_unlock(&s->own->lock);
    return 1;
}

/* Offer a copy of the host's ticket to the server: other threads' sessions may use it meanwhile. */
static void dlpi_s3_ticket_use(dlpi_s3_session *s) {
    SSL_SESSION *copy = NULL;
    pthread_mutex_lock(&s->own->lock);
    for (int i = 0; i < DLPI_S3_TICKETS; i++) {
        dlpi_s3_ticket *t = &s->own->tickets[i];
        if (!t->session || strcmp(t->host, s->host) != 0) continue;
        if (SSL_SESSION_is_resumable(t->session)) copy = SSL_SESSION_dup(t->session);
        t->used_ns = dlpi_s3_now_ns();
    }
    pthread_mutex_unlock(&s->own->lock);
    if (copy) SSL_set_session(s->ssl, copy);
    SSL_SESSION_free(copy);
}

/* Free a process's TLS state with its session tickets; NULL is allowed. No session may use it. */
static void dlpi_s3_tls_own_free(dlpi_s3_tls_own *own) {
    if (!own) return;
    for (int i = 0; i < DLPI_S3_TICKETS; i++) SSL_SESSION_free(own->tickets[i].session);
    SSL_CTX_free(own->ctx);
    BIO_meth_free(own->method);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

/* Note that the server asks for a certificate of the client. Returns 0: there is none. */
static int dlpi_s3_tls_demand(SSL *ssl, X509 **cert, EVP_PKEY **key) {
    (void)cert;
    (void)key;
    ((dlpi_s3_session *)SSL_get_app_data(ssl))->demanded = true;
    return 0;
}

/* Load the certificates that are trusted: of ca_file, or of the system if ca_file is "". Returns
   false, with the reason in `why` and errno, if there are none. */
static bool dlpi_s3_tls_trust(SSL_CTX *ctx, const char *ca_file, char *why, size_t size) {
    if (ca_file[0] ? SSL_CTX_load_verify_locations(ctx, ca_file, NULL) == 1
                   : SSL_CTX_set_default_verify_paths(ctx) == 1)
        return true;
    snprintf(why, size, "ca_file '%.80s' holds no certificates in PEM form; give another", ca_file);
    errno = EKEYREJECTED;
    return false;
}

/* Make what the sessions of this process share. Returns NULL, with why and errno, if that fails. */
static dlpi_s3_tls_own *dlpi_s3_tls_own_new(const char *ca_file, char *why, size_t size) {
    dlpi_s3_tls_own *own = (dlpi_s3_tls_own *)calloc(1, sizeof *own);
    dlpi_s3_copy(why, size, "no memory for TLS");
    errno = ENOMEM;
    if (!own) return NULL;
    pthread_mutex_init(&own->lock, NULL);
    own->pid = getpid();
    own->ctx = SSL_CTX_new(TLS_client_method());
    own->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "dlpipe socket");
    if (!own->ctx || !own->method || !dlpi_s3_tls_trust(own->ctx, ca_file, why, size)) {
        int errnum = errno;
        dlpi_s3_tls_own_free(own);
        ERR_clear_error();
        errno = errnum;
        return NULL;
    }
    BIO_meth_set_write(own->method, dlpi_s3_bio_write);
    BIO_meth_set_read(own->method, dlpi_s3_bio_read);
    BIO_meth_set_ctrl(own->method, dlpi_s3_bio_ctrl);
    SSL_CTX_set_min_proto_version(own->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(own->ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_verify(own->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(own->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(own->ctx, 1);
    SSL_CTX_set_default_read_buffer_len(own->ctx, DLPI_S3_TLS_READ_AHEAD);
    SSL_CTX_set_session_cache_mode(own->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(own->ctx, dlpi_s3_ticket_keep);
    SSL_CTX_set_client_cert_cb(own->ctx, dlpi_s3_tls_demand);
    return own;
}

/* Return what this process' sessions share, made here if there is none; NULL, with why and errno,
   if that fails. A parent's stays as it is: it cannot be freed safely. */
static dlpi_s3_tls_own *dlpi_s3_tls_mine(dlpi_s3_tls *tls, char *why, size_t size) {
    dlpi_s3_tls_own *found = DLPI_LOAD_ACQ(&tls->own), *own; /* O2 <- O1 */
    if (found && found->pid == getpid()) return found;
    own = dlpi_s3_tls_own_new(tls->ca_file, why, size);
    if (!own || DLPI_CAS_SEQ(&tls->own, &found, own)) return own; /* O1 -> O2 */
    dlpi_s3_tls_own_free(own);                                    /* another thread was first */
    return found;
}

/* Tell OpenSSL which host the certificate must be for; without a host nothing would be checked.
   Only alternative names count, no common name (RFC 9525, 6.3). Returns false if that fails. */
static bool dlpi_s3_tls_expect(SSL *ssl, const char *host) {
    dlpi_s3_address unused;
    if (!host[0]) return false;
    if (dlpi_s3_address_numeric(host, 0, &unused))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

/* Make the TLS object of a session, which expects the session's host. Returns false if OpenSSL
   cannot; the caller frees s->ssl. */
static bool dlpi_s3_tls_begin(dlpi_s3_session *s) {
    BIO *b;
    s->ssl = SSL_new(s->own->ctx);
    if (!s->ssl || !dlpi_s3_tls_expect(s->ssl, s->host)) return false;
    b = BIO_new(s->own->method);
    if (!b) return false;
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    SSL_set_bio(s->ssl, b, b);
    SSL_set_app_data(s->ssl, s);
    SSL_set_connect_state(s->ssl);
    dlpi_s3_ticket_use(s);
    return true;
}

/* Open a TLS session on the connected socket fd. Returns 0, or DLP_S3_BROKEN with the reason in
   `why` and errno. The handshake comes later. */
static int dlpi_s3_tls_open(void *user, int fd, const char *host, void **session, char *why,
                            size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)calloc(1, sizeof *s);
    size_t n;
    dlpi_s3_copy(why, size, "no memory for TLS");
    errno = ENOMEM;
    if (!s) return DLP_S3_BROKEN;
    s->fd = fd;
    if (!host || !dlpi_s3_copy(s->host, sizeof s->host, host)) s->host[0] = '\0';
    n = strlen(s->host); /* the root's dot is in no certificate, and not in SNI: RFC 6066, 3 */
    if (n > 1 && s->host[n - 1] == '.') s->host[n - 1] = '\0';
    s->own = dlpi_s3_tls_mine((dlpi_s3_tls *)user, why, size);
    if (s->own && dlpi_s3_tls_begin(s)) {
        why[0] = '\0';
        *session = s;
        return 0;
    }
    if (s->own) {
        snprintf(why, size, "TLS cannot ask for host '%.100s'", s->host);
        errno = EKEYREJECTED;
    }
    fd = errno;
    SSL_free(s->ssl);
    free(s);
    ERR_clear_error();
    errno = fd;
    return DLP_S3_BROKEN;
}

/* Set s->why and s->broken, to be told at every further call. error: of SSL_get_error. */
static void dlpi_s3_tls_explain(dlpi_s3_session *s, int error) {
    unsigned long e = ERR_peek_error();
    const char *words = e ? ERR_reason_error_string(e) : NULL;
    const char *when = SSL_is_init_finished(s->ssl) ? "" : " in the TLS handshake";
    long verified = SSL_get_verify_result(s->ssl);
    bool alert =
        words && ERR_GET_LIB(e) == ERR_LIB_SSL && ERR_GET_REASON(e) >= SSL_AD_REASON_OFFSET;
    if (verified != X509_V_OK && !SSL_is_init_finished(s->ssl)) {
        s->broken = EKEYREJECTED;
        snprintf(s->why, sizeof s->why,
                 "certificate of %.60s is refused: %s; give its authority as ca_file", s->host,
                 X509_verify_cert_error_string(verified));
    } else if (s->demanded && (alert || !SSL_is_init_finished(s->ssl))) {
        s->broken = EKEYREJECTED;
        snprintf(s->why, sizeof s->why,
                 "%.60s wants a certificate of its clients, which is not supported%s%s", s->host,
                 alert ? ": " : "", alert ? words : "");
    } else if (s->errnum) {
        s->broken = s->errnum;
        snprintf(s->why, sizeof s->why, "%.60s%s: %s", s->host, when, strerror(s->errnum));
    } else if (s->ended) {
        s->broken = ECONNRESET;
        snprintf(s->why, sizeof s->why, "%.60s cut the connection%s", s->host, when);
    } else {
        s->broken = EPROTO;
        snprintf(s->why, sizeof s->why, "%.60s%s: %s", s->host, when[0] ? when : " in TLS",
                 words                    ? words
                 : error == SSL_ERROR_SSL ? "not TLS"
                                          : "failed");
    }
}

/* Find out why a call of OpenSSL got no further. Returns DLP_S3_WANT_*; 0 if the server has ended
   the session and may_end is set; or DLP_S3_BROKEN, with why and errno. */
static int dlpi_s3_tls_wants(dlpi_s3_session *s, bool may_end, char *why, size_t size) {
    int error = s->broken ? SSL_ERROR_NONE : SSL_get_error(s->ssl, 0);
    if (error == SSL_ERROR_WANT_READ) return DLP_S3_WANT_READ;
    if (error == SSL_ERROR_WANT_WRITE) return DLP_S3_WANT_WRITE;
    if (error == SSL_ERROR_ZERO_RETURN && may_end) return 0;
    if (error == SSL_ERROR_ZERO_RETURN) s->ended = true;
    if (!s->broken) dlpi_s3_tls_explain(s, error);
    ERR_clear_error();
    dlpi_s3_copy(why, size, s->why);
    errno = s->broken;
    return DLP_S3_BROKEN;
}

static int dlpi_s3_tls_handshake(void *session, char *why, size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    ERR_clear_error();
    return !s->broken && SSL_do_handshake(s->ssl) == 1 ? 0 : dlpi_s3_tls_wants(s, false, why, size);
}

/* Read as many TLS records as are there: dlp_s3_transport.read. If it fails after the first record,
   the next call tells it, because OpenSSL tells it only once. */
static int64_t dlpi_s3_tls_read(void *session, void *to, size_t n, char *why, size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    size_t got = 0, total = 0;
    int code;
    ERR_clear_error();
    do {
        if (s->broken || SSL_read_ex(s->ssl, (char *)to + total, n - total, &got) != 1) {
            code = dlpi_s3_tls_wants(s, true, why, size);
            return total ? (int64_t)total : code;
        }
        total += got;
    } while (total < n && SSL_has_pending(s->ssl));
    return (int64_t)total;
}

/* Write at most n bytes. Returns how many were written, or DLP_S3_WANT_* or DLP_S3_BROKEN if none
   was. */
static int64_t dlpi_s3_tls_write(void *session, const void *from, size_t n, char *why,
                                 size_t size) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    size_t put = 0, total = 0;
    int code;
    ERR_clear_error();
    do {
        if (s->broken || SSL_write_ex(s->ssl, (const char *)from + total, n - total, &put) != 1) {
            code = dlpi_s3_tls_wants(s, false, why, size);
            return total ? (int64_t)total : code;
        }
        total += put;
    } while (total < n);
    return (int64_t)total;
}

static int dlpi_s3_tls_pending(void *session) {
    return SSL_has_pending(((const dlpi_s3_session *)session)->ssl);
}

/* Free a session: dlp_s3_transport.close. If it went well, send the close_notify alert first,
   without which its ticket would be void. */
static void dlpi_s3_tls_close(void *session) {
    dlpi_s3_session *s = (dlpi_s3_session *)session;
    ERR_clear_error();
    if (!s->broken && SSL_is_init_finished(s->ssl)) SSL_shutdown(s->ssl);
    SSL_free(s->ssl);
    ERR_clear_error();
    free(s);
}

/* Make a transport of OpenSSL, without calling it yet. ca_file: PEM, copied; NULL: AWS_CA_BUNDLE's,
   else the system's. Returns 0, DLP_ERR_ARG if it cannot be read, or DLP_ERR_MEMORY. */
static int dlpi_s3_tls_new(dlp_s3_transport *out, const char *ca_file, dlp_s3_error *err) {
    dlpi_s3_tls *tls;
    if (!ca_file || !ca_file[0]) ca_file = secure_getenv("AWS_CA_BUNDLE");
    if (!ca_file) ca_file = "";
    if (ca_file[0] && access(ca_file, R_OK) != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, errno, "ca_file '%.80s': %s; check the path",
                                 ca_file, strerror(errno));
    tls = (dlpi_s3_tls *)calloc(1, sizeof *tls + strlen(ca_file) + 1);
    if (!tls) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, ENOMEM, "no memory for TLS");
    memcpy(tls->ca_file, ca_file, strlen(ca_file) + 1);
    memset(out, 0, sizeof *out);
    out->user = tls;
    out->open = dlpi_s3_tls_open;
    out->handshake = dlpi_s3_tls_handshake;
    out->read = dlpi_s3_tls_read;
    out->write = dlpi_s3_tls_write;
    out->pending = dlpi_s3_tls_pending;
    out->close = dlpi_s3_tls_close;
    return 0;
}

/* Free a transport of OpenSSL, after its last session. Any other is left as it is. */
static void dlpi_s3_tls_free(dlp_s3_transport *out) {
    dlpi_s3_tls *tls = (dlpi_s3_tls *)out->user;
    if (out->open != dlpi_s3_tls_open) return;
    if (tls->own && tls->own->pid == getpid()) dlpi_s3_tls_own_free(tls->own);
    free(tls);
    memset(out, 0, sizeof *out);
}
#else
static int dlpi_s3_tls_new(dlp_s3_transport *out, const char *ca_file, dlp_s3_error *err) {
    (void)out;
    (void)ca_file;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "https: compile with DLPIPE_S3_OPENSSL, or give a transport (tls)");
}

static void dlpi_s3_tls_free(dlp_s3_transport *out) { (void)out; }
#endif

/* ---- names, by calls that wait ---- */

#ifndef DLPI_S3_GETADDRINFO /* tests define their own */
#define DLPI_S3_GETADDRINFO getaddrinfo
#define DLPI_S3_FREEADDRINFO freeaddrinfo
#endif

/* True if there is a route to an address: a datagram socket tells that without sending anything. */
static bool dlpi_s3_address_routed(const dlpi_s3_address *a) {
    int fd = dlpi_fd_above(socket(a->at.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)), rc;
    if (fd < 0) return false;
    rc = connect(fd, &a->at.any, a->n);
    close(fd);
    return rc == 0;
}

/* Set why and *errnum (EAGAIN: try later; ENXIO) for getaddrinfo's rc. Returns DLP_ERR_REMOTE. */
static int dlpi_s3_resolve_fail(const char *host, int rc, int *errnum, char *why, size_t size) {
    bool later = rc == EAI_AGAIN || rc == EAI_MEMORY || rc == EAI_SYSTEM;
    const char *words = rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc);
    snprintf(why, size, "cannot find the address of '%.70s': %s; check endpoint and region", host,
             words);
    *errnum = later ? EAGAIN : ENXIO;
    return DLP_ERR_REMOTE;
}

/* Find the addresses of a host, a name or a number; those without a route only if all are. Returns
   how many, 1..max; or DLP_ERR_REMOTE with why, and errnum EAGAIN (may be found later) or ENXIO. A
   name waits for the resolver, for as long as that likes. */
static int dlpi_s3_resolve(const char *host, uint16_t port, dlpi_s3_address *out, uint32_t max,
                           int *errnum, char *why, size_t size) {
    struct addrinfo hints, *list = NULL;
    char service[8];
    uint32_t n = 0;
    int rc;
    if (dlpi_s3_address_numeric(host, port, out)) return 1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    snprintf(service, sizeof service, "%u", (unsigned)port);
    rc = DLPI_S3_GETADDRINFO(host, service, &hints, &list);
    if (rc != 0) return dlpi_s3_resolve_fail(host, rc, errnum, why, size);
    for (int routed = 1; routed >= 0 && n == 0; routed--) {
        for (const struct addrinfo *a = list; a && n < max; a = a->ai_next) {
            if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
            if (a->ai_addrlen > sizeof out->at) continue;
            memset(&out[n], 0, sizeof out[n]);
            memcpy(&out[n].at, a->ai_addr, a->ai_addrlen);
            out[n].n = a->ai_addrlen;
            if (!routed || dlpi_s3_address_routed(&out[n])) n++;
        }
    }
    DLPI_S3_FREEADDRINFO(list);
    return n ? (int)n : dlpi_s3_resolve_fail(host, EAI_NONAME, errnum, why, size);
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-patience     RETRIES, HEDGES, THROTTLING
   Policy alone: no socket, no clock (the caller passes the time in), so that a test can run years
   of it. What workers share is counters and a count of retries; the rest is one thread's own.

   Retries. The n-th waits for backoff * 2^n, half of it fixed and half random ("equal jitter": M.
   Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015), and not less than a
   Retry-After asks for. With all of it random a number of attempts would have no least duration:
   what bounds them is time. A retry is taken from a bucket that all workers share, a request that
   ends well puts one back (the standard retry mode of AWS' SDKs): where most requests fail, each
   waits the longest pause at once, and a server that comes back meets few of them a second. None
   fails for that: a server that is away empties the bucket in a moment. The bucket is a count of
   retries ahead of successes, so that a worker that dies takes nothing with it.

   Away. From a failure on until any request of the client's has its answer the server counts as
   away, since the request that failed was begun, or the last answer came. The first answer after a
   second without one wakes all requests of the client that wait to be tried again. They go out
   within DLPI_S3_WAKE_NS. A request that a Retry-After holds is not woken. Those are words that all
   share (S9), of which one is read with each answer; they are for people to read, and no order of
   theirs matters.

   label  where                                   what it orders
   S10    connection_accept stores, op_begin loads  nothing: a request that has not seen the word
                                                    "decodes" is sent twice

   Hedges. A request that waits for its first byte for longer than nearly all others is sent once
   more on another connection, and the first valid head wins (Dean and Barroso, The Tail at Scale,
   2013). "Nearly all": p95 of recent first-byte times of its size class, times a factor of 1.5 at
   first, which grows with hedges that were too hasty (the first answer came first) and shrinks with
   those that won; it goes half of the way back with every 256 samples, since few hedges go out that
   could prove it too wide; and wider as long as samples are few. Times that a winning hedge cut off
   count as long as they were seen to last. The budget is a share of requests, of which no more than
   DLPI_S3_HEDGE_SAVED are saved up; the hedges of hedges come out of it too.

   Slow bodies. A body that is far slower than most bodies of its size class goes on over another
   connection, since a path or a server may be bad. The client records the time that bodies need for
   64 KiB. "Far" is 8 times the time that 3 of 4 bodies need. Each move of a range doubles that
   factor, so that a slow line is soon left alone. A body that needs less than 128 ms for 64 KiB is
   never slow. Until a class is known, its bodies count as usual with 64 KiB a second. If the object
   has no strong ETag, the bytes that came are asked for again. That counts against the move.

   Throttling. One 503 among many good answers delays its own request only. The client keeps the
   share of throttled answers, as a mean in which the last answer weighs 1/64. If the share is above
   a quarter, the requests in flight are cut to 7/10. A cut comes at most once per 4 * backoff (a
   period), and an eighth of the requests always remains. After a cut a sixth is too much already.
   Until a period after the last such answer the limit does not rise, and there are no hedges. A
   server may let only so many requests a second pass. Then a cut lowers the share s: if r times as
   many answers come as before, the share becomes 1 - (1 - s) / r. A server that refuses at random
   keeps its share. So 128 answers after a cut the client looks which of both the share is nearer
   to. If the server refuses at random, the cut is undone. That share is then no sign of throttling
   for 16 periods. When throttling is over, the limit rises as TCP's window does (RFC 5681): with
   each good answer by one, up to half of what it was. From there it rises by the clock, by all of
   it in 32 periods, so that quick answers do not make it hasty. Time without answers counts for 5
   periods at most. */

enum { /* in the order of dlp_s3_stats */
       DLPI_S3_N_REQUESTS,
       DLPI_S3_N_OBJECTS,
       DLPI_S3_N_FAILED,
       DLPI_S3_N_BYTES,
       DLPI_S3_N_RETRIES,
       DLPI_S3_N_REPLAYS,
       DLPI_S3_N_RESUMES,
       DLPI_S3_N_HEDGES,
       DLPI_S3_N_HEDGES_WON,
       DLPI_S3_N_THROTTLED,
       DLPI_S3_N_CONNECTIONS,
       DLPI_S3_N_TIMEOUTS,
       DLPI_S3_N_REFRESHES,
       DLPI_S3_N_AWAY,
       DLPI_S3_COUNTS
};
_Static_assert(sizeof(dlp_s3_stats) == 8 * DLPI_S3_COUNTS, "a counter for each of dlp_s3_stats");

/* What all threads and processes of a client share. All zero is its start. (in region) */
typedef struct dlpi_s3_shared {
    uint64_t count[DLPI_S3_COUNTS];
    uint64_t ahead;   /* retries ahead of successes; a race can leave it a little below 0 */
    int64_t skew_s;   /* the servers' clock less ours */
    uint64_t away_ns; /* S9, since when requests fail and none has its answer; 0: they do not */
    uint64_t fails;   /* S9, since then */
    uint64_t told_ns; /* S9, when the log was told last; 0: not yet */
    uint64_t back_ns; /* S9, when it came back last, after DLPI_S3_AWAY_NS at least */
    uint64_t decodes; /* S10, 1: the server decodes gzip unless it is accepted */
} dlpi_s3_shared;

static inline void dlpi_s3_count(dlpi_s3_shared *s, int what, uint64_t n) {
    DLPI_ADD_RLX(&s->count[what], n);
}

#define DLPI_S3_CLASSES 4u   /* sizes up to 16 KiB, 256 KiB, 4 MiB, and larger or not known */
#define DLPI_S3_BUCKETS 176u /* microseconds, 8 buckets an octave, up to 16 s */
#define DLPI_S3_SAMPLES 512u /* then they are halved: the older, the less they count */
#define DLPI_S3_SAMPLES_FEWEST 16u
#define DLPI_S3_HEDGE_SAVED 32u  /* hedges that may be saved up */
#define DLPI_S3_HEDGE_FIRST 4u   /* and are there at the beginning */
#define DLPI_S3_FACTOR_FIRST 24u /* in sixteenths of p95 */
#define DLPI_S3_FACTOR_LEAST 18u
#define DLPI_S3_FACTOR_MOST 128u

#define DLPI_S3_SHARE 65536u              /* all answers */
#define DLPI_S3_SINCE_CUT 128u            /* answers that show whether a cut has helped */
#define DLPI_S3_PACE_BYTES 65536u         /* of which the time is kept */
#define DLPI_S3_PACE_FIRST_NS 1000000000u /* until it is known */
#define DLPI_S3_PACE_LEAST_NS 16000000u   /* what is faster counts as this */
#define DLPI_S3_PACE_FACTOR 8u
#define DLPI_S3_MOVES_MOST 16u

/* ALL DEADLINES, in nanoseconds: what each is counted from, and what follows when it is over. */
enum {
    DLPI_S3_BY_CONNECT, /* connect, until the handshake is done: another attempt */
    DLPI_S3_BY_RACE,    /* connect: another address is tried beside this one */
    DLPI_S3_BY_FIRST,   /* the request's last byte, delivered: another attempt */
    DLPI_S3_BY_DEAF,    /* the same, if the server takes no more: another attempt */
    DLPI_S3_BY_STALL,   /* the last byte, sent or come: another attempt, which goes on there */
    DLPI_S3_BY_LOOK,    /* the last look: at a body's rate, or at what the kernel has of a PUT */
    DLPI_S3_BY_DRAIN,   /* an answer that nobody wants: the connection is closed */
    DLPI_S3_BY_IDLE,    /* the last answer: the connection is closed */
    DLPI_S3_BY_STILL,   /* the op's last byte that was new: the request ends */
    DLPI_S3_BY_WHOLE,   /* submit: the request ends; UINT64_MAX: no such bound */
    DLPI_S3_DEADLINES
};

typedef struct dlpi_s3_times {
    uint32_t bucket[DLPI_S3_BUCKETS];
    uint32_t total;
    uint32_t factor;
} dlpi_s3_times;

/* One thread's. */
typedef struct dlpi_s3_patience {
    dlpi_s3_shared *shared;
    uint64_t backoff_ns, backoff_max_ns;
    uint64_t by[DLPI_S3_DEADLINES];
    uint64_t random;
    uint32_t share;     /* of answers that were throttled, in 65536ths */
    uint32_t share_cut; /* at the last cut; 0: whether that has helped is known */
    uint32_t by_chance; /* of it, what no cut helps against */
    uint32_t since_cut; /* answers; 128 are enough */
    uint64_t next_cut_ns, throttled_until_ns, risen_ns;
    uint64_t limit, full;        /* requests in flight, in 1024ths */
    uint64_t half;               /* of what limit was before it was cut */
    uint64_t uncut;              /* limit before the last cut */
    uint64_t answered_ns;        /* the last answer */
    uint64_t chance_until_ns;    /* for so long by_chance holds */
    uint64_t gap_ns, gap_cut_ns; /* between answers, lately; at the last cut */
    bool cutting;                /* no good answer since throttled_until_ns */
    uint64_t hedges;             /* that may be sent, in hundredths */
    int64_t retry_tokens;        /* -1: no limit */
    int32_t max_attempts;        /* -1: no limit */
    int32_t hedge_percent;
    dlpi_s3_times times[DLPI_S3_CLASSES];
    dlpi_s3_times paces[DLPI_S3_CLASSES]; /* of DLPI_S3_PACE_BYTES of bodies */
} dlpi_s3_patience;

DLPI_COLD
static uint64_t dlpi_s3_ms(int32_t ms) { return (uint32_t)ms * DLPI_S3_MS; }

DLPI_COLD
static uint64_t dlpi_s3_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Fill by[] with the time limits in ns that follow from the desc. */
DLPI_COLD
static void dlpi_s3_deadlines(uint64_t by[DLPI_S3_DEADLINES], const dlp_s3_desc *d) {
    by[DLPI_S3_BY_CONNECT] = dlpi_s3_ms(d->connect_timeout_ms);
    by[DLPI_S3_BY_RACE] = dlpi_s3_least(by[DLPI_S3_BY_CONNECT], 300 * DLPI_S3_MS);
    by[DLPI_S3_BY_FIRST] = dlpi_s3_ms(d->first_byte_timeout_ms);
    by[DLPI_S3_BY_DEAF] = dlpi_s3_least(by[DLPI_S3_BY_FIRST], 1000 * DLPI_S3_MS);
    by[DLPI_S3_BY_STALL] = dlpi_s3_ms(d->stall_timeout_ms);
    by[DLPI_S3_BY_DRAIN] = dlpi_s3_least(by[DLPI_S3_BY_STALL], 3000 * DLPI_S3_MS);
    by[DLPI_S3_BY_IDLE] = dlpi_s3_ms(d->idle_timeout_ms);
    by[DLPI_S3_BY_STILL] = dlpi_s3_ms(d->progress_timeout_ms);
    by[DLPI_S3_BY_WHOLE] =
        d->request_timeout_ms > 0 ? dlpi_s3_ms(d->request_timeout_ms) : UINT64_MAX;
    by[DLPI_S3_BY_LOOK] =
        dlpi_s3_least(by[DLPI_S3_BY_STALL], by[DLPI_S3_BY_STILL]) / 5 + DLPI_S3_MS;
}

/* Return the time after which a request without any progress ends. *field: the field that sets it.
   d: all numbers resolved. */
DLPI_COLD
static int32_t dlpi_s3_bound_ms(const dlp_s3_desc *d, const char **field) {
    bool whole = d->request_timeout_ms > 0 && d->request_timeout_ms <= d->progress_timeout_ms;
    *field = whole ? "request_timeout_ms" : "progress_timeout_ms";
    return whole ? d->request_timeout_ms : d->progress_timeout_ms;
}

/* Begin a thread's patience. d: all numbers resolved, -1 for no limit and for no hedges. */
DLPI_COLD
static void dlpi_s3_patience_begin(dlpi_s3_patience *p, dlpi_s3_shared *shared,
                                   const dlp_s3_desc *d, uint64_t seed) {
    memset(p, 0, sizeof *p);
    p->shared = shared;
    p->backoff_ns = dlpi_s3_ms(d->backoff_ms);
    p->backoff_max_ns = dlpi_s3_ms(d->backoff_max_ms);
    dlpi_s3_deadlines(p->by, d);
    p->random = seed ? seed : 1;
    p->limit = p->full = (uint64_t)d->max_requests << 10;
    p->retry_tokens = d->retry_tokens;
    p->max_attempts = d->max_attempts;
    p->hedge_percent = d->hedge_percent > 0 ? d->hedge_percent : 0;
    p->hedges = DLPI_S3_HEDGE_FIRST * 100;
    for (unsigned i = 0; i < DLPI_S3_CLASSES; i++) p->times[i].factor = DLPI_S3_FACTOR_FIRST;
}

/* ---- what went wrong, and what to do ---- */

enum {
    DLPI_S3_GIVE_UP,
    DLPI_S3_RETRY,
    DLPI_S3_REPLAY,       /* free, at once, on a new connection: the idle one had been closed */
    DLPI_S3_OTHER_REGION, /* the answer tells which */
    DLPI_S3_REDIRECT,     /* to its Location */
    DLPI_S3_SKEW,         /* with the server's clock */
    DLPI_S3_REFRESH,      /* with new credentials */
    DLPI_S3_RESTART       /* from the object's beginning: it has changed */
};
enum {
    DLPI_S3_T_ANSWER, /* a whole answer, other than what was asked for */
    DLPI_S3_T_RESOLVE,
    DLPI_S3_T_CONNECT,
    DLPI_S3_T_TLS,
    DLPI_S3_T_TIMEOUT, /* to connect, to the first byte, or inside a body */
    DLPI_S3_T_BROKEN,  /* ended, reset, in head or body */
    DLPI_S3_T_BAD,     /* not HTTP */
    DLPI_S3_T_SHORT,   /* of the wrong length or range */
    DLPI_S3_T_CHANGED, /* a later answer for the same object has another ETag, or none */
    DLPI_S3_T_OTHER,   /* it is not the version that the user's If-Match names */
    DLPI_S3_T_SUM,     /* the bytes of an object do not have its checksum */
    DLPI_S3_T_FAILURE  /* in a rule: any but an answer */
};

typedef struct dlpi_s3_trouble {
    int32_t what, status, errnum, method;
    bool reused;  /* the connection had been idle */
    bool began;   /* a byte of the answer had come */
    bool resumed; /* If-Match was ours, not the user's */
    bool has_region, has_location;
    bool refreshable;    /* credentials are not fixed ones */
    int64_t skew_s;      /* the answer's Date less the clock that signed; 0: not known */
    const char *s3_code; /* "" or NULL: none; an answer to HEAD has no body to tell it */
} dlpi_s3_trouble;

/* How often a request was begun again for each reason but plain failure: none without end. */
typedef struct dlpi_s3_tries {
    uint8_t replays, regions, redirects, skews, refreshes, restarts, wrong, names, sums;
} dlpi_s3_tries;

/* True if an answer tells that there are too many requests. Codes: AWS' SDK reference, "Retry
   behavior"; SlowDownRead and -Write are MinIO's. */
DLPI_COLD
static bool dlpi_s3_is_throttle(int status, const char *s3_code) {
    return status == 503 || status == 429 ||
           dlpi_s3_listed(" SlowDown SlowDownRead SlowDownWrite Throttling ThrottlingException"
                          " ThrottledException RequestThrottled RequestThrottledException"
                          " TooManyRequests TooManyRequestsException RequestLimitExceeded"
                          " BandwidthLimitExceeded LimitExceededException"
                          " ProvisionedThroughputExceededException EC2ThrottledException ",
                          s3_code);
}

enum { /* facts about trouble */
       DLPI_S3_IF_ANY = 0,
       DLPI_S3_IF_UNTRUSTED = 1, /* a certificate is refused */
       DLPI_S3_IF_STAYS = 2,     /* an errno that another attempt does not change */
       DLPI_S3_IF_NO_NAME = 4,   /* the resolver is sure of that */
       DLPI_S3_IF_IDLE = 8,      /* the connection had been idle, and no byte came */
       DLPI_S3_IF_OURS = 16,     /* the If-Match was ours */
       DLPI_S3_IF_REGION = 32,   /* the answer names another region, */
       DLPI_S3_IF_PLACE = 64,    /* or a Location */
       DLPI_S3_IF_KEYS = 128,    /* credentials can be fetched again */
       DLPI_S3_IF_CLOCK = 256,   /* the clocks are 4 minutes apart */
       DLPI_S3_IF_BARE = 512,    /* the server tells no code */
       DLPI_S3_IF_CROWD = 1024   /* it is throttled */
};

/* Return the facts (DLPI_S3_IF_*) that are true of a trouble. The rules ask for them. */
DLPI_COLD
static unsigned dlpi_s3_facts(const dlpi_s3_trouble *t) {
    int e = t->errnum;
    unsigned facts = e == EAGAIN ? 0u : DLPI_S3_IF_NO_NAME;
    if (e == EKEYREJECTED) facts |= DLPI_S3_IF_UNTRUSTED;
    if (e == EACCES || e == EPERM || e == EAFNOSUPPORT || e == EPROTONOSUPPORT || e == EINVAL)
        facts |= DLPI_S3_IF_STAYS;
    if (t->reused && !t->began) facts |= DLPI_S3_IF_IDLE;
    if (t->resumed) facts |= DLPI_S3_IF_OURS;
    if (t->has_region) facts |= DLPI_S3_IF_REGION;
    if (t->has_location) facts |= DLPI_S3_IF_PLACE;
    if (t->refreshable) facts |= DLPI_S3_IF_KEYS;
    if (t->skew_s > 240 || t->skew_s < -240) facts |= DLPI_S3_IF_CLOCK;
    if (!t->s3_code || !t->s3_code[0]) facts |= DLPI_S3_IF_BARE;
    if (dlpi_s3_is_throttle(t->status, t->s3_code)) facts |= DLPI_S3_IF_CROWD;
    return facts;
}

/* ONE TABLE of what is sent again. The first rule that fits is followed. A rule that has been
   followed "most" times in one request ends it, or, if "most" is below 0, is passed over from then
   on.

     verdict       sent again                 what ends it              what counts from the start
     RETRY         after a pause of           max_attempts; the         attempts, if the range has
                   backoff_ms * 2^n, or       deadlines STILL, WHOLE    got on and keeps its bytes;
                   Retry-After if longer                                STILL, by each new byte
     REPLAY        at once, new connection    most, then RETRY          nothing
     OTHER_REGION  at once, in that region    most                      nothing; the client keeps it
     REDIRECT      at once, at the Location   most                      nothing
     SKEW          at once, by that clock     most                      nothing; the client keeps it
     REFRESH       when others are fetched    most                      nothing
     RESTART       at once, from byte 0       most                      nothing
     slow body     at once, new connection    DLPI_S3_MOVES_MOST        nothing (dlpi_s3_slow)
     hedge         beside the first           hedge_percent             see Hedges */
typedef struct dlpi_s3_rule {
    int16_t what;           /* DLPI_S3_T_* */
    uint16_t facts;         /* DLPI_S3_IF_*, all of which must hold */
    const char *status;     /* NULL: any; else each with blanks around it */
    const char *codes;      /* the same */
    int16_t verdict, count; /* count: which of dlpi_s3_tries; -1: without end */
    int16_t most;
} dlpi_s3_rule;

#define DLPI_S3_FAILED(what, facts, verdict, ...) \
    { DLPI_S3_T_##what, DLPI_S3_IF_##facts, NULL, NULL, DLPI_S3_##verdict, __VA_ARGS__ }
#define DLPI_S3_TOLD(status, codes, facts, verdict, ...) \
    { DLPI_S3_T_ANSWER, DLPI_S3_IF_##facts, status, codes, DLPI_S3_##verdict, __VA_ARGS__ }
#define DLPI_S3_TRIES(field, most) (int16_t) offsetof(dlpi_s3_tries, field), most
#define DLPI_S3_ALWAYS -1, 0
#define DLPI_S3_MOVED " 301 302 307 308 "
#define DLPI_S3_BARRED " 400 401 403 "

static const dlpi_s3_rule dlpi_s3_rules[] = {
    DLPI_S3_FAILED(FAILURE, UNTRUSTED, GIVE_UP, DLPI_S3_ALWAYS),
    DLPI_S3_FAILED(RESOLVE, NO_NAME, RETRY, DLPI_S3_TRIES(names, 2)),
    DLPI_S3_FAILED(CONNECT, STAYS, GIVE_UP, DLPI_S3_ALWAYS),
    DLPI_S3_FAILED(BROKEN, IDLE, REPLAY, DLPI_S3_TRIES(replays, -3)),
    /* A damaged answer may come once or twice, a wrong server comes always. */
    DLPI_S3_FAILED(BAD, ANY, RETRY, DLPI_S3_TRIES(wrong, 2)),
    DLPI_S3_FAILED(SHORT, ANY, RETRY, DLPI_S3_TRIES(wrong, 2)),
    DLPI_S3_FAILED(CHANGED, ANY, RESTART, DLPI_S3_TRIES(restarts, 3)),
    DLPI_S3_FAILED(OTHER, ANY, GIVE_UP, DLPI_S3_ALWAYS),
    DLPI_S3_FAILED(SUM, ANY, RESTART, DLPI_S3_TRIES(sums, 1)),
    DLPI_S3_FAILED(FAILURE, ANY, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(NULL, NULL, CROWD, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(DLPI_S3_MOVED, NULL, REGION, OTHER_REGION, DLPI_S3_TRIES(regions, -2)),
    DLPI_S3_TOLD(DLPI_S3_MOVED, NULL, PLACE, REDIRECT, DLPI_S3_TRIES(redirects, 5)),
    DLPI_S3_TOLD(
        DLPI_S3_BARRED,
        " RequestTimeout RequestTimeoutException PriorRequestNotComplete IDPCommunicationError ",
        ANY, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(DLPI_S3_BARRED, " RequestTimeTooSkewed RequestInTheFuture RequestExpired ", ANY,
                 SKEW, DLPI_S3_TRIES(skews, 2)),
    DLPI_S3_TOLD(DLPI_S3_BARRED, NULL, CLOCK, SKEW, DLPI_S3_TRIES(skews, 2)),
    DLPI_S3_TOLD(DLPI_S3_BARRED, NULL, REGION, OTHER_REGION, DLPI_S3_TRIES(regions, 2)),
    DLPI_S3_TOLD(
        DLPI_S3_BARRED,
        " ExpiredToken ExpiredTokenException InvalidToken TokenRefreshRequired InvalidAccessKeyId ",
        KEYS, REFRESH, DLPI_S3_TRIES(refreshes, 2)),
    DLPI_S3_TOLD(" 401 ", NULL, KEYS, REFRESH, DLPI_S3_TRIES(refreshes, 2)),
    DLPI_S3_TOLD(" 400 ", NULL, KEYS | DLPI_S3_IF_BARE, REFRESH, DLPI_S3_TRIES(refreshes, 2)),
    /* 499: nginx, whose client had given up; from 520 on: Cloudflare, of servers behind it. */
    DLPI_S3_TOLD(" 408 499 500 502 504 520 521 522 523 524 529 530 ", NULL, ANY, RETRY,
                 DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(" 409 ", " OperationAborted ConditionalRequestConflict ", ANY, RETRY,
                 DLPI_S3_ALWAYS),
    /* A document in place of the object. */
    DLPI_S3_TOLD(" 200 ", " InternalError ServiceUnavailable ", ANY, RETRY, DLPI_S3_ALWAYS),
    DLPI_S3_TOLD(" 200 ", NULL, ANY, RETRY, DLPI_S3_TRIES(wrong, 2)),
    /* 416: some servers look at the range before they look at If-Match. */
    DLPI_S3_TOLD(" 412 416 ", NULL, OURS, RESTART, DLPI_S3_TRIES(restarts, 3)),
    DLPI_S3_TOLD(NULL, NULL, ANY, GIVE_UP, DLPI_S3_ALWAYS),
};

/* True if a rule is for this trouble. facts: DLPI_S3_IF_* of the trouble. */
DLPI_COLD
static bool dlpi_s3_rule_fits(const dlpi_s3_rule *rule, const dlpi_s3_trouble *t, unsigned facts) {
    char status[16];
    if (rule->what == DLPI_S3_T_FAILURE ? t->what == DLPI_S3_T_ANSWER : t->what != rule->what)
        return false;
    if ((facts & rule->facts) != rule->facts) return false;
    snprintf(status, sizeof status, "%d", (int)t->status);
    return (!rule->status || dlpi_s3_listed(rule->status, status)) &&
           (!rule->codes || dlpi_s3_listed(rule->codes, t->s3_code));
}

/* Return what to do about trouble: DLPI_S3_GIVE_UP, DLPI_S3_RETRY.. Only tries is changed, which
   counts what has a bound of its own; dlpi_s3_retry_take tells whether a RETRY may still be had. */
DLPI_COLD
static int dlpi_s3_classify(const dlpi_s3_trouble *t, dlpi_s3_tries *tries) {
    unsigned facts = dlpi_s3_facts(t);
    for (const dlpi_s3_rule *rule = dlpi_s3_rules;; rule++) { /* the last one fits all */
        uint8_t *count = rule->count < 0 ? NULL : (uint8_t *)tries + rule->count;
        if (!dlpi_s3_rule_fits(rule, t, facts)) continue;
        if (count && *count >= abs(rule->most) && rule->most < 0) continue;
        if (count && *count >= rule->most && rule->most > 0) return DLPI_S3_GIVE_UP;
        if (count) ++*count;
        return rule->verdict;
    }
}

/* ---- retries ---- */

/* Return a pause of first_ns * 2^n (n from 1), at most most_ns, or down to half of that. */
DLPI_COLD
static uint64_t dlpi_s3_pause_ns(uint64_t first_ns, uint64_t most_ns, int n, uint64_t *random) {
    uint64_t pause = first_ns;
    while (n-- > 0 && pause < most_ns) pause *= 2;
    pause = dlpi_s3_least(pause, most_ns);
    return pause - dlpi_s3_random(random) % (pause / 2 + 1);
}

DLPI_COLD
static uint64_t dlpi_s3_backoff(dlpi_s3_patience *p, int n) {
    return dlpi_s3_pause_ns(p->backoff_ns, p->backoff_max_ns, n, &p->random);
}

/* Take a retry from the bucket. Returns false if it is empty: then the pause is the longest. */
DLPI_COLD
static bool dlpi_s3_token_take(dlpi_s3_patience *p) {
    if (p->retry_tokens < 0 || (int64_t)DLPI_ADD_RLX(&p->shared->ahead, 1u) < p->retry_tokens)
        return true;
    DLPI_ADD_RLX(&p->shared->ahead, (uint64_t)-1);
    return false;
}

/* Take one more attempt. attempts: how many failed one after the other, 1 or more; retry_after_s:
   what the answer asked for, or -1. Returns true with *wait_ns, the pause before it; or false with
   *why if there is no attempt left. */
DLPI_COLD
static bool dlpi_s3_retry_take(dlpi_s3_patience *p, int attempts, int64_t retry_after_s,
                               uint64_t *wait_ns, const char **why) {
    if (p->max_attempts >= 0 && attempts >= p->max_attempts) {
        *why = "after as many attempts as max_attempts allows";
        return false;
    }
    *wait_ns = dlpi_s3_backoff(p, dlpi_s3_token_take(p) ? attempts : INT32_MAX);
    if (retry_after_s > 0)
        *wait_ns += (uint64_t)(retry_after_s < 3600 ? retry_after_s : 3600) * 1000 * DLPI_S3_MS;
    return true;
}

/* ---- whether the server is away ---- */

#define DLPI_S3_AWAY_FEW 16u             /* failures that are told one by one */
#define DLPI_S3_AWAY_NS 1000000000u      /* what is shorter is not told */
#define DLPI_S3_AWAY_TELL_NS 5000000000u /* and then again */
#define DLPI_S3_AWAY_LOOK_NS 100000000u  /* between two looks whether it is back */
#define DLPI_S3_WAKE_NS 300000000u       /* over which those that waited are spread */

/* Return for how many ns the server has been away; 0: it is not. */
DLPI_COLD
static uint64_t dlpi_s3_away_for(const dlpi_s3_shared *s, uint64_t now_ns) {
    uint64_t since = DLPI_LOAD_RLX(&s->away_ns); /* S9 */
    return since && now_ns > since ? now_ns - since : 0;
}

enum { DLPI_S3_TELL_IT = 0, DLPI_S3_TELL_NOTHING, DLPI_S3_TELL_AWAY };

/* Note that a request that has waited since since_ns has failed, and will be tried again. Returns
   what to tell the log: DLPI_S3_TELL_IT, DLPI_S3_TELL_AWAY or DLPI_S3_TELL_NOTHING. */
DLPI_COLD
static int dlpi_s3_away(dlpi_s3_shared *s, uint64_t since_ns, uint64_t now_ns) {
    uint64_t none = 0, told = DLPI_LOAD_RLX(&s->told_ns); /* S9 */
    uint64_t fails = DLPI_ADD_RLX(&s->fails, 1u);         /* S9 */
    DLPI_CAS_SEQ(&s->away_ns, &none, since_ns);           /* S9 */
    if (fails < DLPI_S3_AWAY_FEW) return DLPI_S3_TELL_IT;
    if (dlpi_s3_away_for(s, now_ns) < DLPI_S3_AWAY_NS ||
        (told && now_ns < told + DLPI_S3_AWAY_TELL_NS))
        return DLPI_S3_TELL_NOTHING;
    if (!DLPI_CAS_SEQ(&s->told_ns, &told, now_ns)) return DLPI_S3_TELL_NOTHING; /* S9, by one */
    return DLPI_S3_TELL_AWAY;
}

/* Note an answer. Returns for how many ns there was none, if the log was told of that; else 0. */
DLPI_COLD
static uint64_t dlpi_s3_back(dlpi_s3_shared *s, uint64_t now_ns) {
    uint64_t since = DLPI_LOAD_RLX(&s->away_ns); /* S9 */
    if (since == 0) return 0;
    since = DLPI_XCHG_SEQ(&s->away_ns, 0u); /* S9, by one */
    DLPI_STORE_RLX(&s->fails, 0u);          /* S9 */
    if (since && now_ns > since + DLPI_S3_AWAY_NS) DLPI_STORE_RLX(&s->back_ns, now_ns); /* S9 */
    if (since == 0 || DLPI_XCHG_SEQ(&s->told_ns, 0u) == 0) return 0;                    /* S9 */
    return now_ns > since ? now_ns - since : 1;
}

/* ---- throttling ---- */

DLPI_COLD
static bool dlpi_s3_throttled(const dlpi_s3_patience *p, uint64_t now_ns) {
    return now_ns < p->throttled_until_ns;
}

DLPI_COLD
static uint64_t dlpi_s3_period(const dlpi_s3_patience *p) { return 4 * p->backoff_ns; }

/* Return the share of throttled answers above which there are too many. */
DLPI_COLD
static uint32_t dlpi_s3_share_most(const dlpi_s3_patience *p) {
    return (p->limit == p->full ? DLPI_S3_SHARE / 4 : DLPI_S3_SHARE / 6) + p->by_chance;
}

/* Judge, when enough answers have come after a cut, whether it has helped. If not, undo it. */
DLPI_COLD
static void dlpi_s3_cut_judge(dlpi_s3_patience *p) {
    double s = p->share_cut, all = DLPI_S3_SHARE, fewer = (double)p->gap_cut_ns / (double)p->gap_ns;
    double helped = all - (all - s) / fewer; /* what the share is then */
    if (helped < 0) helped = 0;
    if (fewer < 0.85 && p->share < DLPI_S3_SHARE / 2 && p->share > (s + helped) / 2) {
        p->by_chance = p->share;
        p->chance_until_ns = p->answered_ns + 16 * dlpi_s3_period(p);
        p->limit = p->uncut;
    }
    p->share_cut = 0;
}

/* Note that an answer came, for the mean time between answers. */
DLPI_COLD
static void dlpi_s3_gap(dlpi_s3_patience *p, uint64_t now_ns) {
    uint64_t gap = now_ns - p->answered_ns, most = dlpi_s3_period(p) / 4;
    p->answered_ns = now_ns;
    if (gap > most) gap = most; /* nobody asked, or nobody looked */
    p->gap_ns += gap / 64;
    p->gap_ns -= p->gap_ns / 64;
}

/* Cut the number of requests in flight, if the last cut is a period ago. */
DLPI_COLD
static void dlpi_s3_cut(dlpi_s3_patience *p, uint64_t now_ns) {
    uint64_t period = dlpi_s3_period(p), floor = p->full / 8 > 1024 ? p->full / 8 : 1024;
    p->throttled_until_ns = now_ns + period;
    if (now_ns < p->next_cut_ns || (p->share_cut && p->share < DLPI_S3_SHARE / 2)) return;
    p->next_cut_ns = now_ns + period;
    p->share_cut = p->share;
    p->gap_cut_ns = p->gap_ns;
    p->since_cut = 0;
    p->uncut = p->limit;
    if (!p->cutting) p->half = p->limit / 2;
    p->cutting = true;
    p->limit = p->limit * 7 / 10;
    if (p->limit < floor) p->limit = floor;
}

/* Let there be more requests in flight, because a good answer came. */
DLPI_COLD
static void dlpi_s3_rise(dlpi_s3_patience *p, uint64_t now_ns) {
    uint64_t period = dlpi_s3_period(p), passed = now_ns - p->risen_ns, more;
    p->risen_ns = now_ns;
    if (p->limit == p->full || now_ns < p->throttled_until_ns) return;
    p->cutting = false;
    if (passed > 5 * period) passed = 5 * period;
    more = p->limit < p->half ? 1024 : p->full * passed / (32 * period);
    if (more == 0) p->risen_ns = now_ns - passed; /* until it is something */
    p->limit = p->limit + more < p->full ? p->limit + more : p->full;
}

/* Note a whole answer. throttled: it says so; ok: it ended a request of the user's well. */
DLPI_COLD
static void dlpi_s3_answered(dlpi_s3_patience *p, uint64_t now_ns, bool throttled, bool ok) {
    dlpi_s3_gap(p, now_ns);
    p->share += (throttled ? DLPI_S3_SHARE / 64 : 0) - p->share / 64;
    if (now_ns >= p->chance_until_ns) p->by_chance = 0;
    if (p->share_cut && ++p->since_cut == DLPI_S3_SINCE_CUT) dlpi_s3_cut_judge(p);
    if (throttled) {
        if (p->share > dlpi_s3_share_most(p)) dlpi_s3_cut(p, now_ns);
        return;
    }
    dlpi_s3_rise(p, now_ns);
    if (ok && (int64_t)DLPI_LOAD_RLX(&p->shared->ahead) > 0)
        DLPI_ADD_RLX(&p->shared->ahead, (uint64_t)-1);
}

/* Return how many requests may be on the wire, hedges not counted. */
DLPI_COLD
static int32_t dlpi_s3_limit(const dlpi_s3_patience *p) { return (int32_t)(p->limit >> 10); }

/* ---- hedges ---- */

DLPI_COLD
static unsigned dlpi_s3_class(uint64_t bytes) {
    if (bytes == 0 || bytes > 4u << 20) return 3;
    return bytes <= 16u << 10 ? 0 : bytes <= 256u << 10 ? 1 : 2;
}

/* Return the number of a time's bucket. Each doubling of the time has 8 buckets, from 8 us on. */
DLPI_COLD
static unsigned dlpi_s3_bucket(uint64_t ns) {
    uint64_t us = ns / 1000;
    unsigned shift;
    if (us < 8) return (unsigned)us;
    if (us >= 1u << 24) return DLPI_S3_BUCKETS - 1;
    shift = 60u - DLPI_CLZ(us);
    return 8 * shift + (unsigned)(us >> shift);
}

/* Return the least time, in ns, that is too long for bucket i. */
DLPI_COLD
static uint64_t dlpi_s3_bucket_end(unsigned i) {
    if (i < 8) return (i + 1) * 1000ull;
    return (uint64_t)(i % 8 + 9) * 1000 << (i / 8 - 1);
}

DLPI_COLD
static void dlpi_s3_halve(dlpi_s3_times *t) {
    if (t->factor > DLPI_S3_FACTOR_FIRST) t->factor -= (t->factor - DLPI_S3_FACTOR_FIRST + 1) / 2;
    t->total = 0;
    for (unsigned i = 0; i < DLPI_S3_BUCKETS; i++) t->total += t->bucket[i] /= 2;
}

DLPI_COLD
static void dlpi_s3_times_add(dlpi_s3_times *t, uint64_t ns) {
    t->bucket[dlpi_s3_bucket(ns)]++;
    if (++t->total >= DLPI_S3_SAMPLES) dlpi_s3_halve(t);
}

/* Note that a valid head came ns after a request for so many bytes (0: not known) was sent. */
DLPI_COLD
static void dlpi_s3_first_byte(dlpi_s3_patience *p, uint64_t bytes, uint64_t ns) {
    dlpi_s3_times_add(&p->times[dlpi_s3_class(bytes)], ns);
}

/* Return the time that percent of the samples do not exceed. There is at least one sample. */
DLPI_COLD
static uint64_t dlpi_s3_percentile(const dlpi_s3_times *t, unsigned percent) {
    uint32_t want = (t->total * percent + 99) / 100, sum = 0;
    unsigned i = 0;
    for (; i < DLPI_S3_BUCKETS - 1; i++) {
        sum += t->bucket[i];
        if (sum >= want) break;
    }
    return dlpi_s3_bucket_end(i);
}

/* Note that a request went out that is no hedge. */
DLPI_COLD
static void dlpi_s3_sent(dlpi_s3_patience *p) {
    p->hedges += (uint64_t)p->hedge_percent;
    if (p->hedges > DLPI_S3_HEDGE_SAVED * 100) p->hedges = DLPI_S3_HEDGE_SAVED * 100;
}

/* Return for how many ns a request for so many bytes waits for its first byte before it is hedged;
   UINT64_MAX: for ever. This changes as answers come. */
DLPI_COLD
static uint64_t dlpi_s3_hedge_after(const dlpi_s3_patience *p, uint64_t now_ns, uint64_t bytes) {
    const dlpi_s3_times *t = &p->times[dlpi_s3_class(bytes)];
    uint64_t ns;
    if (!p->hedge_percent || t->total < DLPI_S3_SAMPLES_FEWEST || dlpi_s3_throttled(p, now_ns))
        return UINT64_MAX;
    ns = dlpi_s3_percentile(t, 95) * t->factor / 16;
    ns += ns * 2 * DLPI_S3_SAMPLES_FEWEST / t->total; /* few samples: their p95 may be off */
    if (ns < DLPI_S3_MS) ns = DLPI_S3_MS;
    return ns < p->by[DLPI_S3_BY_FIRST] ? ns : UINT64_MAX;
}

/* Take a hedge from the budget. Returns false if there is none. */
DLPI_COLD
static bool dlpi_s3_hedge_take(dlpi_s3_patience *p, uint64_t now_ns) {
    if (!p->hedge_percent || p->hedges < 100 || dlpi_s3_throttled(p, now_ns)) return false;
    p->hedges -= 100;
    return true;
}

/* Note the end of a hedge. won: its head came first, when the first request had waited loser_ns. */
DLPI_COLD
static void dlpi_s3_hedge_over(dlpi_s3_patience *p, uint64_t bytes, bool won, uint64_t loser_ns) {
    dlpi_s3_times *t = &p->times[dlpi_s3_class(bytes)];
    if (won) {
        dlpi_s3_first_byte(p, bytes, loser_ns);
        if (t->factor > DLPI_S3_FACTOR_LEAST) t->factor--;
    } else if (t->factor < DLPI_S3_FACTOR_MOST) {
        t->factor += 2;
    }
}

/* ---- slow bodies ---- */

/* How a body gets on. */
typedef struct dlpi_s3_body_pace {
    uint64_t size;    /* of the range, about */
    uint64_t got, ns; /* bytes, and the time that they took */
    uint64_t left;    /* bytes that are to come */
    uint64_t afresh;  /* bytes that would have to come over another connection */
    unsigned moves;   /* how often the range has gone on over another one */
} dlpi_s3_body_pace;

DLPI_COLD
static double dlpi_s3_pace_ns(const dlpi_s3_body_pace *b) {
    return (double)b->ns * DLPI_S3_PACE_BYTES / (double)(b->got ? b->got : 1);
}

/* Record how fast a body, or a stretch of it, has come. */
DLPI_COLD
static void dlpi_s3_paced(dlpi_s3_patience *p, const dlpi_s3_body_pace *b) {
    double ns = dlpi_s3_pace_ns(b);
    dlpi_s3_times_add(&p->paces[dlpi_s3_class(b->size)], ns < 1e12 ? (uint64_t)ns : UINT64_MAX);
}

/* True if the body should go on over another connection. */
DLPI_COLD
static bool dlpi_s3_slow(const dlpi_s3_patience *p, const dlpi_s3_body_pace *b) {
    const dlpi_s3_times *t = &p->paces[dlpi_s3_class(b->size)];
    uint64_t usual_ns = DLPI_S3_PACE_FIRST_NS;
    if (b->moves >= DLPI_S3_MOVES_MOST) return false;
    if (t->total >= DLPI_S3_SAMPLES_FEWEST) usual_ns = dlpi_s3_percentile(t, 75);
    if (usual_ns < DLPI_S3_PACE_LEAST_NS) usual_ns = DLPI_S3_PACE_LEAST_NS;
    return (double)b->left * dlpi_s3_pace_ns(b) >
           (double)b->afresh * (double)usual_ns * (double)(DLPI_S3_PACE_FACTOR << b->moves);
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-credentials  PROFILES, ROLES, METADATA SERVICES */

/* Two things: what was found once, when the client was opened (dlpi_s3_config: where to go, and
   from which source credentials come), and the credentials that are valid now (dlpi_s3_cred_cache).
   Both lie in the client's own mapping, which all its processes share and core dumps leave out. So
   do files, answers and tokens while they are read: in a mapping that is wiped before it goes.

   Locks of the credential cache are robust: a process killed while it holds one costs nothing. What
   it may have been writing is a slot that nobody reads, until one store of the version makes it the
   one that everybody reads. "fetching" is held through a whole fetch, so that one process asks for
   all; "looking" only for a copy. Readers that hold the current version take neither.

   label  where                              what it orders
   V1     cred_cache_publish stores the version   the slot's dates are there before its number
   V2     cred_cache_get loads it                 and are read after it; partner V1

   No message has more of a secret than whose it is: no value, no line of a file, no byte of an
   answer but its status and an error code made of letters. */

enum { /* sources, in the order in which they are asked; _FILE to _WEB are of one profile */
       DLPI_S3_NOBODY = 0, /* anonymous */
       DLPI_S3_GIVEN,      /* by the user */
       DLPI_S3_ENVIRONMENT,
       DLPI_S3_FILE, /* keys in a profile */
       DLPI_S3_PROCESS,
       DLPI_S3_WEB, /* STS, for a web identity's token; of the environment: before files */
       DLPI_S3_CONTAINER,
       DLPI_S3_MACHINE /* IMDSv2 */
};

enum {
    DLPI_S3_ROLES = 3,
    DLPI_S3_STS_MS = 10000,
    DLPI_S3_STS_ATTEMPTS = 3,
    DLPI_S3_PATIENCE_MS = 15000
};

/* A role that is assumed with the credentials before it, as a profile says. */
typedef struct dlpi_s3_role {
    int32_t duration_s; /* 0: not said */
    char profile[128];
    char arn[2049], session[65], external_id[1225]; /* external_id "": none */
} dlpi_s3_role;

/* A proxy. */
typedef struct dlpi_s3_proxy {
    char host[256]; /* "": none */
    uint16_t port;
    bool given;       /* by the desc: for all hosts */
    char header[768]; /* with user and password, a whole line; "": none */
} dlpi_s3_proxy;

typedef struct dlpi_s3_config {
    int32_t source;        /* DLPI_S3_NOBODY .. DLPI_S3_MACHINE: where credentials come from */
    int32_t timeout_ms;    /* of one attempt to fetch credentials */
    int32_t attempts;      /* attempts to fetch them from a service that is silent */
    int32_t patience_ms;   /* time for which a service that answers 429 or 5xx is asked again */
    int32_t pause_ms;      /* first pause between attempts; then doubled */
    int32_t pause_max_ms;  /* longest pause between attempts */
    int32_t named_by_user; /* 1: the desc names the profile, so the profile must exist */
    int32_t named;         /* 1: the desc or the environment names the profile */
    int32_t style;         /* DLP_S3_STYLE_* that the profile asks for */
    int32_t max_attempts;  /* attempts of a request; -1: no setting says it */
    int32_t no_checksums;  /* 1: environment or profile say not to ask for checksums of bodies */
    int32_t fips, dualstack;
    char endpoint[512]; /* "": AWS */
    char region[64];
    char ca_file[1024]; /* "": the system's */
    char profile[128];
    char file[2][1024];           /* config, credentials; "": none */
    char base[128];               /* name of the profile that has the keys, or the process */
    char process[4096];           /* command of credential_process */
    char url[1024];               /* URL of STS, container or machine, by `source` */
    char token_file[1024];        /* file with the token: web identity, container */
    char role[2049], session[65]; /* role and session name: web identity */
    char sts[1024];               /* URL at which roles are assumed */
    int32_t n_roles;
    dlpi_s3_role roles[DLPI_S3_ROLES]; /* the last one is assumed first */
    dlpi_s3_proxy proxy[2];            /* proxies for http and https */
    char no_proxy[4096];               /* list of hosts that are reached without a proxy */
    char authorization[8192];          /* container: the token from the environment */
    dlpi_s3_credentials given;         /* the keys, if source is _GIVEN or _ENVIRONMENT */
    const dlp_s3_transport *tls;       /* set by the client, which owns it; NULL: no https */
    void (*log)(void *user, const char *line);
    void *log_user;
    int64_t (*clock)(void); /* Unix time */
} dlpi_s3_config;

typedef struct dlpi_s3_cred_cache {
    pthread_mutex_t fetching;
    pthread_mutex_t looking;
    uint64_t version;     /* slot[version % 2] has the newest credentials; 0: there are none yet */
    int64_t refresh_s[2]; /* Unix time from which new credentials are fetched, of each slot */
    int64_t retry_s;      /* Unix time before which no fetch is tried again after a failure */
    uint64_t random;
    uint32_t failures; /* failures since the last success */
    int32_t failed_code;
    char failed[256]; /* message of the last failure */
    dlpi_s3_credentials slot[2];
} dlpi_s3_cred_cache;

/* How long to wait, and a word that ends the waiting (NULL: none). */
typedef struct dlpi_s3_wait {
    uint64_t until_ns;
    const uint32_t *stop;
} dlpi_s3_wait;

DLPI_COLD
static const char *dlpi_s3_source_name(int source) {
    static const char *const names[] = {"anonymous", "given by the program", "environment",
                                        "profile",   "credential_process",   "web identity",
                                        "container", "instance metadata"};
    return names[source];
}

/* Return where the credentials come from in the end, for messages. */
DLPI_COLD
static const char *dlpi_s3_config_from(const dlpi_s3_config *c) {
    return c->n_roles ? "assumed role" : dlpi_s3_source_name(c->source);
}

/* True if there are no newer credentials to fetch. */
DLPI_COLD
static bool dlpi_s3_config_fixed(const dlpi_s3_config *c) {
    return !c->n_roles && c->source <= DLPI_S3_ENVIRONMENT;
}

DLPI_COLD
static void dlpi_s3_config_log(const dlpi_s3_config *c, const char *line) {
    if (c->log) c->log(c->log_user, line);
}

/* Return the value of a variable. It is NULL if the variable is unset or empty, or if the program
   has more rights than the user who started it (setuid) and wrote the variable: secure_getenv. */
DLPI_COLD
static const char *dlpi_s3_env(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

/* True if a text is not empty, and printable without blanks, as credentials in heads must be. */
DLPI_COLD
static bool dlpi_s3_is_graphic(const char *s) {
    const char *at = s;
    while (*at > ' ' && *at < 127) at++;
    return at != s && !*at;
}

/* Wipe credentials. Not inline: gcc 12 with sanitizers would take the struct for its first member,
   and warn. */
DLPI_COLD
DLPI_NOINLINE static void dlpi_s3_who_wipe(dlpi_s3_credentials *who) {
    dlpi_s3_wipe(who, sizeof *who);
}

/* Copy id, secret and token (may be NULL) into who. from: where they came from, for messages.
   Returns DLP_OK, or code if they are not valid. */
DLPI_COLD
static int dlpi_s3_who_set(dlpi_s3_credentials *who, const char *access, const char *secret,
                           const char *token, const char *from, int code, dlp_s3_error *err) {
    const char *wrong = NULL;
    if (!access || !*access)
        wrong = "a secret key without an access key; set both";
    else if (!secret || !*secret)
        wrong = "an access key without a secret key; set both";
    else if (!dlpi_s3_is_graphic(access) || !dlpi_s3_copy(who->access, sizeof who->access, access))
        wrong = "an access key that is too long, or has blanks or odd characters; copy it again";
    else if (!dlpi_s3_is_graphic(secret) || !dlpi_s3_copy(who->secret, sizeof who->secret, secret))
        wrong = "a secret key that is too long, or has blanks or odd characters; copy it again";
    else if (token && *token &&
             (!dlpi_s3_is_graphic(token) || !dlpi_s3_copy(who->token, sizeof who->token, token)))
        wrong = "a session token that is too long, or has blanks or odd characters; copy it again";
    if (!wrong) return DLP_OK;
    dlpi_s3_who_wipe(who);
    return dlpi_s3_set_error(err, code, 0, "credentials: %s: %s", from, wrong);
}

/* ---- memory and files that may hold secrets ---- */

DLPI_COLD
static void *dlpi_s3_private_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    madvise(at, bytes, MADV_DONTDUMP); /* where it fails, a core dump is a little larger */
    return at;
}

/* Wipe and unmap memory (may be NULL). used: bytes from the front that may have been written. */
DLPI_COLD
static void dlpi_s3_private_unmap(void *at, size_t bytes, size_t used) {
    if (!at) return;
    dlpi_s3_wipe(at, used);
    munmap(at, bytes);
}

/* Read a file whole, and terminate it. Returns 0 or an errno: EFBIG for more than size - 1 bytes,
   EILSEQ for one that is not text. */
DLPI_COLD
static int dlpi_s3_file_read(const char *path, char *to, size_t size, size_t *n) {
    int fd = dlpi_fd_above(open(path, O_RDONLY | O_CLOEXEC)), e = 0;
    size_t have = 0;
    ssize_t got = 1;
    if (fd < 0) return errno;
    while (got != 0 && have < size) {
        got = read(fd, to + have, size - have);
        if (got < 0 && errno != EINTR) {
            e = errno;
            break;
        }
        if (got > 0) have += (size_t)got;
    }
    close(fd);
    if (!e && have == size) e = EFBIG;
    if (!e && memchr(to, '\0', have)) e = EILSEQ;
    if (e) {
        dlpi_s3_wipe(to, have);
        return e;
    }
    to[have] = '\0';
    *n = have;
    return 0;
}

/* ---- proxies ----
   A proxy carries connections of https to their servers (CONNECT), and requests of http, whose line
   then has the whole URL. Which proxy is for what is settled by dlp_s3_open. Its user and password
   are kept as the header that proxies want (Basic), and no message has them. */

/* Write the bytes of an address. Returns how many, or 0 if the text is none. */
DLPI_COLD
static size_t dlpi_s3_address_bytes(const char *text, uint8_t bytes[16]) {
    if (inet_pton(AF_INET, text, bytes) == 1) return 4;
    return inet_pton(AF_INET6, text, bytes) == 1 ? 16 : 0;
}

/* True if host is an address of a net, "10.0.0.0/8". */
DLPI_COLD
static bool dlpi_s3_net_has(const char *net, const char *host) {
    const char *slash = strchr(net, '/');
    uint8_t a[16], b[16];
    char first[64];
    size_t n, bits, digits = slash ? strlen(slash + 1) : 0;
    if (digits < 1 || digits > 3 || slash - net >= (int)sizeof first) return false;
    if (dlpi_s3_number(slash + 1, digits) < 0) return false;
    bits = (size_t)dlpi_s3_number(slash + 1, digits);
    snprintf(first, sizeof first, "%.*s", (int)(slash - net), net);
    n = dlpi_s3_address_bytes(first, a);
    if (n == 0 || n != dlpi_s3_address_bytes(host, b) || bits > 8 * n) return false;
    if (memcmp(a, b, bits / 8) != 0) return false;
    return bits % 8 == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8) == 0;
}

/* True if a word of NO_PROXY names an endpoint's host, or a domain or net that it is in. */
DLPI_COLD
static bool dlpi_s3_word_covers(const char *word, const dlpi_s3_endpoint *e) {
    char host[256];
    uint16_t port = e->port;
    size_t n = strlen(e->host), m;
    if (strcmp(word, "*") == 0 || strcasecmp(word, e->host) == 0) return true;
    if (dlpi_s3_net_has(word, e->host)) return true;
    if (*word == '*') word++;
    if (*word == '.') word++;
    if (dlpi_s3_authority(word, strlen(word), host, &port) || port != e->port) return false;
    m = strlen(host);
    if (n <= m) return strcmp(host, e->host) == 0;
    return e->host[n - m - 1] == '.' && strcmp(e->host + n - m, host) == 0;
}

/* True if a word of the list covers the endpoint, so that no proxy is used. Commas or blanks
   separate words. The list may be NULL. */
DLPI_COLD
static bool dlpi_s3_no_proxy(const char *list, const dlpi_s3_endpoint *e) {
    char word[300];
    while (list && *list) {
        size_t n = strcspn(list, ", \t");
        if (n && n < sizeof word) {
            snprintf(word, sizeof word, "%.*s", (int)n, list);
            if (dlpi_s3_word_covers(word, e)) return true;
        }
        list += n + (list[n] != '\0');
    }
    return false;
}

DLPI_COLD
static bool dlpi_s3_is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || dlpi_s3_net_has("127.0.0.0/8", host) ||
           dlpi_s3_net_has("::1/128", host);
}

/* Return the value of a variable, in small letters or in capitals, or NULL if neither is set. */
DLPI_COLD
static const char *dlpi_s3_setting(const char *lower, const char *capitals) {
    const char *value = secure_getenv(lower);
    return value ? value : secure_getenv(capitals);
}

/* Return the proxy that a variable (*name) names for a scheme; NULL or "" if there is none. */
DLPI_COLD
static const char *dlpi_s3_proxy_named(bool tls, const char **name) {
    const char *const names[] = {tls ? "https_proxy" : "http_proxy",
                                 tls ? "HTTPS_PROXY" : "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
    const char *value = NULL;
    for (int i = 0; i < 4 && !value; i++) value = secure_getenv(*name = names[i]);
    return value;
}

/* Refuse an endpoint of credentials that would be reached by a proxy. No message has its URL, which
   might hold a password. Returns DLP_OK or DLP_ERR_UNSUPPORTED. */
DLPI_COLD
static int dlpi_s3_proxy_beyond(const dlpi_s3_endpoint *e, dlp_s3_error *err) {
    const char *name, *value = dlpi_s3_proxy_named(e->tls != 0, &name);
    if (!value || !*value || dlpi_s3_is_loopback(e->host)) return DLP_OK;
    if (dlpi_s3_no_proxy(dlpi_s3_setting("no_proxy", "NO_PROXY"), e)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%s is set, but credentials are not fetched by a proxy; if %.100s can "
                             "be reached without one, add it to NO_PROXY",
                             name, e->host);
}

/* Append n bytes in base64, with padding. */
DLPI_COLD
static void dlpi_s3_base64(dlpi_s3_out *o, const char *from, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(uint8_t)from[i] << 16;
        if (i + 1 < n) v |= (uint32_t)(uint8_t)from[i + 1] << 8;
        if (i + 2 < n) v |= (uint8_t)from[i + 2];
        for (size_t k = 0; k < 4; k++)
            dlpi_s3_out_add(o, i + k > n ? "=" : &digits[v >> (18 - 6 * k) & 63], 1);
    }
}

/* Keep "user:password" as the header of a proxy. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_proxy_user(dlpi_s3_proxy *p, const char *at, size_t n) {
    char text[512];
    const char *colon = memchr(at, ':', n);
    size_t user_n = colon ? (size_t)(colon - at) : n;
    int64_t user = dlpi_s3_uri_decode(text, sizeof text - 1, at, user_n, false), word = 0;
    dlpi_s3_out o = {p->header, sizeof p->header, 0};
    if (user >= 0) text[user] = ':';
    if (user >= 0 && colon)
        word = dlpi_s3_uri_decode(text + user + 1, sizeof text - (size_t)user - 1, colon + 1,
                                  n - user_n - 1, false);
    if (user >= 0 && word >= 0) {
        dlpi_s3_out_adds(&o, "Proxy-Authorization: Basic ");
        dlpi_s3_base64(&o, text, (size_t)(user + 1 + word));
        dlpi_s3_out_adds(&o, "\r\n");
    }
    dlpi_s3_wipe(text, sizeof text);
    if (user < 0 || word < 0) return "its user and password are too long, or have a bad escape";
    return dlpi_s3_out_end(&o) ? NULL : "its user and password are too long";
}

/* Take a proxy's URL apart. Returns NULL or an error text, which has no part of the URL. */
DLPI_COLD
static const char *dlpi_s3_proxy_parse(dlpi_s3_proxy *p, const char *url) {
    const char *scheme = strstr(url, "://"), *at = scheme ? scheme + 3 : url, *user;
    const char *wrong;
    size_t n = strcspn(at, "/?#");
    if (scheme && strncasecmp(url, "http://", 7) != 0)
        return "only a proxy of http is supported: http://HOST:PORT";
    if (at[n + (at[n] == '/')]) return "something follows HOST:PORT (a '/' in a password is %2F)";
    memset(p, 0, sizeof *p);
    p->port = 80;
    user = memrchr(at, '@', n);
    wrong = user ? dlpi_s3_proxy_user(p, at, (size_t)(user - at)) : NULL;
    if (user) n -= (size_t)(user + 1 - at), at = user + 1;
    if (!wrong) wrong = dlpi_s3_authority(at, n, p->host, &p->port);
    if (wrong) dlpi_s3_wipe(p, sizeof *p);
    return wrong;
}

/* True if connections to a host go by the proxies of the environment. */
DLPI_COLD
static bool dlpi_s3_proxy_covers(const dlpi_s3_config *c, const char *host, uint16_t port) {
    dlpi_s3_endpoint e = {.port = port};
    dlpi_s3_copy(e.host, sizeof e.host, host);
    return !dlpi_s3_is_loopback(host) && !dlpi_s3_no_proxy(c->no_proxy, &e);
}

/* Return the proxy of a host, or NULL if there is none. */
DLPI_COLD
static const dlpi_s3_proxy *dlpi_s3_proxy_of(const dlpi_s3_config *c, const char *host,
                                             uint16_t port, bool tls) {
    const dlpi_s3_proxy *p = &c->proxy[tls];
    return p->host[0] && (p->given || dlpi_s3_proxy_covers(c, host, port)) ? p : NULL;
}

/* Find the proxies: the desc's is for all hosts; else the environment names them. Only a proxy that
   the endpoint needs must be in order. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_proxies_load(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_endpoint *e,
                                dlp_s3_error *err) {
    const char *none = dlpi_s3_setting("no_proxy", "NO_PROXY"), *name, *url, *wrong;
    if (none && !d->proxy && !dlpi_s3_copy(c->no_proxy, sizeof c->no_proxy, none))
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "NO_PROXY: must have at most %d bytes",
                                 (int)sizeof c->no_proxy - 1);
    for (int tls = 0; tls < 2; tls++) {
        name = "proxy";
        url = d->proxy ? d->proxy : dlpi_s3_proxy_named(tls != 0, &name);
        if (!url || !*url) continue;
        wrong = dlpi_s3_proxy_parse(&c->proxy[tls], url);
        c->proxy[tls].given = d->proxy != NULL;
        if (wrong && (d->proxy || (tls == e->tls && dlpi_s3_proxy_covers(c, e->host, e->port))))
            return dlpi_s3_set_error(err, d->proxy ? DLP_ERR_ARG : DLP_ERR_UNSUPPORTED, 0,
                                     "%s: %s; if %.100s can be reached without it, %s", name, wrong,
                                     e->host, d->proxy ? "give \"\"" : "add it to NO_PROXY");
    }
    return DLP_OK;
}

/* ---- profiles: the format that AWS' tools share ----
   A file is asked one question at a time, and read through for each: it is small, and read once.
   Sections are [profile NAME] (in the credentials file [NAME]), [default] and [services NAME]; of a
   setting that is there twice the last one counts. Indented lines continue a setting; below one
   without a value they are settings of their own, nested. A comment takes a whole line, or follows
   blanks. Source: the file format in AWS' SDK reference. */

typedef struct dlpi_s3_ini {
    const char *kind; /* "profile", "services"; NULL: sections are just names */
    const char *section;
    const char *name; /* NULL: only whether there is such a section */
    const char *sub;  /* NULL, or a setting nested below name */
    char *out;
    size_t size;
    bool strict_default;     /* there is a [profile default]: [default] says nothing */
    bool any, here;          /* a section was seen; it is the one */
    bool open, ours, nested; /* a setting may be continued; it is the one; its value was empty */
    bool found;
    bool cut; /* what was found is too long for out */
} dlpi_s3_ini;

DLPI_COLD
static bool dlpi_s3_same(const char *s, size_t n, const char *word) {
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

/* True if a header names the wanted section. The header "default" needs no word "profile" before
   it, unless strict_default is set. */
DLPI_COLD
static bool dlpi_s3_ini_is_section(const dlpi_s3_ini *q, const char *s, size_t n) {
    size_t k = q->kind ? strlen(q->kind) : 0;
    if (k && n > k && memcmp(s, q->kind, k) == 0 && dlpi_s3_is_blank(s[k])) {
        s += k;
        n -= k;
        dlpi_s3_trim(&s, &n);
    } else if (k && (q->strict_default || strcmp(q->kind, "profile") != 0 || n != 7 ||
                     memcmp(s, "default", 7) != 0)) {
        return false;
    }
    if (n > 1 && s[0] == '"' && s[n - 1] == '"') s++, n -= 2;
    return strlen(q->section) == n && memcmp(s, q->section, n) == 0;
}

/* Parse a line "[name]", perhaps with a comment. Returns -1 if it is no such line. */
DLPI_COLD
static int dlpi_s3_ini_header(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *end = memchr(s, ']', n), *inner = s + 1, *rest;
    size_t n_inner, n_rest;
    if (!end) return -1;
    n_inner = (size_t)(end - inner);
    rest = end + 1;
    n_rest = n - (size_t)(rest - s);
    dlpi_s3_trim(&inner, &n_inner);
    dlpi_s3_trim(&rest, &n_rest);
    if (n_inner == 0 || (n_rest && *rest != '#' && *rest != ';')) return -1;
    q->any = true;
    q->open = false;
    q->here = dlpi_s3_ini_is_section(q, inner, n_inner);
    if (q->here && !q->name) q->found = true;
    return 0;
}

/* Copy a value to the caller's room. If it does not fit, `cut` is set and nothing is copied. */
DLPI_COLD
static void dlpi_s3_ini_keep(dlpi_s3_ini *q, const char *s, size_t n) {
    q->found = true;
    q->cut = n >= q->size;
    if (q->cut) return;
    memcpy(q->out, s, n);
    q->out[n] = '\0';
}

/* Split "name = value". Returns false if there is no name, or no '='. */
DLPI_COLD
static bool dlpi_s3_ini_split(const char *s, size_t n, size_t *n_name, const char **value,
                              size_t *n_value) {
    const char *equals = memchr(s, '=', n);
    if (!equals) return false;
    *value = equals + 1;
    *n_value = n - (size_t)(equals + 1 - s);
    *n_name = (size_t)(equals - s);
    dlpi_s3_trim(&s, n_name);
    dlpi_s3_trim(value, n_value);
    return *n_name != 0;
}

/* Parse a line "name = value", where a comment may follow a blank. Returns -1 if it is no such
   line. */
DLPI_COLD
static int dlpi_s3_ini_setting(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *value;
    size_t n_name, n_value;
    if (!q->any) return -1;
    for (size_t i = 1; i < n; i++)
        if ((s[i] == '#' || s[i] == ';') && dlpi_s3_is_blank(s[i - 1])) n = i;
    if (!dlpi_s3_ini_split(s, n, &n_name, &value, &n_value)) return -1;
    q->open = true;
    q->nested = n_value == 0;
    q->ours = q->here && q->name && dlpi_s3_same(s, n_name, q->name);
    if (q->ours && !q->sub) dlpi_s3_ini_keep(q, value, n_value);
    return 0;
}

/* Parse an indented line, trimmed: it continues a setting. Returns -1 if it may not be here. */
DLPI_COLD
static int dlpi_s3_ini_more(dlpi_s3_ini *q, const char *s, size_t n) {
    const char *value;
    size_t n_name, n_value, have;
    if (!q->any || !q->open) return -1;
    if (q->nested) {
        if (!dlpi_s3_ini_split(s, n, &n_name, &value, &n_value)) return -1;
        if (q->ours && q->sub && dlpi_s3_same(s, n_name, q->sub))
            dlpi_s3_ini_keep(q, value, n_value);
    } else if (q->ours && !q->sub && !q->cut) {
        have = strlen(q->out);
        q->cut = have + 1 + n >= q->size;
        if (!q->cut) snprintf(q->out + have, q->size - have, "\n%.*s", (int)n, s);
    }
    return 0;
}

/* Parse one line: a comment, a header, a setting, or more of the setting above. Returns 0, or -1 if
   the line is none of these. */
DLPI_COLD
static int dlpi_s3_ini_line(dlpi_s3_ini *q, const char *s, size_t n) {
    bool indented = n && dlpi_s3_is_blank(*s);
    if (n && s[n - 1] == '\r') n--;
    dlpi_s3_trim(&s, &n);
    if (n == 0 || *s == '#' || *s == ';') return 0;
    if (indented) return dlpi_s3_ini_more(q, s, n);
    return *s == '[' ? dlpi_s3_ini_header(q, s, n) : dlpi_s3_ini_setting(q, s, n);
}

/* Ask a text. Returns 0, with q->found and q->cut, or the number of a line that makes no sense. */
DLPI_COLD
static int dlpi_s3_ini_ask(dlpi_s3_ini *q, const char *text, size_t n) {
    const char *at = text, *end = text + n, *stop;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) at += 3;
    for (int line = 1; at < end; line++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (dlpi_s3_ini_line(q, at, (size_t)(stop - at))) return line;
        at = stop + 1;
    }
    return 0;
}

/* ---- the two files ---- */

enum { DLPI_S3_FILE_MAX = 1 << 20 };

typedef struct dlpi_s3_profiles {
    const dlpi_s3_config *c;
    const char *profile; /* that is asked */
    char *text[2];       /* of c->file, in mappings of DLPI_S3_FILE_MAX; NULL: not there */
    size_t n[2];
    bool strict_default;
} dlpi_s3_profiles;

DLPI_COLD
static void dlpi_s3_profiles_close(dlpi_s3_profiles *p) {
    for (int i = 0; i < 2; i++) dlpi_s3_private_unmap(p->text[i], DLPI_S3_FILE_MAX, p->n[i]);
    memset(p, 0, sizeof *p);
}

/* Ask file i (0: config, 1: credentials). kind: "profile" or "services"; name NULL: only for the
   section. Returns 1: found, 0: not, or an error code. */
DLPI_COLD
static int dlpi_s3_profiles_ask(const dlpi_s3_profiles *p, int i, const char *kind,
                                const char *section, const char *name, const char *sub, char *out,
                                size_t size, dlp_s3_error *err) {
    dlpi_s3_ini q;
    int line;
    memset(&q, 0, sizeof q);
    q.kind = i == 0 ? kind : NULL;
    q.section = section;
    q.name = name;
    q.sub = sub;
    q.out = out;
    q.size = size;
    q.strict_default = p->strict_default;
    if (!p->text[i]) return 0;
    line = dlpi_s3_ini_ask(&q, p->text[i], p->n[i]);
    if (line)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "%.90s: line %d must be [section], name = value or # comment",
                                 p->c->file[i], line);
    if (q.cut)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "%.60s: [%.30s] %.30s must have at most %zu bytes", p->c->file[i],
                                 section,
                                 sub    ? sub
                                 : name ? name
                                        : "",
                                 size - 1);
    return q.found;
}

/* Find a setting of the profile, or one nested below it (sub), first in the credentials file.
   Returns the file's number, from 1; 0: it is missing or empty; or an error code. */
DLPI_COLD
static int dlpi_s3_profiles_find(const dlpi_s3_profiles *p, const char *name, const char *sub,
                                 char *out, size_t size, dlp_s3_error *err) {
    for (int i = 1; i >= 0; i--) {
        int there = dlpi_s3_profiles_ask(p, i, "profile", p->profile, name, sub, out, size, err);
        if (there < 0) return there;
        if (there && *out) return i + 1;
    }
    return 0;
}

/* Get a setting of the profile. Returns 1: it is there, 0: missing or empty, or an error code. */
DLPI_COLD
static int dlpi_s3_profiles_get(const dlpi_s3_profiles *p, const char *name, char *out, size_t size,
                                dlp_s3_error *err) {
    int file = dlpi_s3_profiles_find(p, name, NULL, out, size, err);
    return file > 0 ? 1 : file;
}

/* Look for the profile, and for bad lines anywhere. Returns 1: there, 0: not, or an error code. */
DLPI_COLD
static int dlpi_s3_profiles_has(dlpi_s3_profiles *p, dlp_s3_error *err) {
    int there[2];
    p->strict_default = true;
    there[0] = dlpi_s3_profiles_ask(p, 0, "profile", "default", NULL, NULL, NULL, 0, err);
    if (there[0] < 0) return there[0];
    p->strict_default = there[0] == 1;
    for (int i = 0; i < 2; i++) {
        there[i] = dlpi_s3_profiles_ask(p, i, "profile", p->profile, NULL, NULL, NULL, 0, err);
        if (there[i] < 0) return there[i];
    }
    return there[0] || there[1];
}

/* Read the two files. A missing one counts as empty; so does one in the home directory that may not
   be read, since programs run under other users' homes. */
DLPI_COLD
static int dlpi_s3_profiles_open(dlpi_s3_profiles *p, const dlpi_s3_config *c, dlp_s3_error *err) {
    static const char *const variables[2] = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};
    memset(p, 0, sizeof *p);
    p->c = c;
    p->profile = c->profile;
    for (int i = 0; i < 2; i++) {
        int e;
        if (!c->file[i][0]) continue;
        p->text[i] = (char *)dlpi_s3_private_map(DLPI_S3_FILE_MAX);
        e = p->text[i] ? dlpi_s3_file_read(c->file[i], p->text[i], DLPI_S3_FILE_MAX, &p->n[i])
                       : ENOMEM;
        if (!e) continue;
        dlpi_s3_private_unmap(p->text[i], DLPI_S3_FILE_MAX, 0);
        p->text[i] = NULL;
        if (e == ENOENT || e == ENOTDIR) continue;
        if (e == EACCES && !dlpi_s3_env(variables[i])) continue;
        dlpi_s3_profiles_close(p);
        return dlpi_s3_set_error(err, e == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, e,
                                 "%.60s: %s; mend it, or name another file in %s", c->file[i],
                                 e == EILSEQ ? "not a text file" : strerror(e), variables[i]);
    }
    return DLP_OK;
}

/* ---- what is found when a client is opened ---- */

DLPI_COLD
static bool dlpi_s3_is_true(const char *value) { return value && strcasecmp(value, "true") == 0; }

DLPI_COLD
static int dlpi_s3_config_copy(char *out, size_t size, const char *name, const char *value,
                               dlp_s3_error *err) {
    if (dlpi_s3_copy(out, size, value)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: must have at most %zu bytes", name,
                             size - 1);
}

/* Find a setting: the variable's value (variable may be NULL), else the profile's. Returns 1:
   found, 0: not, or an error code. */
DLPI_COLD
static int dlpi_s3_config_find(const dlpi_s3_profiles *p, const char *variable, const char *name,
                               char *out, size_t size, dlp_s3_error *err) {
    const char *value = variable ? dlpi_s3_env(variable) : NULL;
    if (!value) return dlpi_s3_profiles_get(p, name, out, size, err);
    const int code = dlpi_s3_config_copy(out, size, variable, value, err);
    return code ? code : 1;
}

/* Set the paths of the two files; "~/" is the home directory, as for AWS' tools. */
DLPI_COLD
static int dlpi_s3_config_files(dlpi_s3_config *c, dlp_s3_error *err) {
    static const char *const variables[2] = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};
    static const char *const standard[2] = {"~/.aws/config", "~/.aws/credentials"};
    const char *home = dlpi_s3_env("HOME");
    for (int i = 0; i < 2; i++) {
        const char *path = dlpi_s3_env(variables[i]);
        int n;
        if (!path) path = standard[i];
        if (strncmp(path, "~/", 2) != 0)
            n = snprintf(c->file[i], sizeof c->file[i], "%s", path);
        else
            n = home ? snprintf(c->file[i], sizeof c->file[i], "%s%s", home, path + 1) : 0;
        if (n >= (int)sizeof c->file[i])
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: must have at most %zu bytes",
                                     variables[i], sizeof c->file[i] - 1);
    }
    return DLP_OK;
}

/* Choose the profile: the desc's, the environment's, or "default". Returns 0, or DLP_ERR_ARG with
   *err filled if two variables name different profiles. */
DLPI_COLD
static int dlpi_s3_config_profile(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    const char *name = d->profile && *d->profile ? d->profile : NULL;
    const char *one = dlpi_s3_env("AWS_PROFILE"), *other = dlpi_s3_env("AWS_DEFAULT_PROFILE");
    c->named_by_user = name != NULL;
    if (!name && one && other && strcmp(one, other) != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_PROFILE is \"%.30s\", but AWS_DEFAULT_PROFILE is \"%.30s\"; "
                                 "AWS' own tools differ in which counts, so unset one",
                                 one, other);
    if (!name) name = one ? one : other;
    c->named = name != NULL;
    if (!name) name = "default";
    return dlpi_s3_config_copy(c->profile, sizeof c->profile, "profile", name, err);
}

/* True if a region's name stands for special endpoints ("fips-", "-global"), as in AWS' tools. */
DLPI_COLD
static bool dlpi_s3_region_beyond(const char *region) {
    static const char *const ends[] = {"-fips", "-global"};
    size_t n = strlen(region);
    for (size_t i = 0; i < 2; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcmp(region + n - k, ends[i]) == 0) return true;
    }
    return strncmp(region, "fips-", 5) == 0 || strncmp(region, "s3-", 3) == 0;
}

/* Find the region. It becomes a part of what is signed, and of AWS' host names; other servers'
   regions may have capitals. The endpoint is known already. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_config_region(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                 dlp_s3_error *err) {
    const char *region = d->region && *d->region ? d->region : NULL, *from = "region";
    char found[sizeof c->region];
    if (!region) region = dlpi_s3_env(from = "AWS_REGION");
    if (!region) region = dlpi_s3_env(from = "AWS_DEFAULT_REGION");
    if (!region) {
        int code = dlpi_s3_profiles_find(p, "region", NULL, found, sizeof found, err);
        if (code < 0) return code;
        region = code ? found : "us-east-1";
        from = code ? c->file[code - 1] : "region";
    }
    if (!c->endpoint[0] && dlpi_s3_region_beyond(region))
        return dlpi_s3_set_error(
            err, DLP_ERR_UNSUPPORTED, 0,
            "%.60s: \"%.30s\" names endpoints, no region; give a region, such as "
            "us-east-1, and set fips if it is wanted",
            from, region);
    if (!dlpi_s3_copy(c->region, sizeof c->region, region) ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")])
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "%.60s: \"%.40s\" is no region; use letters, digits, '-' and '_', at "
            "most %zu of them",
            from, region, sizeof c->region - 1);
    return DLP_OK;
}

/* Return 1 if endpoints in environment and profile do not count, 0 if they do, or an error code. */
DLPI_COLD
static int dlpi_s3_config_ignores(const dlpi_s3_profiles *p, dlp_s3_error *err) {
    char said[8] = "";
    int code = dlpi_s3_config_find(p, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                   "ignore_configured_endpoint_urls", said, sizeof said, err);
    return code < 0 ? code : dlpi_s3_is_true(said);
}

/* Find a service's endpoint: its own variable, the variable for all, its place in the profile's
   services section, the profile's for all. Returns 1: found, 0: not, or an error code. */
DLPI_COLD
static int dlpi_s3_config_url(const dlpi_s3_profiles *p, const char *variable, const char *service,
                              char *out, size_t size, dlp_s3_error *err) {
    const char *url = dlpi_s3_env(variable);
    char services[128];
    int code = dlpi_s3_config_ignores(p, err);
    if (code) return code < 0 ? code : 0;
    if (!url) url = dlpi_s3_env("AWS_ENDPOINT_URL");
    if (url) code = dlpi_s3_config_copy(out, size, "endpoint", url, err);
    if (url) return code ? code : 1;
    code = dlpi_s3_profiles_get(p, "services", services, sizeof services, err);
    if (code == 1) {
        code = dlpi_s3_profiles_ask(p, 0, "services", services, NULL, NULL, NULL, 0, err);
        if (code == 0)
            return dlpi_s3_set_error(
                err, DLP_ERR_ARG, 0,
                "profile \"%.30s\": section [services %.30s] is missing; add it to %.60s",
                p->profile, services, p->c->file[0]);
        if (code == 1)
            code = dlpi_s3_profiles_ask(p, 0, "services", services, service, "endpoint_url", out,
                                        size, err);
        if (code == 1 && !*out) code = 0;
    }
    return code ? code : dlpi_s3_profiles_get(p, "endpoint_url", out, size, err);
}

/* Find the endpoint, the region and the CA file: in the desc, the environment or the profile.
   Returns 0, or a DLP_ERR code with *err filled. */
DLPI_COLD
static int dlpi_s3_config_where(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                dlp_s3_error *err) {
    int code;
    if (d->endpoint && *d->endpoint)
        code = dlpi_s3_config_copy(c->endpoint, sizeof c->endpoint, "endpoint", d->endpoint, err);
    else
        code = dlpi_s3_config_url(p, "AWS_ENDPOINT_URL_S3", "s3", c->endpoint, sizeof c->endpoint,
                                  err);
    if (code < 0) return code;
    code = dlpi_s3_config_region(c, d, p, err);
    if (code) return code;
    if (d->ca_file && *d->ca_file)
        return dlpi_s3_config_copy(c->ca_file, sizeof c->ca_file, "ca_file", d->ca_file, err);
    code = dlpi_s3_config_find(p, "AWS_CA_BUNDLE", "ca_bundle", c->ca_file, sizeof c->ca_file, err);
    return code < 0 ? code : DLP_OK;
}

/* Find out which of AWS' hosts are wanted (fips, dualstack): by desc, environment or profile. */
DLPI_COLD
static int dlpi_s3_config_hosts(dlpi_s3_config *c, const dlp_s3_desc *d, const dlpi_s3_profiles *p,
                                dlp_s3_error *err) {
    char said[3][16] = {"", "", ""};
    int code = dlpi_s3_config_find(p, "AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint", said[0],
                                   sizeof said[0], err);
    if (code >= 0)
        code = dlpi_s3_config_find(p, "AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint",
                                   said[1], sizeof said[1], err);
    if (code == 0)
        code =
            dlpi_s3_profiles_find(p, "s3", "use_dualstack_endpoint", said[2], sizeof said[2], err);
    if (code < 0) return code;
    c->fips = d->fips || dlpi_s3_is_true(said[0]);
    c->dualstack = d->dualstack || dlpi_s3_is_true(said[1]) || dlpi_s3_is_true(said[2]);
    if (!c->endpoint[0] || (!c->fips && !c->dualstack)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%s: is set, but so is an endpoint, which has one host; unset one of "
                             "the two",
                             c->fips ? "fips (AWS_USE_FIPS_ENDPOINT)"
                                     : "dualstack (AWS_USE_DUALSTACK_ENDPOINT)");
}

/* ---- credentials ---- */

DLPI_COLD
static int dlpi_s3_config_given(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    c->source = DLPI_S3_GIVEN;
    return dlpi_s3_who_set(&c->given, d->access_key, d->secret_key, d->session_token,
                           "access_key, secret_key", DLP_ERR_ARG, err);
}

/* Choose the keys in the environment as source. Returns 1: this is it; 0: there are none; or an
   error code: one of them is missing or not valid. */
DLPI_COLD
static int dlpi_s3_config_environment(dlpi_s3_config *c, dlp_s3_error *err) {
    const char *access = dlpi_s3_env("AWS_ACCESS_KEY_ID");
    const char *secret = dlpi_s3_env("AWS_SECRET_ACCESS_KEY");
    int code;
    if (!access && !secret) return 0;
    c->source = DLPI_S3_ENVIRONMENT;
    code = dlpi_s3_who_set(&c->given, access, secret, dlpi_s3_env("AWS_SESSION_TOKEN"),
                           "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", DLP_ERR_ARG, err);
    return code ? code : 1;
}

/* Find the URL of STS. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_config_sts(const dlpi_s3_config *c, const dlpi_s3_profiles *p, char *out,
                              size_t size, dlp_s3_error *err) {
    dlpi_s3_endpoint sts;
    const char *why;
    int code = dlpi_s3_config_url(p, "AWS_ENDPOINT_URL_STS", "sts", out, size, err);
    if (code < 0) return code;
    if (code == 0)
        snprintf(out, size, "https://sts%s.%s.%s", c->fips ? "-fips" : "", c->region,
                 !c->dualstack                       ? dlpi_s3_aws_domain(c->region)
                 : strncmp(c->region, "cn-", 3) == 0 ? "api.amazonwebservices.com.cn"
                                                     : "api.aws");
    if (dlpi_s3_endpoint_parse(&sts, out, &why) == DLP_OK) return dlpi_s3_proxy_beyond(&sts, err);
    return DLP_OK; /* what is wrong is said when it is asked */
}

/* Find the name of a role's session, or make one. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_config_session(const dlpi_s3_profiles *p, const char *variable, char *out,
                                  size_t size, dlp_s3_error *err) {
    int code = dlpi_s3_config_find(p, variable, "role_session_name", out, size, err);
    if (code == 0) snprintf(out, size, "dlpipe-%lld", (long long)dlpi_s3_real_s());
    return code < 0 ? code : DLP_OK;
}

/* Choose a web identity, by c->token_file. variables: AWS_ROLE_* count. Returns 1 or an error
   code. */
DLPI_COLD
static int dlpi_s3_config_web(dlpi_s3_config *c, const dlpi_s3_profiles *p, bool variables,
                              dlp_s3_error *err) {
    int code = dlpi_s3_config_find(p, variables ? "AWS_ROLE_ARN" : NULL, "role_arn", c->role,
                                   sizeof c->role, err);
    if (code < 0) return code;
    if (code == 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "credentials: a web identity's token file "
                                 "without a role: set AWS_ROLE_ARN, or role_arn in the profile");
    code = dlpi_s3_config_session(p, variables ? "AWS_ROLE_SESSION_NAME" : NULL, c->session,
                                  sizeof c->session, err);
    if (code == DLP_OK) code = dlpi_s3_config_sts(c, p, c->url, sizeof c->url, err);
    c->source = DLPI_S3_WEB;
    c->timeout_ms = DLPI_S3_STS_MS;
    c->attempts = DLPI_S3_STS_ATTEMPTS;
    return code ? code : 1;
}

/* Refuse settings that ask for what this library does not do. Returns 0 or an error code. */
DLPI_COLD
static int dlpi_s3_config_beyond(const dlpi_s3_profiles *p, dlp_s3_error *err) {
    static const char *const names[] = {"sso_session", "sso_start_url", "login_session"};
    char said[1024];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int code = dlpi_s3_profiles_get(p, names[i], said, sizeof said, err);
        if (code < 0) return code;
        if (code)
            return dlpi_s3_set_error(
                err, DLP_ERR_UNSUPPORTED, 0,
                "profile \"%.30s\": %s is not supported; set credential_process = aws "
                "configure export-credentials --format process --profile NAME",
                p->profile, names[i]);
    }
    return 0;
}

/* Read the profile's keys. Returns 1: it has keys, 0: none, or an error code. */
DLPI_COLD
static int dlpi_s3_profiles_keys(const dlpi_s3_profiles *p, dlpi_s3_credentials *who,
                                 dlp_s3_error *err) {
    char access[sizeof who->access] = "", secret[sizeof who->secret] = "", from[200];
    char *token = who->token;
    int code = dlpi_s3_profiles_get(p, "aws_access_key_id", access, sizeof access, err);
    int more = code < 0
                   ? code
                   : dlpi_s3_profiles_get(p, "aws_secret_access_key", secret, sizeof secret, err);
    int last = more < 0
                   ? more
                   : dlpi_s3_profiles_get(p, "aws_session_token", token, sizeof who->token, err);
    snprintf(from, sizeof from, "profile \"%.100s\"", p->profile);
    if (last >= 0 && (code || more)) {
        last = dlpi_s3_who_set(who, access, secret, last ? token : NULL, from, DLP_ERR_ARG, err);
        if (last == DLP_OK) last = 1;
    }
    dlpi_s3_wipe(secret, sizeof secret);
    return last < 0 ? last : code || more;
}

/* Choose a container's service as source. Returns 1: this is it, 0: it is not, or an error code. */
DLPI_COLD
static int dlpi_s3_config_container(dlpi_s3_config *c, dlp_s3_error *err) {
    const char *relative = dlpi_s3_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = dlpi_s3_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *file = dlpi_s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = dlpi_s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    int n;
    if (!relative && !full) return 0;
    if (relative && *relative != '/')
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: must begin with '/'");
    n = relative ? snprintf(c->url, sizeof c->url, "http://169.254.170.2%s", relative)
                 : snprintf(c->url, sizeof c->url, "%s", full);
    if (n >= (int)sizeof c->url ||
        (file && !dlpi_s3_copy(c->token_file, sizeof c->token_file, file)) ||
        (token && !dlpi_s3_copy(c->authorization, sizeof c->authorization, token)))
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "AWS_CONTAINER_...: URI, token file or token is longer than %zu, "
                                 "%zu or %zu bytes; shorten it",
                                 sizeof c->url - 1, sizeof c->token_file - 1,
                                 sizeof c->authorization - 1);
    c->source = DLPI_S3_CONTAINER;
    c->timeout_ms = 5000;
    c->attempts = 3;
    return 1;
}

/* Find a number, 1..most; if there is none, *out = otherwise. Returns 1, 0, or an error code. */
DLPI_COLD
static int dlpi_s3_config_number(const dlpi_s3_profiles *p, const char *variable, const char *name,
                                 int most, int otherwise, int *out, dlp_s3_error *err) {
    char said[16] = "", *end;
    long value;
    int code = dlpi_s3_config_find(p, variable, name, said, sizeof said, err);
    *out = otherwise;
    if (code <= 0) return code;
    value = strtol(said, &end, 10);
    if (*end || value < 1 || value > most)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: is \"%s\", must be a number of 1..%d",
                                 variable ? variable : name, said, most);
    *out = (int)value;
    return 1;
}

/* Choose the metadata service as source. Returns 1: this is it, 0: disabled, or an error code. */
DLPI_COLD
static int dlpi_s3_config_machine(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    char mode[16] = "";
    int code, seconds;
    if (dlpi_s3_is_true(dlpi_s3_env("AWS_EC2_METADATA_DISABLED"))) return 0;
    code = dlpi_s3_config_find(p, "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                               "ec2_metadata_service_endpoint", c->url, sizeof c->url, err);
    if (code < 0) return code;
    if (code == 0) {
        code = dlpi_s3_config_find(p, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                   "ec2_metadata_service_endpoint_mode", mode, sizeof mode, err);
        if (code < 0) return code;
        dlpi_s3_copy(c->url, sizeof c->url,
                     strcasecmp(mode, "IPv6") == 0 ? "http://[fd00:ec2::254]"
                                                   : "http://169.254.169.254");
    }
    code = dlpi_s3_config_number(p, "AWS_METADATA_SERVICE_TIMEOUT", "metadata_service_timeout", 600,
                                 1, &seconds, err);
    if (code < 0) return code;
    code = dlpi_s3_config_number(p, "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
                                 "metadata_service_num_attempts", 100, 2, &c->attempts, err);
    if (code < 0) return code;
    c->timeout_ms = seconds * 1000;
    c->source = DLPI_S3_MACHINE;
    return 1;
}

DLPI_COLD
static int dlpi_s3_config_missing(const dlpi_s3_config *c, dlp_s3_error *err) {
    return dlpi_s3_set_error(
        err, DLP_ERR_ARG, 0,
        "profile \"%.30s\" is neither in \"%.40s\" nor in \"%.40s\"; add it there", c->profile,
        c->file[0], c->file[1]);
}

/* ---- roles ---- */

/* Refuse a chain of roles, and name the profiles that it leads through. Returns DLP_ERR_ARG. */
DLPI_COLD
static int dlpi_s3_role_chain(const dlpi_s3_config *c, const char *last, const char *what,
                              dlp_s3_error *err) {
    char names[80] = "";
    for (int i = 0; i < c->n_roles; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "\"%.20s\", ",
                 c->roles[i].profile);
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "source_profile: %s\"%.30s\": %s", names, last,
                             what);
}

DLPI_COLD
static int dlpi_s3_role_wrong(const dlpi_s3_profiles *p, int code, const char *what,
                              dlp_s3_error *err) {
    return dlpi_s3_set_error(err, code, 0, "profile \"%.60s\": %s", p->profile, what);
}

/* Read the profile's role. from: gets the profile, or credential_source, to assume it with. Returns
   2: from is a profile, 1: a source, 0: there is no role, or an error code. */
DLPI_COLD
static int dlpi_s3_role_read(const dlpi_s3_profiles *p, dlpi_s3_role *role, char *from, size_t size,
                             dlp_s3_error *err) {
    char source[32] = "", mfa[256];
    int other, code = dlpi_s3_profiles_get(p, "role_arn", role->arn, sizeof role->arn, err);
    if (code <= 0) return code;
    other = dlpi_s3_profiles_get(p, "source_profile", from, size, err);
    if (other >= 0) code = dlpi_s3_profiles_get(p, "credential_source", source, sizeof source, err);
    if (other < 0 || code < 0) return other < 0 ? other : code;
    if (other + code != 1)
        return dlpi_s3_role_wrong(
            p, DLP_ERR_ARG, "role_arn needs source_profile or credential_source, one of the two",
            err);
    if (code) dlpi_s3_copy(from, size, source);
    code = dlpi_s3_profiles_get(p, "mfa_serial", mfa, sizeof mfa, err);
    if (code > 0)
        return dlpi_s3_role_wrong(p, DLP_ERR_UNSUPPORTED,
                                  "mfa_serial is not supported: nobody can type a code; let a "
                                  "credential_process do it",
                                  err);
    if (code == 0)
        code = dlpi_s3_profiles_get(p, "external_id", role->external_id, sizeof role->external_id,
                                    err);
    if (code >= 0)
        code = dlpi_s3_config_number(p, NULL, "duration_seconds", 43200, 0, &role->duration_s, err);
    if (code > 0 && role->duration_s < 900)
        return dlpi_s3_role_wrong(p, DLP_ERR_ARG, "duration_seconds: must be 900 or more", err);
    if (code >= 0) code = dlpi_s3_config_session(p, NULL, role->session, sizeof role->session, err);
    if (code < 0) return code;
    dlpi_s3_copy(role->profile, sizeof role->profile, p->profile);
    return other ? 2 : 1;
}

/* Choose the source that a credential_source stands for. Returns 1 or an error code. */
DLPI_COLD
static int dlpi_s3_role_source(dlpi_s3_config *c, const dlpi_s3_profiles *p, const char *source,
                               dlp_s3_error *err) {
    char what[100];
    int code = -1;
    if (strcmp(source, "Environment") == 0)
        code = dlpi_s3_config_environment(c, err);
    else if (strcmp(source, "EcsContainer") == 0)
        code = dlpi_s3_config_container(c, err);
    else if (strcmp(source, "Ec2InstanceMetadata") == 0)
        code = dlpi_s3_config_machine(c, p, err);
    else
        return dlpi_s3_role_wrong(
            p, DLP_ERR_ARG,
            "credential_source: must be Environment, EcsContainer or Ec2InstanceMetadata", err);
    if (code) return code;
    snprintf(what, sizeof what, "credential_source: %.32s has no credentials; name another source",
             source);
    return dlpi_s3_role_wrong(p, DLP_ERR_ARG, what, err);
}

/* Choose the keys of the profile as source. Returns 1: it has keys, 0: none, or an error code. */
DLPI_COLD
static int dlpi_s3_config_base(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    int code = dlpi_s3_profiles_keys(p, &c->given, err);
    dlpi_s3_copy(c->base, sizeof c->base, p->profile);
    dlpi_s3_who_wipe(&c->given); /* read again by each fetch */
    c->source = DLPI_S3_FILE;
    return code;
}

/* Go from the last role to the profile that it is assumed with. Returns 1: that has keys, which are
   the source; 0: it has none; or an error code. */
DLPI_COLD
static int dlpi_s3_role_next(dlpi_s3_config *c, dlpi_s3_profiles *p, const char *next,
                             dlp_s3_error *err) {
    const dlpi_s3_role *last = &c->roles[c->n_roles - 1];
    int has, self = strcmp(next, last->profile) == 0;
    for (int i = 0; i < c->n_roles - self; i++)
        if (strcmp(next, c->roles[i].profile) == 0)
            return dlpi_s3_role_chain(c, next, "they lead in a circle; give one of them keys", err);
    dlpi_s3_copy(c->base, sizeof c->base, next);
    p->profile = c->base;
    has = dlpi_s3_profiles_has(p, err);
    if (has == 0) return dlpi_s3_role_chain(c, next, "there is no such profile; add it", err);
    if (has > 0) has = dlpi_s3_config_base(c, p, err); /* its keys come before a role of its own */
    if (has == 0 && self)
        return dlpi_s3_role_chain(c, next, "they lead in a circle; give one of them keys", err);
    return has;
}

/* Choose the source that a profile names: a web identity; a role, perhaps of a role; keys; a
   process. Returns 1: there is one, 0: none, or an error code. */
DLPI_COLD
static int dlpi_s3_config_of_profile(dlpi_s3_config *c, dlpi_s3_profiles *p, dlp_s3_error *err) {
    char from[sizeof c->base];
    dlpi_s3_role more = {0};
    int code;
    for (;;) {
        dlpi_s3_role *role = c->n_roles < DLPI_S3_ROLES ? &c->roles[c->n_roles] : &more;
        int how;
        code = dlpi_s3_profiles_get(p, "web_identity_token_file", c->token_file,
                                    sizeof c->token_file, err);
        if (code) return code < 0 ? code : dlpi_s3_config_web(c, p, false, err);
        how = dlpi_s3_role_read(p, role, from, sizeof from, err);
        if (how < 0) return how;
        if (how == 0) break;
        if (role == &more)
            return dlpi_s3_role_chain(c, p->profile, "more than 3 roles; use fewer", err);
        if (c->n_roles++ == 0) code = dlpi_s3_config_sts(c, p, c->sts, sizeof c->sts, err);
        if (code) return code;
        code = how == 1 ? dlpi_s3_role_source(c, p, from, err) : dlpi_s3_role_next(c, p, from, err);
        if (code) return code;
    }
    code = c->n_roles ? 0 : dlpi_s3_config_base(c, p, err);
    if (code) return code;
    c->source = DLPI_S3_PROCESS;
    c->timeout_ms = 60000;
    code = dlpi_s3_profiles_get(p, "credential_process", c->process, sizeof c->process, err);
    if (code == 0) code = dlpi_s3_config_beyond(p, err);
    if (code || c->n_roles == 0) return code;
    return dlpi_s3_role_chain(c, p->profile,
                              "it has no credentials; give it keys or a credential_process", err);
}

/* ---- settings that AWS' tools go by ---- */

typedef struct dlpi_s3_beyond {
    const char *variable;   /* NULL: none */
    const char *name, *sub; /* in a profile; sub: NULL, or nested below name */
    const char *fine;       /* what it may say, each with blanks around it; NULL: all but "true" */
    const char *what;
} dlpi_s3_beyond;

/* What this library does not do, and may not ignore: requests would go to another host, or be other
   ones, than whoever set it thinks. */
static const dlpi_s3_beyond dlpi_s3_beyonds[] = {
    {NULL, "s3", "use_accelerate_endpoint", NULL, "transfer acceleration is"},
    {"AWS_RETRY_MODE", "retry_mode", NULL, " standard adaptive ",
     "other modes than \"standard\" and \"adaptive\" are"},
};

/* Refuse what is set of a row of dlpi_s3_beyonds. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_config_refuse(const dlpi_s3_profiles *p, const dlpi_s3_beyond *b,
                                 dlp_s3_error *err) {
    const char *value = b->variable ? dlpi_s3_env(b->variable) : NULL;
    char said[64], where[200];
    int file = 0;
    snprintf(where, sizeof where, "%s", b->variable ? b->variable : b->name);
    if (!value) {
        file = dlpi_s3_profiles_find(p, b->name, b->sub, said, sizeof said, err);
        if (file <= 0) return file;
        value = said;
        snprintf(where, sizeof where, "%s%s%s of profile \"%.20s\" in \"%.60s\"", b->name,
                 b->sub ? "." : "", b->sub ? b->sub : "", p->c->profile, p->c->file[file - 1]);
    }
    if (b->fine ? dlpi_s3_listed(b->fine, value) : !dlpi_s3_is_true(value)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                             "%.140s: \"%.16s\"; but %s not supported; remove this setting", where,
                             value, b->what);
}

/* Find out how objects are addressed, how often they are asked for, and what is refused. */
DLPI_COLD
static int dlpi_s3_config_habits(dlpi_s3_config *c, const dlpi_s3_profiles *p, dlp_s3_error *err) {
    static const char *const styles[] = {"auto", "path", "virtual"}; /* DLP_S3_STYLE_* */
    char said[64] = "";
    int code = dlpi_s3_profiles_find(p, "s3", "addressing_style", said, sizeof said, err);
    if (code < 0) return code;
    while (code && c->style < 3 && strcasecmp(said, styles[c->style]) != 0) c->style++;
    if (c->style == 3)
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "s3.addressing_style of profile \"%.20s\" in \"%.60s\": is \"%.16s\", "
            "must be auto, path or virtual",
            c->profile, c->file[code - 1], said);
    code = dlpi_s3_config_number(p, "AWS_MAX_ATTEMPTS", "max_attempts", INT32_MAX, -1,
                                 &c->max_attempts, err);
    said[0] = '\0';
    if (code >= 0)
        code = dlpi_s3_config_find(p, "AWS_RESPONSE_CHECKSUM_VALIDATION",
                                   "response_checksum_validation", said, sizeof said, err);
    c->no_checksums = strcasecmp(said, "when_required") == 0;
    if (code > 0 && !c->no_checksums && strcasecmp(said, "when_supported") != 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "response_checksum_validation (AWS_RESPONSE_CHECKSUM_VALIDATION): "
                                 "is \"%.16s\", must be when_supported or when_required",
                                 said);
    for (size_t i = 0; code >= 0 && i < sizeof dlpi_s3_beyonds / sizeof dlpi_s3_beyonds[0]; i++)
        code = dlpi_s3_config_refuse(p, &dlpi_s3_beyonds[i], err);
    return code < 0 ? code : DLP_OK;
}

/* Choose the source of credentials, in the order of AWS' SDKs. A profile that the program names
   comes before the environment. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_config_source(dlpi_s3_config *c, dlpi_s3_profiles *p, int has_profile,
                                 dlp_s3_error *err) {
    const char *token = dlpi_s3_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    int code = 0;
    if (!c->named_by_user) {
        code = dlpi_s3_config_environment(c, err);
        if (code == 0 && token) {
            code = dlpi_s3_config_copy(c->token_file, sizeof c->token_file,
                                       "AWS_WEB_IDENTITY_TOKEN_FILE", token, err);
            if (code == 0) code = dlpi_s3_config_web(c, p, true, err);
        }
    }
    if (code == 0 && !has_profile && c->named) return dlpi_s3_config_missing(c, err);
    if (code == 0) code = dlpi_s3_config_of_profile(c, p, err);
    if (code == 0) code = dlpi_s3_config_container(c, err);
    if (code == 0) code = dlpi_s3_config_machine(c, p, err);
    if (code) return code < 0 ? code : DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                             "credentials: there are none in environment, profile \"%.20s\" or "
                             "container; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                             "anonymous for public buckets",
                             c->profile);
}

/* Find out where to go and who asks. c: zeroed, in the client's mapping; it holds secrets. Reads
   environment and files, and waits for nothing else. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_config_load(dlpi_s3_config *c, const dlp_s3_desc *d, dlp_s3_error *err) {
    dlpi_s3_profiles p;
    bool given = d->access_key || d->secret_key || d->session_token;
    int code, has;
    c->clock = dlpi_s3_real_s;
    c->patience_ms = DLPI_S3_PATIENCE_MS;
    c->pause_ms = 50;
    c->pause_max_ms = 5000;
    c->log = d->log;
    c->log_user = d->log_user;
    c->given.anonymous = d->anonymous != 0;
    code = dlpi_s3_config_profile(c, d, err);
    if (!code) code = dlpi_s3_config_files(c, err);
    if (!code) code = dlpi_s3_profiles_open(&p, c, err);
    if (code) return code;
    has = dlpi_s3_profiles_has(&p, err);
    if (has == 0 && c->named_by_user) has = dlpi_s3_config_missing(c, err);
    code = has < 0 ? has : dlpi_s3_config_where(c, d, &p, err);
    if (!code) code = dlpi_s3_config_hosts(c, d, &p, err);
    if (!code) code = dlpi_s3_config_habits(c, &p, err);
    if (!code && !d->anonymous)
        code = given ? dlpi_s3_config_given(c, d, err) : dlpi_s3_config_source(c, &p, has, err);
    dlpi_s3_profiles_close(&p);
    return code;
}

/* ---- what a fetch uses ---- */

enum { DLPI_S3_ANSWER_MAX = 1 << 16, DLPI_S3_TOKEN_MAX = 20000 };

typedef struct dlpi_s3_scratch {
    size_t n, out_n, body_n, sent; /* bytes in answer, out and body; of both, those sent */
    char answer[DLPI_S3_ANSWER_MAX + 1];
    char out[DLPI_S3_TOKEN_MAX + 12288]; /* a request's head */
    char body[3 * DLPI_S3_TOKEN_MAX + 8192];
    char token[DLPI_S3_TOKEN_MAX];       /* of a file, or of the metadata service */
    char lines[DLPI_S3_TOKEN_MAX + 256]; /* of a head, with a token */
    const char *from;                    /* what is asked, for messages */
    const dlpi_s3_role *role;            /* that is being assumed, or NULL */
    char access[8192], secret[8192], expires[64], word[128]; /* long enough to be called too long */
    char session[DLPI_S3_ANSWER_MAX + 1];
    char *argv[64];
    dlpi_s3_http http;
    dlpi_s3_conn conn;
} dlpi_s3_scratch;

DLPI_COLD
static uint64_t dlpi_s3_in_ms(int64_t ms) { return dlpi_s3_now_ns() + (uint64_t)ms * 1000000u; }

DLPI_COLD
static bool dlpi_s3_wait_over(const dlpi_s3_wait *w) {
    return dlpi_s3_now_ns() >= w->until_ns || (w->stop && DLPI_LOAD_RLX(w->stop));
}

/* Wait for events of a descriptor (-1: just wait), for at most most_ms and as long as w allows. It
   waits in turns of 50 ms, since a stop wakes nobody. Returns true if an event came. */
DLPI_COLD
static bool dlpi_s3_wait_for(const dlpi_s3_wait *w, int fd, short events, int64_t most_ms) {
    uint64_t end = dlpi_s3_in_ms(most_ms);
    while (!dlpi_s3_wait_over(w)) {
        struct pollfd f = {.fd = fd, .events = events};
        uint64_t now = dlpi_s3_now_ns(), until = end < w->until_ns ? end : w->until_ns;
        uint64_t left_ms = until > now ? (until - now) / DLPI_S3_MS + 1 : 0;
        if (left_ms == 0) return false;
        if (poll(&f, 1, left_ms < 50 ? (int)left_ms : 50) > 0) return true;
    }
    return false;
}

/* ---- one request over HTTP, waited for ---- */

typedef struct dlpi_s3_ask {
    const char *url;  /* "http://host:port/path?query" */
    const char *path; /* in place of the URL's own; NULL: that */
    const char *method;
    const char *lines;              /* of the head, each with its end; "" */
    const char *body;               /* a form; NULL: none */
    const dlpi_s3_credentials *who; /* NULL: not signed; else for STS, in region */
    const char *region;
    int64_t now_s;     /* by which it is signed */
    int64_t skew_s;    /* the server's clock less ours, as far as it is known */
    bool nearby;       /* plain HTTP only to this host, or to where containers are served */
    bool went;         /* the whole request was sent, but no answer came in time */
    uint64_t until_ns; /* until then a service that has asked for patience is asked again */
    int32_t status;    /* of the answer; 0: none came */
    char why[192];     /* then */
    char host[300];    /* who was asked, once that is known */
} dlpi_s3_ask;

/* True for the addresses that AWS lets credentials travel to without TLS: loopback, and the
   connection-local services of containers. */
DLPI_COLD
static bool dlpi_s3_is_near(const dlpi_s3_address *a) {
    static const uint8_t pods[16] = {0xfd, 0, 0x0e, 0xc2, [15] = 0x23};
    uint32_t v4;
    if (a->at.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->at.v6.sin6_addr) ||
               memcmp(&a->at.v6.sin6_addr, pods, 16) == 0;
    v4 = ntohl(a->at.v4.sin_addr.s_addr);
    return v4 >> 24 == 127 || v4 == 0xA9FEAA02u || v4 == 0xA9FEAA17u; /* 169.254.170.2, .23 */
}

/* Split the URL, and write the request into s->out. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_ask_head(dlpi_s3_ask *a, dlpi_s3_scratch *s, dlpi_s3_endpoint *where) {
    const char *path, *why = dlpi_s3_url_split(where, a->url, &path);
    dlpi_s3_head h = {.method = a->method, .host = a->host, .close = true, .extra = a->lines};
    int n;
    if (why) return why;
    dlpi_s3_endpoint_host(where, a->host, sizeof a->host);
    h.path = a->path ? a->path : *path == '/' ? path : "/";
    h.query = *path == '?' && !a->path ? path + 1 : NULL;
    h.has_body = a->body != NULL;
    h.body = a->body;
    h.body_bytes = a->body ? strlen(a->body) : 0;
    h.who = a->who;
    h.region = a->region;
    h.service = "sts";
    h.now_s = a->now_s;
    n = dlpi_s3_head_write(&h, s->out, sizeof s->out);
    if (n < 2) return "URL, role or token is too long, or has control bytes";
    n -= 2; /* in place of the empty line */
    n += snprintf(s->out + n, sizeof s->out - (size_t)n, DLPI_S3_AGENT "Accept: */*\r\n%s\r\n",
                  a->body ? "Content-Type: application/x-www-form-urlencoded\r\n" : "");
    s->out_n = (size_t)n;
    s->body_n = (size_t)h.body_bytes;
    return s->out_n < sizeof s->out ? NULL : "URL, role and token are too long together";
}

/* Take in n bytes of the answer. Returns 1 if the answer is whole, 0 if more is to come, or
   DLP_S3_BROKEN with s->conn.why. */
DLPI_COLD
static int64_t dlpi_s3_ask_feed(dlpi_s3_scratch *s, const char *bytes, size_t n) {
    const char *body;
    size_t used, n_body;
    int what;
    do {
        what = dlpi_s3_http_feed(&s->http, bytes, n, &used, &body, &n_body);
        bytes += used;
        n -= used;
        if (n_body > DLPI_S3_ANSWER_MAX - s->n) {
            dlpi_s3_copy(s->conn.why, sizeof s->conn.why,
                         "the answer is longer than 64 KiB; check the URL");
            return DLP_S3_BROKEN;
        }
        if (n_body) memcpy(s->answer + s->n, body, n_body);
        s->n += n_body;
    } while (what == DLPI_S3_HTTP_HEAD || what == DLPI_S3_HTTP_BODY);
    s->answer[s->n] = '\0';
    if (what != DLPI_S3_HTTP_BAD) return what == DLPI_S3_HTTP_END;
    snprintf(s->conn.why, sizeof s->conn.why, "%s%s", s->http.why, dlpi_s3_http_cure);
    return DLP_S3_BROKEN;
}

/* Connect, send and read as far as that goes without waiting. Returns 1 if the answer is whole, or
   DLP_S3_WANT_READ, DLP_S3_WANT_WRITE or DLP_S3_BROKEN. */
DLPI_COLD
static int64_t dlpi_s3_ask_step(dlpi_s3_scratch *s) {
    char bytes[4096];
    int64_t n = dlpi_s3_conn_step(&s->conn);
    while (n == 0 && s->sent < s->out_n + s->body_n) {
        bool head = s->sent < s->out_n;
        n = dlpi_s3_conn_write(&s->conn, head ? s->out + s->sent : s->body + (s->sent - s->out_n),
                               s->out_n + (head ? 0 : s->body_n) - s->sent);
        if (n > 0) s->sent += (size_t)n, n = 0;
    }
    while (n == 0) {
        n = dlpi_s3_conn_read(&s->conn, bytes, sizeof bytes);
        if (n == 0) {
            n = dlpi_s3_http_eof(&s->http) == DLPI_S3_HTTP_END ? 1 : DLP_S3_BROKEN;
            dlpi_s3_copy(s->conn.why, sizeof s->conn.why, "the connection ended inside the answer");
        } else if (n > 0) {
            n = dlpi_s3_ask_feed(s, bytes, (size_t)n);
        }
    }
    dlpi_s3_wipe(bytes, sizeof bytes);
    return n;
}

/* Send the request to one address, and wait. Sets a->status, or a->why if no answer came. */
DLPI_COLD
static void dlpi_s3_ask_at(dlpi_s3_ask *a, dlpi_s3_scratch *s, const dlpi_s3_address *address,
                           const dlp_s3_transport *tls, const char *host, const dlpi_s3_wait *w) {
    int64_t n = dlpi_s3_conn_open(&s->conn, address, tls, host);
    bool late = false;
    s->n = s->sent = 0;
    dlpi_s3_http_begin(&s->http, false);
    while (n > DLP_S3_BROKEN && n <= 0 && !late) {
        n = dlpi_s3_ask_step(s);
        if (n == DLP_S3_WANT_READ || n == DLP_S3_WANT_WRITE)
            late = !dlpi_s3_wait_for(w, s->conn.fd, n == DLP_S3_WANT_READ ? POLLIN : POLLOUT,
                                     INT32_MAX);
    }
    dlpi_s3_copy(a->why, sizeof a->why, late ? "no answer in time" : s->conn.why);
    a->went = late && s->sent == s->out_n + s->body_n;
    if (n == 1) a->status = s->http.status;
    dlpi_s3_conn_close(&s->conn);
}

/* Send the request to the server's addresses, one after the other, until one answers. Sets
   a->status, or a->why if none did. The answer is in s->answer, and ends there with a zero byte. */
DLPI_COLD
static void dlpi_s3_ask_once(const dlpi_s3_config *c, dlpi_s3_ask *a, dlpi_s3_scratch *s,
                             const dlpi_s3_wait *w) {
    dlpi_s3_endpoint where;
    dlpi_s3_address at[4];
    const char *wrong = dlpi_s3_ask_head(a, s, &where);
    int n, e = 0;
    a->status = 0;
    a->went = false;
    s->conn.errnum = 0;
    if (!wrong && where.tls && !c->tls) wrong = "https needs DLPIPE_S3_OPENSSL, or desc.tls";
    n = wrong ? 0 : dlpi_s3_resolve(where.host, where.port, at, 4, &e, a->why, sizeof a->why);
    for (int i = 0; i < n && a->status == 0 && !wrong; i++) {
        if (i > 0 && dlpi_s3_wait_over(w)) return;
        if (a->nearby && !where.tls && !dlpi_s3_is_near(&at[i]))
            wrong = "without TLS, only this host and container services are asked; use https";
        else
            dlpi_s3_ask_at(a, s, &at[i], where.tls ? c->tls : NULL, where.host, w);
    }
    if (!wrong) return;
    dlpi_s3_copy(a->why, sizeof a->why, wrong);
    s->conn.errnum = EKEYREJECTED; /* no repetition mends it */
}

/* Send the request once, and let the classifier judge the answer. Returns the verdict; a->status is
   200 if the answer is good. s->word gets an error code out of the answer, or "". */
DLPI_COLD
static int dlpi_s3_ask_try(const dlpi_s3_config *c, dlpi_s3_ask *a, dlpi_s3_scratch *s,
                           dlpi_s3_tries *tries, const uint32_t *stop) {
    dlpi_s3_wait w = {dlpi_s3_in_ms(a->who ? DLPI_S3_STS_MS : c->timeout_ms), stop};
    dlpi_s3_trouble t = {.what = DLPI_S3_T_TIMEOUT, .s3_code = s->word};
    int verdict;
    a->now_s = c->clock() + a->skew_s;
    dlpi_s3_ask_once(c, a, s, &w);
    s->word[0] = '\0';
    if (a->status && a->status != 200) {
        t.what = DLPI_S3_T_ANSWER;
        if (!dlpi_s3_xml_text(s->answer, s->n, "ErrorResponse/Error/Code", s->word, sizeof s->word))
            dlpi_s3_json_text(s->answer, s->n, "code", s->word, sizeof s->word);
    }
    t.status = a->status;
    t.errnum = s->conn.errnum;
    if (a->who && a->status && s->http.date_s > 0) t.skew_s = s->http.date_s - a->now_s;
    verdict = dlpi_s3_classify(&t, tries);
    if (verdict == DLPI_S3_SKEW) a->skew_s += t.skew_s;
    return verdict;
}

/* Wait before the next attempt, as long as requests do (dlpi_s3_pause_ns), but for a tenth of
   c->patience_ms at most: the service must not be idle while all sleep. n: attempts so far.
   Returns false if there is none: n is reached, and no service that is there has patience left. */
DLPI_COLD
static bool dlpi_s3_ask_pause(const dlpi_s3_config *c, const dlpi_s3_ask *a,
                              const dlpi_s3_scratch *s, int n, uint64_t *random,
                              const uint32_t *stop) {
    const dlpi_s3_wait w = {UINT64_MAX, stop};
    uint64_t now = dlpi_s3_now_ns(), most_ns, wait_ns;
    if (now >= a->until_ns && n >= (a->who ? DLPI_S3_STS_ATTEMPTS : c->attempts)) return false;
    most_ns = dlpi_s3_least(dlpi_s3_ms(c->pause_max_ms), dlpi_s3_ms(c->patience_ms) / 10);
    wait_ns = dlpi_s3_pause_ns(dlpi_s3_ms(c->pause_ms), most_ns, n, random);
    if (a->status && s->http.retry_after_s > 0)
        wait_ns += dlpi_s3_least((uint64_t)s->http.retry_after_s, 3600) * 1000 * DLPI_S3_MS;
    if (now < a->until_ns) wait_ns = dlpi_s3_least(wait_ns, a->until_ns - now);
    dlpi_s3_wait_for(&w, -1, 0, (int64_t)dlpi_s3_least(wait_ns / DLPI_S3_MS, 60000));
    return true;
}

/* Begin the time for which a service that is there is asked again, and tell the log. */
DLPI_COLD
static void dlpi_s3_ask_patiently(const dlpi_s3_config *c, dlpi_s3_ask *a,
                                  const dlpi_s3_scratch *s) {
    char line[200];
    a->until_ns = dlpi_s3_in_ms(c->patience_ms);
    snprintf(line, sizeof line, "s3: credentials (%.60s): %.80s answered %d; asked again for %d s",
             s->from, a->host, (int)a->status, (int)c->patience_ms / 1000);
    dlpi_s3_config_log(c, line);
}

/* Send the request, and again after a while if the classifier says so. A service that is silent is
   asked c->attempts times. An answer that asks for patience (429, 5xx) proves that the service is
   there. It is then asked again for c->patience_ms, since others may ask it at the same time.
   Returns true if the answer is 200. If not, s->word is an error code out of the answer, or "". */
DLPI_COLD
static bool dlpi_s3_ask_well(const dlpi_s3_config *c, dlpi_s3_ask *a, dlpi_s3_scratch *s,
                             const uint32_t *stop) {
    uint64_t random = (dlpi_s3_now_ns() ^ (uint64_t)getpid() << 32) | 1;
    dlpi_s3_tries tries = {0};
    a->until_ns = 0;
    a->skew_s = 0;
    for (int n = 1; !(stop && DLPI_LOAD_RLX(stop)); n++) {
        int verdict = dlpi_s3_ask_try(c, a, s, &tries, stop);
        if (a->status == 200) return true;
        if (verdict != DLPI_S3_RETRY && verdict != DLPI_S3_SKEW) return false;
        if (verdict == DLPI_S3_RETRY && a->status && a->until_ns == 0)
            dlpi_s3_ask_patiently(c, a, s);
        if (!dlpi_s3_ask_pause(c, a, s, n, &random, stop)) break;
    }
    return false;
}

/* Fill in err: "credentials (source): what". Returns DLP_ERR_REMOTE. */
DLPI_COLD
static int dlpi_s3_fetch_error(const dlpi_s3_scratch *s, const char *what, dlp_s3_error *err) {
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0, "credentials (%s): %s", s->from, what);
}

/* Fill in err for an answer that is no help. s->word: its code or "". Returns DLP_ERR_REMOTE. */
DLPI_COLD
static int dlpi_s3_ask_error(const dlpi_s3_config *c, const dlpi_s3_ask *a,
                             const dlpi_s3_scratch *s, dlp_s3_error *err) {
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.";
    bool plain = s->word[0] && !s->word[strspn(s->word, letters)];
    bool patient = a->until_ns && c->patience_ms >= 1000 && dlpi_s3_now_ns() >= a->until_ns;
    char what[240], times[24] = "";
    if (patient) snprintf(times, sizeof times, ", for %d s", (int)c->patience_ms / 1000);
    snprintf(what, sizeof what, "%.80s%s%.120s", a->host, a->host[0] ? ": " : "", a->why);
    if (a->status)
        snprintf(what, sizeof what, "%.80s answered %d%s%.60s%s", a->host, (int)a->status,
                 plain ? " " : "", plain ? s->word : "", times);
    if (a->status && err) err->http_status = a->status;
    return dlpi_s3_fetch_error(s, what, err);
}

/* ---- sources ---- */

/* Set who->expires_s by the answer (s->expires). clock_s: the time by the server's clock, or 0; if
   ours differs, the time from then on counts. Returns DLP_OK, or DLP_ERR_REMOTE if they have
   expired. */
DLPI_COLD
static int dlpi_s3_fetched_until(const dlpi_s3_config *c, const dlpi_s3_scratch *s,
                                 dlpi_s3_credentials *who, int64_t clock_s, dlp_s3_error *err) {
    const char *date = s->expires;
    int64_t now_s = c->clock();
    if (!*date) return DLP_OK;
    who->expires_s = dlpi_s3_time_iso(date, strlen(date));
    if (who->expires_s <= 0)
        return dlpi_s3_fetch_error(s, "Expiration is no time, such as 2030-01-31T12:00:00Z", err);
    if (clock_s > 0 && (clock_s - now_s > 240 || now_s - clock_s > 240))
        who->expires_s += now_s - clock_s;
    if (who->expires_s > now_s) return DLP_OK;
    if (c->source == DLPI_S3_MACHINE &&
        !s->role) { /* as AWS wants it: its services may go on to accept them */
        who->expires_s = now_s + 600;
        dlpi_s3_config_log(c, "s3: credentials (instance metadata) have expired; in use all the "
                              "same, until there are others");
        return DLP_OK;
    }
    return dlpi_s3_fetch_error(s, "the credentials have expired; renew them", err);
}

/* Read credentials from the JSON in s->answer. token: what their session token is called there. */
DLPI_COLD
static int dlpi_s3_fetched_json(const dlpi_s3_config *c, dlpi_s3_scratch *s, const char *token,
                                int64_t clock_s, dlpi_s3_credentials *who, dlp_s3_error *err) {
    int code;
    /* Where a member is missing, or none of its kind, "" is left; both buffers would hold any. */
    dlpi_s3_json_text(s->answer, s->n, "Expiration", s->session, sizeof s->session);
    if (!dlpi_s3_copy(s->expires, sizeof s->expires, s->session))
        dlpi_s3_copy(s->expires, sizeof s->expires, "none");
    dlpi_s3_json_text(s->answer, s->n, token, s->session, sizeof s->session);
    dlpi_s3_json_text(s->answer, s->n, "SecretAccessKey", s->secret, sizeof s->secret);
    if (!dlpi_s3_json_text(s->answer, s->n, "AccessKeyId", s->access, sizeof s->access))
        return dlpi_s3_fetch_error(
            s, "the answer is not the JSON of credentials: AccessKeyId is missing", err);
    code = dlpi_s3_who_set(who, s->access, s->secret, s->session, s->from, DLP_ERR_REMOTE, err);
    return code ? code : dlpi_s3_fetched_until(c, s, who, clock_s, err);
}

/* Read the keys of the base profile from its files again. Returns 0, or a DLP_ERR code with *err
   filled. */
DLPI_COLD
static int dlpi_s3_fetch_file(const dlpi_s3_config *c, dlpi_s3_credentials *who,
                              dlp_s3_error *err) {
    dlpi_s3_profiles p;
    int code = dlpi_s3_profiles_open(&p, c, err);
    if (code) return code;
    p.profile = c->base;
    code = dlpi_s3_profiles_has(&p, err);
    if (code >= 0) code = dlpi_s3_profiles_keys(&p, who, err);
    dlpi_s3_profiles_close(&p);
    if (code) return code < 0 ? code : DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                             "profile \"%.60s\" has no keys any more; add aws_access_key_id",
                             c->base);
}

/* Split a command into words (to: their memory) as a POSIX shell does with quotes and backslashes,
   and nothing else of a shell. Returns how many, or -1: a quote is open, or they are too many. */
DLPI_COLD
static int dlpi_s3_process_split(const char *command, char *to, char **argv, int max) {
    int n = 0;
    const char *at = command;
    for (;;) {
        char quote = '\0';
        at += strspn(at, " \t\r\n");
        if (!*at) break;
        if (n == max - 1) return -1;
        argv[n++] = to;
        for (; *at && (quote || !strchr(" \t\r\n", *at)); at++) {
            if (quote ? *at == quote : *at == '\'' || *at == '"') {
                quote = quote ? '\0' : *at;
                continue;
            }
            if (*at == '\\' && quote != '\'' && at[1] && (!quote || at[1] == '"' || at[1] == '\\'))
                at++;
            *to++ = *at;
        }
        if (quote) return -1;
        *to++ = '\0';
    }
    argv[n] = NULL;
    return n;
}

/* Have the new program close descriptors that it would inherit, which other code opened without
   O_CLOEXEC. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_process_closes(posix_spawn_file_actions_t *actions) {
    int self = dlpi_fd_above(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), e = 0;
    DIR *dir = self >= 0 ? fdopendir(self) : NULL;
    struct dirent *one;
    if (!dir) return errno == ENOENT ? 0 : errno; /* there may be no /proc */
    while (!e && (one = readdir(dir))) {
        int fd = atoi(one->d_name), flags = fd > 2 ? fcntl(fd, F_GETFD) : -1;
        if (flags >= 0 && !(flags & FD_CLOEXEC)) e = posix_spawn_file_actions_addclose(actions, fd);
    }
    closedir(dir);
    return e;
}

/* Start a program in a process group of its own, with default signals, no input, and its output in
   a pipe, *out. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_process_spawn(char **argv, int *out, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int fd[2], e;
    if (dlpi_pair_above(pipe2(fd, O_CLOEXEC), fd)) return errno;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    e = posix_spawn_file_actions_init(&actions);
    if (e) goto no_actions;
    e = posix_spawnattr_init(&attr);
    if (e) goto no_attr;
    e = posix_spawn_file_actions_adddup2(&actions, fd[1], 1);
    if (!e) e = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!e) e = dlpi_s3_process_closes(&actions);
    if (!e) e = posix_spawnattr_setsigmask(&attr, &none);
    if (!e) e = posix_spawnattr_setsigdefault(&attr, &all);
    if (!e) e = posix_spawnattr_setpgroup(&attr, 0);
    if (!e)
        e = posix_spawnattr_setflags(
            &attr, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
    if (!e) e = posix_spawnp(pid, argv[0], &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
no_attr:
    posix_spawn_file_actions_destroy(&actions);
no_actions:
    close(fd[1]);
    if (e) close(fd[0]);
    *out = fd[0];
    return e;
}

/* Read all output of a program into s->answer. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_process_read(int fd, dlpi_s3_scratch *s, const dlpi_s3_wait *w) {
    s->n = 0;
    for (;;) {
        ssize_t got;
        if (!dlpi_s3_wait_for(w, fd, POLLIN, INT32_MAX)) return "it takes too long";
        got = read(fd, s->answer + s->n, DLPI_S3_ANSWER_MAX - s->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return strerror(errno);
        s->n += (size_t)got;
        s->answer[s->n] = '\0';
        if (got == 0) return NULL;
        if (s->n == DLPI_S3_ANSWER_MAX) return "its output has more than 64 KiB";
    }
}

/* Kill the program's process group. As long as the child pid has not been waited for, dead or not,
   no other process or group has its number. */
DLPI_COLD
static void dlpi_s3_process_kill(pid_t pid) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0) kill(-pid, SIGKILL);
}

/* Wait for the end of a program. If its time is over, kill it and set *late, which tells that it
   was killed. Returns its status; 0 if a waitpid of the user's, or SIGCHLD ignored, took the status
   away. */
DLPI_COLD
static int dlpi_s3_process_end(pid_t pid, const dlpi_s3_wait *w, bool *late) {
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, *late ? 0 : WNOHANG);
        if (got == pid) return status;
        if (got < 0 && errno != EINTR) return 0;
        if (got == 0 && !dlpi_s3_wait_for(w, -1, 0, 2) && dlpi_s3_wait_over(w)) {
            dlpi_s3_process_kill(pid);
            *late = true;
        }
    }
}

/* Run the profile's credential_process, and take the keys from its output. A process that does not
   end in time, or before a stop, is killed. Returns 0, or a DLP_ERR code with *err filled. */
DLPI_COLD
static int dlpi_s3_fetch_process(const dlpi_s3_config *c, dlpi_s3_scratch *s,
                                 dlpi_s3_credentials *who, const uint32_t *stop,
                                 dlp_s3_error *err) {
    dlpi_s3_wait w = {dlpi_s3_in_ms(c->timeout_ms), stop};
    int n = dlpi_s3_process_split(c->process, s->body, s->argv, 64), fd = -1, status, e;
    const char *why;
    bool late = false;
    pid_t pid = 0;
    if (n < 1)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "profile \"%.60s\": credential_process: %s",
                                 c->base,
                                 n ? "its quotes do not match" : "it is empty; give a command");
    e = dlpi_s3_process_spawn(s->argv, &fd, &pid);
    if (e)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e,
                                 "credential_process (%.60s): %s; check the command", s->argv[0],
                                 strerror(e));
    why = dlpi_s3_process_read(fd, s, &w);
    close(fd);
    if (why) dlpi_s3_process_kill(pid);
    late = why != NULL;
    status = dlpi_s3_process_end(pid, &w, &late);
    if (!why && late) why = "it does not end";
    if (why)
        return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                                 "credential_process (%.60s): %s; run it by hand", s->argv[0], why);
    if (status)
        return dlpi_s3_set_error(err, DLP_ERR_REMOTE, 0,
                                 "credential_process (%.60s): %s %d; run it by hand", s->argv[0],
                                 WIFSIGNALED(status) ? "signal" : "exit status",
                                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (!dlpi_s3_json_text(s->answer, s->n, "Version", s->word, sizeof s->word) ||
        strcmp(s->word, "1") != 0)
        return dlpi_s3_set_error(
            err, DLP_ERR_REMOTE, 0,
            "credential_process (%.60s): its output is not JSON of Version 1; run it by hand",
            s->argv[0]);
    return dlpi_s3_fetched_json(c, s, "SessionToken", 0, who, err);
}

/* True if a token can be sent. A container's is a header's whole value; others are one word. */
DLPI_COLD
static bool dlpi_s3_token_ok(const dlpi_s3_config *c, const char *token) {
    if (c->source != DLPI_S3_CONTAINER) return dlpi_s3_is_graphic(token);
    return token[strspn(token, " \t")] && dlpi_s3_http_is_text(token, strlen(token));
}

/* Read the token file into s->token, without its line end: a head or a form takes one line. */
DLPI_COLD
static int dlpi_s3_fetch_token(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlp_s3_error *err) {
    size_t n = 0;
    int e = dlpi_s3_file_read(c->token_file, s->token, sizeof s->token, &n);
    if (e)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e,
                                 "credentials (%s): token file %.60s: %s; check its path",
                                 dlpi_s3_source_name(c->source), c->token_file, strerror(e));
    while (n && (s->token[n - 1] == '\n' || s->token[n - 1] == '\r')) s->token[--n] = '\0';
    if (dlpi_s3_token_ok(c, s->token)) return DLP_OK;
    return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                             "credentials (%s): %.60s is not a token, which is one printable line",
                             dlpi_s3_source_name(c->source), c->token_file);
}

/* Write a form for STS into s->body, without fields that are NULL or "". False: it is too long. */
DLPI_COLD
static bool dlpi_s3_sts_form(dlpi_s3_scratch *s, const char *action, const char *const fields[][2],
                             size_t n_fields) {
    dlpi_s3_out o = {s->body, sizeof s->body, 0};
    dlpi_s3_out_param(&o, "Action", action);
    dlpi_s3_out_param(&o, "Version", "2011-06-15");
    for (size_t i = 0; i < n_fields; i++) dlpi_s3_out_param(&o, fields[i][0], fields[i][1]);
    return dlpi_s3_out_end(&o);
}

/* Send the form in s->body to STS, and read the credentials in the answer to who. */
DLPI_COLD
static int dlpi_s3_fetch_sts(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_ask *a,
                             const char *action, dlpi_s3_credentials *who, const uint32_t *stop,
                             dlp_s3_error *err) {
    char path[160];
    struct {
        const char *name;
        char *to;
        size_t size;
    } part[4] = {{"AccessKeyId", s->access, sizeof s->access},
                 {"SecretAccessKey", s->secret, sizeof s->secret},
                 {"SessionToken", s->session, sizeof s->session},
                 {"Expiration", s->expires, sizeof s->expires}};
    int code;
    a->method = "POST";
    a->lines = "";
    a->body = s->body;
    if (!dlpi_s3_ask_well(c, a, s, stop)) return dlpi_s3_ask_error(c, a, s, err);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%sResponse/%sResult/Credentials/%s", action, action,
                 part[i].name);
        if (dlpi_s3_xml_text(s->answer, s->n, path, part[i].to, part[i].size) && *part[i].to)
            continue;
        snprintf(path, sizeof path, "the answer has no %s; check the endpoint of STS",
                 part[i].name);
        return dlpi_s3_fetch_error(s, path, err);
    }
    code = dlpi_s3_who_set(who, s->access, s->secret, s->session, s->from, DLP_ERR_REMOTE, err);
    return code ? code : dlpi_s3_fetched_until(c, s, who, s->http.date_s, err);
}

/* Get credentials from STS for a web identity token. It is the proof: nothing is signed. */
DLPI_COLD
static int dlpi_s3_fetch_web(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_credentials *who,
                             const uint32_t *stop, dlp_s3_error *err) {
    static const char action[] = "AssumeRoleWithWebIdentity";
    const char *const fields[][2] = {
        {"RoleArn", c->role}, {"RoleSessionName", c->session}, {"WebIdentityToken", s->token}};
    dlpi_s3_ask a = {.url = c->url};
    int code = dlpi_s3_fetch_token(c, s, err);
    if (code) return code;
    if (!dlpi_s3_sts_form(s, action, fields, 3))
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "credentials (web identity): role, session and token are too long");
    return dlpi_s3_fetch_sts(c, s, &a, action, who, stop, err);
}

/* Assume a role at STS with the credentials in who, and put those of the role there. */
DLPI_COLD
static int dlpi_s3_fetch_role(const dlpi_s3_config *c, dlpi_s3_scratch *s, const dlpi_s3_role *role,
                              dlpi_s3_credentials *who, const uint32_t *stop, dlp_s3_error *err) {
    static const char action[] = "AssumeRole";
    char seconds[16] = "", from[96];
    const char *const fields[][2] = {{"RoleArn", role->arn},
                                     {"RoleSessionName", role->session},
                                     {"ExternalId", role->external_id},
                                     {"DurationSeconds", seconds}};
    dlpi_s3_ask a = {.url = c->sts, .who = who, .region = c->region};
    int code;
    if (role->duration_s) snprintf(seconds, sizeof seconds, "%d", (int)role->duration_s);
    snprintf(from, sizeof from, "role of profile \"%.60s\"", role->profile);
    s->from = from;
    s->role = role;
    if (!dlpi_s3_sts_form(s, action, fields, 4))
        return dlpi_s3_fetch_error(s, "role and session are too long", err);
    code = dlpi_s3_fetch_sts(c, s, &a, action, who, stop, err);
    s->from = "";
    return code;
}

/* Ask the container's server for keys, with the token of a file or of the environment. Returns 0,
   or a DLP_ERR code with *err filled. */
DLPI_COLD
static int dlpi_s3_fetch_container(const dlpi_s3_config *c, dlpi_s3_scratch *s,
                                   dlpi_s3_credentials *who, const uint32_t *stop,
                                   dlp_s3_error *err) {
    dlpi_s3_ask a = {.url = c->url, .method = "GET", .lines = s->lines, .nearby = true};
    int code = c->token_file[0] ? dlpi_s3_fetch_token(c, s, err) : DLP_OK;
    if (code) return code;
    if (!c->token_file[0]) dlpi_s3_copy(s->token, sizeof s->token, c->authorization);
    if (s->token[0] && !dlpi_s3_token_ok(c, s->token))
        return dlpi_s3_set_error(
            err, DLP_ERR_ARG, 0,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN is not a token, which is one printable line");
    snprintf(s->lines, sizeof s->lines, s->token[0] ? "Authorization: %s\r\n" : "%s", s->token);
    if (!dlpi_s3_ask_well(c, &a, s, stop)) return dlpi_s3_ask_error(c, &a, s, err);
    return dlpi_s3_fetched_json(c, s, "Token", s->http.date_s, who, err);
}

/* Fill in err, and what to set instead: only AWS' machines have this. If the service has the whole
   request for a token and is silent, its answer may be lost on the way into a container. Its
   packets live for as many hops as the machine's hop limit says. Returns DLP_ERR_REMOTE. */
DLPI_COLD
static int dlpi_s3_machine_error(const dlpi_s3_config *c, const dlpi_s3_ask *a,
                                 const dlpi_s3_scratch *s, dlp_s3_error *err) {
    const int code = dlpi_s3_ask_error(c, a, s, err);
    const size_t n = err ? strlen(err->message) : 0;
    if (err)
        snprintf(err->message + n, sizeof err->message - n, "%s",
                 a->went ? "; in a container raise the hop limit (HttpPutResponseHopLimit) to 2; "
                           "else set AWS_PROFILE"
                         : "; else set AWS_ACCESS_KEY_ID or AWS_PROFILE");
    return code;
}

/* Ask the metadata service by IMDSv2: for a token that lives 6 hours, the role's name, its
   credentials. Version 1 is never used: a process that can be talked into a GET gives the
   credentials away. */
DLPI_COLD
static int dlpi_s3_fetch_machine(const dlpi_s3_config *c, dlpi_s3_scratch *s,
                                 dlpi_s3_credentials *who, const uint32_t *stop,
                                 dlp_s3_error *err) {
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    dlpi_s3_ask a = {.url = c->url,
                     .method = "PUT",
                     .path = "/latest/api/token",
                     .lines = "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"
                              "Content-Length: 0\r\n"};
    char path[sizeof roles + sizeof s->word];
    if (!dlpi_s3_ask_well(c, &a, s, stop)) return dlpi_s3_machine_error(c, &a, s, err);
    if (!dlpi_s3_is_graphic(s->answer) || !dlpi_s3_copy(s->token, sizeof s->token, s->answer))
        return dlpi_s3_fetch_error(s, "the token is too long, or has odd bytes; check the endpoint",
                                   err);
    snprintf(s->lines, sizeof s->lines, "X-aws-ec2-metadata-token: %s\r\n", s->token);
    a.method = "GET";
    a.lines = s->lines;
    a.path = roles;
    if (!dlpi_s3_ask_well(c, &a, s, stop))
        return a.status == 404
                   ? dlpi_s3_fetch_error(
                         s, "this machine has no role; attach one, or set AWS_ACCESS_KEY_ID", err)
                   : dlpi_s3_ask_error(c, &a, s, err);
    s->answer[strcspn(s->answer, "\r\n")] = '\0';
    if (!s->answer[0] || !dlpi_s3_copy(s->word, sizeof s->word, s->answer) ||
        s->word[strspn(s->word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "+=,.@_-")])
        return dlpi_s3_fetch_error(s, "the role's name has odd bytes; check the endpoint", err);
    snprintf(path, sizeof path, "%s%s", roles, s->word);
    a.path = path;
    if (!dlpi_s3_ask_well(c, &a, s, stop)) return dlpi_s3_ask_error(c, &a, s, err);
    if (dlpi_s3_json_text(s->answer, s->n, "Code", s->word, sizeof s->word) &&
        strcmp(s->word, "Success") != 0)
        return dlpi_s3_ask_error(c, &a, s, err);
    return dlpi_s3_fetched_json(c, s, "Token", s->http.date_s, who, err);
}

/* Fetch credentials from the configured source, without roles. s: zeroed. */
DLPI_COLD
static int dlpi_s3_fetch_base(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_credentials *who,
                              const uint32_t *stop, dlp_s3_error *err) {
    s->from = dlpi_s3_source_name(c->source);
    switch (c->source) {
    case DLPI_S3_FILE: return dlpi_s3_fetch_file(c, who, err);
    case DLPI_S3_PROCESS: return dlpi_s3_fetch_process(c, s, who, stop, err);
    case DLPI_S3_WEB: return dlpi_s3_fetch_web(c, s, who, stop, err);
    case DLPI_S3_CONTAINER: return dlpi_s3_fetch_container(c, s, who, stop, err);
    case DLPI_S3_MACHINE: return dlpi_s3_fetch_machine(c, s, who, stop, err);
    default: *who = c->given; return DLP_OK;
    }
}

/* Fetch credentials, then assume the roles, each with the credentials of the one before it. */
DLPI_COLD
static int dlpi_s3_fetch(const dlpi_s3_config *c, dlpi_s3_scratch *s, dlpi_s3_credentials *who,
                         const uint32_t *stop, dlp_s3_error *err) {
    int code = dlpi_s3_fetch_base(c, s, who, stop, err);
    for (int i = c->n_roles; code == DLP_OK && i-- > 0;)
        code = dlpi_s3_fetch_role(c, s, &c->roles[i], who, stop, err);
    return code;
}

/* ---- the credential cache ---- */

/* Begin a robust mutex that processes share. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_mutex_begin(pthread_mutex_t *m) {
    pthread_mutexattr_t a;
    int e = pthread_mutexattr_init(&a);
    if (e) return e;
    e = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (!e) e = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (!e) e = pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
    return e;
}

/* Turn e, the result of locking m, into 0 or an errno. If the last holder died, m is put in order:
   the data that it left are whole, see above. */
DLPI_COLD
static int dlpi_s3_mutex_taken(pthread_mutex_t *m, int e) {
    return e == EOWNERDEAD ? pthread_mutex_consistent(m) : e;
}

DLPI_COLD
static int dlpi_s3_mutex_lock(pthread_mutex_t *m) {
    return dlpi_s3_mutex_taken(m, pthread_mutex_lock(m));
}

/* Lock a mutex. Give up after two minutes, or when *stop is set. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_mutex_wait(pthread_mutex_t *m, const uint32_t *stop) {
    dlpi_s3_wait w = {dlpi_s3_in_ms(120000), stop};
    for (;;) {
        struct timespec t;
        int e;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 50000000;
        if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
        e = dlpi_s3_mutex_taken(m, pthread_mutex_timedlock(m, &t));
        if (e != ETIMEDOUT || dlpi_s3_wait_over(&w)) return e;
    }
}

/* Begin a cache, which is zeroed and in memory that processes share. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_cred_cache_begin(dlpi_s3_cred_cache *v) {
    int e = dlpi_s3_mutex_begin(&v->fetching);
    v->random = dlpi_s3_now_ns() | 1;
    return e ? e : dlpi_s3_mutex_begin(&v->looking);
}

/* True if the last failure is too recent to try again, even if the clock was set back: 60 s at
   most. */
DLPI_COLD
static bool dlpi_s3_cred_cache_waits(const dlpi_s3_cred_cache *v, int64_t now_s) {
    int64_t left_s = DLPI_LOAD_RLX(&v->retry_s) - now_s;
    return left_s > 0 && left_s <= 60;
}

/* Get the credentials that are valid at now_s. out: zeroed before the first call, then as the last
   call left it; copied only if not current. Returns 0: valid; 1: valid, but begin a refresh;
   DLP_ERR_STATE: a refresh of out->version must come first. Does not wait for a refresh. */
DLPI_COLD
static int dlpi_s3_cred_cache_get(dlpi_s3_cred_cache *v, int64_t now_s, dlpi_s3_credentials *out) {
    uint64_t version = DLPI_LOAD_ACQ(&v->version); /* V2 <- V1 */
    int64_t refresh_s;
    if (version == 0) return DLP_ERR_STATE;
    if (out->version != version) {
        if (dlpi_s3_mutex_lock(&v->looking)) return DLP_ERR_STATE;
        version = DLPI_LOAD_RLX(&v->version);
        *out = v->slot[version % 2];
        pthread_mutex_unlock(&v->looking);
    }
    if (out->expires_s == 0) return 0;
    if (now_s >= out->expires_s) return DLP_ERR_STATE;
    refresh_s = DLPI_LOAD_RLX(&v->refresh_s[version % 2]);
    return now_s >= refresh_s && !dlpi_s3_cred_cache_waits(v, now_s);
}

/* Return when credentials are to be fetched again: some 5 minutes before they expire, not at the
   same second everywhere, and not in the first half of a short life. */
DLPI_COLD
static int64_t dlpi_s3_refresh_at(dlpi_s3_cred_cache *v, int64_t now_s, int64_t expires_s) {
    int64_t before = 300 - (int64_t)(dlpi_s3_random(&v->random) % 60);
    int64_t half = (expires_s - now_s) / 2;
    return expires_s - (half < before ? half : before);
}

/* Make who the current credentials. The caller holds the lock "fetching". Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_cred_cache_publish(dlpi_s3_cred_cache *v, const dlpi_s3_credentials *who,
                                      int64_t now_s) {
    uint64_t version = DLPI_LOAD_RLX(&v->version) + 1;
    int64_t refresh_s = who->expires_s ? dlpi_s3_refresh_at(v, now_s, who->expires_s) : INT64_MAX;
    int e = dlpi_s3_mutex_lock(&v->looking);
    if (e) return e;
    v->slot[version % 2] = *who;
    v->slot[version % 2].version = version;
    DLPI_STORE_RLX(&v->refresh_s[version % 2], refresh_s);
    DLPI_STORE_REL(&v->version, version); /* V1 -> V2 */
    pthread_mutex_unlock(&v->looking);
    v->failures = 0;
    return 0;
}

DLPI_COLD
static bool dlpi_s3_cred_cache_valid(const dlpi_s3_cred_cache *v, int64_t now_s) {
    uint64_t version = DLPI_LOAD_RLX(&v->version);
    int64_t expires_s = v->slot[version % 2].expires_s;
    return version && (expires_s == 0 || now_s < expires_s);
}

/* Decide whether a refresh has to fetch. The caller holds the lock "fetching". Returns 1: fetch; 0:
   there are good credentials; or an error code: none can be had. */
DLPI_COLD
static int dlpi_s3_cred_cache_wants(const dlpi_s3_config *c, dlpi_s3_cred_cache *v, uint64_t seen,
                                    bool force, dlp_s3_error *err) {
    uint64_t version = DLPI_LOAD_RLX(&v->version);
    int64_t now_s = c->clock();
    bool valid = dlpi_s3_cred_cache_valid(v, now_s);
    if (valid && version != seen) return 0; /* somebody else did it */
    if (valid && !force && now_s < DLPI_LOAD_RLX(&v->refresh_s[version % 2])) return 0;
    if (version && dlpi_s3_config_fixed(c))
        return dlpi_s3_set_error(
            err, DLP_ERR_REMOTE, 0,
            "credentials (%s): refused or over, and there are no newer ones; replace them",
            dlpi_s3_config_from(c));
    if (!dlpi_s3_cred_cache_waits(v, now_s)) return 1;
    if (valid && !force) return 0;
    return dlpi_s3_set_error(err, v->failed_code, 0, "%s", v->failed);
}

/* Note a failure to fetch: the old credentials stay. The next attempt comes later each time, but
   within a minute; within 6 s if no valid credentials are left. */
DLPI_COLD
static void dlpi_s3_cred_cache_failed(const dlpi_s3_config *c, dlpi_s3_cred_cache *v,
                                      const dlp_s3_error *why) {
    bool valid = dlpi_s3_cred_cache_valid(v, c->clock());
    uint32_t most = valid ? 5 : 2, doubled = v->failures < most ? v->failures : most;
    int64_t wait_s = (int64_t)1 << doubled;
    char line[400];
    wait_s += (int64_t)(dlpi_s3_random(&v->random) % (uint64_t)wait_s) / 2;
    v->failures++;
    v->failed_code = why->code;
    dlpi_s3_copy(v->failed, sizeof v->failed, why->message);
    DLPI_STORE_RLX(&v->retry_s, c->clock() + wait_s);
    snprintf(line, sizeof line, "s3: %s; %s, the next attempt is in %d s", why->message,
             valid ? "the present ones stay in use" : "no credentials are left", (int)wait_s);
    dlpi_s3_config_log(c, line);
}

/* Fetch and publish credentials. The caller holds "fetching". Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_cred_cache_renew(const dlpi_s3_config *c, dlpi_s3_cred_cache *v, bool force,
                                    const uint32_t *stop, dlp_s3_error *err) {
    struct both {
        dlpi_s3_credentials who;
        dlpi_s3_scratch scratch;
    } * b;
    const dlpi_s3_credentials *old = &v->slot[DLPI_LOAD_RLX(&v->version) % 2];
    int code, e;
    b = (struct both *)dlpi_s3_private_map(sizeof *b);
    if (!b)
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, ENOMEM,
                                 "credentials: no memory to fetch them");
    code = dlpi_s3_fetch(c, &b->scratch, &b->who, stop, err);
    if (!code && force && strcmp(old->secret, b->who.secret) == 0 &&
        strcmp(old->token, b->who.token) == 0)
        code = dlpi_s3_set_error(
            err, DLP_ERR_REMOTE, 0,
            "credentials (%s): the same ones again, which the server refuses; renew them",
            dlpi_s3_config_from(c));
    if (!code && (e = dlpi_s3_cred_cache_publish(v, &b->who, c->clock())) != 0)
        code = dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e, "credentials: cannot lock them: %s",
                                 strerror(e));
    dlpi_s3_private_unmap(b, sizeof *b, sizeof *b);
    return code;
}

/* Log that credentials were fetched, from where, and until when they are valid. Fixed credentials
   are not logged. */
DLPI_COLD
static void dlpi_s3_cred_cache_tell(const dlpi_s3_config *c, const dlpi_s3_cred_cache *v) {
    const dlpi_s3_credentials *who = &v->slot[DLPI_LOAD_RLX(&v->version) % 2];
    char line[160], date[17] = "";
    if (dlpi_s3_config_fixed(c)) return;
    if (who->expires_s) dlpi_s3_date(who->expires_s, date);
    snprintf(line, sizeof line, "s3: credentials fetched (%s)%s%s", dlpi_s3_config_from(c),
             *date ? ", valid until " : "", date);
    dlpi_s3_config_log(c, line);
}

/* Fetch credentials, once for all processes: if there are valid ones other than version seen, do
   nothing. force: replace version seen, though it is valid by the clock (the server refused it).
   stop: NULL, or a word that ends the waiting when it is set. Returns DLP_OK or an error code;
   without force also DLP_OK if fetching failed and the old ones are valid. Waits for files,
   processes, names, the network, with time-outs for all but names: not in the thread that does
   I/O. */
DLPI_COLD
static int dlpi_s3_cred_cache_refresh_until(const dlpi_s3_config *c, dlpi_s3_cred_cache *v,
                                            uint64_t seen, bool force, const uint32_t *stop,
                                            dlp_s3_error *err) {
    dlp_s3_error why;
    bool stopped;
    int code, e = dlpi_s3_mutex_wait(&v->fetching, stop);
    if (e)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, e,
                                 "credentials: others are fetching them: %s", strerror(e));
    memset(&why, 0, sizeof why);
    code = dlpi_s3_cred_cache_wants(c, v, seen, force, &why);
    if (code == 1) {
        code = dlpi_s3_cred_cache_renew(c, v, force, stop, &why);
        stopped = stop && DLPI_LOAD_RLX(stop); /* whose log it is may be gone then */
        if (!stopped && code == DLP_OK) dlpi_s3_cred_cache_tell(c, v);
        if (!stopped && code != DLP_OK) dlpi_s3_cred_cache_failed(c, v, &why);
        if (code && !force && dlpi_s3_cred_cache_valid(v, c->clock())) code = DLP_OK;
    }
    pthread_mutex_unlock(&v->fetching);
    if (code && err) *err = why;
    return code;
}

DLPI_COLD
static int dlpi_s3_cred_cache_refresh(const dlpi_s3_config *c, dlpi_s3_cred_cache *v, uint64_t seen,
                                      bool force, dlp_s3_error *err) {
    return dlpi_s3_cred_cache_refresh_until(c, v, seen, force, NULL, err);
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-helper       WHAT MAY BLOCK: NAMES, CREDENTIALS
   A thread for each dlp_s3_io, started when it first has something to do, which may wait as long as
   resolvers and metadata services let it. Who has it ask never waits: it is told "later", and a
   news_fd (an eventfd) is readable when there is news.

   The record has two owners, the io and the thread, and is freed by the last. Closing does not wait
   for a resolver that hangs: the thread is left to itself, and takes the record, and its hold on
   the client, along when it ends. All of it but what is written once is behind the lock. */

enum { DLPI_S3_NAMES_MAX = 64, DLPI_S3_ADDRESSES_MAX = 16, DLPI_S3_HELPER_STACK = 512 * 1024 };

#define DLPI_S3_SECOND 1000000000ull
#define DLPI_S3_NAME_FRESH_NS (60 * DLPI_S3_SECOND) /* then they are asked for again; serve on, */
#define DLPI_S3_NAME_OLD_NS (660 * DLPI_S3_SECOND)  /* but no longer than this */
#define DLPI_S3_NAME_AGAIN_NS \
    (1 * DLPI_S3_SECOND)                             /* so long a failure is told, not retried, and
                                                        addresses that all fail are not doubted */
#define DLPI_S3_ADDRESS_BAD_NS (10 * DLPI_S3_SECOND) /* put last; doubled 5 times at most */

enum { DLPI_S3_NAME_KNOWN = 0, DLPI_S3_NAME_WANTED, DLPI_S3_NAME_ASKED };

typedef struct dlpi_s3_name {
    struct dlpi_s3_name *next;
    char host[256];
    uint16_t port;
    int32_t state;
    int32_t errnum;                        /* of the last failure, with why */
    uint32_t n, turn;                      /* addresses, and which is next */
    uint64_t found_ns, failed_ns, used_ns; /* 0: never */
    dlpi_s3_address at[DLPI_S3_ADDRESSES_MAX];
    uint64_t bad_until_ns[DLPI_S3_ADDRESSES_MAX];
    uint8_t fails[DLPI_S3_ADDRESSES_MAX]; /* one after the other */
    char why[200];
} dlpi_s3_name;

/* Whose credentials are refreshed; stop: 1: it is to be given up. keep and drop: the helper's hold
   on it, which may outlast the io's; drop may be called by the helper's thread. */
typedef struct dlpi_s3_owner {
    void *user;
    int (*refresh)(void *user, uint64_t seen_version, bool force, const uint32_t *stop,
                   dlp_s3_error *err);
    void (*keep)(void *user);
    void (*drop)(void *user);
} dlpi_s3_owner;

typedef struct dlpi_s3_helper {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    pid_t pid;
    int32_t news_fd; /* -1: nobody listens any more */
    uint32_t owners;
    uint32_t stop; /* read without the lock, too */
    bool started, busy;
    bool refreshing, refresh_wanted, refresh_force;
    uint64_t refresh_seen;      /* version */
    uint64_t refreshes;         /* ended */
    dlp_s3_error refresh_error; /* of the last; code 0: it went well */
    dlpi_s3_owner owner;
    dlpi_s3_name *names;
    uint32_t n_names;
} dlpi_s3_helper;

/* Make a helper, without a thread yet. owner: copied; NULL: it only looks up names. Returns NULL,
   with errno, if there is no memory or no descriptor. */
DLPI_COLD
static dlpi_s3_helper *dlpi_s3_helper_new(const dlpi_s3_owner *owner) {
    dlpi_s3_helper *h = (dlpi_s3_helper *)calloc(1, sizeof *h);
    if (!h) return NULL;
    h->news_fd = dlpi_fd_above(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (h->news_fd < 0) {
        free(h);
        return NULL;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    h->pid = getpid();
    h->owners = 1;
    if (owner) h->owner = *owner;
    if (h->owner.keep) h->owner.keep(h->owner.user);
    return h;
}

/* Free a helper, by its last owner or in the child of a fork. The child must not destroy lock and
   condition: the thread seems to wait there still, and would be waited for. */
DLPI_COLD
static void dlpi_s3_helper_destroy(dlpi_s3_helper *h) {
    bool forked = h->pid != getpid();
    while (h->names) {
        dlpi_s3_name *next = h->names->next;
        free(h->names);
        h->names = next;
    }
    if (!forked) pthread_cond_destroy(&h->work);
    if (!forked) pthread_mutex_destroy(&h->lock);
    if (h->owner.drop) h->owner.drop(h->owner.user);
    free(h);
}

/* Give up a share; the last owner frees the helper. The caller holds the lock; it is released. */
DLPI_COLD
static void dlpi_s3_helper_leave(dlpi_s3_helper *h) {
    bool last = --h->owners == 0;
    pthread_mutex_unlock(&h->lock);
    if (last) dlpi_s3_helper_destroy(h);
}

DLPI_COLD
static void dlpi_s3_helper_ring(const dlpi_s3_helper *h) {
    uint64_t one = 1;
    if (h->news_fd >= 0 && write(h->news_fd, &one, sizeof one) < 0)
        return; /* it is readable already */
}

/* ---- its thread ---- */

/* Refresh credentials, in the helper's thread. The lock is held, but released meanwhile. */
DLPI_COLD
static void dlpi_s3_helper_refresh_run(dlpi_s3_helper *h) {
    uint64_t seen = h->refresh_seen;
    bool force = h->refresh_force;
    dlp_s3_error err;
    memset(&err, 0, sizeof err);
    h->refresh_wanted = h->refresh_force = false;
    h->refreshing = true;
    pthread_mutex_unlock(&h->lock);
    err.code = h->owner.refresh(h->owner.user, seen, force, &h->stop, &err);
    pthread_mutex_lock(&h->lock);
    h->refreshing = false;
    pthread_cond_broadcast(&h->work); /* for who closes it */
    h->refresh_error = err;
    h->refreshes++;
}

/* Take over a name's new addresses. What is known of those that it had before stays known. */
DLPI_COLD
static void dlpi_s3_name_found(dlpi_s3_name *name, const dlpi_s3_address *at, uint32_t n) {
    uint64_t bad_until_ns[DLPI_S3_ADDRESSES_MAX] = {0};
    uint8_t fails[DLPI_S3_ADDRESSES_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < name->n; k++) {
            if (!dlpi_s3_address_same(&at[i], &name->at[k])) continue;
            bad_until_ns[i] = name->bad_until_ns[k];
            fails[i] = name->fails[k];
        }
    }
    memcpy(name->at, at, n * sizeof *at);
    memcpy(name->bad_until_ns, bad_until_ns, sizeof bad_until_ns);
    memcpy(name->fails, fails, sizeof fails);
    name->n = n;
    name->found_ns = dlpi_s3_now_ns();
    name->failed_ns = 0;
}

/* Look up a name, in the helper's thread. The lock is released meanwhile, but the name stays in its
   place: only names that nobody asks for make room for others. */
DLPI_COLD
static void dlpi_s3_helper_name_run(dlpi_s3_helper *h, dlpi_s3_name *name) {
    dlpi_s3_address at[DLPI_S3_ADDRESSES_MAX];
    char why[sizeof name->why] = "";
    int n, errnum = 0;
    name->state = DLPI_S3_NAME_ASKED;
    pthread_mutex_unlock(&h->lock);
    n = dlpi_s3_resolve(name->host, name->port, at, DLPI_S3_ADDRESSES_MAX, &errnum, why,
                        sizeof why);
    pthread_mutex_lock(&h->lock);
    name->state = DLPI_S3_NAME_KNOWN;
    if (n > 0) {
        dlpi_s3_name_found(name, at, (uint32_t)n);
        return;
    }
    name->failed_ns = dlpi_s3_now_ns();
    name->errnum = errnum;
    dlpi_s3_copy(name->why, sizeof name->why, why);
}

/* Refresh credentials and look up names for the workers, until the helper is stopped. The lock is
   held except in these calls. */
DLPI_COLD
static void *dlpi_s3_helper_thread(void *arg) {
    dlpi_s3_helper *h = (dlpi_s3_helper *)arg;
    pthread_mutex_lock(&h->lock);
    while (!DLPI_LOAD_RLX(&h->stop)) {
        dlpi_s3_name *name = h->names;
        while (name && name->state != DLPI_S3_NAME_WANTED) name = name->next;
        h->busy = h->refresh_wanted || name;
        if (h->refresh_wanted)
            dlpi_s3_helper_refresh_run(h);
        else if (name)
            dlpi_s3_helper_name_run(h, name);
        else
            pthread_cond_wait(&h->work, &h->lock);
        if (h->busy) dlpi_s3_helper_ring(h);
        h->busy = false;
    }
    dlpi_s3_helper_leave(h);
    return NULL;
}

/* Wake the thread, or start it, with all signals blocked, so that handlers run in the user's
   threads. The caller holds the lock. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_helper_wake(dlpi_s3_helper *h) {
    pthread_attr_t attr;
    sigset_t all, before;
    int rc;
    pthread_cond_signal(&h->work);
    if (h->started) return 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, DLPI_S3_HELPER_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&h->thread, &attr, dlpi_s3_helper_thread, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0) return rc;
    h->started = true;
    h->owners++;
    return 0;
}

/* ---- what the io asks of it ---- */

/* Wait at most 300 ms for the end of a refresh that was told to stop; it may still log. */
DLPI_COLD
static void dlpi_s3_helper_calm(dlpi_s3_helper *h) {
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 300000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (h->refreshing && rc == 0) rc = pthread_cond_timedwait(&h->work, &h->lock, &until);
}

/* Give up the io's share of a helper. Its thread is joined if it is idle, and else left to itself.
   A refresh is waited for, at most 300 ms. In the child of a fork there is no thread, and what it
   held when the process forked is left as it is. */
DLPI_COLD
static void dlpi_s3_helper_free(dlpi_s3_helper *h) {
    pthread_t thread;
    bool join;
    if (!h) return;
    if (h->pid != getpid()) {
        close(h->news_fd);
        if (pthread_mutex_trylock(&h->lock) != 0) return;
        pthread_mutex_unlock(&h->lock);
        if (!h->busy) dlpi_s3_helper_destroy(h);
        return;
    }
    pthread_mutex_lock(&h->lock);
    DLPI_STORE_RLX(&h->stop, 1u); /* what it guards is behind the lock */
    dlpi_s3_helper_calm(h);
    close(h->news_fd);
    h->news_fd = -1;
    pthread_cond_signal(&h->work);
    thread = h->thread;
    join = h->started && !h->busy;
    if (h->started && h->busy) pthread_detach(thread);
    dlpi_s3_helper_leave(h);
    if (join) pthread_join(thread, NULL);
}

/* Return the descriptor that is readable when there is news. */
static inline int dlpi_s3_helper_fd(const dlpi_s3_helper *h) { return h->news_fd; }

/* Reset news_fd, before the news is looked at. */
DLPI_COLD
static void dlpi_s3_helper_heard(const dlpi_s3_helper *h) {
    uint64_t n;
    if (read(h->news_fd, &n, sizeof n) < 0) return; /* there was none */
}

/* Make room for one more name, perhaps that of one long unused. Returns NULL if there is none. */
DLPI_COLD
static dlpi_s3_name *dlpi_s3_name_new(dlpi_s3_helper *h) {
    dlpi_s3_name **oldest = NULL, *name;
    if (h->n_names < DLPI_S3_NAMES_MAX) {
        name = (dlpi_s3_name *)calloc(1, sizeof *name);
        if (name) h->n_names++;
    } else {
        for (dlpi_s3_name **p = &h->names; *p; p = &(*p)->next)
            if ((*p)->state == DLPI_S3_NAME_KNOWN &&
                (!oldest || (*p)->used_ns < (*oldest)->used_ns))
                oldest = p;
        if (!oldest) return NULL;
        name = *oldest;
        *oldest = name->next;
        memset(name, 0, sizeof *name);
    }
    if (!name) return NULL;
    name->next = h->names;
    h->names = name;
    return name;
}

/* Find or make the record of a name. Returns NULL if there is no room. The lock is held. */
DLPI_COLD
static dlpi_s3_name *dlpi_s3_name_get(dlpi_s3_helper *h, const char *host, uint16_t port) {
    dlpi_s3_name *name = h->names;
    uint64_t random = dlpi_s3_now_ns() ^ (uint64_t)h->pid << 40 ^ 1;
    while (name && (name->port != port || strcmp(name->host, host) != 0)) name = name->next;
    if (name) return name;
    name = dlpi_s3_name_new(h);
    if (!name) return NULL;
    name->port = port;
    name->turn = (uint32_t)(dlpi_s3_random(&random) >> 33); /* not all workers begin with one */
    dlpi_s3_copy(name->host, sizeof name->host, host);
    return name;
}

/* Choose the next address in turn that has not failed lately, else the one to be tried first. */
DLPI_COLD
static void dlpi_s3_name_pick(dlpi_s3_name *name, uint64_t now, dlpi_s3_address *out) {
    uint32_t best = name->turn % name->n;
    for (uint32_t k = 0; k < name->n; k++) {
        uint32_t i = (name->turn + k) % name->n;
        if (name->bad_until_ns[best] <= now) break;
        if (name->bad_until_ns[i] < name->bad_until_ns[best]) best = i;
    }
    name->turn = best + 1;
    *out = name->at[best];
}

/* True if all addresses of a name have failed lately: the server may have moved. */
DLPI_COLD
static bool dlpi_s3_name_lost(const dlpi_s3_name *name, uint64_t now) {
    for (uint32_t i = 0; i < name->n; i++)
        if (name->bad_until_ns[i] <= now) return false;
    return true;
}

/* Have the thread look up a name if that is due. Returns 0, or an errno if there is no thread. */
DLPI_COLD
static int dlpi_s3_name_ask(dlpi_s3_helper *h, dlpi_s3_name *name, uint64_t now) {
    bool lost = dlpi_s3_name_lost(name, now);
    bool fresh =
        name->n && now - name->found_ns < (lost ? DLPI_S3_NAME_AGAIN_NS : DLPI_S3_NAME_FRESH_NS);
    bool failed = name->failed_ns && now - name->failed_ns < DLPI_S3_NAME_AGAIN_NS;
    int rc;
    if (name->state != DLPI_S3_NAME_KNOWN || fresh || failed) return 0;
    rc = dlpi_s3_helper_wake(h);
    if (rc == 0) name->state = DLPI_S3_NAME_WANTED;
    return rc;
}

/* Give an address of a name; the lock is held. Returns as dlpi_s3_helper_address does. */
DLPI_COLD
static int dlpi_s3_name_answer(dlpi_s3_helper *h, const char *host, uint16_t port,
                               dlpi_s3_address *out, int *errnum, char *why, size_t size) {
    dlpi_s3_name *name = dlpi_s3_name_get(h, host, port);
    uint64_t now = dlpi_s3_now_ns();
    *errnum = ENOMEM;
    dlpi_s3_copy(why, size, "no memory for a name");
    if (!name) return DLP_ERR_MEMORY;
    name->used_ns = now;
    *errnum = dlpi_s3_name_ask(h, name, now);
    if (name->n && now - name->found_ns >= DLPI_S3_NAME_OLD_NS) name->n = 0;
    if (name->n) {
        dlpi_s3_name_pick(name, now, out);
        return 0;
    }
    snprintf(why, size, "no thread to look for '%.100s': %s", host, strerror(*errnum));
    if (*errnum) return DLP_ERR_SYSTEM;
    if (name->state != DLPI_S3_NAME_KNOWN) return 1;
    *errnum = name->errnum;
    dlpi_s3_copy(why, size, name->why);
    return DLP_ERR_REMOTE;
}

/* Give an address of a host: of a number at once, of a name in turn. Does not wait. Returns 0; 1:
   not known yet, ask again when news_fd is readable; DLP_ERR_REMOTE: not found (errnum EAGAIN:
   perhaps later, or ENXIO); or another error code. why and errnum are set with an error. */
DLPI_COLD
static int dlpi_s3_helper_address(dlpi_s3_helper *h, const char *host, uint16_t port,
                                  dlpi_s3_address *out, int *errnum, char *why, size_t size) {
    int code = DLP_ERR_FORKED;
    *errnum = 0;
    if (dlpi_s3_address_numeric(host, port, out)) return 0;
    dlpi_s3_copy(why, size, "no host names in the child of a fork; open an io there");
    if (h->pid != getpid()) return code;
    snprintf(why, size, "host name '%.40s...' is too long; check the endpoint", host);
    if (strlen(host) >= sizeof h->names->host) return DLP_ERR_ARG;
    pthread_mutex_lock(&h->lock);
    code = dlpi_s3_name_answer(h, host, port, out, errnum, why, size);
    pthread_mutex_unlock(&h->lock);
    if (code >= 0 && size) why[0] = '\0';
    return code;
}

/* Note that an address has worked or failed. If it fails while it is put last already, that is the
   same failure: many connections are tried at once, and do not make the time longer. */
DLPI_COLD
static void dlpi_s3_name_tried(dlpi_s3_name *name, uint32_t i, bool worked, uint64_t now) {
    bool again = name->bad_until_ns[i] > now;
    if (worked) {
        name->bad_until_ns[i] = name->fails[i] = 0;
        return;
    }
    if (!again && name->fails[i] < 6) name->fails[i]++;
    name->bad_until_ns[i] = now + (DLPI_S3_ADDRESS_BAD_NS << (name->fails[i] - 1));
}

/* Note how connecting to an address of a host went. One that failed is put last for a while. If all
   have failed, the name is looked up again. Returns true if an address did not fail lately: try
   that one at once. */
DLPI_COLD
static bool dlpi_s3_helper_tried(dlpi_s3_helper *h, const char *host, const dlpi_s3_address *a,
                                 bool worked) {
    uint64_t now = dlpi_s3_now_ns();
    bool another = false;
    pthread_mutex_lock(&h->lock);
    for (dlpi_s3_name *name = h->names; name; name = name->next) {
        if (strcmp(name->host, host) != 0) continue;
        for (uint32_t i = 0; i < name->n; i++) {
            if (dlpi_s3_address_same(a, &name->at[i])) dlpi_s3_name_tried(name, i, worked, now);
        }
        another = another || !dlpi_s3_name_lost(name, now);
        if (!worked) (void)dlpi_s3_name_ask(h, name, now);
    }
    pthread_mutex_unlock(&h->lock);
    return another;
}

/* Have the credentials refreshed, unless that was done since version seen. news_fd is readable when
   it is over. Returns 0, DLP_ERR_FORKED, DLP_ERR_SYSTEM (no thread: errno), or DLP_ERR_ARG (no
   owner). */
DLPI_COLD
static int dlpi_s3_helper_refresh(dlpi_s3_helper *h, uint64_t seen_version, bool force) {
    int rc;
    if (!h->owner.refresh) return DLP_ERR_ARG;
    if (h->pid != getpid()) return DLP_ERR_FORKED;
    pthread_mutex_lock(&h->lock);
    rc = dlpi_s3_helper_wake(h);
    if (rc == 0) {
        h->refresh_force = (h->refresh_wanted && h->refresh_force) || force;
        h->refresh_wanted = true;
        h->refresh_seen = seen_version;
    }
    pthread_mutex_unlock(&h->lock);
    errno = rc;
    return rc == 0 ? 0 : DLP_ERR_SYSTEM;
}

/* Return how many refreshes have ended. err: gets the last one's error, code 0 if it went well. */
DLPI_COLD
static uint64_t dlpi_s3_helper_refreshed(dlpi_s3_helper *h, dlp_s3_error *err) {
    uint64_t n;
    pthread_mutex_lock(&h->lock);
    n = h->refreshes;
    if (err) *err = h->refresh_error;
    pthread_mutex_unlock(&h->lock);
    return n;
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-engine       MANY REQUESTS IN ONE THREAD
   A request of the user's (op) is fetched in one or more ranges; a range is asked for over a
   connection, or over two or three at once while its answer has not begun (hedges). All records are
   made by io_open; here they only move from list to list.

       submit --> wanting --> origin->waiting --> on a connection --> answer begins -> body -> done
                  (ops with    (ranges; also       (range->             (range->begun:     |
                  ranges yet    those that wait     connection)          it has won)       |
                  to begin)     again)                   |                                 |
                                ^                        |                                 |
                                +----- range->timer <----+------ trouble, classified ------+
                                       (back-off)

   Words:
     op       a request of the caller's
     range    a part of an op, or all of it, which has a request of its own on the wire
     origin   a server, by name and port
     hedge    a second request for a range whose answer is late
     turn     of an op: how often something was learned for it (place, region, clock, keys);
              of an io: one wait for events, and what they bring
     away     a server is away while requests fail and none has its answer (patience)
     pause    the time before a retry
     part     to take a connection from its range

   A range is in one of these states. range_become alone changes them, and asserts both the step
   and that lists, connections and timer fit the state.

       state     lists it is in              connections  timer  goes to
       NONE      free_ranges, or none: in    0            -      WAITING PAUSED HELD
                 the hands of a function
       WAITING   origin->waiting             0            -      ASKED
       ASKED     io->awaited, if it may be   1..3         -      HEDGING BODY
                 hedged
       HEDGING   origin->hedging             1..2         -      ASKED BODY
       BODY      -                           1            -      -
       PAUSED    -                           0            set    WAITING, at the latest when the
                                                                 server is back
       HELD      -                           0            set    WAITING, by Retry-After alone
       and all of them to NONE

   A range is not bound to a connection before it is sent: whichever connection of the origin is
   free first takes the range that waits longest, be it one that has ended a request or a new one.

   The caller's memory is written to only by the connection whose head was the first valid one, and
   only at the place that follows what the range has (range->done). So nothing needs to be taken
   back: a range that breaks off goes on from there, by Range and If-Match, or begins again from its
   first byte where the object has no ETag or another one. */

enum {
    DLPI_S3_OUT_BYTES = 32768,   /* a request's head, and a small body after it */
    DLPI_S3_ERROR_BYTES = 16384, /* bytes that are read of an error's document, at most */
    DLPI_S3_DOUBT_BYTES = 512,   /* bytes that tell whether a body is such a document, at most */
    DLPI_S3_CHECKSUMS_TRIED = 2, /* dlp_s3_desc.checksums, resolved: ask for them if possible */
    DLPI_S3_SCRATCH = 262144,    /* bytes of memory for unwanted bytes and small pieces */
    DLPI_S3_HEAD_READ = 2048,    /* bytes of a read for a head, so that little body is copied */
    DLPI_S3_DRAIN = 262144,      /* unwanted bytes that are read, at most; else it reconnects */
    DLPI_S3_SMALL_PIECE = 4096,  /* bytes of a piece up to which it is read into scratch memory */
    DLPI_S3_AT_ONCE = 4194304, /* bytes read or sent on one connection before others have a turn */
    DLPI_S3_EVENTS = 64,
    DLPI_S3_ORIGINS = 16,
    DLPI_S3_COPIES = 3, /* connections of a range: the first, and two hedges */
    DLPI_S3_REGIONS = 32,
    DLPI_S3_STALE_MS = 1000,   /* ms of idle time after which a connection is tested before use */
    DLPI_S3_LOW_WATER = 131072 /* bytes of SO_RCVLOWAT, at most */
};

/* ---- lists, timers ---- */

/* Rings with a head: a node that is in none points to itself. */
typedef struct dlpi_s3_node {
    struct dlpi_s3_node *prev, *next;
} dlpi_s3_node;

#define DLPI_S3_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

DLPI_COLD
static void dlpi_s3_ring_begin(dlpi_s3_node *n) { n->prev = n->next = n; }

DLPI_COLD
static bool dlpi_s3_ring_empty(const dlpi_s3_node *n) { return n->next == n; }

DLPI_COLD
static void dlpi_s3_ring_out(dlpi_s3_node *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = n->next = n;
}

DLPI_COLD
static void dlpi_s3_ring_last(dlpi_s3_node *ring, dlpi_s3_node *n) {
    n->prev = ring->prev;
    n->next = ring;
    ring->prev->next = n;
    ring->prev = n;
}

DLPI_COLD
static void dlpi_s3_ring_first(dlpi_s3_node *ring, dlpi_s3_node *n) {
    dlpi_s3_ring_last(ring->next, n);
}

enum { DLPI_S3_TIMER_CONNECTION, DLPI_S3_TIMER_RANGE, DLPI_S3_TIMER_OP };

/* Deadlines are put off with each answer and hardly ever met. So putting one off, or taking it
   back, only writes due; its place in the heap is mended when it comes up there. */
typedef struct dlpi_s3_timer {
    uint64_t due;   /* time in ns; UINT64_MAX: not set */
    uint64_t at;    /* key in the heap: a time not later than due */
    uint32_t place; /* place in the heap, from 1; 0: it is not in the heap */
    int32_t kind;   /* DLPI_S3_TIMER_*: kind of the record that has it */
    void *of;       /* that record */
} dlpi_s3_timer;

typedef struct dlpi_s3_heap {
    dlpi_s3_timer **at; /* at[1] is the earliest */
    uint32_t n;
} dlpi_s3_heap;

DLPI_COLD
static void dlpi_s3_heap_put(dlpi_s3_heap *h, uint32_t place, dlpi_s3_timer *t) {
    h->at[place] = t;
    t->place = place;
}

DLPI_COLD
static void dlpi_s3_heap_rise(dlpi_s3_heap *h, dlpi_s3_timer *t) {
    uint32_t i = t->place;
    for (; i > 1 && h->at[i / 2]->at > t->at; i /= 2) dlpi_s3_heap_put(h, i, h->at[i / 2]);
    dlpi_s3_heap_put(h, i, t);
}

/* Move a timer down from its place in the heap, until no timer below it is due earlier. */
DLPI_COLD
static void dlpi_s3_heap_sink(dlpi_s3_heap *h, dlpi_s3_timer *t) {
    uint32_t i = t->place;
    for (;;) {
        uint32_t k = 2 * i;
        if (k > h->n) break;
        if (k < h->n && h->at[k + 1]->at < h->at[k]->at) k++;
        if (h->at[k]->at >= t->at) break;
        dlpi_s3_heap_put(h, i, h->at[k]);
        i = k;
    }
    dlpi_s3_heap_put(h, i, t);
}

/* Set when a timer is due; UINT64_MAX means never. A later time than before leaves the timer in its
   place: dlpi_s3_heap_first moves it. */
DLPI_COLD
static void dlpi_s3_timer_set(dlpi_s3_heap *h, dlpi_s3_timer *t, uint64_t due) {
    t->due = due;
    if (due == UINT64_MAX || (t->place && t->at <= due)) return;
    t->at = due;
    if (!t->place) dlpi_s3_heap_put(h, ++h->n, t);
    dlpi_s3_heap_rise(h, t);
}

DLPI_COLD
static void dlpi_s3_timer_stop(dlpi_s3_timer *t) { t->due = UINT64_MAX; }

/* Take the earliest timer out of the heap. */
DLPI_COLD
static void dlpi_s3_heap_pop(dlpi_s3_heap *h) {
    dlpi_s3_timer *last = h->at[h->n--];
    h->at[1]->place = 0;
    if (h->n == 0) return;
    dlpi_s3_heap_put(h, 1, last);
    dlpi_s3_heap_sink(h, last);
}

/* Return the timer that is due first, after its place is put right, or NULL if none is set. */
DLPI_COLD
static dlpi_s3_timer *dlpi_s3_heap_first(dlpi_s3_heap *h) {
    while (h->n) {
        dlpi_s3_timer *t = h->at[1];
        if (t->at == t->due) return t;
        if (t->due == UINT64_MAX) {
            dlpi_s3_heap_pop(h);
        } else {
            t->at = t->due;
            dlpi_s3_heap_sink(h, t);
        }
    }
    return NULL;
}

/* ---- records ---- */

/* What processes of one client share, beside its credentials: regions that buckets turned out to be
   in. An entry is written once: claimed (1), filled in, made visible (2, S2 -> S3). One whose
   writer died in between is lost, and nothing else. (in region) */
typedef struct dlpi_s3_region {
    uint32_t state, pad;
    char bucket[64];
    char name[64];
} dlpi_s3_region;

typedef struct dlpi_s3_common {
    dlpi_s3_shared shared;
    dlpi_s3_region regions[DLPI_S3_REGIONS];
    uint32_t n_regions; /* S4, claimed or more */
    uint32_t pad;
    dlpi_s3_config config;
    dlpi_s3_cred_cache cred_cache;
} dlpi_s3_common;

struct dlp_s3 {
    dlp_s3_desc desc; /* numbers resolved; strings NULL */
    dlpi_s3_endpoint endpoint;
    dlpi_s3_common *common;
    size_t common_bytes;
    dlp_s3_transport tls;
    bool has_tls, own_tls;
    uint64_t users; /* S5: 1, and those that the helpers hold */
    uint64_t ios;   /* S6: pid in the upper half, open dlp_s3_io in the lower */
};

typedef struct dlpi_s3_op dlpi_s3_op;
typedef struct dlpi_s3_range dlpi_s3_range;

/* A server, by name and port. */
typedef struct dlpi_s3_origin {
    char host[256];
    uint16_t port;
    bool tls, used;
    bool looking;                       /* its name is being looked up */
    const dlpi_s3_proxy *proxy;         /* proxy for this server; NULL: none */
    uint32_t ops, connections, opening; /* ops, connections, and those that are being opened */
    uint32_t n_waiting, n_hedging;
    dlpi_s3_node idle;    /* connections, the one used last first */
    dlpi_s3_node waiting; /* ranges that want a connection */
    dlpi_s3_node hedging; /* ranges that want one more */
} dlpi_s3_origin;

enum {
    DLPI_S3_CONNECTION_FREE = 0,
    DLPI_S3_CONNECTION_OPENING,
    DLPI_S3_CONNECTION_IDLE,
    DLPI_S3_CONNECTION_SENDING,
    DLPI_S3_CONNECTION_WAITING, /* for the answer's head */
    DLPI_S3_CONNECTION_DOUBT,   /* its first bytes, to connection->error: they may be an error's */
    DLPI_S3_CONNECTION_BODY,    /* to the caller's memory */
    DLPI_S3_CONNECTION_ERROR,   /* of an error, to connection->error */
    DLPI_S3_CONNECTION_DRAIN    /* to nowhere */
};

typedef struct dlpi_s3_connection {
    dlpi_s3_conn conn;
    dlpi_s3_origin *origin;
    dlpi_s3_range *range; /* the range whose request is on it; NULL: none */
    dlpi_s3_node node;    /* in origin->idle, io->free_connections, or io->hungry */
    dlpi_s3_node age;     /* in io->idle, or io->draining */
    dlpi_s3_timer timer;  /* ends the wait of the present state */
    int32_t state;
    uint64_t body_ns;    /* time at which its body began, or was looked at last */
    uint64_t body_from;  /* bytes that its range had at that time */
    uint32_t generation; /* raised for each new connection: older events are dropped */
    uint32_t events;     /* events that epoll watches */
    uint32_t served;     /* answers that have ended on it */
    int32_t low_water;   /* SO_RCVLOWAT */
    bool late;           /* it has been opening for RACE ms, and the helper was told */
    bool raced;          /* another connection was begun beside it */
    bool hedge;
    bool ranged;            /* its request has a Range header */
    uint64_t first, last;   /* bytes asked for; 0 and UINT64_MAX: to the end of the object */
    uint64_t skip;          /* bytes at the beginning of the answer that had come before */
    bool unsent;            /* a part of the request is not sent yet */
    bool deaf;              /* the server takes no more of the request */
    uint64_t sent_ns;       /* time at which the request's last byte was sent */
    uint64_t put_at;        /* bytes of a PUT's body that are sent */
    uint64_t queued;        /* bytes of it that the kernel still had at the last look */
    uint64_t moved_ns;      /* time at which bytes of the body were delivered, or came, last */
    uint32_t out_at, out_n; /* bytes of `out` that are sent; bytes of it */
    uint32_t error_n;       /* bytes of `error` */
    char *out;
    char *error;
    char region[64];  /* region that the request on it was signed for */
    uint64_t version; /* version of the credentials that signed it */
    int64_t skew_s;   /* clock that it was signed by: the servers' time less ours */
    uint32_t turn;    /* turn of the op when it was sent */
    dlpi_s3_http http;
} dlpi_s3_connection;

enum { /* what a range waits for; see above */
       DLPI_S3_RANGE_NONE = 0,
       DLPI_S3_RANGE_WAITING,
       DLPI_S3_RANGE_ASKED,
       DLPI_S3_RANGE_HEDGING,
       DLPI_S3_RANGE_BODY,
       DLPI_S3_RANGE_PAUSED,
       DLPI_S3_RANGE_HELD
};

#ifndef DLPI_S3_ASSERT /* tests define their own */
#define DLPI_S3_ASSERT(fact) ((void)sizeof(fact))
#endif

/* A place in the pieces of a request. */
typedef struct dlpi_s3_cursor {
    uint32_t piece;
    uint64_t at; /* inside it */
} dlpi_s3_cursor;

struct dlpi_s3_range {
    dlpi_s3_op *op;
    dlpi_s3_node queue;   /* waiting or hedging of the origin, or none; or io->free_ranges */
    dlpi_s3_node sibling; /* op->ranges */
    dlpi_s3_node awaited; /* io->awaited: sent, no answer yet, may be hedged */
    dlpi_s3_timer timer;  /* back-off */
    uint64_t first;       /* where it begins, in bytes from the request's first byte */
    uint64_t bytes;       /* length of the range; UINT64_MAX: not known yet */
    uint64_t done;        /* bytes that are in the caller's memory */
    uint64_t crc;         /* CRC of these bytes, if op->crc_kind is one */
    uint64_t crc_told;    /* CRC of the range, or the object, as the server told it */
    bool crc_is_told;
    uint64_t most;         /* largest `done` of all attempts; for a PUT: bytes delivered */
    uint64_t tried_at;     /* `done` when the last attempt began */
    uint64_t sent_ns;      /* time at which its request, or the last hedge, was sent */
    dlpi_s3_cursor cursor; /* place of its next byte in the pieces */
    dlpi_s3_connection *connections[DLPI_S3_COPIES];
    uint8_t n_connections;
    uint8_t moves;       /* moves to another connection because the body was slow */
    bool fresh;          /* it must get a new connection */
    int32_t state;       /* DLPI_S3_RANGE_* */
    int32_t attempts;    /* attempts that failed without progress */
    uint64_t begun_ns;   /* time at which it was made, or made progress last */
    uint64_t size_bytes; /* its expected bytes, which decide how long its answer may take */
    unsigned size_class;
};

/* Requests of one user of an io: how many are out, and those that are over, linked by internal. */
typedef struct dlpi_s3_over {
    uint32_t out;
    dlp_s3_request *first, *last;
    bool sorts; /* an answer came from a store that sorts its lists */
} dlpi_s3_over;

/* Who says which ETag an object must have. The source of objects tells it before a request begins:
   r->internal is then the place of the value in dlpi_s3_etags_of. */
enum { DLPI_S3_BY_USER = 0, DLPI_S3_BY_MANIFEST, DLPI_S3_BY_HEAD };

static const char dlpi_s3_etags_of[] = {DLPI_S3_BY_USER, DLPI_S3_BY_MANIFEST, DLPI_S3_BY_HEAD};

struct dlpi_s3_op {
    dlp_s3_request *r;
    dlpi_s3_over *over; /* the list that it joins at its end */
    dlpi_s3_origin *origin;
    dlpi_s3_node node; /* in io->wanting or io->free_ops, or in none */
    dlpi_s3_node ranges;
    dlpi_s3_timer timer; /* deadline of the whole op */
    uint64_t begun_ns;   /* time at which it was submitted */
    uint64_t moved_ns;   /* time of its last progress */
    uint64_t bound;      /* bytes that the caller's memory has room for */
    uint64_t size;       /* bytes that come; UINT64_MAX: not known yet */
    uint64_t next;       /* where its next range begins, in bytes from its first byte */
    uint64_t cost;       /* bytes of max_bytes that it takes */
    uint64_t etag_sum;   /* hash of the first answer's ETag */
    uint64_t encoding_sum, version_sum, modified_sum; /* hashes of headers that must not differ */
    uint64_t crc;                                     /* CRC of the ranges that are done */
    uint64_t crc_told; /* if crc_doubt: the CRC that was told with a range */
    bool crc_doubt;    /* that CRC is not the range's; it may be the object's */
    int32_t crc_kind;  /* DLPI_S3_CRC_NONE: no CRC is told, or not the whole object is asked for */
    uint32_t n_ranges;
    int32_t attempts;      /* requests sent */
    uint32_t turn;         /* counts corrections of its place, region, clock or keys */
    dlpi_s3_cursor cursor; /* place of `next` in the pieces */
    dlpi_s3_tries tries;
    bool split;      /* it is fetched in several ranges */
    bool as_stored;  /* it accepts gzip, because the server would decode the object otherwise */
    bool turned;     /* as_stored is not what it was at first */
    uint8_t by;      /* DLPI_S3_BY_*: who says r->if_match */
    bool bare;       /* r->if_match is not sent, but compared */
    bool opened;     /* a first head told size and ETag */
    bool strong;     /* r->etag can be used in If-Match */
    bool failed;     /* r->error is written */
    bool moved;      /* an answer sent it to another place: to, to_path */
    bool sums;       /* the object's checksum is compared, if it is told */
    bool checksum;   /* and asked for */
    bool foreign;    /* that place is not the endpoint's: no secret is sent there */
    char region[64]; /* "": the region of the client */
    dlpi_s3_endpoint to;
    const char *to_query; /* after the path in to_path; NULL: there was none */
    char to_path[DLPI_S3_HTTP_LINE];
};

struct dlp_s3_io {
    dlp_s3 *s3;
    const dlp_s3_desc *desc;
    pid_t pid;
    int epoll;
    dlpi_s3_helper *helper;
    size_t bytes; /* bytes of the mapping that has this record */
    uint64_t now; /* time of the present turn, ns */
    dlpi_s3_heap timers;
    dlpi_s3_op *ops;
    dlpi_s3_range *ranges;
    dlpi_s3_connection *connections;
    uint32_t n_ops, n_connections;
    uint32_t connections_out, n_idle;
    uint32_t on_wire; /* ranges with a connection */
    uint64_t bytes_out;
    dlpi_s3_node free_ops, free_ranges, free_connections;
    dlpi_s3_node wanting;  /* ops that have ranges to begin */
    dlpi_s3_node idle;     /* all idle connections, the one used last first */
    dlpi_s3_node hungry;   /* connections whose session may have more than was read in this turn */
    dlpi_s3_node draining; /* connections with unwanted answers, the oldest last */
    dlpi_s3_node awaited[DLPI_S3_CLASSES];
    uint64_t hedge_ns[DLPI_S3_CLASSES], hedge_looked_ns;
    uint64_t woken_ns;               /* the return of the server that woke paused ranges last */
    uint64_t turned_ns, returned_ns; /* end of the last turn; time at which the caller came back */
    uint64_t heard_ns;               /* all that came up to this time was handled */
    uint64_t good_ns;                /* time of the last answer */
    dlpi_s3_over over;               /* requests of dlp_s3_submit */
    dlpi_s3_patience patience;
    dlpi_s3_key_cache keys;
    dlpi_s3_credentials who;
    bool refreshing, held; /* credentials are being fetched; nothing is sent before that ends */
    bool no_checksums;     /* the server refuses requests for checksums */
    bool bare;             /* it refuses an ETag in If-Match that its answers then tell */
    uint64_t refreshes;
    dlpi_s3_origin origins[DLPI_S3_ORIGINS];
    dlpi_s3_origin *last_origin;
    char *scratch;
    char path[DLPI_S3_HTTP_LINE], host[300], text[512];
};

/* Give one line of text to the user's log, if there is one. */
DLPI_COLD
static void dlpi_s3_say(const dlp_s3_io *io, const char *format, ...) DLPI_PRINTF(2, 3);
DLPI_COLD
static void dlpi_s3_say(const dlp_s3_io *io, const char *format, ...) {
    char line[512];
    va_list args;
    if (!io->desc->log) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    dlpi_s3_one_line(line);
    io->desc->log(io->desc->log_user, line);
}

DLPI_COLD
static void dlpi_s3_tally(const dlp_s3_io *io, int what, uint64_t n) {
    dlpi_s3_count(&io->s3->common->shared, what, n);
}

/* Set a timer to be due after the deadline by, DLPI_S3_BY_*. */
DLPI_COLD
static void dlpi_s3_due(dlp_s3_io *io, dlpi_s3_timer *t, int by) {
    dlpi_s3_timer_set(&io->timers, t, io->now + io->patience.by[by]);
}

/* Look at a body again soon: bytes that are too few to wake anybody may have come. */
DLPI_COLD
static void dlpi_s3_body_due(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_timer_set(&io->timers, &connection->timer,
                      dlpi_s3_least(io->now + io->patience.by[DLPI_S3_BY_LOOK],
                                    connection->moved_ns + io->patience.by[DLPI_S3_BY_STALL]));
}

/* ---- regions ---- */

/* Return the region that a bucket turned out to be in, or NULL if that is not known. */
DLPI_COLD
static const char *dlpi_s3_region_find(dlpi_s3_common *c, const char *bucket) {
    uint32_t n = DLPI_LOAD_RLX(&c->n_regions); /* S4, any value that was there */
    for (uint32_t i = n < DLPI_S3_REGIONS ? n : DLPI_S3_REGIONS; i-- > 0;)
        if (DLPI_LOAD_ACQ(&c->regions[i].state) == 2 && /* S3 <- S2 */
            strcmp(c->regions[i].bucket, bucket) == 0)
            return c->regions[i].name;
    return NULL;
}

/* Keep the region that a bucket turned out to be in, for all processes, if there is room. */
DLPI_COLD
static void dlpi_s3_region_learn(dlpi_s3_common *c, const char *bucket, const char *name) {
    const char *known = dlpi_s3_region_find(c, bucket);
    uint32_t i;
    if ((known && strcmp(known, name) == 0) || strlen(bucket) >= sizeof c->regions[0].bucket)
        return;
    if (DLPI_LOAD_RLX(&c->n_regions) >= DLPI_S3_REGIONS) return; /* S4 */
    i = DLPI_ADD_RLX(&c->n_regions, 1u);                         /* S4, whose entry it is */
    if (i >= DLPI_S3_REGIONS) return;
    dlpi_s3_copy(c->regions[i].bucket, sizeof c->regions[i].bucket, bucket);
    dlpi_s3_copy(c->regions[i].name, sizeof c->regions[i].name, name);
    DLPI_STORE_REL(&c->regions[i].state, 2u); /* S2 -> S3 */
}

/* ---- where a range's bytes belong ---- */

/* Return the place n bytes behind a place in the pieces of a request. */
DLPI_COLD
static dlpi_s3_cursor dlpi_s3_cursor_on(const dlp_s3_request *r, dlpi_s3_cursor c, uint64_t n) {
    if (!r->pieces) return c;
    while (c.piece < r->n_pieces && n >= r->pieces[c.piece].bytes - c.at) {
        n -= r->pieces[c.piece].bytes - c.at;
        c.piece++;
        c.at = 0;
    }
    c.at += n;
    return c;
}

/* Return where the next byte goes; NULL: it is thrown away. *room: how many may follow there. */
DLPI_COLD
static char *dlpi_s3_range_room(const dlpi_s3_range *range, uint64_t *room) {
    const dlp_s3_request *r = range->op->r;
    uint64_t end = range->bytes != UINT64_MAX ? range->bytes : range->op->bound - range->first;
    const dlp_s3_piece *piece;
    *room = end > range->done ? end - range->done : 0;
    if (!r->pieces) return (char *)r->body + range->first + range->done;
    if (range->cursor.piece >= r->n_pieces) return NULL;
    piece = &r->pieces[range->cursor.piece];
    if (*room > piece->bytes - range->cursor.at) *room = piece->bytes - range->cursor.at;
    return piece->to ? (char *)piece->to + range->cursor.at : NULL;
}

/* Note that so many bytes of the range have come, or were delivered. Only bytes beyond those of its
   earlier attempts are progress. */
DLPI_COLD
static void dlpi_s3_range_moved(const dlp_s3_io *io, dlpi_s3_range *range, uint64_t bytes) {
    if (bytes <= range->most) return;
    range->most = bytes;
    range->op->moved_ns = io->now;
}

/* Take in n bytes of the range that lie at their place already, which is from. */
DLPI_COLD
static void dlpi_s3_range_took(const dlp_s3_io *io, dlpi_s3_range *range, const char *from,
                               uint64_t n) {
    if (range->op->crc_kind)
        range->crc = dlpi_s3_crc_add(range->op->crc_kind, range->crc, from, (size_t)n);
    range->done += n;
    dlpi_s3_range_moved(io, range, range->done);
    range->cursor = dlpi_s3_cursor_on(range->op->r, range->cursor, n);
}

/* Copy n bytes of the range to their place. Returns how many there was room for. */
DLPI_COLD
static uint64_t dlpi_s3_range_lay(const dlp_s3_io *io, dlpi_s3_range *range, const char *from,
                                  uint64_t n) {
    uint64_t left = n, room;
    while (left) {
        char *to = dlpi_s3_range_room(range, &room);
        if (room == 0) break;
        if (room > left) room = left;
        if (to) memcpy(to, from, room);
        dlpi_s3_range_took(io, range, from, room);
        from += room;
        left -= room;
    }
    return n - left;
}

/* Have a range begin again from its first byte. */
DLPI_COLD
static void dlpi_s3_range_rewind(dlpi_s3_range *range) {
    dlpi_s3_cursor begin = {0, 0};
    range->done = range->tried_at = range->crc = 0;
    range->cursor = dlpi_s3_cursor_on(range->op->r, begin, range->first);
}

/* ---- origins ---- */

/* Find or make the origin of a host (as in a Host header). Returns NULL if all are in use. */
DLPI_COLD
static dlpi_s3_origin *dlpi_s3_origin_get(dlp_s3_io *io, const char *host, uint16_t port,
                                          bool tls) {
    dlpi_s3_origin *s, *room = NULL;
    for (int i = 0; i < DLPI_S3_ORIGINS; i++) {
        s = &io->origins[i];
        if (s->used && s->port == port && s->tls == tls && strcmp(s->host, host) == 0) return s;
        if (!s->used || (s->ops == 0 && s->connections == 0)) room = s;
    }
    if (!room) return NULL;
    memset(room, 0, sizeof *room);
    dlpi_s3_ring_begin(&room->idle);
    dlpi_s3_ring_begin(&room->waiting);
    dlpi_s3_ring_begin(&room->hedging);
    dlpi_s3_copy(room->host, sizeof room->host, host);
    room->port = port;
    room->tls = tls;
    room->used = true;
    room->proxy = dlpi_s3_proxy_of(&io->s3->common->config, host, port, tls);
    return room;
}

/* Return the host that an origin's connections are made to: the proxy, if it has one. */
DLPI_COLD
static const char *dlpi_s3_origin_peer(const dlpi_s3_origin *origin) {
    return origin->proxy ? origin->proxy->host : origin->host;
}

/* ---- queues of ranges ---- */

#define DLPI_S3_TO(state) (1u << DLPI_S3_RANGE_##state)

/* True if the range may go from one state to another. */
static inline bool dlpi_s3_range_may(int32_t from, int32_t to) {
    static const uint8_t next[] = {DLPI_S3_TO(WAITING) | DLPI_S3_TO(PAUSED) |
                                       DLPI_S3_TO(HELD),                   /* NONE */
                                   DLPI_S3_TO(ASKED),                      /* WAITING */
                                   DLPI_S3_TO(HEDGING) | DLPI_S3_TO(BODY), /* ASKED */
                                   DLPI_S3_TO(ASKED) | DLPI_S3_TO(BODY),   /* HEDGING */
                                   0,                                      /* BODY */
                                   DLPI_S3_TO(WAITING),                    /* PAUSED */
                                   DLPI_S3_TO(WAITING)};                   /* HELD */
    return to == DLPI_S3_RANGE_NONE || (next[from] >> to & 1);
}

/* True if lists, connections and timer of the range fit its state. */
static inline bool dlpi_s3_range_sound(const dlpi_s3_range *range) {
    int32_t s = range->state;
    bool queued = !dlpi_s3_ring_empty(&range->queue);
    bool awaited = !dlpi_s3_ring_empty(&range->awaited);
    bool asked = s == DLPI_S3_RANGE_ASKED || s == DLPI_S3_RANGE_HEDGING;
    if (queued != (s == DLPI_S3_RANGE_WAITING || s == DLPI_S3_RANGE_HEDGING)) return false;
    if (awaited && s != DLPI_S3_RANGE_ASKED) return false;
    if ((range->timer.due != UINT64_MAX) != (s >= DLPI_S3_RANGE_PAUSED)) return false;
    if (s == DLPI_S3_RANGE_BODY) return range->n_connections == 1;
    return asked ? range->n_connections > 0 : range->n_connections == 0;
}

/* Move a range to a state. The caller has seen to its connections and its timer. */
DLPI_COLD
static void dlpi_s3_range_become(dlpi_s3_range *range, int32_t state) {
    dlpi_s3_origin *origin = range->op->origin;
    DLPI_S3_ASSERT(dlpi_s3_range_may(range->state, state));
    origin->n_waiting -= range->state == DLPI_S3_RANGE_WAITING;
    origin->n_hedging -= range->state == DLPI_S3_RANGE_HEDGING;
    dlpi_s3_ring_out(&range->queue);
    dlpi_s3_ring_out(&range->awaited);
    range->state = state;
    origin->n_waiting += state == DLPI_S3_RANGE_WAITING;
    origin->n_hedging += state == DLPI_S3_RANGE_HEDGING;
    if (state == DLPI_S3_RANGE_WAITING) dlpi_s3_ring_first(&origin->waiting, &range->queue);
    if (state == DLPI_S3_RANGE_HEDGING) dlpi_s3_ring_last(&origin->hedging, &range->queue);
    DLPI_S3_ASSERT(dlpi_s3_range_sound(range));
}

/* Remove a connection from the range that it works for. */
DLPI_COLD
static void dlpi_s3_range_part(dlp_s3_io *io, dlpi_s3_range *range,
                               dlpi_s3_connection *connection) {
    unsigned i = 0;
    connection->range = NULL;
    while (range->connections[i] != connection) i++;
    range->n_connections--;
    for (; i < range->n_connections; i++) range->connections[i] = range->connections[i + 1];
    if (range->n_connections > 0) return;
    io->on_wire--;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
}

DLPI_COLD
static bool dlpi_s3_may_hedge(const dlpi_s3_op *op) {
    return op->r->method != DLP_S3_PUT && !op->r->no_hedge;
}

/* Have a range hedged if its answer takes too long from now on. */
DLPI_COLD
static void dlpi_s3_range_await(dlp_s3_io *io, dlpi_s3_range *range) {
    if (!dlpi_s3_may_hedge(range->op) || io->desc->hedge_percent < 0) return;
    if (range->state != DLPI_S3_RANGE_ASKED || range->n_connections >= DLPI_S3_COPIES) return;
    range->sent_ns = io->now;
    dlpi_s3_ring_out(&range->awaited);
    dlpi_s3_ring_last(&io->awaited[range->size_class], &range->awaited);
}

/* ---- connections ---- */

/* Have epoll watch a connection for events. Returns false if that fails: its timer is then due. */
static bool dlpi_s3_connection_watch(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     uint32_t events) {
    struct epoll_event e;
    if (connection->events == events) return true;
    e.events = events;
    e.data.u64 = (uint64_t)connection->generation << 32 | (uint64_t)(connection - io->connections);
    if (epoll_ctl(io->epoll, connection->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
                  connection->conn.fd, &e) != 0) {
        dlpi_s3_timer_set(&io->timers, &connection->timer, io->now);
        return false;
    }
    connection->events = events;
    return true;
}

/* Set how many bytes must have come, unless the stream has ended, before epoll reports a
   connection. If the mark cannot be lowered, nobody may be woken, so the timer is due now. */
static void dlpi_s3_connection_low_water(dlp_s3_io *io, dlpi_s3_connection *connection,
                                         uint64_t bytes) {
    int n = bytes > DLPI_S3_LOW_WATER ? DLPI_S3_LOW_WATER : bytes > 0 ? (int)bytes : 1;
    if (connection->conn.tls || n == connection->low_water) return;
    if (setsockopt(connection->conn.fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof n) == 0)
        connection->low_water = n;
    else if (n < connection->low_water)
        dlpi_s3_timer_set(&io->timers, &connection->timer, io->now);
}

/* Close a connection that has no range, and free its record. */
static void dlpi_s3_connection_close(dlp_s3_io *io, dlpi_s3_connection *connection) {
    if (connection->state == DLPI_S3_CONNECTION_OPENING && !connection->raced)
        connection->origin->opening--;
    if (connection->state == DLPI_S3_CONNECTION_IDLE) io->n_idle--;
    dlpi_s3_ring_out(&connection->node);
    dlpi_s3_ring_out(&connection->age);
    dlpi_s3_timer_stop(&connection->timer);
    if (connection->events) /* closing is not enough: a child of a fork may have the socket, too */
        epoll_ctl(io->epoll, EPOLL_CTL_DEL, connection->conn.fd, NULL);
    dlpi_s3_conn_close(&connection->conn);
    connection->state = DLPI_S3_CONNECTION_FREE;
    connection->generation++;
    connection->events = 0;
    connection->origin->connections--;
    io->connections_out--;
    dlpi_s3_ring_first(&io->free_connections, &connection->node);
}

/* Put a connection among the idle ones: it may carry a request. */
static void dlpi_s3_connection_idle(dlp_s3_io *io, dlpi_s3_connection *connection) {
    io->n_idle++;
    connection->state = DLPI_S3_CONNECTION_IDLE;
    connection->sent_ns = io->now;
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_IDLE);
    dlpi_s3_connection_watch(io, connection, EPOLLIN | EPOLLRDHUP);
    dlpi_s3_connection_low_water(io, connection, 1);
    dlpi_s3_ring_out(&connection->node);
    dlpi_s3_ring_first(&connection->origin->idle, &connection->node);
    dlpi_s3_ring_out(&connection->age);
    dlpi_s3_ring_first(&io->idle, &connection->age);
}

/* Read on what nobody wants, for a while: a new connection costs more than a few bytes. */
static void dlpi_s3_connection_drain(dlp_s3_io *io, dlpi_s3_connection *connection) {
    connection->state = DLPI_S3_CONNECTION_DRAIN;
    connection->error_n = 0; /* counts them */
    dlpi_s3_ring_first(&io->draining, &connection->age);
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_DRAIN);
    dlpi_s3_connection_low_water(io, connection, 1);
}

/* Take a connection back whose answer has ended or is not wanted: it is idle, drained or closed. */
static void dlpi_s3_connection_free(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const dlpi_s3_http *h = &connection->http;
    bool sent = !connection->unsent;
    if (sent && h->done && h->keep_alive) {
        connection->served++;
        dlpi_s3_connection_idle(io, connection);
    } else if (sent && h->keep_alive && h->head_done && h->has_length &&
               dlpi_s3_http_direct(h) <= DLPI_S3_DRAIN) {
        dlpi_s3_connection_drain(io, connection);
    } else {
        dlpi_s3_connection_close(io, connection);
    }
}

/* Take back a connection whose answer is not wanted. expected: its length, or UINT64_MAX. */
static void dlpi_s3_connection_abandon(dlp_s3_io *io, dlpi_s3_connection *connection,
                                       uint64_t expected) {
    if (connection->state == DLPI_S3_CONNECTION_WAITING && expected <= DLPI_S3_DRAIN) {
        dlpi_s3_connection_drain(io, connection);
    } else {
        dlpi_s3_connection_free(io, connection);
    }
}

/* ---- the end of a request ---- */

/* Free a range. Its connections are abandoned. expected: the length of their answers. */
static void dlpi_s3_range_end(dlp_s3_io *io, dlpi_s3_range *range, uint64_t expected) {
    while (range->n_connections) {
        dlpi_s3_connection *connection = range->connections[range->n_connections - 1];
        dlpi_s3_range_part(io, range, connection);
        dlpi_s3_connection_abandon(io, connection, expected);
    }
    dlpi_s3_timer_stop(&range->timer);
    dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
    dlpi_s3_ring_out(&range->sibling);
    range->op->n_ranges--;
    dlpi_s3_ring_first(&io->free_ranges, &range->queue);
}

static void dlpi_s3_op_cancel(dlp_s3_io *io, dlpi_s3_op *op) {
    while (!dlpi_s3_ring_empty(&op->ranges))
        dlpi_s3_range_end(io, DLPI_S3_OF(op->ranges.next, dlpi_s3_range, sibling), UINT64_MAX);
}

/* Note in the request's error the code, and what was asked for: bucket, key and bytes. */
static void dlpi_s3_error_place(const dlpi_s3_op *op, int code) {
    dlp_s3_request *r = op->r;
    dlp_s3_error *e = &r->error;
    size_t n = strlen(r->key);
    e->code = code;
    e->attempts = op->attempts;
    dlpi_s3_copy(e->bucket, sizeof e->bucket, r->bucket);
    dlpi_s3_copy(e->key, sizeof e->key,
                 n < sizeof e->key ? r->key : r->key + n - (sizeof e->key - 1));
    if (r->length) {
        e->first = r->offset;
        e->last = r->offset + r->length - 1;
    } else if (r->offset) {
        e->first = r->offset;
        e->last = UINT64_MAX;
    }
}

/* Take an op out of all lists and free it. Its request is the caller's again. */
static void dlpi_s3_op_leave(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_op_cancel(io, op);
    dlpi_s3_timer_stop(&op->timer);
    dlpi_s3_ring_out(&op->node);
    op->origin->ops--;
    io->bytes_out -= op->cost;
    op->over->out--;
    op->r->internal = NULL;
    dlpi_s3_ring_first(&io->free_ops, &op->node);
}

/* End an op with a code, and append its request to the list of ended ones. */
static void dlpi_s3_op_end(dlp_s3_io *io, dlpi_s3_op *op, int code) {
    dlp_s3_request *r = op->r;
    dlpi_s3_over *over = op->over;
    dlpi_s3_op_leave(io, op);
    r->code = code;
    if (code != DLP_OK)
        dlpi_s3_error_place(op, code);
    else if (op->failed)
        memset(&r->error, 0, sizeof r->error);
    dlpi_s3_tally(io, code == DLP_OK ? DLPI_S3_N_OBJECTS : DLPI_S3_N_FAILED, 1);
    if (over->first)
        over->last->internal = r;
    else
        over->first = r;
    over->last = r;
}

/* Write the error of a request that has failed. errnum: errno, or 0. */
DLPI_PRINTF(3, 4)
static void dlpi_s3_op_message(dlpi_s3_op *op, int errnum, const char *format, ...) {
    dlp_s3_error *e = &op->r->error;
    va_list args;
    op->failed = true;
    e->errnum = errnum;
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
}

/* Note in the request's error what the last attempt's answer has told. h: NULL if it had none. */
static void dlpi_s3_op_answer(dlpi_s3_op *op, const dlpi_s3_http *h) {
    dlp_s3_error *e = &op->r->error;
    e->http_status = h ? h->status : 0;
    e->s3_code[0] = '\0';
    dlpi_s3_copy(e->request_id, sizeof e->request_id, h ? h->request_id : "");
}

/* Append words to the message of the request's error. */
static void dlpi_s3_op_add(dlpi_s3_op *op, const char *words) {
    dlp_s3_error *e = &op->r->error;
    size_t n = strlen(e->message);
    snprintf(e->message + n, sizeof e->message - n, "%s%s", n ? "; " : "", words);
}

/* ---- trouble ---- */

/* What went wrong with an attempt, for the classifier and for words. */
typedef struct dlpi_s3_case {
    dlpi_s3_trouble t;
    int64_t retry_after_s, date_s;
    uint64_t version;     /* of the credentials that signed */
    int64_t used_skew_s;  /* of the clock by which that was */
    uint32_t turn;        /* of the op, when it was sent */
    bool opened;          /* an answer has told the object's size */
    const char *region;   /* that the answer names, or "" */
    const char *location; /* or "" */
    const char *used_region;
} dlpi_s3_case;

/* Return the error code that a request has if it ends for this case. */
static int dlpi_s3_case_code(const dlpi_s3_case *c) {
    if (c->t.what == DLPI_S3_T_CONNECT && (c->t.errnum == EMFILE || c->t.errnum == ENFILE ||
                                           c->t.errnum == ENOMEM || c->t.errnum == ENOBUFS))
        return DLP_ERR_SYSTEM;
    if (c->t.what == DLPI_S3_T_SHORT) return DLP_ERR_LENGTH;
    if (c->t.status == 416 && !c->opened) return DLP_ERR_LENGTH;
    return DLP_ERR_REMOTE;
}

/* True if the next attempt may go on behind the bytes that have come: If-Match must make sure that
   they are of the same object. A range that has all bytes but no valid end of its answer begins
   again, because nothing can be asked for behind the last byte. */
static bool dlpi_s3_range_keeps(const dlpi_s3_range *range) {
    const dlpi_s3_op *op = range->op;
    return op->strong && !op->r->query && range->done != range->bytes;
}

/* Note that the server answers, be it by a refusal. */
static void dlpi_s3_heard(dlp_s3_io *io) {
    uint64_t away_ns = dlpi_s3_back(&io->s3->common->shared, io->now);
    io->good_ns = io->now;
    if (away_ns) dlpi_s3_say(io, "s3: answers come again, after %.1f s", (double)away_ns / 1e9);
}

/* Tell the log that a range will be tried again in wait_ns, or that the server is away. */
static void dlpi_s3_range_tell(dlp_s3_io *io, const dlpi_s3_range *range, uint64_t wait_ns) {
    dlpi_s3_shared *shared = &io->s3->common->shared;
    const dlp_s3_request *r = range->op->r;
    uint64_t since = range->begun_ns > io->good_ns ? range->begun_ns : io->good_ns;
    int what = dlpi_s3_away(shared, since, io->now);
    const char *field;
    int32_t ms = dlpi_s3_bound_ms(io->desc, &field);
    if (what == DLPI_S3_TELL_IT)
        dlpi_s3_say(io, "s3: %s/%s: %s; again in %u ms", r->bucket, r->key, r->error.message,
                    (unsigned)(wait_ns / DLPI_S3_MS));
    if (what == DLPI_S3_TELL_AWAY)
        dlpi_s3_say(io,
                    "s3: no answer for %.1f s, from %s port %u: %s; requests wait, and are "
                    "sent again, for up to %s (%d ms)",
                    (double)dlpi_s3_away_for(shared, io->now) / 1e9, range->op->origin->host,
                    (unsigned)range->op->origin->port, r->error.message, field, (int)ms);
}

/* Try the range again after a pause, or end the request with code. retry_after_s: -1: not told. */
static void dlpi_s3_range_retry(dlp_s3_io *io, dlpi_s3_range *range, int64_t retry_after_s,
                                int code) {
    dlpi_s3_op *op = range->op;
    const char *why = "";
    uint64_t wait_ns = 0;
    if (range->done > range->tried_at) range->begun_ns = io->now; /* it gets on */
    if (range->done > range->tried_at && dlpi_s3_range_keeps(range)) range->attempts = 0;
    range->tried_at = range->done;
    range->attempts++;
    if (!dlpi_s3_retry_take(&io->patience, range->attempts, retry_after_s, &wait_ns, &why)) {
        dlpi_s3_op_add(op, why);
        dlpi_s3_op_end(io, op, code);
        return;
    }
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_range_tell(io, range, wait_ns);
    if (range->done && !dlpi_s3_range_keeps(range)) dlpi_s3_range_rewind(range);
    dlpi_s3_timer_set(&io->timers, &range->timer, io->now + wait_ns);
    dlpi_s3_range_become(range, retry_after_s > 0 ? DLPI_S3_RANGE_HELD : DLPI_S3_RANGE_PAUSED);
}

/* ---- where a request goes ---- */

DLPI_COLD
static const char *dlpi_s3_op_region(const dlp_s3_io *io, const dlpi_s3_op *op) {
    return op->region[0] ? op->region : io->s3->common->config.region;
}

/* Write an op's Host header and path into io->host and io->path. Returns DLP_OK or DLP_ERR_ARG. */
DLPI_COLD
static int dlpi_s3_op_address(dlp_s3_io *io, const dlpi_s3_op *op) {
    const dlpi_s3_endpoint *e = &op->to;
    if (!op->moved)
        return dlpi_s3_place(&io->s3->endpoint, dlpi_s3_op_region(io, op), io->desc->style,
                             op->r->bucket, op->r->key, io->host, sizeof io->host, io->path,
                             sizeof io->path);
    dlpi_s3_endpoint_host(e, io->host, sizeof io->host);
    dlpi_s3_copy(io->path, sizeof io->path, op->to_path);
    return DLP_OK;
}

/* Close the connections of origins that no op goes to: idle ones, and those that are being opened,
   or read to the end of an answer. */
DLPI_COLD
static void dlpi_s3_origins_clear(dlp_s3_io *io) {
    for (uint32_t i = 0; i < io->n_connections; i++) {
        dlpi_s3_connection *connection = &io->connections[i];
        if (connection->state == DLPI_S3_CONNECTION_FREE || connection->range ||
            connection->origin->ops > 0)
            continue;
        dlpi_s3_connection_close(io, connection);
    }
}

/* Find the origin that an op goes to, and count the op there. None of its ranges is queued. Returns
   DLP_OK; DLP_ERR_ARG: there is no such place; DLP_FULL: all origins are in use. */
DLPI_COLD
static int dlpi_s3_op_settle(dlp_s3_io *io, dlpi_s3_op *op) {
    bool tls = op->moved ? op->to.tls != 0 : io->s3->endpoint.tls != 0;
    dlpi_s3_origin *origin = io->last_origin;
    char name[256];
    uint16_t port;
    if (dlpi_s3_op_address(io, op) != DLP_OK ||
        dlpi_s3_place_address(io->host, tls, name, &port) != DLP_OK)
        return DLP_ERR_ARG;
    if (!origin || origin->port != port || origin->tls != tls || strcmp(origin->host, name) != 0) {
        origin = dlpi_s3_origin_get(io, name, port, tls);
        if (!origin) {
            dlpi_s3_origins_clear(io);
            origin = dlpi_s3_origin_get(io, name, port, tls);
        }
        if (!origin) return DLP_FULL;
        io->last_origin = origin;
    }
    if (op->origin) op->origin->ops--;
    op->origin = origin;
    origin->ops++;
    return DLP_OK;
}

/* Move an op to its new place, with those of its ranges that are not on a connection. If that place
   cannot be used, the op ends. */
DLPI_COLD
static void dlpi_s3_op_move(dlp_s3_io *io, dlpi_s3_op *op) {
    int code;
    for (dlpi_s3_node *n = op->ranges.next; n != &op->ranges; n = n->next) {
        dlpi_s3_range *range = DLPI_S3_OF(n, dlpi_s3_range, sibling);
        if (range->state == DLPI_S3_RANGE_WAITING)
            dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
        else if (range->state == DLPI_S3_RANGE_HEDGING)
            dlpi_s3_range_become(range, DLPI_S3_RANGE_ASKED);
    }
    code = dlpi_s3_op_settle(io, op);
    if (code != DLP_OK) {
        dlpi_s3_op_add(op, "and its Location cannot be used; give the endpoint that it leads to");
        dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
        return;
    }
    for (dlpi_s3_node *n = op->ranges.next; n != &op->ranges; n = n->next) {
        dlpi_s3_range *range = DLPI_S3_OF(n, dlpi_s3_range, sibling);
        if (range->state == DLPI_S3_RANGE_NONE) dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
    }
}

/* Return in which of AWS' domains (0, 1) a host is S3's own: "s3.REGION", "BUCKET.s3-REGION",
   "BUCKET.s3.dualstack.REGION"; -1: none. Rented machines have names there, too. */
DLPI_COLD
static int dlpi_s3_host_aws(const char *host) {
    static const char *const domains[] = {".amazonaws.com", ".amazonaws.com.cn"};
    size_t end = strlen(host), k = strlen(domains[0]);
    int which = end > k && strcmp(host + end - k, domains[0]) == 0 ? 0 : 1;
    k = strlen(domains[which]);
    if (end <= k || strcmp(host + end - k, domains[which]) != 0) return -1;
    end -= k;
    for (int label = 0; label < 3; label++) { /* from the last one on */
        size_t at = end, n;
        while (at > 0 && host[at - 1] != '.') at--;
        n = end - at;
        if (n >= 2 && memcmp(host + at, "s3", 2) == 0 && (n == 2 || host[at + 2] == '-'))
            return which;
        if (at == 0 || (label == 1 && (n != 9 || memcmp(host + at, "dualstack", 9) != 0))) break;
        end = at - 1;
    }
    return -1;
}

/* True if an address belongs to the service of the endpoint: the same port, and the same host or
   one below it. If the endpoint is S3 of AWS, its other hosts in that domain belong to it, too. */
DLPI_COLD
static bool dlpi_s3_kin(const dlpi_s3_endpoint *to, const dlpi_s3_endpoint *endpoint) {
    const char *host = to->host, *own = endpoint->host;
    size_t n = strlen(host), m = strlen(own);
    if (to->port != endpoint->port && !(to->is_default_port && endpoint->is_default_port))
        return false;
    if (strcmp(host, own) == 0) return true;
    if (strspn(own, "0123456789.") == m) return false; /* addresses have no names below */
    if (n > m && host[n - m - 1] == '.' && strcmp(host + n - m, own) == 0) return true;
    return dlpi_s3_host_aws(host) >= 0 && dlpi_s3_host_aws(host) == dlpi_s3_host_aws(own);
}

/* Keep the path and the query of a Location (at: from its path on) in the op. */
DLPI_COLD
static void dlpi_s3_op_target(dlpi_s3_op *op, const char *at) {
    size_t path = strcspn(at, "?#"), query = 0;
    op->to_query = NULL;
    if (path == 0) dlpi_s3_copy(op->to_path, sizeof op->to_path, "/");
    memcpy(op->to_path, at, path);
    if (path > 0) op->to_path[path] = '\0';
    if (at[path] != '?') return;
    query = strcspn(at + path + 1, "#");
    path = strlen(op->to_path) + 1;
    op->to_query = op->to_path + path;
    memcpy(op->to_path + path, strchr(at, '?') + 1, query);
    op->to_path[path + query] = '\0';
}

/* Have an op go to a Location: a URL, or a path on the server. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_op_redirect(dlp_s3_io *io, dlpi_s3_op *op, const char *location) {
    const char *at = location, *why = NULL;
    const dlpi_s3_endpoint *from = op->moved ? &op->to : &io->s3->endpoint;
    dlpi_s3_endpoint to = *from;
    to.prefix[0] = '\0';
    if (location[0] != '/') why = dlpi_s3_url_split(&to, location, &at); /* else the same server */
    if (why) return why;
    if (from->tls && !to.tls)
        return "it leads from https to http; give the endpoint that it leads to";
    if (to.tls && !io->s3->has_tls)
        return "it leads to https; compile with DLPIPE_S3_OPENSSL, or give tls";
    dlpi_s3_op_target(op, at);
    op->to = to;
    op->foreign = !dlpi_s3_kin(&to, &io->s3->endpoint);
    op->moved = true;
    return NULL;
}

/* ---- verdicts ---- */

/* True if a request is fetched in parts. bound: bytes that it may have if it gives no length. */
DLPI_COLD
static bool dlpi_s3_op_splits(const dlp_s3_io *io, const dlp_s3_request *r, uint64_t bound) {
    if (r->method != DLP_S3_GET || r->query) return false;
    return (r->length ? r->length : bound) > io->desc->part_bytes;
}

/* True if a weak ETag in the answer is enough. The list's ETag of a whole object may come back
   weak, by a proxy that marks it so. The whole object is then still the version that was listed. */
DLPI_COLD
static bool dlpi_s3_op_weakly(const dlpi_s3_op *op) {
    return op->by == DLPI_S3_BY_MANIFEST && op->r->offset == 0 && op->r->length == 0;
}

/* Set an op to its beginning: nothing of the object has come. */
DLPI_COLD
static void dlpi_s3_op_reset(const dlp_s3_io *io, dlpi_s3_op *op) {
    dlp_s3_request *r = op->r;
    op->next = 0;
    op->cursor.piece = 0;
    op->cursor.at = 0;
    op->size = r->length ? r->length : UINT64_MAX;
    op->split = dlpi_s3_op_splits(io, r, op->bound);
    op->crc = 0;
    op->crc_doubt = false;
    op->crc_kind = DLPI_S3_CRC_NONE;
    op->opened = op->strong = false;
    r->received = r->object_bytes = 0;
    r->etag[0] = '\0';
}

/* Begin all of a request again. */
DLPI_COLD
static void dlpi_s3_op_restart(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_op_cancel(io, op);
    dlpi_s3_op_reset(io, op);
    dlpi_s3_ring_out(&op->node);
    dlpi_s3_ring_first(&io->wanting, &op->node);
}

/* Restart an op whose bytes do not have the checksum that the server tells, or end it. */
DLPI_COLD
static void dlpi_s3_op_damaged(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_trouble t = {.what = DLPI_S3_T_SUM};
    dlpi_s3_op_message(op, 0, "the bytes that came have %s %llx, and the object has %llx",
                       dlpi_s3_crc_name(op->crc_kind), (unsigned long long)op->crc,
                       (unsigned long long)op->crc_told);
    if (dlpi_s3_classify(&t, &op->tries) != DLPI_S3_RESTART) {
        dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
        return;
    }
    dlpi_s3_say(io, "s3: %s/%s: %s; again over another connection", op->r->bucket, op->r->key,
                op->r->error.message);
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_op_restart(io, op);
}

/* End a range that has all of its bytes, and its op if that was the last range. */
DLPI_COLD
static void dlpi_s3_range_done(dlp_s3_io *io, dlpi_s3_range *range) {
    dlpi_s3_op *op = range->op;
    op->r->received += range->done;
    if (range->crc_is_told && range->crc != range->crc_told) {
        op->crc_doubt = true;
        op->crc_told = range->crc_told;
    }
    if (op->crc_kind)
        op->crc ^=
            dlpi_s3_crc_shift(op->crc_kind, range->crc, op->size - range->first - range->done);
    dlpi_s3_tally(io, DLPI_S3_N_BYTES, range->done);
    dlpi_s3_range_end(io, range, UINT64_MAX);
    if (op->n_ranges > 0 || op->next < op->size) return;
    if (op->crc_doubt && op->crc != op->crc_told)
        dlpi_s3_op_damaged(io, op);
    else
        dlpi_s3_op_end(io, op, DLP_OK);
}

/* Have the helper refresh the credentials of this version; force: even if they seem valid. */
DLPI_COLD
static void dlpi_s3_refresh(dlp_s3_io *io, uint64_t version, bool force) {
    if (!io->refreshing) io->refreshes = dlpi_s3_helper_refreshed(io->helper, NULL);
    if (dlpi_s3_helper_refresh(io->helper, version, force) != 0) return;
    io->refreshing = true;
}

/* Fill in what the classifier needs to know of a case and its maker has not told. */
DLPI_COLD
static void dlpi_s3_case_complete(const dlp_s3_io *io, const dlpi_s3_op *op, dlpi_s3_case *c) {
    const dlpi_s3_common *common = io->s3->common;
    int64_t now_s = dlpi_s3_real_s() + c->used_skew_s;
    c->t.method = op->r->method;
    c->t.resumed = op->opened && !op->r->if_match;
    c->opened = op->opened;
    c->t.refreshable = !dlpi_s3_config_fixed(&common->config);
    c->t.has_region = c->region[0] && strcmp(c->region, c->used_region) != 0;
    c->t.has_location = c->location[0] != '\0';
    c->t.skew_s = c->date_s < 0 ? 0 : c->date_s - now_s;
}

/* True if a part is refused for what another part was refused for, and which has been set right
   since this part was sent. Such refusals count once, however many parts are in flight. */
DLPI_COLD
static bool dlpi_s3_case_stale(const dlpi_s3_op *op, const dlpi_s3_case *c) {
    int32_t status = c->t.status;
    if (c->t.what != DLPI_S3_T_ANSWER || c->turn == op->turn) return false;
    if (dlpi_s3_is_throttle(status, c->t.s3_code)) return false;
    return status / 100 == 3 || status == 400 || status == 401 || status == 403;
}

/* Send a range again at once, now that another region, place, clock or key is known. */
DLPI_COLD
static void dlpi_s3_range_again(dlp_s3_io *io, dlpi_s3_range *range) {
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    if (range->done && !dlpi_s3_range_keeps(range)) dlpi_s3_range_rewind(range);
    dlpi_s3_op_move(io, range->op);
}

/* Send a range again, to the region in which its bucket is. The client remembers the region. */
DLPI_COLD
static void dlpi_s3_range_region(dlp_s3_io *io, dlpi_s3_range *range, const char *region) {
    dlpi_s3_op *op = range->op;
    dlpi_s3_say(io, "s3: bucket %s is in %s", op->r->bucket, region);
    dlpi_s3_region_learn(io->s3->common, op->r->bucket, region);
    dlpi_s3_copy(op->region, sizeof op->region, region);
    op->moved = op->foreign = false;
    dlpi_s3_range_again(io, range);
}

/* Send a range again, to the place that the server named. If the place is refused, the request ends
   with DLP_ERR_REMOTE. */
DLPI_COLD
static void dlpi_s3_range_redirect(dlp_s3_io *io, dlpi_s3_range *range, const char *location) {
    dlpi_s3_op *op = range->op;
    const char *why = dlpi_s3_op_redirect(io, op, location);
    if (why) {
        dlpi_s3_op_add(op, why);
        dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
        return;
    }
    dlpi_s3_say(io, "s3: %s/%s: sent on to %s", op->r->bucket, op->r->key, op->to.host);
    dlpi_s3_range_again(io, range);
}

/* Send a range again at once, on a new connection: the idle one had been closed. */
DLPI_COLD
static void dlpi_s3_range_replay(dlp_s3_io *io, dlpi_s3_range *range) {
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_tally(io, DLPI_S3_N_REPLAYS, 1);
    range->fresh = true;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
}

/* Sign by the server's clock from now on. Requests signed by the old one learn the same. */
DLPI_COLD
static void dlpi_s3_skew_learn(const dlp_s3_io *io, const dlpi_s3_case *c) {
    int64_t *skew_s = &io->s3->common->shared.skew_s, is = c->used_skew_s + c->t.skew_s;
    int64_t was = DLPI_LOAD_RLX(skew_s); /* S7 */
    if (c->date_s < 0 || (is - was <= 1 && was - is <= 1)) return;
    DLPI_STORE_RLX(skew_s, is); /* S7, any value serves */
    dlpi_s3_say(io, "s3: the server's clock differs by %lld s", (long long)is);
}

/* Do what the classifier says about a range that has no connection any more. */
DLPI_COLD
static void dlpi_s3_range_trouble(dlp_s3_io *io, dlpi_s3_range *range, dlpi_s3_case *c) {
    dlpi_s3_op *op = range->op;
    int verdict;
    dlpi_s3_case_complete(io, op, c);
    if (dlpi_s3_case_stale(op, c)) {
        dlpi_s3_range_again(io, range);
        return;
    }
    verdict = dlpi_s3_classify(&c->t, &op->tries);
    op->turn += verdict >= DLPI_S3_OTHER_REGION && verdict <= DLPI_S3_REFRESH;
    switch (verdict) {
    case DLPI_S3_RETRY:
        dlpi_s3_range_retry(io, range, c->retry_after_s, dlpi_s3_case_code(c));
        return;
    case DLPI_S3_REPLAY: dlpi_s3_range_replay(io, range); return;
    case DLPI_S3_OTHER_REGION: dlpi_s3_range_region(io, range, c->region); return;
    case DLPI_S3_REDIRECT: dlpi_s3_range_redirect(io, range, c->location); return;
    case DLPI_S3_SKEW:
        dlpi_s3_skew_learn(io, c);
        dlpi_s3_range_again(io, range);
        return;
    case DLPI_S3_REFRESH:
        dlpi_s3_refresh(io, c->version, true);
        io->held = io->refreshing;
        dlpi_s3_range_again(io, range);
        return;
    case DLPI_S3_RESTART:
        dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
        dlpi_s3_op_restart(io, op);
        return;
    default:
        if (c->t.what == DLPI_S3_T_ANSWER && c->t.status / 100 == 3)
            dlpi_s3_op_add(op, c->t.has_location ? "and redirects, once too often"
                                                 : "without a Location that can be followed");
        dlpi_s3_op_end(io, op, dlpi_s3_case_code(c));
        return;
    }
}

/* Take in that a range has lost a connection: it goes on over its others, or is in trouble. */
DLPI_COLD
static void dlpi_s3_range_lost(dlp_s3_io *io, dlpi_s3_range *range, dlpi_s3_case *c) {
    if (range->n_connections == 0)
        dlpi_s3_range_trouble(io, range, c);
    else
        dlpi_s3_range_await(io, range);
}

/* Return a case of which only the kind of trouble (DLPI_S3_T_*) and an errno are known. */
DLPI_COLD
static dlpi_s3_case dlpi_s3_case_of(int what, int errnum) {
    dlpi_s3_case c;
    memset(&c, 0, sizeof c);
    c.t.what = what;
    c.t.errnum = errnum;
    c.retry_after_s = c.date_s = -1;
    c.region = c.location = c.used_region = "";
    return c;
}

/* Close a connection that has failed (what: DLPI_S3_T_*). Its range, if any, goes on over another,
   or is in trouble. */
DLPI_COLD
static void dlpi_s3_connection_broken(dlp_s3_io *io, dlpi_s3_connection *connection, int what,
                                      int errnum, const char *why) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_case c = dlpi_s3_case_of(what, errnum);
    c.t.began = connection->http.began;
    c.t.reused = connection->served > 0;
    if (range) {
        dlpi_s3_range_part(io, range, connection);
        if (range->n_connections == 0) {
            dlpi_s3_op_message(range->op, errnum, "%s%s", why,
                               what == DLPI_S3_T_BAD ? dlpi_s3_http_cure : "");
            dlpi_s3_op_answer(range->op, connection->http.head_done ? &connection->http : NULL);
        }
    }
    dlpi_s3_connection_close(io, connection);
    if (range) dlpi_s3_range_lost(io, range, &c);
}

/* Refuse the answer on a connection (what: DLPI_S3_T_*), whose rest is not wanted. Its range goes
   on over another, or is in trouble. */
DLPI_COLD
static void dlpi_s3_connection_wrong(dlp_s3_io *io, dlpi_s3_connection *connection, int what) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_case c = dlpi_s3_case_of(what, 0);
    c.t.began = true;
    c.t.status = connection->http.status;
    dlpi_s3_op_answer(range->op, &connection->http);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_lost(io, range, &c);
}

/* ---- errors that the server tells ---- */

enum { DLPI_S3_DOC_NONE, DLPI_S3_DOC_PERHAPS, DLPI_S3_DOC_ERROR, DLPI_S3_DOC_PAGE };

/* True if the text begins with a word, as far as the text goes. */
DLPI_COLD
static bool dlpi_s3_document_has(const char *at, const char *end, const char *word) {
    size_t left = (size_t)(end - at), n = strlen(word);
    return memcmp(at, word, left < n ? left : n) == 0;
}

/* Pass over blanks, a byte order mark and "<?xml ...?>". Returns what follows; the end, if one of
   these is not whole. */
DLPI_COLD
static const char *dlpi_s3_document_begin(const char *at, const char *end) {
    const char *close;
    if (at < end && dlpi_s3_document_has(at, end, "\xef\xbb\xbf"))
        at += end - at < 3 ? end - at : 3;
    while (at < end && dlpi_s3_is_space(*at)) at++;
    if (end - at < 2 || !dlpi_s3_document_has(at, end, "<?xml")) return at;
    close = memmem(at, (size_t)(end - at), "?>", 2);
    at = close ? close + 2 : end;
    while (at < end && dlpi_s3_is_space(*at)) at++;
    return at;
}

/* Return what a body begins with that begins with these n bytes: the document of an error
   (<Error>), a page of HTML, or neither of the two. PERHAPS: they are too few to tell. */
DLPI_COLD
static int dlpi_s3_document(const char *text, size_t n) {
    static const char *const names[] = {"<Error", "<html", "<!doctype html"};
    const char *at = dlpi_s3_document_begin(text, text + n);
    size_t left = n - (size_t)(at - text);
    bool perhaps = left == 0;
    for (int i = 0; i < 3; i++) {
        size_t k = strlen(names[i]), same = left < k ? left : k;
        if ((i == 0 ? strncmp(at, names[i], same) : strncasecmp(at, names[i], same)) != 0) continue;
        if (left <= k)
            perhaps = true;
        else if (at[k] == '>' || at[k] == '/' || dlpi_s3_is_space(at[k]))
            return i == 0 ? DLPI_S3_DOC_ERROR : DLPI_S3_DOC_PAGE;
    }
    return perhaps ? DLPI_S3_DOC_PERHAPS : DLPI_S3_DOC_NONE;
}

/* Fill in the request's error from an answer's head and document. region: gets theirs, or "". */
DLPI_COLD
static void dlpi_s3_error_read(dlpi_s3_op *op, const dlpi_s3_connection *connection, char *region,
                               size_t size) {
    const dlpi_s3_http *h = &connection->http;
    const dlpi_s3_proxy *by = connection->origin->proxy;
    dlp_s3_error *e = &op->r->error;
    char text[200] = "";
    memset(e, 0, sizeof *e);
    e->http_status = h->status;
    dlpi_s3_copy(e->request_id, sizeof e->request_id, h->request_id);
    dlpi_s3_copy(region, size, h->region);
    if (connection->error_n) {
        const char *xml = connection->error;
        size_t n = connection->error_n;
        dlpi_s3_xml_text(xml, n, "Error/Code", e->s3_code, sizeof e->s3_code);
        dlpi_s3_xml_text(xml, n, "Error/Message", text, sizeof text);
        if (!e->request_id[0])
            dlpi_s3_xml_text(xml, n, "Error/RequestId", e->request_id, sizeof e->request_id);
        if (!region[0]) dlpi_s3_xml_text(xml, n, "Error/Region", region, size);
        if (!dlpi_s3_region_ok(region)) region[0] = '\0';
    }
    dlpi_s3_http_keep_shown(e->request_id, sizeof e->request_id, e->request_id,
                            strlen(e->request_id));
    dlpi_s3_http_keep_shown(e->s3_code, sizeof e->s3_code, e->s3_code, strlen(e->s3_code));
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) *p = ' ';
    if (text[0])
        dlpi_s3_op_message(op, 0, "the server says%s: %s",
                           h->status == 200 ? ", though with 200" : "", text);
    else if (by && !connection->origin->tls)
        dlpi_s3_op_message(op, 0, "the server, or the proxy %.150s:%u, answered %d", by->host,
                           (unsigned)by->port, (int)h->status);
    else
        dlpi_s3_op_message(op, 0, "the server answered %d%s", (int)h->status,
                           h->status == 200 ? ", and an error's document" : "");
}

static const char dlpi_s3_overwritten[] =
    "it was overwritten since it was listed; list it again, or set any_version";

/* Say of a 412, or of a 416 in its place, which object is meant. */
DLPI_COLD
static void dlpi_s3_error_version(dlpi_s3_op *op) {
    int32_t status = op->r->error.http_status;
    if (!op->r->if_match || (status != 412 && status != 416)) return;
    if (op->by == DLPI_S3_BY_MANIFEST && status == 416)
        dlpi_s3_op_message(op, 0, "it ends before these bytes: %s", dlpi_s3_overwritten);
    else if (op->by == DLPI_S3_BY_MANIFEST)
        dlpi_s3_op_message(op, 0, "%s", dlpi_s3_overwritten);
    else if (op->by == DLPI_S3_BY_HEAD)
        dlpi_s3_op_message(op, 0, "it was overwritten while it was downloaded; read it again");
    else if (status == 412)
        dlpi_s3_op_add(op, "its ETag is none that if_match names");
}

/* Add to the message what an answer may be that does not say it: a proxy's, or, if it is a 403,
   that of a bucket whose readers pay. */
DLPI_COLD
static void dlpi_s3_error_hint(const dlp_s3_io *io, dlpi_s3_op *op,
                               const dlpi_s3_connection *connection) {
    const dlp_s3_error *e = &op->r->error;
    const dlpi_s3_proxy *by = connection->origin->proxy;
    dlpi_s3_error_version(op);
    if (e->http_status == 407) {
        dlpi_s3_op_add(op, by && by->header[0]
                               ? "it wants another user and password (http://USER:WORD@HOST:PORT)"
                               : "a proxy wants a user and password; set proxy to "
                                 "http://USER:WORD@HOST:PORT");
        return;
    }
    if ((connection->http.is_page && !e->s3_code[0]) ||
        dlpi_s3_document(connection->error, connection->error_n) == DLPI_S3_DOC_PAGE) {
        dlpi_s3_op_add(op, "it sent an HTML page, as proxies and logins do; check endpoint and "
                           "proxy");
        return;
    }
    if (e->http_status != 403 || io->desc->requester_pays || io->desc->anonymous) return;
    if (e->s3_code[0] && strcmp(e->s3_code, "AccessDenied") != 0) return;
    dlpi_s3_op_add(op, "if who asks for this bucket's objects pays, set requester_pays");
}

/* Judge a whole answer that tells an error: note the error, and give its range to the
   classifier. */
DLPI_COLD
static void dlpi_s3_connection_refused(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    dlpi_s3_case c = dlpi_s3_case_of(DLPI_S3_T_ANSWER, 0);
    dlp_s3_error *e = &op->r->error;
    char region[64], used_region[64], location[sizeof connection->http.location];
    bool throttled;
    dlpi_s3_error_read(op, connection, region, sizeof region);
    dlpi_s3_error_hint(io, op, connection);
    throttled = dlpi_s3_is_throttle(e->http_status, e->s3_code);
    if (throttled)
        dlpi_s3_tally(io, DLPI_S3_N_THROTTLED, 1);
    else if (e->http_status < 500 && e->http_status != 408)
        dlpi_s3_heard(io);
    dlpi_s3_answered(&io->patience, io->now, throttled, false);
    c.t.began = true;
    c.t.status = e->http_status;
    c.t.s3_code = e->s3_code;
    c.retry_after_s = connection->http.retry_after_s;
    c.date_s = connection->http.date_s;
    c.version = connection->version;
    c.used_skew_s = connection->skew_s;
    c.turn = connection->turn;
    c.region = region;
    c.location = location;
    c.used_region = used_region;
    dlpi_s3_copy(location, sizeof location, connection->http.location);
    dlpi_s3_copy(used_region, sizeof used_region, connection->region);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_lost(io, range, &c);
}

/* ---- heads of answers ---- */

enum { DLPI_S3_FINE = 0, DLPI_S3_FINAL = -1 }; /* else DLPI_S3_T_* */

/* Fail a request because of the object's bytes from the offset on (is): too many for the memory, or
   fewer than asked for. what, wanted: the end of the message. Returns DLPI_S3_FINAL. */
DLPI_COLD
static int dlpi_s3_op_length(dlpi_s3_op *op, uint64_t is, const char *what, uint64_t wanted) {
    dlpi_s3_op_message(op, 0, "the object has %llu bytes from offset on, %s %llu",
                       (unsigned long long)is, what, (unsigned long long)wanted);
    return DLPI_S3_FINAL;
}

/* Refuse an answer that makes no sense. Returns DLPI_S3_T_SHORT. */
DLPI_COLD
static int dlpi_s3_op_wrong(dlpi_s3_op *op, const char *words) {
    dlpi_s3_op_message(op, 0, "%s; compare with: curl -i -r 0-9 URL", words);
    return DLPI_S3_T_SHORT;
}

/* What an answer to GET or HEAD has of the object. */
typedef struct dlpi_s3_extent {
    bool part; /* Content-Range says which: a 206, and a 200 that has one */
    uint64_t first;
    uint64_t bytes; /* UINT64_MAX: as many as come */
    uint64_t total; /* of the whole object; UINT64_MAX: not told */
} dlpi_s3_extent;

/* Read from a head which bytes of the object the answer has. Returns FINE or a DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_extent_of(dlpi_s3_op *op, const dlpi_s3_http *h, dlpi_s3_extent *x) {
    uint64_t length = h->has_length ? (uint64_t)h->content_length : UINT64_MAX;
    if (!h->has_range && (h->status == 206 || h->range_seen || h->range_bad))
        return dlpi_s3_op_wrong(op, "the server does not tell which range it sends");
    x->part = h->has_range;
    x->first = x->part ? h->range_first : 0;
    x->bytes = x->part ? h->range_last - h->range_first + 1 : length;
    x->total = x->part ? h->range_total : length;
    if (h->has_length && length != x->bytes)
        return dlpi_s3_op_wrong(op, "Content-Range and Content-Length differ");
    return DLPI_S3_FINE;
}

/* Check an answer that has the whole object, though a range may have been asked for. It serves a
   range that begins with the object: a range that goes on passes over what it has, if the object
   has as many bytes as before. If it is as long as the range, or of no told length, it may be just
   that range. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_whole(dlpi_s3_range *range, const dlpi_s3_connection *connection,
                              const dlpi_s3_extent *x) {
    dlpi_s3_op *op = range->op;
    const dlp_s3_request *r = op->r;
    if (r->offset + range->first > 0)
        return dlpi_s3_op_wrong(op, "the server sent the whole object instead of a range");
    if (x->bytes == UINT64_MAX && !r->query &&
        (connection->http.until_close || (r->method == DLP_S3_HEAD && r->key[0])))
        return dlpi_s3_op_wrong(op, "the server does not tell the length of what it sends");
    if (!connection->ranged || op->size != UINT64_MAX) return DLPI_S3_FINE;
    if (connection->first > 0)
        op->strong = false;
    else if (x->bytes != UINT64_MAX && x->bytes != connection->last + 1)
        return DLPI_S3_FINE;
    op->split = false; /* asked for from the beginning, and without a range, then */
    return dlpi_s3_op_wrong(op, "the server does not tell whether it sends all, or a range");
}

/* Check that the answer has the bytes that were asked for: all of the range, or all of it that
   exists. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_bounds(dlpi_s3_range *range, const dlpi_s3_connection *connection,
                               const dlpi_s3_extent *x) {
    uint64_t end = x->first + x->bytes, until = connection->last + 1; /* 0: to the object's end */
    if (!x->part) return dlpi_s3_head_whole(range, connection, x);
    if (connection->last == UINT64_MAX || until > x->total) until = x->total;
    if (until == UINT64_MAX || (range->op->size == UINT64_MAX && x->total == UINT64_MAX))
        return dlpi_s3_op_wrong(range->op, "the server does not tell the object's size");
    if (x->first != connection->first || end != until ||
        (!connection->ranged && connection->http.status == 206))
        return dlpi_s3_op_wrong(range->op, "the server sent another range than it was asked for");
    return DLPI_S3_FINE;
}

/* Check the object's size: as before, enough, with room. Returns FINE, FINAL or a DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_size(dlpi_s3_op *op, const dlpi_s3_extent *x) {
    dlp_s3_request *r = op->r;
    uint64_t total = x->total;
    if (total == UINT64_MAX) return DLPI_S3_FINE;
    if (op->opened && r->object_bytes && r->object_bytes != total) {
        dlpi_s3_op_message(op, 0, "the object's size has changed while it was read; read it again");
        return DLPI_S3_T_CHANGED;
    }
    r->object_bytes = total;
    if (r->method != DLP_S3_GET) return DLPI_S3_FINE;
    if (r->length && total < r->offset + r->length)
        return dlpi_s3_op_length(op, total - r->offset, "so lower length, which is", r->length);
    if (!r->length && total - r->offset > op->bound)
        return dlpi_s3_op_length(op, total - r->offset, "so raise capacity, which is", op->bound);
    return DLPI_S3_FINE;
}

/* Set how many bytes the range has to bring, and where the next range begins. There is no next one
   if this answer brings all and no other range has begun. */
DLPI_COLD
static void dlpi_s3_head_settle(dlpi_s3_range *range, dlpi_s3_connection *connection,
                                const dlpi_s3_extent *x) {
    dlpi_s3_op *op = range->op;
    uint64_t begin = op->r->offset + range->first;
    connection->skip = connection->first - x->first;
    if (range->bytes == UINT64_MAX) {
        op->size = x->total == UINT64_MAX ? UINT64_MAX : x->total - op->r->offset;
        range->bytes = x->bytes == UINT64_MAX ? UINT64_MAX : x->first + x->bytes - begin;
        op->next = range->bytes;
    } else if (!x->part && op->next == range->first + range->bytes) {
        op->next = range->bytes = op->size;
    }
    if (op->next == op->size) dlpi_s3_ring_out(&op->node);
}

/* True if if_match names an ETag, by the strong comparison (RFC 9110, 13.1.1): a weak one, on
   either side, never matches. weakly: the weak comparison (8.8.3.2), in which the ETag may be weak.
   S3 takes ETags without quotes, too. */
DLPI_COLD
static bool dlpi_s3_etag_named(const char *if_match, const char *etag, bool weakly) {
    const char *bare, *at = if_match;
    size_t n, k;
    bool weak, quoted;
    if (strcmp(at + strspn(at, " "), "*") == 0) return true;
    if (weakly && strncmp(etag, "W/", 2) == 0) etag += 2;
    if (!etag[0] || strncmp(etag, "W/", 2) == 0) return false;
    bare = etag[0] == '"' ? etag + 1 : etag;
    n = strcspn(bare, "\"");
    for (at += strspn(at, " ,"); *at; at += strspn(at, " ,")) {
        weak = strncmp(at, "W/", 2) == 0;
        if (weak) at += 2;
        quoted = *at == '"';
        at += quoted;
        k = strcspn(at, quoted ? "\"" : " ,");
        if (!weak && k == n && memcmp(at, bare, n) == 0) return true;
        at += k;
        at += *at == '"';
    }
    return false;
}

/* Refuse an answer whose ETag is not what it must be. Returns DLPI_S3_T_OTHER. */
DLPI_COLD
static int dlpi_s3_etag_wrong(dlpi_s3_op *op, const char *etag) {
    if (op->by == DLPI_S3_BY_USER)
        dlpi_s3_op_message(op, 0,
                           etag[0] ? "its ETag is %s, which if_match does not name"
                                   : "if_match is given, and the server tells no ETag%s",
                           etag);
    else if (op->by == DLPI_S3_BY_HEAD)
        dlpi_s3_op_message(op, 0, "its ETag has changed while it was downloaded; read it again");
    else if (!etag[0])
        dlpi_s3_op_message(op, 0,
                           "the answer has no ETag, and the list has one; if a proxy strips it, do "
                           "without the proxy, or set any_version");
    else if (dlpi_s3_etag_named(op->r->if_match, etag, true))
        dlpi_s3_op_message(
            op, 0,
            "its ETag is weak (W/), which is not enough for a range; if a proxy weakens "
            "it, do without the proxy, or set any_version");
    else
        dlpi_s3_op_message(op, 0, "its ETag is not that of the list: %s", dlpi_s3_overwritten);
    return DLPI_S3_T_OTHER;
}

/* Compare the ETag with if_match, and with that of the earlier answers, which must be the same, or
   missing in all. The first one is kept. Returns DLPI_S3_FINE or DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_etag(dlpi_s3_op *op, const dlpi_s3_http *h) {
    dlp_s3_request *r = op->r;
    if (r->if_match && !dlpi_s3_etag_named(r->if_match, h->etag, dlpi_s3_op_weakly(op)))
        return dlpi_s3_etag_wrong(op, h->etag);
    if (op->opened && (strcmp(h->etag, r->etag) != 0 || h->etag_sum != op->etag_sum)) {
        dlpi_s3_op_message(op, 0, "the object has changed while it was read; read it again");
        return DLPI_S3_T_CHANGED;
    }
    if (op->opened) return DLPI_S3_FINE;
    dlpi_s3_copy(r->etag, sizeof r->etag, h->etag);
    op->etag_sum = h->etag_sum;
    op->strong = r->etag[0] == '"' && dlpi_s3_is_graphic(r->etag) &&
                 strchr(r->etag + 1, '"') == r->etag + strlen(r->etag) - 1;
    /* a weak one never matches: RFC 9110, 13.1.1; an odd one is better not sent back */
    return DLPI_S3_FINE;
}

/* True if anybody may have led the op to where it is: its endpoint has no TLS. A Location that is
   signed, as those of AWS, Google and Azure are, is taken for the server's own. */
DLPI_COLD
static bool dlpi_s3_op_led_away(const dlp_s3_io *io, const dlpi_s3_op *op) {
    const char *query = op->to_query ? op->to_query : "";
    return !io->s3->endpoint.tls && !strstr(query, "Signature=") && !strstr(query, "&sig=");
}

/* Refuse an answer without ETag and request id after a redirect to another host: it may be a login
   page of a network. If anybody may have led it there, a whole object must have both, and be no
   page, unless if_match names its ETag. Returns DLPI_S3_FINE or DLPI_S3_T_OTHER. */
DLPI_COLD
static int dlpi_s3_head_stranger(const dlp_s3_io *io, dlpi_s3_op *op, const dlpi_s3_http *h) {
    const dlp_s3_request *r = op->r;
    const char *lacks = !h->etag_sum ? "no ETag" : "no request id";
    if (!op->foreign || r->method == DLP_S3_PUT) return DLPI_S3_FINE;
    if (r->query || h->status == 206 || !dlpi_s3_op_led_away(io, op)) {
        if (h->etag_sum || h->request_id[0]) return DLPI_S3_FINE;
        lacks = "no ETag, no request id";
    } else if (h->is_page) {
        lacks = "an HTML page";
    } else if (h->etag_sum) {
        if (h->request_id[0]) return DLPI_S3_FINE;
        if (r->if_match && dlpi_s3_etag_named(r->if_match, h->etag, true)) return DLPI_S3_FINE;
    }
    dlpi_s3_op_message(op, 0,
                       "a redirect led to %.60s, which is no server of objects (%s); check the "
                       "endpoint",
                       op->to.host, lacks);
    return DLPI_S3_T_OTHER;
}

/* Compare Content-Encoding, version id and, if there is no ETag, Last-Modified with the first
   answer's, which are kept: the bytes must not be joined if one differs. Returns DLPI_S3_FINE or
   DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_same(dlpi_s3_op *op, const dlpi_s3_http *h) {
    uint64_t modified = h->etag_sum ? 0 : h->modified_sum;
    uint64_t asked =
        op->r->version_id ? dlpi_s3_http_sum(op->r->version_id, strlen(op->r->version_id)) : 0;
    if (asked && h->version_sum && h->version_sum != asked) {
        dlpi_s3_op_message(
            op, 0,
            "the server sends another version than version_id; does the bucket keep versions?");
        return DLPI_S3_T_OTHER;
    }
    if (!op->opened) {
        op->encoding_sum = h->encoding_sum;
        op->version_sum = h->version_sum;
        op->modified_sum = modified;
    } else if (op->encoding_sum != h->encoding_sum || op->version_sum != h->version_sum ||
               op->modified_sum != modified) {
        dlpi_s3_op_message(
            op, 0,
            "the object's Content-Encoding, version or Last-Modified has changed; read it "
            "again");
        return DLPI_S3_T_CHANGED;
    }
    return DLPI_S3_FINE;
}

/* Refuse a body that is not what is stored. Google's server undoes a Content-Encoding of gzip for
   clients that do not accept gzip, and counts a range in the bytes that it makes. So the request
   begins again, and accepts gzip, as later requests do from their beginning. If a server encodes
   what it has stored plain, for clients that accept gzip, the request begins again without that.
   Returns DLPI_S3_FINE or DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_stored(dlpi_s3_op *op, const dlpi_s3_http *h) {
    if (h->stored_encoded == h->encoded || (!op->as_stored && !h->stored_encoded))
        return DLPI_S3_FINE;
    dlpi_s3_op_message(
        op, 0,
        h->encoded ? "the server encodes the object, which is stored plain; turn compression off"
                   : "the server decodes the object, which is stored with a "
                     "Content-Encoding");
    if (op->turned) return DLPI_S3_T_OTHER;
    op->turned = true;
    op->as_stored = !op->as_stored;
    return DLPI_S3_T_CHANGED;
}

/* Keep the checksum that is told with a range, if all of the object is asked for. It may be that of
   the object. If the range is a part as it was uploaded, AWS tells that of the part, under the same
   name ("Checking object integrity", part-level checksums). */
DLPI_COLD
static void dlpi_s3_head_checksum(dlpi_s3_range *range, const dlpi_s3_http *h,
                                  const dlpi_s3_extent *x) {
    dlpi_s3_op *op = range->op;
    const dlp_s3_request *r = op->r;
    bool all = r->offset == 0 && (r->length == 0 || r->length == x->total);
    if (range->done > 0) return; /* it goes on after what an earlier answer has told of */
    for (int kind = 1; kind < DLPI_S3_CRCS && !op->opened; kind++)
        if (op->sums && all && dlpi_s3_http_tells(h, kind)) op->crc_kind = kind;
    range->crc_is_told = op->crc_kind && dlpi_s3_http_tells(h, op->crc_kind);
    range->crc_told = h->crc[op->crc_kind];
}

/* Compare a head of 2xx with what was asked for on its connection: status, version, range and
   lengths. Every answer passes here before a byte of its body is used. Returns DLPI_S3_FINE;
   DLPI_S3_FINAL: the request ends with DLP_ERR_LENGTH; or DLPI_S3_T_*. */
DLPI_COLD
static int dlpi_s3_head_classify(dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    const dlpi_s3_http *h = &connection->http;
    dlpi_s3_extent x;
    int code;
    if (op->r->method == DLP_S3_PUT) {
        dlpi_s3_copy(op->r->etag, sizeof op->r->etag, h->etag);
        return DLPI_S3_FINE;
    }
    if (h->status != 200 && h->status != 206)
        return dlpi_s3_op_wrong(op, "an answer without an object");
    code = dlpi_s3_head_stored(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_same(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_etag(op, h);
    if (code == DLPI_S3_FINE) code = dlpi_s3_extent_of(op, h, &x);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_bounds(range, connection, &x);
    if (code == DLPI_S3_FINE) code = dlpi_s3_head_size(op, &x);
    if (code != DLPI_S3_FINE) return code;
    dlpi_s3_head_checksum(range, h, &x);
    op->opened = true;
    op->over->sorts = op->over->sorts || h->sorts;
    if (op->r->method == DLP_S3_GET) dlpi_s3_head_settle(range, connection, &x);
    return DLPI_S3_FINE;
}

/* Return the object's size as a 416 tells it, in a head or a document; UINT64_MAX: it does not. */
DLPI_COLD
static uint64_t dlpi_s3_connection_total(const dlpi_s3_connection *connection) {
    char text[24];
    uint64_t n = 0;
    if (connection->http.range_total != UINT64_MAX) return connection->http.range_total;
    if (!dlpi_s3_xml_text(connection->error, connection->error_n, "Error/ActualObjectSize", text,
                          sizeof text))
        return UINT64_MAX;
    return dlpi_s3_decimal(text, strlen(text), &n) ? n : UINT64_MAX;
}

/* True if a 416 may be of another version than if_match names. It need not tell an ETag: then only
   a request from byte 0 is in doubt, because it can be sent without a range. */
DLPI_COLD
static bool dlpi_s3_connection_doubtful(const dlpi_s3_connection *connection,
                                        const dlp_s3_request *r) {
    return r->if_match && !dlpi_s3_etag_named(r->if_match, connection->http.etag, false) &&
           (connection->http.etag[0] || r->offset == 0);
}

/* True if a 416 tells, without an error, that there are no bytes to read: the object is empty, or a
   request without a length begins at its end. The op is then complete. */
DLPI_COLD
static bool dlpi_s3_connection_empty(const dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    dlp_s3_request *r = op->r;
    uint64_t total;
    if (connection->http.status != 416 || r->method != DLP_S3_GET || op->opened ||
        !connection->ranged)
        return false;
    if (dlpi_s3_connection_doubtful(connection, r)) return false;
    total = dlpi_s3_connection_total(connection);
    if (total != UINT64_MAX) r->object_bytes = total;
    if (r->length || total != r->offset) return false;
    r->object_bytes = r->offset;
    op->size = op->next = range->bytes = 0;
    op->opened = true;
    return true;
}

/* True if a 416 tells that all of a range, whose end had not been told, has come. */
DLPI_COLD
static bool dlpi_s3_head_all(dlpi_s3_range *range, const dlpi_s3_http *h) {
    dlpi_s3_op *op = range->op;
    if (h->status != 416 || !op->opened || range->bytes != UINT64_MAX || range->done == 0)
        return false;
    if (h->range_total != op->r->offset + range->done) return false;
    op->r->object_bytes = h->range_total;
    op->size = op->next = range->bytes = range->done;
    return true;
}

/* ---- requests, sent ---- */

/* Set the first and last byte that a connection asks for. Returns them as text ("bytes=0-9"), or
   NULL for the whole object. */
DLPI_COLD
static const char *dlpi_s3_connection_range(const dlp_s3_io *io, dlpi_s3_connection *connection,
                                            const dlpi_s3_range *range, char *to, size_t size) {
    const dlpi_s3_op *op = range->op;
    uint64_t begin = op->r->offset + range->first, first = begin + range->done, last = UINT64_MAX;
    if (range->bytes != UINT64_MAX)
        last = begin + range->bytes - 1;
    else if (op->split)
        last = first + io->desc->part_bytes - 1;
    connection->ranged =
        op->r->method == DLP_S3_GET && !op->r->query && (first > 0 || op->r->length || op->split);
    connection->first = connection->ranged ? first : 0;
    connection->last = connection->ranged ? last : UINT64_MAX;
    if (!connection->ranged) return NULL;
    if (last == UINT64_MAX)
        snprintf(to, size, "bytes=%llu-", (unsigned long long)first);
    else
        snprintf(to, size, "bytes=%llu-%llu", (unsigned long long)first, (unsigned long long)last);
    return to;
}

/* Return the query of a request: its own, that of a Location, or the version that is asked for.
   text: memory for it, as large as a line of a head. */
DLPI_COLD
static const char *dlpi_s3_op_query(const dlpi_s3_op *op, char *text, size_t size) {
    const dlp_s3_request *r = op->r;
    dlpi_s3_out o = {text, size, 0};
    if (op->foreign && op->to_query) return op->to_query;
    if (!r->version_id) return r->query;
    dlpi_s3_out_adds(&o, "versionId=");
    dlpi_s3_out_escaped(&o, r->version_id);
    dlpi_s3_out_end(&o);
    return text;
}

/* Write a range's request into the connection's memory. Returns false if that is not possible. */
DLPI_COLD
static bool dlpi_s3_connection_compose(dlp_s3_io *io, dlpi_s3_connection *connection,
                                       const dlpi_s3_range *range) {
    static const char *const methods[] = {"GET", "HEAD", "PUT"};
    const dlpi_s3_op *op = range->op;
    const dlp_s3_request *r = op->r;
    dlpi_s3_head h;
    char text[64];
    int n;
    if (dlpi_s3_op_address(io, op) != DLP_OK) return false;
    memset(&h, 0, sizeof h);
    h.method = methods[r->method];
    h.host = io->host;
    h.path = io->path;
    h.query = dlpi_s3_op_query(op, io->scratch, DLPI_S3_HTTP_LINE);
    h.range = dlpi_s3_connection_range(io, connection, range, text, sizeof text);
    h.if_match = r->if_match && !op->bare ? r->if_match : op->opened && op->strong ? r->etag : NULL;
    h.extra = op->as_stored ? DLPI_S3_AGENT "Accept-Encoding: gzip\r\n" : DLPI_S3_AGENT;
    if (op->origin->proxy && !op->origin->tls) h.proxy = op->origin->proxy->header;
    h.has_body = r->method == DLP_S3_PUT;
    h.body = r->body;
    h.body_bytes = h.has_body ? r->capacity : 0;
    h.unsigned_payload = io->desc->unsigned_payload != 0;
    h.presign = io->desc->presign != 0;
    h.requester_pays = io->desc->requester_pays != 0;
    h.checksum = op->checksum && !op->foreign;
    h.region = dlpi_s3_op_region(io, op);
    h.who = op->foreign ? NULL : &io->who;
    connection->skew_s = DLPI_LOAD_RLX(&io->s3->common->shared.skew_s); /* S7 */
    h.now_s = dlpi_s3_real_s() + connection->skew_s;
    h.keys = &io->keys;
    n = dlpi_s3_head_write(&h, connection->out, DLPI_S3_OUT_BYTES);
    if (n < 0) return false;
    connection->out_at = 0;
    connection->out_n = (uint32_t)n;
    connection->put_at = 0;
    connection->skip = 0;
    if (h.has_body && r->capacity && r->capacity <= DLPI_S3_OUT_BYTES - connection->out_n) {
        memcpy(connection->out + connection->out_n, r->body, r->capacity);
        connection->out_n += (uint32_t)r->capacity;
        connection->put_at = r->capacity;
    }
    dlpi_s3_copy(connection->region, sizeof connection->region, h.region);
    connection->version = io->who.version;
    connection->turn = op->turn;
    return true;
}

/* Return how many bytes of the request can be sent next from *from; 0 if none are left. */
DLPI_COLD
static uint64_t dlpi_s3_connection_unsent(const dlpi_s3_connection *connection, const char **from) {
    const dlp_s3_request *r = connection->range->op->r;
    *from = connection->out + connection->out_at;
    if (connection->deaf) return 0;
    if (connection->out_at < connection->out_n) return connection->out_n - connection->out_at;
    if (r->method != DLP_S3_PUT || connection->put_at == r->capacity) return 0;
    *from = (const char *)r->body + connection->put_at;
    return r->capacity - connection->put_at;
}

/* Note how much of a PUT is delivered: all that was written but for queued bytes in the kernel. */
DLPI_COLD
static void dlpi_s3_connection_delivered(const dlp_s3_io *io, dlpi_s3_connection *connection,
                                         uint64_t queued) {
    connection->queued = queued;
    if (connection->put_at > queued)
        dlpi_s3_range_moved(io, connection->range, connection->put_at - queued);
}

/* Ask the kernel how much of a PUT it still has, and look again soon if it has some: the delivery
   of these bytes wakes nobody. */
DLPI_COLD
static void dlpi_s3_connection_queued(dlp_s3_io *io, dlpi_s3_connection *connection) {
    int n = 0;
    if (connection->deaf || connection->range->op->r->method != DLP_S3_PUT) return;
    if (ioctl(connection->conn.fd, TIOCOUTQ, &n) != 0 || n < 0) n = 0;
    dlpi_s3_connection_delivered(io, connection, (uint64_t)n);
    connection->moved_ns = io->now;
    if (n > 0) dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_LOOK);
}

/* Set the state of a connection to waiting for the answer. All of the request is written, though
   the server may not have it yet. Does not block. */
DLPI_COLD
static void dlpi_s3_connection_sent(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    connection->unsent = connection->deaf;
    if (connection->http.head_done) return; /* the answer came first, and is being read */
    connection->state = DLPI_S3_CONNECTION_WAITING;
    connection->sent_ns = io->now;
    dlpi_s3_due(io, &connection->timer, connection->deaf ? DLPI_S3_BY_DEAF : DLPI_S3_BY_FIRST);
    dlpi_s3_connection_queued(io, connection);
    dlpi_s3_connection_watch(io, connection, EPOLLIN | EPOLLRDHUP);
    dlpi_s3_range_await(io, range);
}

/* Send what the socket takes; no more than a share of it before others have their turn. */
DLPI_COLD
static void dlpi_s3_connection_send(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t n, budget = DLPI_S3_AT_ONCE;
    const char *from;
    while ((n = dlpi_s3_connection_unsent(connection, &from)) > 0) {
        int64_t put =
            dlpi_s3_conn_write(&connection->conn, from, n > 1u << 20 ? 1u << 20 : (size_t)n);
        if (put == DLP_S3_WANT_WRITE || put == DLP_S3_WANT_READ) {
            dlpi_s3_connection_queued(io, connection);
            dlpi_s3_connection_watch(io, connection,
                                     put == DLP_S3_WANT_READ ? EPOLLIN | EPOLLRDHUP
                                                             : EPOLLIN | EPOLLRDHUP | EPOLLOUT);
            return;
        }
        if (put < 0) { /* the answer that says why may be there: it is read before this counts */
            connection->deaf = true;
            break;
        }
        if (connection->out_at < connection->out_n)
            connection->out_at += (uint32_t)put;
        else
            connection->put_at += (uint64_t)put;
        dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
        budget -= (uint64_t)put < budget ? (uint64_t)put : budget;
        if (budget == 0 && dlpi_s3_connection_unsent(connection, &from) > 0) {
            dlpi_s3_connection_watch(io, connection, EPOLLIN | EPOLLRDHUP | EPOLLOUT);
            return;
        }
    }
    dlpi_s3_connection_sent(io, connection);
}

/* Send a range's request (or a hedge) over an idle connection. If it is too long, the op ends. */
DLPI_COLD
static void dlpi_s3_connection_begin(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     dlpi_s3_range *range, bool hedge) {
    dlpi_s3_op *op = range->op;
    dlpi_s3_ring_out(&connection->node);
    dlpi_s3_ring_out(&connection->age);
    io->n_idle--;
    if (!dlpi_s3_connection_compose(io, connection, range)) {
        dlpi_s3_connection_idle(io, connection);
        dlpi_s3_op_message(
            op, 0, "the request's head is too long, or has control bytes; shorten key and query");
        dlpi_s3_op_end(io, op, DLP_ERR_ARG);
        return;
    }
    dlpi_s3_http_begin(&connection->http, op->r->method == DLP_S3_HEAD);
    connection->range = range;
    connection->hedge = hedge;
    connection->deaf = false;
    connection->unsent = true;
    connection->sent_ns = connection->queued = 0;
    connection->error_n = 0;
    connection->state = DLPI_S3_CONNECTION_SENDING;
    if (range->n_connections == 0) io->on_wire++;
    if (range->attempts == 0 && !hedge)
        op->moved_ns = io->now; /* until now it waited for its turn */
    range->connections[range->n_connections++] = connection;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_ASKED);
    range->fresh = false;
    op->attempts++;
    dlpi_s3_tally(io, DLPI_S3_N_REQUESTS, 1);
    if (hedge)
        dlpi_s3_tally(io, DLPI_S3_N_HEDGES, 1);
    else
        dlpi_s3_sent(&io->patience);
    if (range->done > 0 && !hedge) dlpi_s3_tally(io, DLPI_S3_N_RESUMES, 1);
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
    dlpi_s3_connection_send(io, connection);
}

/* ---- answers, read ---- */

/* Give the range to this connection, whose head was the first valid one. Its others are left. */
DLPI_COLD
static void dlpi_s3_connection_wins(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    uint64_t expected =
        connection->http.has_length ? (uint64_t)connection->http.content_length : UINT64_MAX;
    uint64_t waited = 0;
    if (connection->sent_ns && dlpi_s3_may_hedge(range->op))
        dlpi_s3_first_byte(&io->patience, range->size_bytes, io->now - connection->sent_ns);
    for (unsigned i = range->n_connections; i-- > 0;) {
        dlpi_s3_connection *other = range->connections[i];
        if (other == connection) continue;
        if (other->hedge) dlpi_s3_hedge_over(&io->patience, range->size_bytes, false, 0);
        if (other->sent_ns && io->now - other->sent_ns > waited) waited = io->now - other->sent_ns;
        dlpi_s3_range_part(io, range, other);
        dlpi_s3_connection_abandon(io, other, expected);
    }
    if (connection->hedge) {
        dlpi_s3_hedge_over(&io->patience, range->size_bytes, true, waited);
        dlpi_s3_tally(io, DLPI_S3_N_HEDGES_WON, 1);
    }
    dlpi_s3_range_become(range, DLPI_S3_RANGE_BODY);
}

/* End the request with DLP_ERR_LENGTH, though its answer goes on. */
DLPI_COLD
static void dlpi_s3_connection_final(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    dlpi_s3_op_answer(op, &connection->http);
    dlpi_s3_range_part(io, connection->range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_op_end(io, op, DLP_ERR_LENGTH);
}

/* Compare a head of 2xx with what was asked for, and give the connection the range. Returns whether
   the connection still serves its range. */
DLPI_COLD
static bool dlpi_s3_connection_accept(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    int code = dlpi_s3_head_classify(connection);
    if (code == DLPI_S3_FINAL) {
        dlpi_s3_connection_final(io, connection);
        return false;
    }
    if (code != DLPI_S3_FINE) {
        dlpi_s3_connection_wrong(io, connection, code);
        return false;
    }
    io->bare = io->bare || op->bare; /* what was refused is what the answer tells */
    if (op->as_stored && op->turned)
        DLPI_STORE_RLX(&io->s3->common->shared.decodes, 1u); /* S10, any order serves */
    dlpi_s3_connection_wins(io, connection);
    connection->state = DLPI_S3_CONNECTION_BODY;
    connection->moved_ns = connection->body_ns = io->now;
    connection->body_from = connection->range->done;
    dlpi_s3_body_due(io, connection);
    if (op->next < op->size && dlpi_s3_ring_empty(&op->node))
        dlpi_s3_ring_last(&io->wanting, &op->node);
    return true;
}

/* True if the body that follows may be an error's document, in spite of a 200: a server of objects
   tells an object's ETag, time and length. Answers to a query, such as lists, lack them anyway. */
DLPI_COLD
static bool dlpi_s3_head_doubtful(const dlpi_s3_connection *connection) {
    const dlpi_s3_http *h = &connection->http;
    return h->status == 200 && connection->range->op->r->method == DLP_S3_GET &&
           (!h->etag_sum || !h->modified_sum || !h->has_length);
}

/* Judge a whole head. Returns whether the connection still serves its range. */
DLPI_COLD
static bool dlpi_s3_connection_head(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const dlpi_s3_http *h = &connection->http;
    int code;
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_STALL);
    if (h->status < 200 || h->status > 299) {
        connection->state = DLPI_S3_CONNECTION_ERROR;
        return true;
    }
    code = dlpi_s3_head_stranger(io, connection->range->op, h);
    if (code != DLPI_S3_FINE) {
        dlpi_s3_connection_wrong(io, connection, code);
        return false;
    }
    if (!dlpi_s3_head_doubtful(connection)) return dlpi_s3_connection_accept(io, connection);
    connection->state = DLPI_S3_CONNECTION_DOUBT;
    return true;
}

/* Return how a body has got on since it began, or was looked at last. */
DLPI_COLD
static dlpi_s3_body_pace dlpi_s3_connection_pace(const dlp_s3_io *io,
                                                 const dlpi_s3_connection *connection) {
    const dlpi_s3_range *range = connection->range;
    dlpi_s3_body_pace b;
    b.size = range->size_bytes;
    b.got = range->done - connection->body_from;
    b.ns = io->now - connection->body_ns;
    b.left = range->bytes - range->done;
    b.afresh = dlpi_s3_range_keeps(range) ? b.left : range->bytes;
    b.moves = range->moves;
    return b;
}

/* End a range that has all of its bytes. The connection may serve another. */
DLPI_COLD
static void dlpi_s3_connection_done(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    if (connection->state == DLPI_S3_CONNECTION_BODY && range->done > connection->body_from &&
        connection->body_ns > io->returned_ns) {
        dlpi_s3_body_pace pace = dlpi_s3_connection_pace(io, connection);
        dlpi_s3_paced(&io->patience, &pace);
    }
    dlpi_s3_heard(io);
    dlpi_s3_answered(&io->patience, io->now, false, true);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_done(io, range);
}

/* True if a 400 may be for the range in the request: the answer names no other cause. */
DLPI_COLD
static bool dlpi_s3_connection_mistook(const dlpi_s3_connection *connection) {
    char code[64] = "";
    if (connection->http.status != 400) return false;
    dlpi_s3_xml_text(connection->error, connection->error_n, "Error/Code", code, sizeof code);
    return !code[0] || dlpi_s3_listed(" InvalidRange InvalidRequest InvalidArgument BadRequest"
                                      " NotImplemented ",
                                      code);
}

/* True if the server names the header that asks for a checksum, in an error. */
DLPI_COLD
static bool dlpi_s3_connection_unsummed(const dlpi_s3_connection *connection) {
    static const char name[] = "x-amz-checksum";
    int32_t status = connection->http.status;
    return (status == 400 || status == 501) &&
           memmem(connection->error, connection->error_n, name, sizeof name - 1);
}

/* Ask again without what the client added and the server refuses. This is the checksum, unless the
   desc insists on it; then no request of the io asks for one. Or it is an If-Match with the list's
   ETag, which a proxy that weakens ETags may find too strong. Or it is the range, which gets a
   large object in parts. Returns true if it is asked again. */
DLPI_COLD
static bool dlpi_s3_connection_plainer(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op = range->op;
    int32_t status = connection->http.status;
    if (op->opened || range->n_connections > 1) return false;
    if (op->checksum && io->desc->checksums == DLPI_S3_CHECKSUMS_TRIED &&
        dlpi_s3_connection_unsummed(connection)) {
        dlpi_s3_say(io, "s3: the server answers %d; asked again without checksums, from now on",
                    (int)status);
        op->checksum = false;
        io->no_checksums = true;
    } else if (status == 412 && !op->bare && dlpi_s3_op_weakly(op)) {
        op->bare = true;
    } else if (op->split && connection->first == 0 && !op->r->length &&
               (status == 416 || status == 501 || dlpi_s3_connection_mistook(connection))) {
        op->split = false;
    } else {
        return false;
    }
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_free(io, connection);
    dlpi_s3_range_again(io, range);
    return true;
}

/* Judge an answer that is not 2xx, whole or as much of it as the client reads: end the request, ask
   again in a plainer form, or fail. */
DLPI_COLD
static void dlpi_s3_connection_told(dlp_s3_io *io, dlpi_s3_connection *connection) {
    if (dlpi_s3_connection_empty(connection) ||
        dlpi_s3_head_all(connection->range, &connection->http))
        dlpi_s3_connection_done(io, connection);
    else if (!dlpi_s3_connection_plainer(io, connection))
        dlpi_s3_connection_refused(io, connection);
}

DLPI_COLD
static bool dlpi_s3_connection_body(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                    size_t n);

/* Take a body that was in doubt for the object's, with its first bytes, which were kept. Returns
   whether the connection still serves its range. */
DLPI_COLD
static bool dlpi_s3_connection_trust(dlp_s3_io *io, dlpi_s3_connection *connection) {
    size_t n = connection->error_n;
    connection->error_n = 0;
    return dlpi_s3_connection_accept(io, connection) &&
           (n == 0 || dlpi_s3_connection_body(io, connection, connection->error, n));
}

/* Judge an answer that has ended: its range is done, or too short, or it tells an error. */
DLPI_COLD
static void dlpi_s3_connection_end(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_range *range = connection->range;
    dlpi_s3_op *op;
    if (!range) {
        dlpi_s3_connection_free(io, connection);
        return;
    }
    op = range->op;
    if (connection->state == DLPI_S3_CONNECTION_DOUBT && !dlpi_s3_connection_trust(io, connection))
        return;
    if (connection->state == DLPI_S3_CONNECTION_ERROR) {
        dlpi_s3_connection_told(io, connection);
        return;
    }
    if (op->r->method == DLP_S3_GET) {
        if (range->bytes == UINT64_MAX) range->bytes = op->size = op->next = range->done;
        if (range->done != range->bytes) {
            dlpi_s3_op_message(op, 0, "the body ended after %llu bytes of %llu",
                               (unsigned long long)range->done, (unsigned long long)range->bytes);
            dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_SHORT);
            return;
        }
    } else {
        if (op->r->method == DLP_S3_PUT && connection->unsent) {
            dlpi_s3_op_message(op, 0, "the server says yes before it has all bytes");
            dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_BAD);
            return;
        }
        range->bytes = op->size = op->next = 0;
        if (op->r->method == DLP_S3_PUT) dlpi_s3_tally(io, DLPI_S3_N_BYTES, op->r->capacity);
    }
    dlpi_s3_connection_done(io, connection);
}

/* End a request of which more bytes come than there is room for, and no head had told that. */
DLPI_COLD
static void dlpi_s3_connection_overflow(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_op *op = connection->range->op;
    dlpi_s3_op_message(op, 0, "more bytes come than capacity, which is %llu; raise it",
                       (unsigned long long)op->bound);
    dlpi_s3_connection_final(io, connection);
}

/* Keep bytes of an error's document. Returns false if its room is full: it was judged as it is. */
DLPI_COLD
static bool dlpi_s3_connection_error(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                     size_t n) {
    size_t room = DLPI_S3_ERROR_BYTES - connection->error_n;
    if (n > room) n = room;
    memcpy(connection->error + connection->error_n, at, n);
    connection->error_n += (uint32_t)n;
    if (n < room) return true;
    dlpi_s3_connection_told(io, connection); /* it might never end */
    return false;
}

/* Keep the first bytes of a body in doubt until they tell whether it is the object's. Returns
   whether the connection still serves its range. */
DLPI_COLD
static bool dlpi_s3_connection_doubt(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                     size_t n) {
    const dlpi_s3_http *h = &connection->http;
    size_t room = DLPI_S3_DOUBT_BYTES - connection->error_n, kept = n < room ? n : room;
    int what;
    memcpy(connection->error + connection->error_n, at, kept);
    connection->error_n += (uint32_t)kept;
    what = dlpi_s3_document(connection->error, connection->error_n);
    if (what == DLPI_S3_DOC_PERHAPS && kept == n) return true;
    if (what != DLPI_S3_DOC_ERROR) /* a page may be an object, too */
        what = (what == DLPI_S3_DOC_PAGE || h->is_page) && !h->etag_sum && !h->modified_sum &&
                       !h->request_id[0]
                   ? DLPI_S3_DOC_PAGE
                   : DLPI_S3_DOC_NONE;
    if (what == DLPI_S3_DOC_ERROR || what == DLPI_S3_DOC_PAGE) {
        connection->state = DLPI_S3_CONNECTION_ERROR;
        return dlpi_s3_connection_error(io, connection, at + kept, n - kept);
    }
    return dlpi_s3_connection_trust(io, connection) &&
           (kept == n || dlpi_s3_connection_body(io, connection, at + kept, n - kept));
}

/* Count bytes that nobody wants. Returns false if they were too many: the connection is left. */
DLPI_COLD
static bool dlpi_s3_connection_waste(dlp_s3_io *io, dlpi_s3_connection *connection, size_t n) {
    connection->error_n += (uint32_t)n;
    if (connection->error_n <= DLPI_S3_DRAIN) return true;
    if (!connection->range) {
        dlpi_s3_connection_close(io, connection);
        return false;
    }
    dlpi_s3_op_message(connection->range->op, 0,
                       "the answer's body is far too long; check the endpoint");
    dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_BAD);
    return false;
}

/* Take in n bytes of a body. Returns whether the connection still serves its range. */
DLPI_COLD
static bool dlpi_s3_connection_body(dlp_s3_io *io, dlpi_s3_connection *connection, const char *at,
                                    size_t n) {
    dlpi_s3_range *range = connection->range;
    if (!at) return true;
    if (connection->state == DLPI_S3_CONNECTION_ERROR)
        return dlpi_s3_connection_error(io, connection, at, n);
    if (connection->state == DLPI_S3_CONNECTION_DOUBT)
        return dlpi_s3_connection_doubt(io, connection, at, n);
    if (connection->state != DLPI_S3_CONNECTION_BODY || range->op->r->method != DLP_S3_GET)
        return dlpi_s3_connection_waste(io, connection, n);
    if (connection->skip) {
        uint64_t had = n < connection->skip ? n : connection->skip;
        connection->skip -= had;
        at += had;
        n -= (size_t)had;
    }
    if (dlpi_s3_range_lay(io, range, at, n) == n) return true;
    if (range->bytes == UINT64_MAX) {
        dlpi_s3_connection_overflow(io, connection);
    } else if (connection->http.has_range) { /* which then is not to be trusted in the rest */
        dlpi_s3_op_message(range->op, 0, "the body goes on after the range that was told");
        dlpi_s3_range_rewind(range);
        dlpi_s3_connection_wrong(io, connection, DLPI_S3_T_SHORT);
    } else {
        dlpi_s3_connection_done(io, connection); /* a 200 went on after the range */
    }
    return false;
}

/* Parse bytes that were read. Returns whether reading may go on. */
DLPI_COLD
static bool dlpi_s3_connection_feed(dlp_s3_io *io, dlpi_s3_connection *connection,
                                    const char *bytes, size_t n) {
    for (;;) {
        const char *body;
        size_t used, body_n;
        int code = dlpi_s3_http_feed(&connection->http, bytes, n, &used, &body, &body_n);
        bytes += used;
        n -= used;
        if (n > 0 && connection->http.done)
            connection->http.keep_alive = false; /* whosever those may be */
        switch (code) {
        case DLPI_S3_HTTP_HEAD:
            if (connection->range && !dlpi_s3_connection_head(io, connection)) return false;
            if (!connection->range && dlpi_s3_http_direct(&connection->http) > DLPI_S3_DRAIN) {
                dlpi_s3_connection_close(io, connection);
                return false;
            }
            break;
        case DLPI_S3_HTTP_BODY:
            if (!dlpi_s3_connection_body(io, connection, body, body_n)) return false;
            break;
        case DLPI_S3_HTTP_END: dlpi_s3_connection_end(io, connection); return false;
        case DLPI_S3_HTTP_BAD:
            dlpi_s3_connection_broken(io, connection, DLPI_S3_T_BAD, 0, connection->http.why);
            return false;
        default: return true;
        }
    }
}

/* True if the range has all of its bytes, and only the end mark of a chunked answer is missing. */
DLPI_COLD
static bool dlpi_s3_connection_whole(const dlpi_s3_connection *connection) {
    return connection->state == DLPI_S3_CONNECTION_BODY && connection->range &&
           connection->range->done == connection->range->bytes;
}

/* Take in that a read got 0 (the stream's end) or failed: the range is done, or is in trouble. */
DLPI_COLD
static void dlpi_s3_connection_ended(dlp_s3_io *io, dlpi_s3_connection *connection, int64_t got) {
    int errnum = got == 0 ? ECONNRESET : connection->conn.errnum;
    char why[160];
    if (got == 0 && dlpi_s3_http_eof(&connection->http) == DLPI_S3_HTTP_END) {
        dlpi_s3_connection_end(io, connection);
        return;
    }
    if (dlpi_s3_connection_whole(connection)) {
        dlpi_s3_connection_done(io, connection);
        return;
    }
    dlpi_s3_copy(why, sizeof why, got == 0 ? connection->http.why : connection->conn.why);
    dlpi_s3_connection_broken(io, connection, DLPI_S3_T_BROKEN, errnum, why);
}

/* Return where the next bytes of a connection go: to their place (*straight) if it is large enough
   and they are only body, else to the scratch memory. *n: how many at most. */
DLPI_COLD
static char *dlpi_s3_connection_target(dlp_s3_io *io, dlpi_s3_connection *connection, uint64_t *n,
                                       bool *straight) {
    uint64_t direct = dlpi_s3_http_direct(&connection->http), room;
    char *to = NULL;
    *straight = false;
    *n = connection->http.head_done ? 16384 : DLPI_S3_HEAD_READ;
    if (direct == 0 || connection->state == DLPI_S3_CONNECTION_ERROR) return io->scratch;
    *n = direct < DLPI_S3_SCRATCH ? direct : DLPI_S3_SCRATCH;
    if (connection->state != DLPI_S3_CONNECTION_BODY || connection->skip ||
        connection->range->op->r->method != DLP_S3_GET)
        return io->scratch;
    to = dlpi_s3_range_room(connection->range, &room);
    if (room == 0 || (room < DLPI_S3_SMALL_PIECE && room < direct)) return io->scratch;
    *straight = true;
    *n = room < direct ? room : direct;
    if (!to && *n > DLPI_S3_SCRATCH) *n = DLPI_S3_SCRATCH;
    return to ? to : io->scratch;
}

/* Read what is there, at most a turn's share, and act on it. */
DLPI_COLD
static void dlpi_s3_connection_read(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t budget = DLPI_S3_AT_ONCE, n;
    bool straight, moved = false;
    dlpi_s3_ring_out(&connection->node); /* of the hungry */
    do {
        char *to = dlpi_s3_connection_target(io, connection, &n, &straight);
        int64_t got;
        if (n > budget) n = budget;
        got = dlpi_s3_conn_read(&connection->conn, to, (size_t)n);
        if (got == DLP_S3_WANT_READ || got == DLP_S3_WANT_WRITE) break;
        if (got <= 0) {
            dlpi_s3_connection_ended(io, connection, got);
            return;
        }
        moved = true;
        if (straight) {
            dlpi_s3_range_took(io, connection->range, to, (uint64_t)got);
            if (dlpi_s3_http_took(&connection->http, (uint64_t)got) == DLPI_S3_HTTP_END) {
                dlpi_s3_connection_end(io, connection);
                return;
            }
            if (connection->range->done == connection->range->bytes && !connection->http.chunked) {
                dlpi_s3_connection_done(io, connection); /* a 200 goes on after the range */
                return;
            }
        } else if (!dlpi_s3_connection_feed(io, connection, to, (size_t)got)) {
            return;
        }
        budget -= (uint64_t)got < budget ? (uint64_t)got : budget;
        if (!connection->conn.tls && (uint64_t)got < n && connection->http.head_done)
            break; /* all that was */
    } while (budget);
    if (!budget && connection->conn.tls) dlpi_s3_ring_last(&io->hungry, &connection->node);
    if (moved) connection->moved_ns = io->now;
    dlpi_s3_connection_low_water(
        io, connection,
        connection->state == DLPI_S3_CONNECTION_BODY ? dlpi_s3_http_direct(&connection->http) : 1);
}

/* ---- what is to be done next ---- */

/* Make the next range of an op, and queue it for a connection. */
DLPI_COLD
static void dlpi_s3_op_next(dlp_s3_io *io, dlpi_s3_op *op) {
    dlpi_s3_range *range = DLPI_S3_OF(io->free_ranges.next, dlpi_s3_range, queue);
    uint64_t part = op->split ? io->desc->part_bytes : UINT64_MAX;
    dlpi_s3_ring_out(&range->queue);
    range->op = op;
    range->first = op->next;
    range->bytes = op->size == UINT64_MAX ? UINT64_MAX : op->size - op->next;
    if (op->size != UINT64_MAX && range->bytes > part) range->bytes = part;
    op->next = range->bytes == UINT64_MAX ? UINT64_MAX : op->next + range->bytes;
    range->done = range->tried_at = range->most = range->crc = 0;
    range->cursor = dlpi_s3_cursor_on(op->r, op->cursor, 0);
    op->cursor = range->bytes == UINT64_MAX ? op->cursor
                                            : dlpi_s3_cursor_on(op->r, op->cursor, range->bytes);
    range->n_connections = range->moves = 0;
    range->crc_is_told = false;
    range->fresh = op->tries.sums > 0;
    range->attempts = 0;
    range->begun_ns = io->now;
    range->size_bytes = range->bytes != UINT64_MAX ? range->bytes : op->split ? part : op->bound;
    if (op->r->method != DLP_S3_GET) range->size_bytes = 1;
    range->size_class = dlpi_s3_class(range->size_bytes);
    dlpi_s3_ring_last(&op->ranges, &range->sibling);
    op->n_ranges++;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
    dlpi_s3_ring_out(&range->queue); /* behind those that have waited before */
    dlpi_s3_ring_last(&op->origin->waiting, &range->queue);
}

/* True if an op may begin another range: further parts wait for the first head, with size and
   ETag. */
DLPI_COLD
static bool dlpi_s3_op_ready(const dlpi_s3_op *op) {
    return op->n_ranges == 0 || op->opened || op->r->if_match;
}

/* Let ops begin ranges, in turn, while there are free range records. */
DLPI_COLD
static void dlpi_s3_pump_ops(dlp_s3_io *io) {
    while (!dlpi_s3_ring_empty(&io->wanting) && !dlpi_s3_ring_empty(&io->free_ranges)) {
        dlpi_s3_op *op = DLPI_S3_OF(io->wanting.next, dlpi_s3_op, node);
        dlpi_s3_ring_out(&op->node);
        if (!dlpi_s3_op_ready(op)) continue; /* its first head puts it back */
        dlpi_s3_op_next(io, op);
        if (op->next < op->size) dlpi_s3_ring_last(&io->wanting, &op->node);
    }
}

/* Give a failed connection's trouble (what: DLPI_S3_T_*) to the range that waits longest. */
DLPI_COLD
static void dlpi_s3_origin_failed(dlp_s3_io *io, dlpi_s3_origin *origin, int what, int errnum,
                                  const char *why) {
    dlpi_s3_case c = dlpi_s3_case_of(what, errnum);
    dlpi_s3_range *range;
    char by[300] = "";
    if (origin->proxy)
        snprintf(by, sizeof by, "; by proxy %s:%u", origin->proxy->host,
                 (unsigned)origin->proxy->port);
    if (origin->n_waiting) {
        range = DLPI_S3_OF(origin->waiting.next, dlpi_s3_range, queue);
        dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
        dlpi_s3_op_message(range->op, errnum, "%.150s%s", why, by);
        dlpi_s3_op_answer(range->op, NULL);
        dlpi_s3_range_trouble(io, range, &c);
    } else if (origin->n_hedging) {
        range = DLPI_S3_OF(origin->hedging.next, dlpi_s3_range, queue);
        dlpi_s3_range_become(range, DLPI_S3_RANGE_ASKED);
        dlpi_s3_range_await(io, range); /* once more, but not at once */
        dlpi_s3_hedge_over(&io->patience, range->size_bytes, false, 0);
    }
}

/* If the origin has a proxy and TLS, have the connection ask the proxy for a tunnel (CONNECT). */
DLPI_COLD
static void dlpi_s3_connection_by(dlpi_s3_connection *connection, const dlpi_s3_origin *origin) {
    const char *form = strchr(origin->host, ':') ? "[%s]:%u" : "%s:%u";
    char to[300];
    if (!origin->proxy || !origin->tls) return;
    snprintf(to, sizeof to, form, origin->host, (unsigned)origin->port);
    connection->conn.tunnel_n = (uint32_t)snprintf(connection->out, DLPI_S3_OUT_BYTES,
                                                   "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n",
                                                   to, to, DLPI_S3_AGENT, origin->proxy->header);
    connection->conn.tunnel = connection->out;
}

/* Begin one more connection to an origin. Returns whether yet another may be begun. */
DLPI_COLD
static bool dlpi_s3_origin_connect(dlp_s3_io *io, dlpi_s3_origin *origin) {
    dlpi_s3_address address;
    dlpi_s3_connection *connection;
    int errnum = 0, code;
    io->text[0] = '\0';
    code = dlpi_s3_helper_address(io->helper, dlpi_s3_origin_peer(origin),
                                  origin->proxy ? origin->proxy->port : origin->port, &address,
                                  &errnum, io->text, sizeof io->text);
    origin->looking = code == 1;
    if (code == 1) return false;
    if (code != 0) {
        dlpi_s3_origin_failed(io, origin, DLPI_S3_T_RESOLVE, errnum, io->text);
        return true;
    }
    connection = DLPI_S3_OF(io->free_connections.next, dlpi_s3_connection, node);
    code = dlpi_s3_conn_open(&connection->conn, &address, origin->tls ? &io->s3->tls : NULL,
                             origin->host);
    if (code != 0) {
        bool none = connection->conn.errnum == EMFILE || connection->conn.errnum == ENFILE ||
                    connection->conn.errnum == ENOBUFS || connection->conn.errnum == ENOMEM;
        if (none && origin->connections > origin->opening)
            return false; /* those that there are must do */
        dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin), &address, false);
        dlpi_s3_copy(io->text, sizeof io->text, connection->conn.why);
        dlpi_s3_origin_failed(io, origin, DLPI_S3_T_CONNECT, connection->conn.errnum, io->text);
        return true;
    }
    dlpi_s3_connection_by(connection, origin);
    dlpi_s3_ring_out(&connection->node);
    connection->origin = origin;
    connection->range = NULL;
    connection->state = DLPI_S3_CONNECTION_OPENING;
    connection->served = 0;
    connection->low_water = 1;
    connection->unsent = connection->late = connection->raced = false;
    connection->sent_ns = io->now;
    origin->connections++;
    origin->opening++;
    io->connections_out++;
    dlpi_s3_tally(io, DLPI_S3_N_CONNECTIONS, 1);
    dlpi_s3_due(io, &connection->timer, DLPI_S3_BY_RACE);
    if (dlpi_s3_connection_watch(io, connection, EPOLLOUT)) return true;
    errnum = errno;
    snprintf(io->text, sizeof io->text, "cannot watch a socket: %s", strerror(errnum));
    dlpi_s3_connection_close(io, connection);
    dlpi_s3_origin_failed(io, origin, DLPI_S3_T_CONNECT, errnum, io->text);
    return true;
}

/* Go on opening a connection: it becomes idle, waits, or has failed. */
DLPI_COLD
static void dlpi_s3_connection_open(dlp_s3_io *io, dlpi_s3_connection *connection) {
    dlpi_s3_origin *origin = connection->origin;
    int what = DLPI_S3_T_CONNECT, code = dlpi_s3_conn_step(&connection->conn), errnum;
    if (code == DLP_S3_WANT_READ || code == DLP_S3_WANT_WRITE) {
        dlpi_s3_connection_watch(io, connection, code == DLP_S3_WANT_READ ? EPOLLIN : EPOLLOUT);
        return;
    }
    if (code == 0) {
        dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin), &connection->conn.address,
                             true);
        origin->opening -= !connection->raced;
        dlpi_s3_connection_idle(io, connection);
        return;
    }
    if (connection->conn.state == DLPI_S3_HANDSHAKE) what = DLPI_S3_T_TLS;
    errnum = connection->conn.errnum;
    dlpi_s3_copy(io->text, sizeof io->text, connection->conn.why);
    code = connection->late ? connection->raced
                            : dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin),
                                                   &connection->conn.address, false);
    dlpi_s3_connection_close(io, connection);
    if (!code) dlpi_s3_origin_failed(io, origin, what, errnum, io->text);
}

/* If a connection takes long to open, let another be begun beside it, to an address that has not
   failed lately. The first that is open is used first (after RFC 8305); the late one counts for
   nothing until it is open. Returns whether the late one may still come. */
DLPI_COLD
static bool dlpi_s3_connection_race(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t until = connection->sent_ns + io->patience.by[DLPI_S3_BY_CONNECT];
    if (connection->state != DLPI_S3_CONNECTION_OPENING || io->now >= until) return false;
    dlpi_s3_timer_set(&io->timers, &connection->timer, until);
    if (connection->late || connection->conn.state != DLPI_S3_CONNECTING) return true;
    connection->late = true;
    connection->raced = dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(connection->origin),
                                             &connection->conn.address, false);
    connection->origin->opening -= connection->raced;
    return true;
}

/* True if an idle connection may be used. It may have ended unnoticed, or be too old for a box in
   between. Bytes that nobody asked for may be there, which would be taken for the next answer. With
   TLS, bytes of the socket may be the session's own, so only what it has decrypted tells. A
   connection that has just been opened is not looked at. */
DLPI_COLD
static bool dlpi_s3_connection_alive(const dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t idle_ns = io->now - connection->sent_ns;
    char byte;
    if (idle_ns >= io->patience.by[DLPI_S3_BY_IDLE]) return false;
    if (connection->served == 0 && idle_ns < DLPI_S3_STALE_MS * DLPI_S3_MS) return true;
    if (connection->conn.tls && dlpi_s3_conn_pending(&connection->conn)) return false;
    if (connection->conn.tls && idle_ns < DLPI_S3_STALE_MS * DLPI_S3_MS) return true;
    return recv(connection->conn.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Return the idle connection of an origin to use next, or NULL if there is none. Dead ones are
   closed. fresh: take only one that has served no request. */
DLPI_COLD
static dlpi_s3_connection *dlpi_s3_origin_idle(dlp_s3_io *io, dlpi_s3_origin *origin, bool fresh) {
    dlpi_s3_node *n = origin->idle.next;
    while (n != &origin->idle) {
        dlpi_s3_connection *connection = DLPI_S3_OF(n, dlpi_s3_connection, node);
        n = n->next;
        if (fresh && connection->served) continue;
        if (dlpi_s3_connection_alive(io, connection)) return connection;
        dlpi_s3_connection_close(io, connection);
    }
    return NULL;
}

/* True if there is room for one more connection. To make room, close the one that is idle longest,
   or else the one that has read an unwanted answer longest. */
DLPI_COLD
static bool dlpi_s3_connections_room(dlp_s3_io *io) {
    dlpi_s3_node *least = dlpi_s3_ring_empty(&io->idle) ? &io->draining : &io->idle;
    if (io->connections_out == io->n_connections && !dlpi_s3_ring_empty(least))
        dlpi_s3_connection_close(io, DLPI_S3_OF(least->prev, dlpi_s3_connection, age));
    return io->connections_out < io->n_connections;
}

/* Send the ranges that wait at an origin over idle connections, and begin new ones for the rest. */
DLPI_COLD
static void dlpi_s3_pump_origin(dlp_s3_io *io, dlpi_s3_origin *origin) {
    uint32_t limit = (uint32_t)dlpi_s3_limit(&io->patience), want;
    while (origin->n_waiting && io->on_wire < limit) {
        dlpi_s3_range *range = DLPI_S3_OF(origin->waiting.next, dlpi_s3_range, queue);
        dlpi_s3_connection *connection = dlpi_s3_origin_idle(io, origin, range->fresh);
        if (!connection) break;
        dlpi_s3_connection_begin(io, connection, range, false);
    }
    while (origin->n_hedging) {
        dlpi_s3_connection *connection = dlpi_s3_origin_idle(io, origin, false);
        if (!connection) break;
        dlpi_s3_connection_begin(io, connection,
                                 DLPI_S3_OF(origin->hedging.next, dlpi_s3_range, queue), true);
    }
    do {
        want = io->on_wire < limit ? limit - io->on_wire : 0;
        if (want > origin->n_waiting) want = origin->n_waiting;
        want += origin->n_hedging;
    } while (want > origin->opening && dlpi_s3_connections_room(io) &&
             dlpi_s3_origin_connect(io, origin));
}

/* True if requests can be signed now. If not, a refresh of the credentials is begun. */
DLPI_COLD
static bool dlpi_s3_who_ready(dlp_s3_io *io) {
    int code;
    if (io->held) return false;
    code = dlpi_s3_cred_cache_get(&io->s3->common->cred_cache, dlpi_s3_real_s(), &io->who);
    if (code != 0 && !io->refreshing) dlpi_s3_refresh(io, io->who.version, false);
    return code == 0 || code == 1;
}

/* Begin what can begin: waiting requests, then waiting ranges of each origin. Ranges wait for
   credentials. */
DLPI_COLD
static void dlpi_s3_pump(dlp_s3_io *io) {
    dlpi_s3_pump_ops(io);
    for (int i = 0; i < DLPI_S3_ORIGINS; i++) {
        dlpi_s3_origin *origin = &io->origins[i];
        if (origin->n_waiting + origin->n_hedging && dlpi_s3_who_ready(io))
            dlpi_s3_pump_origin(io, origin);
    }
}

/* ---- hedges ---- */

/* Return after how many ns without an answer to hedge a range of class c; UINT64_MAX: not now. */
DLPI_COLD
static uint64_t dlpi_s3_hedge_ns(dlp_s3_io *io, unsigned c) {
    if (io->now - io->hedge_looked_ns > DLPI_S3_MS) {
        static const uint64_t bytes[DLPI_S3_CLASSES] = {1, 1u << 17, 1u << 20, 1u << 30};
        io->hedge_looked_ns = io->now;
        for (unsigned i = 0; i < DLPI_S3_CLASSES; i++)
            io->hedge_ns[i] = dlpi_s3_hedge_after(&io->patience, io->now, bytes[i]);
    }
    return io->hedge_ns[c];
}

/* Queue each range for a hedge whose answer has been awaited too long while somebody listened: the
   caller may have been away. Returns when to look again. */
DLPI_COLD
static uint64_t dlpi_s3_hedge(dlp_s3_io *io) {
    uint64_t next = UINT64_MAX;
    for (unsigned c = 0; c < DLPI_S3_CLASSES; c++) {
        while (!dlpi_s3_ring_empty(&io->awaited[c])) {
            dlpi_s3_range *range = DLPI_S3_OF(io->awaited[c].next, dlpi_s3_range, awaited);
            uint64_t after = dlpi_s3_hedge_ns(io, c);
            if (after == UINT64_MAX) { /* not now; later, if that is for too many 503s */
                uint64_t until = io->patience.throttled_until_ns;
                if (io->now < until && until < next) next = until;
                break;
            }
            if (io->heard_ns < range->sent_ns + after) {
                if (range->sent_ns + after < next) next = range->sent_ns + after;
                break;
            }
            if (!dlpi_s3_hedge_take(&io->patience, io->now)) {
                if (io->now + 5 * DLPI_S3_MS < next) next = io->now + 5 * DLPI_S3_MS;
                break;
            }
            dlpi_s3_range_become(range, DLPI_S3_RANGE_HEDGING);
        }
    }
    return next;
}

/* ---- events, timers ---- */

/* The time of a connection is over: close it, or, if it has a range, treat it as broken. */
DLPI_COLD
static void dlpi_s3_connection_timeout(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const char *what = "the connection was not there after", *field = "connect_timeout_ms";
    int by = DLPI_S3_BY_CONNECT;
    dlpi_s3_origin *origin = connection->origin;
    bool raced;
    if (dlpi_s3_connection_whole(connection)) {
        dlpi_s3_connection_done(io, connection);
        return;
    }
    switch (connection->state) {
    case DLPI_S3_CONNECTION_IDLE:
    case DLPI_S3_CONNECTION_DRAIN: dlpi_s3_connection_close(io, connection); return;
    case DLPI_S3_CONNECTION_OPENING: break;
    case DLPI_S3_CONNECTION_WAITING:
        by = DLPI_S3_BY_FIRST;
        what = connection->queued ? "no more of it was taken within" : "no answer began within";
        field = "first_byte_timeout_ms";
        break;
    default:
        what = "nothing moved for";
        field = "stall_timeout_ms";
        by = DLPI_S3_BY_STALL;
        break;
    }
    dlpi_s3_tally(io, DLPI_S3_N_TIMEOUTS, 1);
    snprintf(io->text, sizeof io->text, "%s %d ms (%s)", what,
             (int)(io->patience.by[by] / DLPI_S3_MS), field);
    if (connection->state != DLPI_S3_CONNECTION_OPENING) {
        dlpi_s3_connection_broken(io, connection, DLPI_S3_T_TIMEOUT, ETIMEDOUT, io->text);
        return;
    }
    if (!connection->late)
        dlpi_s3_helper_tried(io->helper, dlpi_s3_origin_peer(origin), &connection->conn.address,
                             false);
    raced = connection->raced;
    dlpi_s3_connection_close(io, connection);
    if (!raced) dlpi_s3_origin_failed(io, origin, DLPI_S3_T_TIMEOUT, ETIMEDOUT, io->text);
}

/* True if all ranges of the op wait for a turn: as many requests are on the wire as may be. */
DLPI_COLD
static bool dlpi_s3_op_in_line(const dlp_s3_io *io, const dlpi_s3_op *op) {
    for (const dlpi_s3_node *n = op->ranges.next; n != &op->ranges; n = n->next)
        if (DLPI_S3_OF(n, dlpi_s3_range, sibling)->state != DLPI_S3_RANGE_WAITING) return false;
    return io->on_wire >= (uint32_t)dlpi_s3_limit(&io->patience);
}

/* End the op if its request_timeout_ms or progress_timeout_ms is over; else set its timer again. */
DLPI_COLD
static void dlpi_s3_op_timeout(dlp_s3_io *io, dlpi_s3_op *op) {
    const uint64_t *by = io->patience.by;
    uint64_t whole = by[DLPI_S3_BY_WHOLE], still;
    char text[64];
    if (dlpi_s3_op_in_line(io, op)) op->moved_ns = io->now;
    still = op->moved_ns + by[DLPI_S3_BY_STILL];
    if (whole != UINT64_MAX) whole += op->begun_ns;
    if (io->now < whole && io->now < still) {
        dlpi_s3_timer_set(&io->timers, &op->timer, dlpi_s3_least(whole, still));
        return;
    }
    dlpi_s3_tally(io, DLPI_S3_N_TIMEOUTS, 1);
    op->failed = true;
    op->r->error.errnum = ETIMEDOUT;
    snprintf(text, sizeof text, "%s (%d ms)",
             io->now >= whole ? "not done within request_timeout_ms"
                              : "no further for progress_timeout_ms",
             io->now >= whole ? (int)io->desc->request_timeout_ms
                              : (int)io->desc->progress_timeout_ms);
    dlpi_s3_op_add(op, text);
    dlpi_s3_op_end(io, op, DLP_ERR_REMOTE);
}

/* True if a PUT whose timer is due goes on: the kernel still delivers its bytes, or the answer may
   still come. The wait for the answer begins at the last byte. The timer is then set again. */
DLPI_COLD
static bool dlpi_s3_connection_delivers(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint64_t still = io->patience.by[DLPI_S3_BY_STALL], first = io->patience.by[DLPI_S3_BY_FIRST];
    bool sent = connection->state == DLPI_S3_CONNECTION_WAITING;
    int n = 0;
    if (!connection->queued || connection->deaf ||
        (!sent && connection->state != DLPI_S3_CONNECTION_SENDING))
        return false;
    if (ioctl(connection->conn.fd, TIOCOUTQ, &n) != 0 || n < 0) return false;
    if ((uint64_t)n < connection->queued) connection->moved_ns = io->now;
    dlpi_s3_connection_delivered(io, connection, (uint64_t)n);
    if (io->now - connection->moved_ns >= (sent && first > still ? first : still)) return false;
    dlpi_s3_due(io, &connection->timer,
                n > 0  ? DLPI_S3_BY_LOOK
                : sent ? DLPI_S3_BY_FIRST
                       : DLPI_S3_BY_STALL);
    return true;
}

/* Close a connection whose body is slow, and queue its range for another connection. */
DLPI_COLD
static void dlpi_s3_connection_leave(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     const dlpi_s3_body_pace *pace) {
    dlpi_s3_range *range = connection->range;
    const dlp_s3_request *r = range->op->r;
    dlpi_s3_say(io, "s3: %s/%s: %.1f KB/s, on over another connection", r->bucket, r->key,
                (double)pace->got * 1e6 / (double)pace->ns);
    dlpi_s3_paced(&io->patience, pace);
    dlpi_s3_tally(io, DLPI_S3_N_RETRIES, 1);
    dlpi_s3_range_part(io, range, connection);
    dlpi_s3_connection_close(io, connection);
    if (!dlpi_s3_range_keeps(range)) dlpi_s3_range_rewind(range);
    range->moves++;
    range->tried_at = range->done;
    range->fresh = true;
    dlpi_s3_range_become(range, DLPI_S3_RANGE_WAITING);
}

/* Leave the connection of a body that comes too slowly. Returns whether that was so. Time in which
   the caller was elsewhere does not count, and a body that stands still is not judged. */
DLPI_COLD
static bool dlpi_s3_connection_slow(dlp_s3_io *io, dlpi_s3_connection *connection) {
    const dlpi_s3_range *range = connection->range;
    dlpi_s3_body_pace pace = dlpi_s3_connection_pace(io, connection);
    bool known = connection->body_ns > io->returned_ns && range->op->r->method == DLP_S3_GET &&
                 !connection->skip && (range->bytes != UINT64_MAX || dlpi_s3_range_keeps(range));
    if (known && (pace.ns < io->patience.by[DLPI_S3_BY_LOOK] || pace.got == 0)) return false;
    if (known && dlpi_s3_slow(&io->patience, &pace)) {
        dlpi_s3_connection_leave(io, connection, &pace);
        return true;
    }
    connection->body_ns = io->now;
    connection->body_from = range->done;
    return false;
}

/* True if a connection whose timer is due is not to be given up: its body has moved, or its state
   has changed. A body may have bytes that are too few to wake anybody, so it is read first. */
DLPI_COLD
static bool dlpi_s3_connection_moves(dlp_s3_io *io, dlpi_s3_connection *connection) {
    uint32_t generation = connection->generation;
    if (dlpi_s3_connection_race(io, connection) || dlpi_s3_connection_delivers(io, connection))
        return true;
    if (connection->state != DLPI_S3_CONNECTION_BODY) return false;
    dlpi_s3_connection_read(io, connection);
    if (connection->generation != generation || connection->state != DLPI_S3_CONNECTION_BODY)
        return true;
    if (io->now - connection->moved_ns >= io->patience.by[DLPI_S3_BY_STALL]) return false;
    if (!dlpi_s3_connection_slow(io, connection)) dlpi_s3_body_due(io, connection);
    return true;
}

/* Handle each timer that is due: a pause that is over, or a request or connection that is too slow.
   */
DLPI_COLD
static void dlpi_s3_timers_run(dlp_s3_io *io) {
    for (;;) {
        dlpi_s3_timer *t = dlpi_s3_heap_first(&io->timers);
        if (!t || t->due > io->now) return;
        t->due = UINT64_MAX;
        if (t->kind == DLPI_S3_TIMER_RANGE) {
            dlpi_s3_range_become((dlpi_s3_range *)t->of, DLPI_S3_RANGE_WAITING);
        } else if (t->kind == DLPI_S3_TIMER_OP) {
            dlpi_s3_op_timeout(io, (dlpi_s3_op *)t->of);
        } else if (!dlpi_s3_connection_moves(io, (dlpi_s3_connection *)t->of)) {
            dlpi_s3_connection_timeout(io, (dlpi_s3_connection *)t->of);
        }
    }
}

/* Close an idle connection on which something came: its end, or bytes that nobody asked for. With
   TLS it stays if they are the session's own, such as tickets; a read takes them in. */
DLPI_COLD
static void dlpi_s3_connection_stirs(dlp_s3_io *io, dlpi_s3_connection *connection) {
    int64_t got = DLP_S3_BROKEN;
    if (connection->conn.tls) got = dlpi_s3_conn_read(&connection->conn, io->scratch, 1);
    if (got != DLP_S3_WANT_READ) dlpi_s3_connection_close(io, connection);
}

/* Handle the events that epoll has for a connection: open it, read an answer, or send more of a
   request. */
DLPI_COLD
static void dlpi_s3_connection_event(dlp_s3_io *io, dlpi_s3_connection *connection,
                                     uint32_t events) {
    uint32_t generation = connection->generation;
    switch (connection->state) {
    case DLPI_S3_CONNECTION_FREE: return;
    case DLPI_S3_CONNECTION_OPENING: dlpi_s3_connection_open(io, connection); return;
    case DLPI_S3_CONNECTION_IDLE: dlpi_s3_connection_stirs(io, connection); return;
    default: break;
    }
    if (events & ~(uint32_t)EPOLLOUT) dlpi_s3_connection_read(io, connection);
    if (connection->generation == generation && connection->range && connection->unsent &&
        !connection->deaf)
        dlpi_s3_connection_send(
            io, connection); /* also when the answer has begun: some servers read it all */
}

/* Take in the news of the helper: a name was looked up, or credentials were refreshed. If there are
   no credentials, the ranges that wait are in trouble. */
DLPI_COLD
static void dlpi_s3_helper_event(dlp_s3_io *io) {
    dlp_s3_error err;
    dlpi_s3_helper_heard(io->helper);
    if (!io->refreshing || dlpi_s3_helper_refreshed(io->helper, &err) == io->refreshes) return;
    io->refreshing = io->held = false;
    if (err.code == 0 ||
        dlpi_s3_cred_cache_get(&io->s3->common->cred_cache, dlpi_s3_real_s(), &io->who) >= 0)
        return;
    for (int i = 0; i < DLPI_S3_ORIGINS; i++) { /* nobody to sign for */
        dlpi_s3_origin *origin = &io->origins[i];
        for (uint32_t n = origin->n_waiting; n-- > 0 && origin->n_waiting;) {
            dlpi_s3_range *range = DLPI_S3_OF(origin->waiting.next, dlpi_s3_range, queue);
            dlpi_s3_range_become(range, DLPI_S3_RANGE_NONE);
            dlpi_s3_op_message(range->op, err.errnum, "no credentials: %.200s", err.message);
            dlpi_s3_range_retry(io, range, -1, DLP_ERR_REMOTE);
        }
    }
}

/* Return for how many ms (-1: no limit) to wait for events: to the next timer, hedge, or until. */
DLPI_COLD
static int dlpi_s3_wait_ms(dlp_s3_io *io, uint64_t until) {
    dlpi_s3_timer *t = dlpi_s3_heap_first(&io->timers);
    uint64_t hedge = dlpi_s3_hedge(io);
    if (t && t->due < until) until = t->due;
    if (hedge < until) until = hedge;
    if (t && DLPI_LOAD_RLX(&io->s3->common->shared.away_ns) && /* S9 */
        io->now + DLPI_S3_AWAY_LOOK_NS < until)
        until = io->now + DLPI_S3_AWAY_LOOK_NS;
    if (until == UINT64_MAX) return -1;
    if (until <= io->now) return 0;
    until = (until - io->now + DLPI_S3_MS - 1) / DLPI_S3_MS;
    return until < 3600000 ? (int)until : 3600000;
}

/* Read on from connections that had more than a turn's share: decrypted bytes wake nobody. */
DLPI_COLD
static void dlpi_s3_feast(dlp_s3_io *io) {
    uint32_t n = 0;
    for (const dlpi_s3_node *l = io->hungry.next; l != &io->hungry; l = l->next) n++;
    for (; n > 0 && !dlpi_s3_ring_empty(&io->hungry); n--) {
        dlpi_s3_connection_read(io, DLPI_S3_OF(io->hungry.next, dlpi_s3_connection, node));
        io->now = dlpi_s3_now_ns();
    }
}

/* End all back-offs soon if the server has come back, perhaps to another thread or process. */
DLPI_COLD
static void dlpi_s3_wake(dlp_s3_io *io) {
    uint64_t back_ns = DLPI_LOAD_RLX(&io->s3->common->shared.back_ns); /* S9 */
    if (back_ns <= io->woken_ns) return;
    io->woken_ns = back_ns;
    for (uint32_t i = 0; i < io->n_ops; i++) {
        dlpi_s3_range *range = &io->ranges[i];
        uint64_t due = io->now + dlpi_s3_random(&io->patience.random) % DLPI_S3_WAKE_NS;
        if (range->state == DLPI_S3_RANGE_PAUSED && range->timer.due > due)
            dlpi_s3_timer_set(&io->timers, &range->timer, due);
    }
}

/* Wait for events until a time, serve them, and send what can be sent. Returns 0 or an errno. */
DLPI_COLD
static int dlpi_s3_turn(dlp_s3_io *io, uint64_t until) {
    struct epoll_event e[DLPI_S3_EVENTS];
    uint64_t woken;
    int n, wait;
    if (io->now - io->turned_ns > io->patience.by[DLPI_S3_BY_LOOK] / 4) io->returned_ns = io->now;
    dlpi_s3_hedge(io);
    dlpi_s3_pump(io);
    wait = dlpi_s3_wait_ms(io, until); /* after it: what was sent now may be hedged again */
    if (!dlpi_s3_ring_empty(&io->hungry)) wait = 0;
    n = epoll_wait(io->epoll, e, DLPI_S3_EVENTS, wait);
    if (n < 0 && errno != EINTR) return errno;
    woken = io->now = dlpi_s3_now_ns();
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)e[i].data.u64;
        if (index == UINT32_MAX) {
            dlpi_s3_helper_event(io);
        } else if (io->connections[index].generation == (uint32_t)(e[i].data.u64 >> 32)) {
            dlpi_s3_connection_event(io, &io->connections[index], e[i].events);
            if (i + 1 < n) io->now = dlpi_s3_now_ns();
        }
    }
    dlpi_s3_feast(io);
    dlpi_s3_wake(io);
    dlpi_s3_timers_run(io);
    if (n >= 0 && n < DLPI_S3_EVENTS) io->heard_ns = woken;
    dlpi_s3_hedge(io);
    dlpi_s3_pump(io);
    while (io->n_idle > (uint32_t)io->desc->max_idle)
        dlpi_s3_connection_close(io, DLPI_S3_OF(io->idle.prev, dlpi_s3_connection, age));
    io->turned_ns = io->now;
    return 0;
}

/* ---- requests, taken in ---- */

/* Refuse a request: r->error gets "field: why". Returns DLP_ERR_ARG. */
DLPI_COLD
static int dlpi_s3_bad(dlp_s3_request *r, const char *field, const char *why) {
    memset(&r->error, 0, sizeof r->error);
    return r->code = dlpi_s3_set_error(&r->error, DLP_ERR_ARG, 0, "%s: %s", field, why);
}

/* True if a text is printable ASCII: it may stand in the head of a request. */
DLPI_COLD
static bool dlpi_s3_is_printable(const char *s) {
    while (*s >= 32 && *s < 127) s++;
    return *s == '\0';
}

/* Check a request's body and capacity, or its pieces. Returns DLP_OK or DLP_ERR_ARG. */
DLPI_COLD
static int dlpi_s3_check_memory(dlp_s3_request *r) {
    uint64_t sum = 0;
    if (r->n_pieces > 0 && !r->pieces)
        return dlpi_s3_bad(r, "pieces", "is NULL, but n_pieces is not 0");
    if (!r->pieces) {
        if (r->capacity > 0 && !r->body && r->method != DLP_S3_HEAD)
            return dlpi_s3_bad(r, "body", "is NULL, but capacity is not 0");
        if (r->method == DLP_S3_GET && r->length > r->capacity)
            return dlpi_s3_bad(r, "capacity", "must be at least length");
        return DLP_OK;
    }
    if (r->method != DLP_S3_GET) return dlpi_s3_bad(r, "pieces", "must be NULL, but for GET");
    if (r->length == 0) return dlpi_s3_bad(r, "length", "must be set with pieces");
    for (uint32_t i = 0; i < r->n_pieces; i++) {
        if (r->pieces[i].bytes > r->length - sum)
            return dlpi_s3_bad(r, "pieces", "have more bytes than length");
        sum += r->pieces[i].bytes;
    }
    return sum == r->length ? DLP_OK : dlpi_s3_bad(r, "pieces", "have fewer bytes than length");
}

/* Check the fields of a request. Returns DLP_OK, or DLP_ERR_ARG with r->error filled in. */
DLPI_COLD
static int dlpi_s3_check(dlp_s3_request *r) {
    if (r->method < DLP_S3_GET || r->method > DLP_S3_PUT)
        return dlpi_s3_bad(r, "method", "must be DLP_S3_GET, _HEAD or _PUT");
    if (!r->bucket || !r->bucket[0] || strnlen(r->bucket, 256) > 255)
        return dlpi_s3_bad(r, "bucket", "must have 1 to 255 bytes");
    for (const char *p = r->bucket; *p; p++)
        if (*p <= 32 || *p >= 127 || *p == '/')
            return dlpi_s3_bad(r, "bucket",
                               "must be printable, without blanks and '/'; leave out s3://");
    if (!r->key) return dlpi_s3_bad(r, "key", "is NULL");
    if (!r->key[0] && r->method != DLP_S3_PUT && !r->query)
        return dlpi_s3_bad(r, "key", "is empty; name an object, or give a query");
    if (strnlen(r->key, 1025) > 1024) return dlpi_s3_bad(r, "key", "must have at most 1024 bytes");
    if (r->query && (!dlpi_s3_is_printable(r->query) || strpbrk(r->query, " #")))
        return dlpi_s3_bad(r, "query",
                           "must be printable, without blanks and '#'; escape them (%20)");
    if (r->if_match && !dlpi_s3_is_printable(r->if_match))
        return dlpi_s3_bad(r, "if_match", "must be printable");
    if (r->offset > INT64_MAX || r->length > INT64_MAX - r->offset)
        return dlpi_s3_bad(r, "length", "offset and length must end below 2^63");
    if (r->method != DLP_S3_GET && (r->offset || r->length))
        return dlpi_s3_bad(r, "offset", "offset and length must be 0, but for GET");
    if (r->query && (r->offset || r->length))
        return dlpi_s3_bad(r, "query", "must be NULL with offset or length");
    if (r->version_id && (r->query || r->method == DLP_S3_PUT))
        return dlpi_s3_bad(r, "version_id", "must be NULL with query, or for PUT");
    if (r->version_id && (!r->version_id[0] || strnlen(r->version_id, 1025) > 1024 ||
                          !dlpi_s3_is_printable(r->version_id)))
        return dlpi_s3_bad(r, "version_id", "must be 1 to 1024 printable characters");
    return dlpi_s3_check_memory(r);
}

/* Fill in a free op for a request. Nothing is sent, and the op stays on the list of free ops. */
DLPI_COLD
static void dlpi_s3_op_begin(const dlp_s3_io *io, dlpi_s3_op *op, dlp_s3_request *r) {
    const char *region = NULL;
    op->r = r;
    op->origin = NULL;
    op->bound = r->length ? r->length : r->method == DLP_S3_GET ? r->capacity : 0;
    op->cost = r->length ? r->length : r->method == DLP_S3_HEAD ? 0 : r->capacity;
    op->n_ranges = 0;
    op->attempts = 0;
    op->turn = 0;
    memset(&op->tries, 0, sizeof op->tries);
    op->turned = op->failed = op->moved = op->foreign = false;
    op->as_stored = r->method != DLP_S3_PUT && !r->query &&
                    DLPI_LOAD_RLX(&io->s3->common->shared.decodes); /* S10 */
    op->by = DLPI_S3_BY_USER;
    for (int by = DLPI_S3_BY_MANIFEST; by <= DLPI_S3_BY_HEAD; by++)
        if (r->internal == &dlpi_s3_etags_of[by]) op->by = (uint8_t)by;
    op->bare = io->bare && dlpi_s3_op_weakly(op);
    op->sums = io->desc->checksums > 0 && r->method == DLP_S3_GET && !r->query;
    op->checksum = op->sums && !io->no_checksums;
    op->region[0] = '\0';
    if (DLPI_LOAD_RLX(&io->s3->common->n_regions)) /* S4 */
        region = dlpi_s3_region_find(io->s3->common, r->bucket);
    if (region) dlpi_s3_copy(op->region, sizeof op->region, region);
}

/* Begin a request, as dlp_s3_submit does. At its end it goes to the list over, which counts it
   until then. Returns DLP_OK; DLP_FULL: no op is free, or max_bytes is reached; an error code. */
DLPI_COLD
static int dlpi_s3_submit(dlp_s3_io *io, dlp_s3_request *r, dlpi_s3_over *over) {
    dlpi_s3_op *op;
    const char *why;
    int code;
    if (!io || !r) return DLP_ERR_ARG;
    if (io->pid != getpid()) return DLP_ERR_FORKED;
    why = r->bucket ? dlpi_s3_bucket_beyond(&io->s3->endpoint, r->bucket) : NULL;
    code = why ? dlpi_s3_bad(r, "bucket", why) : dlpi_s3_check(r);
    if (code != DLP_OK) return code;
    if (dlpi_s3_ring_empty(&io->free_ops)) return DLP_FULL;
    op = DLPI_S3_OF(io->free_ops.next, dlpi_s3_op, node);
    dlpi_s3_op_begin(io, op, r);
    if (io->desc->max_bytes && io->bytes_out &&
        (op->cost > io->desc->max_bytes || io->bytes_out > io->desc->max_bytes - op->cost))
        return DLP_FULL;
    code = dlpi_s3_op_settle(io, op);
    if (code == DLP_ERR_ARG)
        return dlpi_s3_bad(
            r, "bucket",
            "does not fit into the host's name; set style to DLP_S3_STYLE_PATH, or mend region");
    if (code != DLP_OK) return code;
    r->code = 0;
    dlpi_s3_op_reset(io, op);
    memset(&r->error, 0, sizeof r->error);
    r->internal = op;
    op->over = over;
    over->out++;
    io->bytes_out += op->cost;
    io->now = dlpi_s3_now_ns();
    dlpi_s3_ring_out(&op->node);
    dlpi_s3_ring_last(&io->wanting, &op->node);
    op->begun_ns = op->moved_ns = io->now;
    dlpi_s3_timer_set(&io->timers, &op->timer,
                      io->now + dlpi_s3_ms(dlpi_s3_bound_ms(io->desc, &why)));
    dlpi_s3_pump(io);
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_s3_submit(dlp_s3_io *io, dlp_s3_request *r) {
    return dlpi_s3_submit(io, r, io ? &io->over : NULL);
}

/* Take the first ended request off the list. Returns the request, or NULL if the list is empty. */
DLPI_COLD
static dlp_s3_request *dlpi_s3_over_take(dlpi_s3_over *over) {
    dlp_s3_request *r = over->first;
    if (!r) return NULL;
    over->first = (dlp_s3_request *)r->internal;
    r->internal = NULL;
    return r;
}

/* Return the time until which a wait of timeout_ms lasts: 0 is for ever, below 0 is not at all. */
DLPI_COLD
static uint64_t dlpi_s3_until(const dlp_s3_io *io, int timeout_ms) {
    if (timeout_ms == 0) return UINT64_MAX;
    return timeout_ms < 0 ? io->now : io->now + (uint32_t)timeout_ms * DLPI_S3_MS;
}

DLPI_COLD
DLPDEF int dlp_s3_reap(dlp_s3_io *io, dlp_s3_request **done, int max, int timeout_ms) {
    uint64_t until;
    int n = 0;
    if (!io || (!done && max > 0)) return DLP_ERR_ARG;
    if (io->pid != getpid()) return DLP_ERR_FORKED;
    if (max <= 0) return 0;
    io->now = dlpi_s3_now_ns();
    until = dlpi_s3_until(io, timeout_ms);
    while (!io->over.first && io->over.out > 0) {
        if (dlpi_s3_turn(io, until) != 0) return DLP_ERR_SYSTEM;
        if (io->now >= until) break;
    }
    while (n < max && (done[n] = dlpi_s3_over_take(&io->over)) != NULL) n++;
    return n;
}

/* End a request, because waiting for sockets failed with errnum. Returns DLP_ERR_SYSTEM. */
DLPI_COLD
static int dlpi_s3_give_up(dlp_s3_io *io, dlp_s3_request *r, int errnum) {
    dlpi_s3_op *op = (dlpi_s3_op *)r->internal;
    dlpi_s3_op_message(op, errnum, "cannot wait for sockets: %s", strerror(errnum));
    dlpi_s3_op_end(io, op, DLP_ERR_SYSTEM);
    return r->code;
}

DLPI_COLD
DLPDEF int dlp_s3_do(dlp_s3_io *io, dlp_s3_request *r) {
    dlpi_s3_over mine = {0, NULL, NULL, false};
    int code;
    if (!io || !r) return DLP_ERR_ARG;
    if (io->pid != getpid()) return DLP_ERR_FORKED;
    code = dlpi_s3_submit(io, r, &mine);
    while (code == DLP_OK && !mine.first) {
        int errnum = dlpi_s3_turn(io, UINT64_MAX);
        if (errnum != 0 && !mine.first) return dlpi_s3_give_up(io, r, errnum);
    }
    return code != DLP_OK ? code : r->code;
}

/* ---- made and ended ---- */

/* Return the place of the next part, of n bytes, in the mapping at base, and move *at, which counts
   the bytes, behind it. base NULL: only count, and return NULL. */
DLPI_COLD
static void *dlpi_s3_carve(char *base, size_t *at, size_t n) {
    void *p = base ? base + *at : NULL;
    *at += (n + DLPI_S3_LINE - 1) / DLPI_S3_LINE * DLPI_S3_LINE;
    return p;
}

/* Lay out an io in the zeroed mapping at base; NULL: only count. Returns the mapping's bytes. */
DLPI_COLD
static size_t dlpi_s3_io_lay(char *base, uint32_t n_ops, uint32_t n_connections) {
    size_t at = 0;
    dlp_s3_io *io = (dlp_s3_io *)dlpi_s3_carve(base, &at, sizeof *io);
    dlpi_s3_op *ops = (dlpi_s3_op *)dlpi_s3_carve(base, &at, n_ops * sizeof *ops);
    dlpi_s3_range *ranges = (dlpi_s3_range *)dlpi_s3_carve(base, &at, n_ops * sizeof *ranges);
    dlpi_s3_connection *connections =
        (dlpi_s3_connection *)dlpi_s3_carve(base, &at, n_connections * sizeof *connections);
    void *heap =
        dlpi_s3_carve(base, &at, (2 * n_ops + n_connections + 1) * sizeof(dlpi_s3_timer *));
    void *scratch = dlpi_s3_carve(base, &at, DLPI_S3_SCRATCH);
    char *each = (char *)dlpi_s3_carve(
        base, &at, n_connections * (size_t)(DLPI_S3_OUT_BYTES + DLPI_S3_ERROR_BYTES));
    if (!base) return at;
    io->ops = ops;
    io->ranges = ranges;
    io->connections = connections;
    io->n_ops = n_ops;
    io->n_connections = n_connections;
    io->timers.at = (dlpi_s3_timer **)heap;
    io->scratch = (char *)scratch;
    io->bytes = at;
    for (uint32_t i = 0; i < n_connections; i++) {
        connections[i].out = each + i * (size_t)(DLPI_S3_OUT_BYTES + DLPI_S3_ERROR_BYTES);
        connections[i].error = connections[i].out + DLPI_S3_OUT_BYTES;
    }
    return at;
}

DLPI_COLD
static void dlpi_s3_timer_begin(dlpi_s3_timer *t, int kind, void *of) {
    t->due = UINT64_MAX;
    t->kind = kind;
    t->of = of;
}

/* Begin the lists and timers of an io, and put its records on the lists of free records. */
DLPI_COLD
static void dlpi_s3_io_records(dlp_s3_io *io) {
    dlpi_s3_node *lists[] = {&io->free_ops, &io->free_ranges, &io->free_connections, &io->wanting,
                             &io->idle,     &io->hungry,      &io->draining};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) dlpi_s3_ring_begin(lists[i]);
    for (unsigned i = 0; i < DLPI_S3_CLASSES; i++) dlpi_s3_ring_begin(&io->awaited[i]);
    for (uint32_t i = 0; i < io->n_ops; i++) {
        dlpi_s3_op *op = &io->ops[i];
        dlpi_s3_range *range = &io->ranges[i];
        dlpi_s3_timer_begin(&op->timer, DLPI_S3_TIMER_OP, op);
        dlpi_s3_timer_begin(&range->timer, DLPI_S3_TIMER_RANGE, range);
        dlpi_s3_ring_begin(&op->ranges);
        dlpi_s3_ring_begin(&range->sibling);
        dlpi_s3_ring_begin(&range->awaited);
        dlpi_s3_ring_last(&io->free_ops, &op->node);
        dlpi_s3_ring_last(&io->free_ranges, &range->queue);
    }
    for (uint32_t i = 0; i < io->n_connections; i++) {
        dlpi_s3_connection *connection = &io->connections[i];
        dlpi_s3_timer_begin(&connection->timer, DLPI_S3_TIMER_CONNECTION, connection);
        connection->conn.fd = -1;
        dlpi_s3_ring_begin(&connection->age);
        dlpi_s3_ring_last(&io->free_connections, &connection->node);
    }
}

/* Count one more user of a client (user is the dlp_s3). Any thread of this process may call it. */
DLPI_COLD
static void dlpi_s3_keep(void *user) {
    dlp_s3 *s3 = (dlp_s3 *)user;
    DLPI_ADD_SEQ(&s3->users, 1u); /* S5 -> S5 */
}

/* Count one user of a client less, and free the client if that was the last. Any thread of this
   process may call it. The shared memory is not wiped: other processes may still use it. */
DLPI_COLD
static void dlpi_s3_drop(void *user) {
    dlp_s3 *s3 = (dlp_s3 *)user;
    if (DLPI_ADD_SEQ(&s3->users, (uint64_t)-1) != 1) return; /* S5 <- S5, by the last */
    if (s3->own_tls) dlpi_s3_tls_free(&s3->tls);
    munmap(s3->common, s3->common_bytes);
    free(s3);
}

/* Add change to the number of this process' open dlp_s3_io. A fork's parent's do not count. */
DLPI_COLD
static void dlpi_s3_count_io(dlp_s3 *s3, int32_t change) {
    uint64_t pid = (uint64_t)(uint32_t)getpid(), is = DLPI_LOAD_RLX(&s3->ios), then; /* S6 */
    do then = (is >> 32 == pid ? is : pid << 32) + (uint64_t)(int64_t)change;
    while (!DLPI_CAS_SEQ(&s3->ios, &is, then)); /* S6, nothing depends on its order */
}

/* Refresh the credentials of user, a dlp_s3, in the helper's thread: dlpi_s3_owner.refresh. */
DLPI_COLD
static int dlpi_s3_refresh_run(void *user, uint64_t seen, bool force, const uint32_t *stop,
                               dlp_s3_error *err) {
    dlpi_s3_common *common = ((dlp_s3 *)user)->common;
    return dlpi_s3_cred_cache_refresh_until(&common->config, &common->cred_cache, seen, force, stop,
                                            err);
}

DLPI_COLD
DLPDEF int dlp_s3_io_open(dlp_s3_io **out, dlp_s3 *s3, dlp_s3_error *err) {
    const dlpi_s3_owner owner = {s3, dlpi_s3_refresh_run, dlpi_s3_keep, dlpi_s3_drop};
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = UINT32_MAX};
    uint32_t n, spare;
    size_t bytes;
    char *base;
    dlp_s3_io *io;
    if (err) memset(err, 0, sizeof *err);
    if (!out || !s3) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: NULL", out ? "s3" : "out");
    n = (uint32_t)s3->desc.max_requests;
    spare = s3->desc.hedge_percent > 0 ? n / 8 + 4 : 0;
    bytes = dlpi_s3_io_lay(NULL, n, n + spare);
    base = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, errno,
                                 "no %zu bytes for requests; lower max_requests", bytes);
    madvise(base, bytes, MADV_DONTDUMP); /* keys are in it */
    dlpi_s3_io_lay(base, n, n + spare);
    io = (dlp_s3_io *)(void *)base;
    io->s3 = s3;
    io->desc = &s3->desc;
    io->pid = getpid();
    io->now = dlpi_s3_now_ns();
    io->woken_ns = io->now;
    dlpi_s3_io_records(io);
    dlpi_s3_patience_begin(&io->patience, &s3->common->shared, &s3->desc,
                           io->now ^ (uint64_t)(uintptr_t)io ^ (uint64_t)io->pid << 32);
    io->helper = dlpi_s3_helper_new(&owner);
    io->epoll = dlpi_fd_above(epoll_create1(EPOLL_CLOEXEC));
    if (!io->helper || io->epoll < 0 ||
        epoll_ctl(io->epoll, EPOLL_CTL_ADD, dlpi_s3_helper_fd(io->helper), &e) != 0) {
        int errnum = errno;
        dlpi_s3_helper_free(io->helper);
        if (io->epoll >= 0) close(io->epoll);
        munmap(base, bytes);
        return dlpi_s3_set_error(err, errnum == ENOMEM ? DLP_ERR_MEMORY : DLP_ERR_SYSTEM, errnum,
                                 "no epoll set: %s; raise the limit of open files",
                                 strerror(errnum));
    }
    dlpi_s3_count_io(s3, 1);
    *out = io;
    return DLP_OK;
}

DLPI_COLD
DLPDEF void dlp_s3_io_close(dlp_s3_io *io) {
    if (!io) return;
    for (uint32_t i = 0; i < io->n_connections; i++) dlpi_s3_conn_close(&io->connections[i].conn);
    close(io->epoll);
    if (io->pid == getpid()) dlpi_s3_count_io(io->s3, -1);
    dlpi_s3_helper_free(io->helper);
    dlpi_s3_wipe(&io->who, sizeof io->who);
    dlpi_s3_wipe(&io->keys, sizeof io->keys);
    munmap(io, io->bytes);
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-client       OPEN, CLOSE, ONE REQUEST AT A TIME */

typedef struct dlpi_s3_bound {
    const char *field;
    size_t at; /* in dlp_s3_desc */
    int32_t standard, least, most;
} dlpi_s3_bound;

#define DLPI_S3_NUMBER(field, standard, least, most) \
    { #field, offsetof(dlp_s3_desc, field), standard, least, most }

/* Set numbers of the desc that are 0 to defaults, and check all. Returns DLP_OK or DLP_ERR_ARG. */
DLPI_COLD
static int dlpi_s3_resolve_numbers(dlp_s3_desc *d, dlp_s3_error *err) {
    static const dlpi_s3_bound numbers[] = {
        DLPI_S3_NUMBER(style, 0, 0, DLP_S3_STYLE_VIRTUAL),
        DLPI_S3_NUMBER(connect_timeout_ms, 3000, 1, INT32_MAX),
        DLPI_S3_NUMBER(first_byte_timeout_ms, 10000, 1, INT32_MAX),
        DLPI_S3_NUMBER(stall_timeout_ms, 5000, 1, INT32_MAX),
        DLPI_S3_NUMBER(request_timeout_ms, -1, -1, INT32_MAX),
        DLPI_S3_NUMBER(progress_timeout_ms, 120000, 1, INT32_MAX),
        DLPI_S3_NUMBER(max_attempts, -1, -1, 100),
        DLPI_S3_NUMBER(backoff_ms, 50, 1, 60000),
        DLPI_S3_NUMBER(backoff_max_ms, 5000, 1, 3600000),
        DLPI_S3_NUMBER(retry_tokens, 500, -1, INT32_MAX),
        DLPI_S3_NUMBER(hedge_percent, 5, -1, 100),
        DLPI_S3_NUMBER(max_requests, 64, 1, 4096),
        DLPI_S3_NUMBER(idle_timeout_ms, 20000, 1, INT32_MAX),
        DLPI_S3_NUMBER(max_idle, 0, 0, 8192),
        DLPI_S3_NUMBER(checksums, 0, -1, 1),
    };
    if (d->progress_timeout_ms == 0 && d->request_timeout_ms > 0)
        d->progress_timeout_ms = d->request_timeout_ms;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int32_t n;
        memcpy(&n, (char *)d + numbers[i].at, sizeof n);
        if (n == 0) n = numbers[i].standard;
        if (n < numbers[i].least || n > numbers[i].most)
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s: is %d, must be %d..%d",
                                     numbers[i].field, (int)n, (int)numbers[i].least,
                                     (int)numbers[i].most);
        memcpy((char *)d + numbers[i].at, &n, sizeof n);
    }
    if (d->max_idle == 0) d->max_idle = d->max_requests;
    if (d->part_bytes == 0) d->part_bytes = 8u << 20;
    if (d->part_bytes < 65536 || d->part_bytes > 1u << 30)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "part_bytes: is %llu, must be 64 KiB..1 GiB",
                                 (unsigned long long)d->part_bytes);
    return DLP_OK;
}

/* True if a host is of Google's: its server decodes objects that are stored as gzip. */
DLPI_COLD
static bool dlpi_s3_host_google(const char *host) {
    static const char domain[] = ".googleapis.com";
    size_t n = strlen(host), k = sizeof domain - 1;
    return n > k && strcmp(host + n - k, domain) == 0;
}

/* Set the client's endpoint (desc->endpoint, or else AWS), load the proxies, and choose the TLS
   transport (desc->tls, or else OpenSSL if it is compiled in). Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_open_endpoint(dlp_s3 *s3, const dlp_s3_desc *desc, dlp_s3_error *err) {
    dlpi_s3_config *c = &s3->common->config;
    const char *why = "";
    int code;
    if (!c->endpoint[0]) {
        dlpi_s3_endpoint_aws(&s3->endpoint, c->region);
        s3->endpoint.fips = c->fips;
        s3->endpoint.dualstack = c->dualstack;
        dlpi_s3_aws_host(&s3->endpoint, c->region, s3->endpoint.host, sizeof s3->endpoint.host);
    } else if (dlpi_s3_endpoint_parse(&s3->endpoint, c->endpoint, &why) != DLP_OK) {
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0,
                                 "endpoint: %s; it must be http(s)://HOST[:PORT][/PATH]", why);
    }
    s3->common->shared.decodes = dlpi_s3_host_google(s3->endpoint.host);
    code = dlpi_s3_proxies_load(c, desc, &s3->endpoint, err);
    if (code != DLP_OK) return code;
    if (desc->tls) {
        s3->tls = *desc->tls;
        s3->has_tls = true;
    } else {
        code = dlpi_s3_tls_new(&s3->tls, c->ca_file[0] ? c->ca_file : NULL, err);
        s3->has_tls = s3->own_tls = code == DLP_OK;
        if (code != DLP_OK && code != DLP_ERR_UNSUPPORTED) return code;
        if (code == DLP_ERR_UNSUPPORTED && err) memset(err, 0, sizeof *err);
    }
    if (s3->endpoint.tls && !s3->has_tls)
        return dlpi_s3_set_error(err, DLP_ERR_UNSUPPORTED, 0,
                                 "endpoint: https needs DLPIPE_S3_OPENSSL, or desc.tls");
    c->tls = s3->has_tls ? &s3->tls : NULL;
    return DLP_OK;
}

/* Set requester_pays if AWS_REQUEST_PAYER is "requester". Returns DLP_OK, or DLP_ERR_ARG if the
   variable has another text, or if an anonymous client has requester_pays. */
DLPI_COLD
static int dlpi_s3_open_payer(dlp_s3 *s3, dlp_s3_error *err) {
    const char *payer = dlpi_s3_env("AWS_REQUEST_PAYER");
    if (!s3->desc.requester_pays && payer && !s3->desc.anonymous) {
        if (strcasecmp(payer, "requester") != 0)
            return dlpi_s3_set_error(
                err, DLP_ERR_ARG, 0,
                "AWS_REQUEST_PAYER: is \"%.30s\", must be \"requester\", or unset", payer);
        s3->desc.requester_pays = 1;
    }
    if (s3->desc.requester_pays && s3->desc.anonymous)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "requester_pays: must be 0 with anonymous");
    return DLP_OK;
}

/* Fill in a client: numbers, configuration, checksums, endpoint, first credentials. Returns DLP_OK
   or an error code, which is DLP_ERR_REMOTE if a server gave no credentials. */
DLPI_COLD
static int dlpi_s3_open_parts(dlp_s3 *s3, const dlp_s3_desc *desc, dlp_s3_error *err) {
    int code = dlpi_s3_resolve_numbers(&s3->desc, err);
    if (code != DLP_OK) return code;
    code = dlpi_s3_config_load(&s3->common->config, desc, err);
    if (code != DLP_OK) return code;
    s3->common->config.pause_ms = s3->desc.backoff_ms;
    s3->common->config.pause_max_ms = s3->desc.backoff_max_ms;
    code = dlpi_s3_open_payer(s3, err);
    if (code != DLP_OK) return code;
    if (desc->style == DLP_S3_STYLE_AUTO) s3->desc.style = s3->common->config.style;
    if (desc->max_attempts == 0) s3->desc.max_attempts = s3->common->config.max_attempts;
    if (!dlpi_s3_crc_begin() || s3->common->config.no_checksums)
        s3->desc.checksums = desc->checksums > 0 ? 1 : -1;
    else if (desc->checksums == 0)
        s3->desc.checksums = DLPI_S3_CHECKSUMS_TRIED;
    code = dlpi_s3_open_endpoint(s3, desc, err);
    if (code != DLP_OK) return code;
    code = dlpi_s3_cred_cache_refresh(&s3->common->config, &s3->common->cred_cache, 0, false, err);
    return code == DLP_OK || code == DLP_ERR_MEMORY || code == DLP_ERR_SYSTEM ||
                   code == DLP_ERR_ARG || code == DLP_ERR_UNSUPPORTED
               ? code
               : DLP_ERR_REMOTE;
}

DLPI_COLD
DLPDEF int dlp_s3_open(dlp_s3 **out, const dlp_s3_desc *desc, dlp_s3_error *err) {
    static const dlp_s3_desc none = {0};
    dlp_s3 *s3;
    int code;
    if (err) memset(err, 0, sizeof *err);
    if (!out) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "out is NULL");
    if (!desc) desc = &none;
    s3 = (dlp_s3 *)calloc(1, sizeof *s3);
    if (!s3) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, ENOMEM, "no memory for a client");
    s3->common_bytes = sizeof *s3->common;
    s3->common = (dlpi_s3_common *)mmap(NULL, s3->common_bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s3->common == MAP_FAILED) {
        code = errno;
        free(s3);
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, code, "no memory for what clients share");
    }
    madvise(s3->common, s3->common_bytes, MADV_DONTDUMP);
    s3->users = 1;
    s3->desc = *desc;
    s3->desc.endpoint = s3->desc.region = s3->desc.profile = s3->desc.ca_file = NULL;
    s3->desc.proxy = NULL;
    s3->desc.access_key = s3->desc.secret_key = s3->desc.session_token = NULL;
    s3->desc.tls = NULL;
    code = dlpi_s3_cred_cache_begin(&s3->common->cred_cache);
    if (code != 0) {
        dlpi_s3_set_error(err, DLP_ERR_SYSTEM, code, "processes cannot share a lock here: %s",
                          strerror(code));
        munmap(s3->common, s3->common_bytes);
        free(s3);
        return DLP_ERR_SYSTEM;
    }
    code = dlpi_s3_open_parts(s3, desc, err);
    if (code != DLP_OK) {
        dlpi_s3_drop(s3);
        return code;
    }
    *out = s3;
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_s3_close(dlp_s3 *s3) {
    uint64_t ios;
    if (!s3) return DLP_OK;
    ios = DLPI_LOAD_RLX(&s3->ios); /* S6 */
    if (ios >> 32 == (uint64_t)(uint32_t)getpid() && (uint32_t)ios > 0) return DLP_ERR_BUSY;
    dlpi_s3_drop(s3);
    return DLP_OK;
}

DLPI_COLD
DLPDEF void dlp_s3_stats_get(const dlp_s3 *s3, dlp_s3_stats *out) {
    uint64_t count[DLPI_S3_COUNTS];
    for (int i = 0; i < DLPI_S3_COUNTS; i++)
        count[i] = DLPI_LOAD_RLX(&s3->common->shared.count[i]); /* S8, each by itself */
    count[DLPI_S3_N_AWAY] = dlpi_s3_away_for(&s3->common->shared, dlpi_s3_now_ns());
    count[DLPI_S3_N_REFRESHES] =
        DLPI_LOAD_RLX(&s3->common->cred_cache.version) - 1; /* open has one */
    memcpy(out, count, sizeof *out);
}

DLPI_COLD
DLPDEF int dlp_s3_get(dlp_s3_io *io, const char *bucket, const char *key, void *body,
                      uint64_t capacity, uint64_t *received, dlp_s3_error *err) {
    dlp_s3_request r;
    int code;
    memset(&r, 0, sizeof r);
    r.bucket = bucket;
    r.key = key;
    r.body = body;
    r.capacity = capacity;
    code = dlp_s3_do(io, &r);
    if (err) *err = r.error;
    if (code == DLP_OK && received) *received = r.received;
    if (err && !err->code) err->code = code; /* FULL, FORKED: not of this request */
    return code;
}

/* Write "s3://bucket/key: bytes 0-9: message (HTTP 403 ...) [errno ...]", without empty parts. */
DLPI_COLD
DLPDEF int dlp_s3_error_format(const dlp_s3_error *err, char *buf, size_t size) {
    char place[400] = "", range[64] = "", http[256] = "", os[96] = "";
    if (err->bucket[0])
        snprintf(place, sizeof place, "s3://%s/%s%s: ", err->bucket,
                 strlen(err->key) == sizeof err->key - 1 ? "..." : "", err->key);
    dlpi_s3_one_line(place);
    if (err->last == UINT64_MAX)
        snprintf(range, sizeof range, "bytes from %llu: ", (unsigned long long)err->first);
    else if (err->last)
        snprintf(range, sizeof range, "bytes %llu-%llu: ", (unsigned long long)err->first,
                 (unsigned long long)err->last);
    if (err->http_status)
        snprintf(http, sizeof http, " (HTTP %d%s%s%s%s)", (int)err->http_status,
                 err->s3_code[0] ? " " : "", err->s3_code, err->request_id[0] ? ", request " : "",
                 err->request_id);
    if (err->errnum) {
        const char *text = strerror(err->errnum);
        bool said = strstr(err->message, text) != NULL;
        snprintf(os, sizeof os, " [errno %d%s%s]", (int)err->errnum, said ? "" : ": ",
                 said ? "" : text);
    }
    return snprintf(buf, size, "%s%s%s%s%s%s", place, range,
                    err->message[0] ? err->message : "no error", http, os,
                    err->attempts > 1 ? "; tried more than once" : "");
}

/* ---------------------------------------------------------------------------------------------
   >>s3-impl-list         PAGES
   A page is parsed once, into a run of records for its objects and one for its common prefixes,
   which servers write one after the other. The runs are decoded and checked, then merged into a
   block in the order of the keys. Nothing of a page that is bad in one place is given out. */

#define DLPI_S3_TOKEN 2048
#define DLPI_S3_LIST_TEXT 1024                   /* bytes of a prefix, delimiter, start_after */
#define DLPI_S3_KEY_TEXT (3 * DLPI_S3_LIST_TEXT) /* bytes of an escaped key */

/* A key, to compare others with. bytes 0: none. */
typedef struct dlpi_s3_key {
    size_t bytes;
    char at[DLPI_S3_KEY_TEXT + 1];
} dlpi_s3_key;

/* The head of a record; its key and its ETag follow, each terminated, up to a multiple of 8. */
typedef struct dlpi_s3_record {
    uint64_t bytes;
    int64_t modified_s;
    uint32_t key_bytes;
    uint16_t etag_bytes;
    uint16_t is_prefix;
} dlpi_s3_record;

/* Records, end to end. */
typedef struct dlpi_s3_run {
    char *at;
    size_t n, size;
} dlpi_s3_run;

/* Records in order that wait to be given out. */
typedef struct dlpi_s3_block {
    struct dlpi_s3_block *next;
    size_t n, at,
        given;     /* bytes of records; where the next one begins, and the last that was given */
    uint64_t keys; /* number of records */
    char records[];
} dlpi_s3_block;

enum { DLPI_S3_OBJECTS = 0, DLPI_S3_PREFIXES };

/* What a page says. The runs keep their memory for the next page. */
typedef struct dlpi_s3_page {
    bool told, truncated; /* it says whether there are more pages; there are */
    bool escaped;         /* keys are: it says EncodingType url */
    char token[DLPI_S3_TOKEN];
    dlpi_s3_run run[2];
    char why[120]; /* what is wrong, if it names an element */
} dlpi_s3_page;

static const char dlpi_s3_page_memory[] = "no memory for the page";

DLPI_COLD
static dlpi_s3_span dlpi_s3_key_span(const dlpi_s3_key *k) {
    return (dlpi_s3_span){k->at, k->bytes};
}

DLPI_COLD
static void dlpi_s3_key_set(dlpi_s3_key *k, dlpi_s3_span key) {
    memcpy(k->at, key.at, key.n);
    k->at[key.n] = '\0';
    k->bytes = key.n;
}

DLPI_COLD
static size_t dlpi_s3_record_size(const dlpi_s3_record *r) {
    return (sizeof *r + r->key_bytes + 1 + r->etag_bytes + 1 + 7) / 8 * 8;
}

/* Read the record at a place: its head into *r. Returns its key, which stays where it is. */
DLPI_COLD
static dlpi_s3_span dlpi_s3_record_at(const char *at, dlpi_s3_record *r) {
    memcpy(r, at, sizeof *r);
    return (dlpi_s3_span){at + sizeof *r, r->key_bytes};
}

/* Make room for one more record of any size. Returns its place, or NULL if there is no memory. */
DLPI_COLD
static char *dlpi_s3_run_room(dlpi_s3_run *run) {
    size_t want = run->n + sizeof(dlpi_s3_record) + DLPI_S3_KEY_TEXT + 1 + 80 + 8;
    if (want > run->size) {
        size_t size = run->size > 0 ? 2 * run->size : 64u << 10;
        char *at = realloc(run->at, size > want ? size : want);
        if (!at) return NULL;
        run->at = at;
        run->size = size > want ? size : want;
    }
    return run->at + run->n;
}

/* Write "<name> what" into p->why, the page's error text. Returns that text. */
DLPI_COLD
static const char *dlpi_s3_page_wrong(dlpi_s3_page *p, dlpi_s3_span name, const char *what) {
    snprintf(p->why, sizeof p->why, "<%.*s> %s", name.n < 40 ? (int)name.n : 40, name.at, what);
    return p->why;
}

/* Read the text of the element that x has just opened into to. n: gets its length, may be NULL.
   Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_page_text(dlpi_s3_page *p, dlpi_s3_xml *x, char *to, size_t size,
                                     size_t *n) {
    dlpi_s3_out o = {to, size, 0};
    const dlpi_s3_span name = x->name;
    if (!dlpi_s3_xml_inside(x, &o))
        return x->why ? x->why : dlpi_s3_page_wrong(p, name, "has a reference that XML lacks");
    if (!dlpi_s3_out_end(&o)) return dlpi_s3_page_wrong(p, name, "is too long");
    if (n) *n = o.n;
    return strlen(to) == o.n ? NULL : dlpi_s3_page_wrong(p, name, "has a zero byte");
}

/* Read the element Contents that x has just opened into a record. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_page_object(dlpi_s3_page *p, dlpi_s3_xml *x) {
    dlpi_s3_run *run = &p->run[DLPI_S3_OBJECTS];
    char *at = dlpi_s3_run_room(run), text[80] = "", etag[80] = "";
    dlpi_s3_record r = {0};
    bool key = false, size = false;
    size_t n = 0;
    if (!at) return dlpi_s3_page_memory;
    for (;;) {
        int what = dlpi_s3_xml_next(x);
        const char *wrong = NULL;
        if (what <= DLPI_S3_XML_END) return x->why;
        if (what == DLPI_S3_XML_CLOSE && x->depth < 2) break;
        if (what != DLPI_S3_XML_OPEN || x->depth != 3) continue;
        if (dlpi_s3_span_is(x->name, "Key")) {
            wrong = dlpi_s3_page_text(p, x, at + sizeof r, DLPI_S3_KEY_TEXT + 1, &n);
            key = true;
        } else if (dlpi_s3_span_is(x->name, "Size")) {
            wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
            size = !wrong && dlpi_s3_decimal(text, strlen(text), &r.bytes);
        } else if (dlpi_s3_span_is(x->name, "LastModified")) {
            wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
            if (!wrong) r.modified_s = dlpi_s3_time_iso(text, strlen(text));
        } else if (dlpi_s3_span_is(x->name, "ETag")) {
            wrong = dlpi_s3_page_text(p, x, etag, sizeof etag, NULL);
        }
        if (wrong) return wrong;
    }
    if (!key) return "<Contents> has no <Key>";
    if (!size) return "<Contents> has no <Size> that is a number";
    if (strlen(etag) >= sizeof((dlp_s3_object *)NULL)->etag) etag[0] = '\0';
    r.key_bytes = (uint32_t)n;
    r.etag_bytes = (uint16_t)strlen(etag);
    memcpy(at, &r, sizeof r);
    memcpy(at + sizeof r + n + 1, etag, r.etag_bytes + 1u);
    run->n += dlpi_s3_record_size(&r);
    return NULL;
}

/* Read the common prefix that x has just opened into a record. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_page_prefix(dlpi_s3_page *p, dlpi_s3_xml *x) {
    dlpi_s3_run *run = &p->run[DLPI_S3_PREFIXES];
    char *at = dlpi_s3_run_room(run);
    dlpi_s3_record r = {.is_prefix = 1};
    const char *wrong;
    size_t n = 0;
    if (!at) return dlpi_s3_page_memory;
    wrong = dlpi_s3_page_text(p, x, at + sizeof r, DLPI_S3_KEY_TEXT + 1, &n);
    if (wrong) return wrong;
    r.key_bytes = (uint32_t)n;
    memcpy(at, &r, sizeof r);
    at[sizeof r + n + 1] = '\0';
    run->n += dlpi_s3_record_size(&r);
    return NULL;
}

/* Read the element of the outermost level that x has just opened. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_page_element(dlpi_s3_page *p, dlpi_s3_xml *x) {
    char text[16] = "";
    const char *wrong = NULL;
    if (dlpi_s3_span_is(x->name, "Contents")) {
        wrong = dlpi_s3_page_object(p, x);
    } else if (dlpi_s3_span_is(x->name, "IsTruncated")) {
        wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
        p->truncated = strcmp(text, "true") == 0;
        p->told = p->truncated || strcmp(text, "false") == 0;
    } else if (dlpi_s3_span_is(x->name, "EncodingType")) {
        wrong = dlpi_s3_page_text(p, x, text, sizeof text, NULL);
        p->escaped = strcmp(text, "url") == 0;
    } else if (dlpi_s3_span_is(x->name, "NextContinuationToken")) {
        wrong = dlpi_s3_page_text(p, x, p->token, sizeof p->token, NULL);
    }
    return wrong;
}

/* Parse a page into p: its records, whether there are more pages, and the token of the next one.
   Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_page_parse(dlpi_s3_page *p, const char *xml, size_t n) {
    dlpi_s3_xml x;
    bool inside = false; /* of CommonPrefixes */
    int what;
    p->told = p->truncated = p->escaped = false;
    p->token[0] = '\0';
    p->run[0].n = p->run[1].n = 0;
    dlpi_s3_xml_begin(&x, xml, n);
    while ((what = dlpi_s3_xml_next(&x)) > DLPI_S3_XML_END) {
        const char *wrong = NULL;
        if (what != DLPI_S3_XML_OPEN) continue;
        if (x.depth == 1 && !dlpi_s3_span_is(x.name, "ListBucketResult"))
            return dlpi_s3_page_wrong(p, x.name, "came, and no <ListBucketResult>");
        if (x.depth == 2) {
            inside = dlpi_s3_span_is(x.name, "CommonPrefixes");
            wrong = dlpi_s3_page_element(p, &x);
        } else if (x.depth == 3 && inside && dlpi_s3_span_is(x.name, "Prefix")) {
            wrong = dlpi_s3_page_prefix(p, &x);
        }
        if (wrong && wrong != x.why) return wrong;
        if (wrong) break;
    }
    if (x.why) {
        snprintf(p->why, sizeof p->why, "bad XML at byte %zu, after <%.*s>: %s",
                 (size_t)(x.where - xml), x.name.n < 40 ? (int)x.name.n : 40, x.name.at, x.why);
        return p->why;
    }
    if (!p->told) return "<IsTruncated> is neither true nor false";
    if (p->truncated && !p->token[0])
        return "<IsTruncated> is true, but <NextContinuationToken> is missing (no list-type 2?)";
    return NULL;
}

/* Undo escapes of a run's keys, if there are any; records move. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_run_decode(dlpi_s3_run *run, bool escaped) {
    size_t to = 0;
    dlpi_s3_record r;
    for (size_t from = 0, step; from < run->n; from += step) {
        char *key = run->at + from + sizeof r;
        int64_t n = dlpi_s3_record_at(run->at + from, &r).n ? r.key_bytes : 0;
        const char *etag = key + r.key_bytes + 1;
        step = dlpi_s3_record_size(&r);
        if (escaped) n = dlpi_s3_uri_decode(key, r.key_bytes + 1u, key, r.key_bytes, true);
        if (n < 0) return "<Key> has a '%' without two hexadecimal digits";
        if (n == 0) return "<Key> is empty";
        if (memchr(key, '\0', (size_t)n)) return "<Key> has a zero byte";
        r.key_bytes = (uint32_t)n;
        memmove(run->at + to + sizeof r, key, r.key_bytes + 1u);
        memmove(run->at + to + sizeof r + r.key_bytes + 1, etag, r.etag_bytes + 1u);
        memcpy(run->at + to, &r, sizeof r);
        to += dlpi_s3_record_size(&r);
    }
    run->n = to;
    return NULL;
}

/* Choose the next record in the order of keys: the object at at[0] or the prefix at at[1]. Returns
   DLPI_S3_OBJECTS or DLPI_S3_PREFIXES, or -1 at the end of the page. */
DLPI_COLD
static int dlpi_s3_page_next(const dlpi_s3_page *p, const size_t at[2]) {
    dlpi_s3_record r;
    bool object = at[0] < p->run[0].n, prefix = at[1] < p->run[1].n;
    if (!object || !prefix) return object ? DLPI_S3_OBJECTS : prefix ? DLPI_S3_PREFIXES : -1;
    return dlpi_s3_span_order(dlpi_s3_record_at(p->run[0].at + at[0], &r),
                              dlpi_s3_record_at(p->run[1].at + at[1], &r)) > 0;
}

/* Return a new block with room for n bytes of records, or NULL if there is no memory. */
DLPI_COLD
static dlpi_s3_block *dlpi_s3_block_new(size_t n) {
    dlpi_s3_block *b = malloc(sizeof *b + n);
    if (b) memset(b, 0, sizeof *b);
    return b;
}

/* Merge a page's records into a new block, in the order of their keys. Keys up to low (if it has
   bytes) are left out. Returns NULL if there is no memory. */
DLPI_COLD
static dlpi_s3_block *dlpi_s3_page_merge(const dlpi_s3_page *p, const dlpi_s3_key *low) {
    dlpi_s3_block *b = dlpi_s3_block_new(p->run[0].n + p->run[1].n);
    size_t at[2] = {0, 0};
    for (int which; b && (which = dlpi_s3_page_next(p, at)) >= 0;) {
        const char *from = p->run[which].at + at[which];
        dlpi_s3_record r;
        dlpi_s3_span key = dlpi_s3_record_at(from, &r);
        size_t n = dlpi_s3_record_size(&r);
        at[which] += n;
        if (low->bytes > 0 && dlpi_s3_span_order(key, dlpi_s3_key_span(low)) <= 0) continue;
        memcpy(b->records + b->n, from, n);
        b->n += n;
        b->keys++;
    }
    return b;
}

/* Move the records behind high out of a block into a new one, *out; NULL if there are none. Returns
   false if there is no memory; the block is then as it was. */
DLPI_COLD
static bool dlpi_s3_block_cut(dlpi_s3_block *b, const dlpi_s3_key *high, dlpi_s3_block **out) {
    dlpi_s3_record r;
    uint64_t keys = 0;
    size_t at = 0;
    *out = NULL;
    for (; at < b->n; at += dlpi_s3_record_size(&r), keys++)
        if (dlpi_s3_span_order(dlpi_s3_record_at(b->records + at, &r), dlpi_s3_key_span(high)) > 0)
            break;
    if (at == b->n) return true;
    *out = dlpi_s3_block_new(b->n - at);
    if (!*out) return false;
    memcpy((*out)->records, b->records + at, b->n - at);
    (*out)->n = b->n - at;
    (*out)->keys = b->keys - keys;
    b->n = at;
    b->keys = keys;
    return true;
}

/* Return the block's first key; of no bytes if there is no block, or no key in it. */
DLPI_COLD
static dlpi_s3_span dlpi_s3_block_first(const dlpi_s3_block *b) {
    dlpi_s3_record r;
    return b && b->n > 0 ? dlpi_s3_record_at(b->records, &r) : (dlpi_s3_span){"", 0};
}

/* Read the block's next record; its key stays in the block. Returns false if there is none. */
DLPI_COLD
static bool dlpi_s3_block_take(dlpi_s3_block *b, dlp_s3_object *out) {
    dlpi_s3_record r;
    dlpi_s3_span key;
    if (b->at >= b->n) return false;
    key = dlpi_s3_record_at(b->records + b->at, &r);
    memset(out, 0, sizeof *out);
    out->key = key.at;
    out->key_bytes = key.n;
    out->bytes = r.bytes;
    out->modified_s = r.modified_s;
    out->is_prefix = r.is_prefix;
    memcpy(out->etag, key.at + key.n + 1, r.etag_bytes + 1u);
    b->given = b->at;
    b->at += dlpi_s3_record_size(&r);
    return true;
}

/* ---- where a range of keys is split ----
   Keys are numbers, written in the bytes that keys have where they differ. A range is split in its
   middle. If all keys of a page begin alike, it is split behind groups instead. A group has all
   keys that begin with the same n bytes as the page's last key; several n are tried at once. So the
   end of a common prefix is found in one step. A split need not be a key. A bad one costs a request
   that finds nothing. */

typedef struct dlpi_s3_alphabet {
    bool has[256];
    uint16_t rank[256]; /* members below it */
    uint16_t n;
} dlpi_s3_alphabet;

/* Count the bytes that two texts have in common at their front. */
DLPI_COLD
static size_t dlpi_s3_span_common(dlpi_s3_span a, dlpi_s3_span b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.at[n] == b.at[n]) n++;
    return n;
}

/* Add three bytes of a key, the one at from and the next ones, to the alphabet. kinds: a letter or
   digit adds all of its kind. A '/' is never added: only keys tell where folders end. */
DLPI_COLD
static void dlpi_s3_alphabet_learn(dlpi_s3_alphabet *a, dlpi_s3_span key, size_t from, bool kinds) {
    static const char *const all[] = {"0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF",
                                      "GHIJKLMNOPQRSTUVWXYZ"};
    bool more = false;
    for (size_t i = from; i < key.n && i < from + 3; i++) {
        uint8_t c = (uint8_t)key.at[i];
        if (a->has[c] || c == '/') continue;
        a->has[c] = more = true;
        for (size_t k = 0; kinds && k < sizeof all / sizeof all[0]; k++)
            for (const char *m = strchr(all[k], c) ? all[k] : ""; *m; m++)
                a->has[(uint8_t)*m] = true;
    }
    if (!more) return;
    a->n = 0;
    for (int c = 0; c < 256; c++) {
        a->rank[c] = a->n;
        a->n = (uint16_t)(a->n + a->has[c]);
    }
}

/* Return where a key lies, 0 to 1, among all keys that share its first bytes (from: how many). */
DLPI_COLD
static double dlpi_s3_alphabet_place(const dlpi_s3_alphabet *a, dlpi_s3_span key, size_t from) {
    double at = 0, unit = 1;
    for (size_t i = from; i < key.n && unit > 1e-17; i++) {
        uint8_t c = (uint8_t)key.at[i];
        unit /= a->n + 1; /* 0 is a key's end */
        at += unit * (a->rank[c] + 1);
        if (!a->has[c]) break;
    }
    return at;
}

/* Count the bytes at the front of a text that are whole characters of UTF-8. */
DLPI_COLD
static size_t dlpi_s3_utf8_whole(const char *at, size_t n) {
    size_t whole = 0;
    while (whole < n) {
        uint8_t c = (uint8_t)at[whole];
        size_t more = c < 0x80 ? 0 : c < 0xc2 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : 9;
        uint8_t next = more > 0 && whole + 1 < n ? (uint8_t)at[whole + 1] : 0x80;
        if (more > n - whole - 1) break;
        if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) || (c == 0xf0 && next < 0x90))
            break;
        if (c == 0xf4 && next > 0x8f) break;
        for (size_t i = 1; i <= more; i++)
            if (((uint8_t)at[whole + i] & 0xc0) != 0x80) return whole;
        whole += more + 1;
    }
    return whole;
}

/* Make the first character that is not whole UTF-8 whole, and cut the text behind it; or in front
   of it, if that is not possible. Returns the new length. There must be room for 3 more bytes. */
DLPI_COLD
static size_t dlpi_s3_utf8_mend(char *at, size_t n) {
    size_t whole = dlpi_s3_utf8_whole(at, n);
    uint8_t lead = whole < n ? (uint8_t)at[whole] : 0;
    size_t end = whole + (lead < 0xc2 || lead > 0xf4 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
    for (size_t i = whole + 1; i < end; i++)
        if (i >= n || ((uint8_t)at[i] & 0xc0) != 0x80)
            at[i] = i == whole + 1 && (lead == 0xed || lead == 0xf4) ? '\x80' : '\xa0';
    return dlpi_s3_utf8_whole(at, end);
}

/* True if a text lies behind low and before high (NULL: no end): it can split this range. */
DLPI_COLD
static bool dlpi_s3_split_fits(dlpi_s3_span split, dlpi_s3_span low, const dlpi_s3_key *high) {
    if (split.n == 0 || dlpi_s3_span_order(split, low) <= 0) return false;
    return !high || dlpi_s3_span_order(split, dlpi_s3_key_span(high)) < 0;
}

/* Find a split near the middle of a range whose keys share their first bytes (from: how many).
   Returns false if there is none. */
DLPI_COLD
static bool dlpi_s3_split_middle(const dlpi_s3_alphabet *a, dlpi_s3_span low,
                                 const dlpi_s3_key *high, size_t from, dlpi_s3_key *out) {
    double x = dlpi_s3_alphabet_place(a, low, from), y = 1;
    size_t n = from, fits = 0;
    if (high) y = dlpi_s3_alphabet_place(a, dlpi_s3_key_span(high), from);
    if (a->n == 0 || from > low.n || from + 12 > DLPI_S3_LIST_TEXT) return false;
    memcpy(out->at, low.at, from);
    x += (y - x) / 2;
    for (int i = 0; i < 12 && (fits == 0 || n < fits + 2); i++) {
        int digit, c = 0;
        x *= a->n + 1;
        digit = x >= a->n ? a->n : x < 1 ? 1 : (int)x;
        x = x > digit ? x - digit : 0;
        while (!a->has[c] || a->rank[c] + 1 < digit) c++;
        out->at[n++] = (char)c;
        if (fits == 0 && dlpi_s3_split_fits((dlpi_s3_span){out->at, n}, low, high)) fits = n;
    }
    out->bytes = dlpi_s3_utf8_mend(out->at, n);
    out->at[out->bytes] = '\0';
    return dlpi_s3_split_fits(dlpi_s3_key_span(out), low, high);
}

/* Make the split that lies right behind all keys that begin with the first n bytes of low. Returns
   false if it cannot split the range. */
DLPI_COLD
static bool dlpi_s3_split_behind(dlpi_s3_span low, const dlpi_s3_key *high, size_t n,
                                 dlpi_s3_key *out) {
    if (n == 0 || n > low.n || n > DLPI_S3_LIST_TEXT) return false;
    if (low.at[n - 1] < ' ' || low.at[n - 1] > '}') return false;
    dlpi_s3_key_set(out, (dlpi_s3_span){low.at, n});
    out->at[n - 1]++;
    return dlpi_s3_split_fits(dlpi_s3_key_span(out), low, high);
}

/* ---- lists ----
   A list is a chain of segments, in the order of their keys. A segment is a range of keys: those
   behind a split, up to and with the next split. There is one segment at first. It stays the only
   one, unless the store is known to sort its lists or the user has set requests. If fewer pages are
   under way than may be, the segment with most keys left is split. The new segment asks for its
   first page at once. The records of the first segment are given out; those of others are kept as
   blocks.

   A segment reads on until it sees a key behind its bound, or the end of the list. The key must be
   the first key that the next segment has seen. This is the seam of the two. If the seam holds, the
   server goes on behind the split as it would have gone on without it. So all segments together are
   the list that comes page after page. If it does not hold, the segment in front goes on over the
   range of the next one, which is dropped. No segment is split after that. A server that walks a
   tree of folders breaks seams. For it a split "a" lies behind all keys of the folder "a", and a
   split "a//" makes it name keys that do not exist.

   If the server does not start behind a split, or has keys there in another order, the segments
   behind the first one are dropped. If the first one itself began at a split and goes wrong, the
   list begins again, page after page. Keys that were given out are then passed over.

   A segment wastes at most one page: its last, which may have keys of the next segment. As many
   pages may be wasted as were given out, and twice l->most more. So a list takes at most twice as
   many pages as it has, and 2 * l->most. */

#define DLPI_S3_PAGE_FIRST (256u << 10) /* bytes for an answer at first; */
#define DLPI_S3_PAGE_MOST (16u << 20)   /* at most: 1,000 keys of 1,024 escaped bytes are 4 MiB */
#define DLPI_S3_LIST_QUERY (3 * (3 * DLPI_S3_LIST_TEXT + DLPI_S3_TOKEN) + 256)
#define DLPI_S3_LIST_REQUESTS 32
#define DLPI_S3_LEFT_UNKNOWN 1e300 /* keys, or a few times fewer */
#define DLPI_S3_NO_LEVEL SIZE_MAX
#define DLPI_S3_LIST_SURVEYS 64 /* of one list */

#ifndef DLPI_S3_LIST_EMPTY
#define DLPI_S3_LIST_EMPTY 10000 /* so many pages without a key are no list */
#endif
#ifndef DLPI_S3_LIST_HOLD
#define DLPI_S3_LIST_HOLD (256u << 20) /* bytes of records kept before their turn */
#endif

enum {
    DLPI_S3_SEGMENT_WANTS = 0, /* its next page is to be asked for */
    DLPI_S3_SEGMENT_ASKED,
    DLPI_S3_SEGMENT_FAILED, /* which is told when its turn comes; then it wants its page again */
    DLPI_S3_SEGMENT_OVER
};

typedef struct dlpi_s3_segment {
    struct dlpi_s3_segment *next;
    int32_t state;
    bool bounded;              /* it ends at high, which is its own */
    bool split;                /* it begins behind a split, at low; else behind start_after */
    bool whole;                /* no split was found since its last page */
    bool ended;                /* the server has told that no key follows its last page */
    bool sealed;               /* OVER: its seam with the next segment holds */
    bool surveyed;             /* a survey of its range is under way */
    double left;               /* keys that it seems to have left; DLPI_S3_LEFT_UNKNOWN */
    size_t same;               /* bytes that all keys of its last page begin with */
    size_t level;              /* bytes of the folder to survey; DLPI_S3_NO_LEVEL: none */
    uint64_t groups;           /* folders of that level in its last page */
    uint64_t survey;           /* hash of the folder that was surveyed last; 0: none */
    size_t root;               /* bytes of a folder that all of its keys are in; 0: not known */
    char token[DLPI_S3_TOKEN]; /* of its next page; "": the first */
    uint64_t pages, mark;      /* pages that came; the page when marked was taken */
    uint32_t empty;            /* pages without a key, one after the other */
    uint8_t before[32], marked[32]; /* hashes of two tokens that no page may give again */
    dlpi_s3_block *blocks, *blocks_last;
    dlpi_s3_block *behind; /* OVER: records of its last page that lie behind high; NULL: none */
    dlpi_s3_key low, high, last; /* last: its last key so far */
    dlp_s3_error error;          /* FAILED */
} dlpi_s3_segment;

/* A page that is asked for. */
typedef struct dlpi_s3_page_request {
    struct dlpi_s3_page_request *next; /* of the list's */
    dlpi_s3_segment *of;               /* NULL: it is free */
    bool survey;                       /* it asks for the folders of a level, no page of keys */
    bool left;                         /* nobody wants what comes; of is gone */
    dlp_s3_request r;
    size_t size;
    char *body;
    char query[DLPI_S3_LIST_QUERY];
} dlpi_s3_page_request;

struct dlp_s3_list {
    dlp_s3_io *io;
    char bucket[256];
    char prefix[DLPI_S3_LIST_TEXT + 1], delimiter[DLPI_S3_LIST_TEXT + 1];
    char start_after[DLPI_S3_LIST_TEXT + 1];
    int32_t page;
    uint32_t most;   /* pages asked for at once; */
    uint32_t wanted; /* so many as soon as the store is known to sort its lists */
    bool any_order;  /* of keys */
    bool astray;     /* the last page shows that the server does not list from a split on */
    bool settled;    /* a seam did not hold: no more splits */
    dlpi_s3_over over;
    dlpi_s3_page_request *asks;
    dlpi_s3_segment *first;
    uint64_t asked;       /* pages and surveys */
    uint64_t kept, told;  /* keys of blocks; those that were given out */
    uint64_t full;        /* keys of the fullest page */
    uint64_t held;        /* bytes of blocks */
    dlpi_s3_block *marks; /* folders that surveys have found: where to split. keys: so many of them
                             are in a page */
    uint32_t segments, surveys;
    size_t room; /* bytes for an answer, as answers have needed */
    dlpi_s3_alphabet alphabet;
    dlpi_s3_page now;    /* the page that was parsed last */
    dlpi_s3_key last[2]; /* of its objects and prefixes */
    dlpi_s3_key given;   /* the last key of the blocks that were given out, */
    dlpi_s3_key upto;    /* and up to which keys are passed over */
    char why[200];       /* what is wrong with a key of the page */
};

/* ---- A page. */

/* True if a key may come after *last, the key before it, which it then replaces. It must lie
   behind, or with any_order only differ. */
DLPI_COLD
static bool dlpi_s3_list_follows(const dlp_s3_list *l, dlpi_s3_span key, dlpi_s3_key *last) {
    int order = last->bytes > 0 ? dlpi_s3_span_order(key, dlpi_s3_key_span(last)) : 1;
    if (order == 0 || (order < 0 && !l->any_order)) return false;
    dlpi_s3_key_set(last, key);
    return true;
}

/* Check that the segment's request asked for a key: it begins with prefix, and lies behind
   start_after or the segment's split. A common prefix may also be the beginning of start_after,
   since some of its keys lie behind. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_list_asked(dlp_s3_list *l, const dlpi_s3_segment *s, dlpi_s3_span key,
                                      bool is_prefix) {
    dlpi_s3_span after = {l->start_after, strlen(l->start_after)};
    const char *field = NULL;
    if (s->split) after = dlpi_s3_key_span(&s->low);
    if (strncmp(key.at, l->prefix, strlen(l->prefix)) != 0)
        field = "prefix";
    else if (after.n > 0 && !l->any_order && dlpi_s3_span_order(key, after) <= 0 &&
             !(is_prefix && key.n < after.n && memcmp(key.at, after.at, key.n) == 0))
        field = "start_after";
    if (!field) return NULL;
    l->astray = s->split;
    snprintf(l->why, sizeof l->why, "key '%.60s' was not asked for, by %s", key.at, field);
    dlpi_s3_one_line(l->why);
    return l->why;
}

/* Decode and check a page's records of one kind. *last gets the last of their keys, or that of the
   pages before. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_list_check(dlp_s3_list *l, const dlpi_s3_segment *s, int kind,
                                      dlpi_s3_key *last) {
    dlpi_s3_run *run = &l->now.run[kind];
    const char *wrong = dlpi_s3_run_decode(run, l->now.escaped);
    dlpi_s3_record r;
    *last = s->last;
    for (size_t at = 0; !wrong && at < run->n; at += dlpi_s3_record_size(&r)) {
        dlpi_s3_span key = dlpi_s3_record_at(run->at + at, &r);
        if (!dlpi_s3_list_follows(l, key, last)) {
            snprintf(l->why, sizeof l->why,
                     "key '%.60s' comes twice or out of order; set any_order", key.at);
            dlpi_s3_one_line(l->why);
            l->astray = s->split;
            return l->why;
        }
        wrong = dlpi_s3_list_asked(l, s, key, r.is_prefix);
    }
    return wrong;
}

/* True if a token leads back to an earlier page: such a list would have no end. Compared are the
   last token and one kept at pages 1, 2, 4, 8.. (Brent 1980): that finds circles of any length. */
DLPI_COLD
static bool dlpi_s3_segment_loops(dlpi_s3_segment *s, const char *token) {
    uint8_t hash[32];
    dlpi_s3_sha256(token, strlen(token), hash);
    if (s->pages > 0 && (memcmp(hash, s->before, 32) == 0 || memcmp(hash, s->marked, 32) == 0))
        return true;
    memcpy(s->before, hash, sizeof hash);
    if (s->pages < s->mark) return false;
    memcpy(s->marked, hash, sizeof hash);
    s->mark = s->pages == 0 ? 1 : 2 * s->pages;
    return false;
}

/* Count the folders of a level, and the keys in none of them, in a block. n: bytes of the level's
   name, with which all keys begin. */
DLPI_COLD
static uint64_t dlpi_s3_block_groups(const dlpi_s3_block *b, size_t n) {
    dlpi_s3_span last = {"", 0};
    dlpi_s3_record r;
    uint64_t groups = 0;
    for (size_t at = 0; at < b->n; at += dlpi_s3_record_size(&r)) {
        dlpi_s3_span key = dlpi_s3_record_at(b->records + at, &r);
        const char *slash = memchr(key.at + n, '/', key.n - n);
        if (slash) key.n = (size_t)(slash - key.at) + 1;
        groups += dlpi_s3_span_order(key, last) != 0;
        last = key;
    }
    return groups;
}

/* Return the bytes of a key's folder, in its first n bytes: up to the last '/', or least. */
DLPI_COLD
static size_t dlpi_s3_folder(dlpi_s3_span key, size_t n, size_t least) {
    while (n > least && key.at[n - 1] != '/') n--;
    return n;
}

/* Choose the folder whose folders may be good splits of the segment. It is the one above the folder
   that its last page lies in. If the segment has no key outside of the latter, it is the latter.
   Returns the bytes of its name, or DLPI_S3_NO_LEVEL. */
DLPI_COLD
static size_t dlpi_s3_list_level(const dlp_s3_list *l, const dlpi_s3_segment *s) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last);
    size_t base = strlen(l->prefix), all = base, in = dlpi_s3_folder(last, s->same, base);
    if (s->bounded)
        all = dlpi_s3_folder(last, dlpi_s3_span_common(last, dlpi_s3_key_span(&s->high)), base);
    if (in > all) return dlpi_s3_folder(last, in - 1, all);
    return memchr(last.at + in, '/', last.n - in) ? in : DLPI_S3_NO_LEVEL;
}

/* Return the key at which the range of the segment ends, or NULL if it ends with all keys that
   share its first bytes. *from: gets the number of these bytes. low: a key of it, or its split. */
DLPI_COLD
static const dlpi_s3_key *dlpi_s3_list_range(const dlp_s3_list *l, const dlpi_s3_segment *s,
                                             dlpi_s3_span low, size_t *from) {
    *from = s->bounded ? dlpi_s3_span_common(low, dlpi_s3_key_span(&s->high)) : strlen(l->prefix);
    if (s->bounded && *from >= s->root) return &s->high;
    if (s->root > 0) *from = s->root;
    return s->root > 0 || !s->bounded ? NULL : &s->high;
}

/* Guess how many keys the segment has left (s->left) by the density of its last page, whose block
   is b. Learn, too, which bytes keys are made of. */
DLPI_COLD
static void dlpi_s3_list_measure(dlp_s3_list *l, dlpi_s3_segment *s, const dlpi_s3_block *b) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last), first;
    const dlpi_s3_key *end;
    dlpi_s3_record r;
    double x, y, z, n = 0;
    size_t from;
    s->whole = false;
    first = dlpi_s3_record_at(b->records, &r);
    s->same = dlpi_s3_span_common(first, last);
    for (size_t at = 0; at < b->n; at += dlpi_s3_record_size(&r), n++)
        dlpi_s3_alphabet_learn(&l->alphabet, dlpi_s3_record_at(b->records + at, &r), s->same, true);
    end = dlpi_s3_list_range(l, s, first, &from);
    x = dlpi_s3_alphabet_place(&l->alphabet, first, from);
    y = dlpi_s3_alphabet_place(&l->alphabet, last, from);
    z = end ? dlpi_s3_alphabet_place(&l->alphabet, dlpi_s3_key_span(end), from) : 1;
    s->left = y > x && z > y ? (z - y) / (y - x) * n : DLPI_S3_LEFT_UNKNOWN;
    s->level = dlpi_s3_list_level(l, s);
    s->groups = s->level == DLPI_S3_NO_LEVEL ? 1 : dlpi_s3_block_groups(b, s->level);
}

/* Append a block (NULL: none) to the segment's blocks. It is freed if it is empty. */
DLPI_COLD
static void dlpi_s3_segment_add(dlp_s3_list *l, dlpi_s3_segment *s, dlpi_s3_block *b) {
    if (!b || b->n == 0) {
        free(b);
        return;
    }
    if (s->blocks)
        s->blocks_last->next = b;
    else
        s->blocks = b;
    s->blocks_last = b;
    l->held += b->n;
    l->kept += b->keys;
}

/* Move the segment on behind the page that was parsed last: its state, token and last key. The
   page's block b is appended to the segment's blocks. behind: the page's records behind its bound,
   or NULL. */
DLPI_COLD
static void dlpi_s3_segment_on(dlp_s3_list *l, dlpi_s3_segment *s, dlpi_s3_block *b,
                               dlpi_s3_block *behind) {
    const dlpi_s3_key *last = &l->last[0];
    uint64_t keys = b->keys + (behind ? behind->keys : 0);
    if (dlpi_s3_span_order(dlpi_s3_key_span(last), dlpi_s3_key_span(&l->last[1])) < 0)
        last = &l->last[1];
    s->last = *last;
    s->pages++;
    s->ended = !l->now.truncated;
    s->behind = behind;
    s->state = s->ended || behind ? DLPI_S3_SEGMENT_OVER : DLPI_S3_SEGMENT_WANTS;
    memcpy(s->token, l->now.token, sizeof s->token);
    s->left = 0;
    if (keys > l->full) l->full = keys;
    if (s->state != DLPI_S3_SEGMENT_OVER && b->n > 0 && l->most > 1) dlpi_s3_list_measure(l, s, b);
    dlpi_s3_segment_add(l, s, b);
}

/* Parse and check a page of the segment that has come in body, and keep its records. Returns NULL
   or an error text; then the page can be asked for again. */
DLPI_COLD
static const char *dlpi_s3_list_take(dlp_s3_list *l, dlpi_s3_segment *s, const char *body,
                                     size_t n) {
    dlpi_s3_page *p = &l->now;
    const char *wrong = dlpi_s3_page_parse(p, body, n);
    dlpi_s3_block *b = NULL, *behind = NULL;
    l->astray = false;
    if (!wrong) wrong = dlpi_s3_list_check(l, s, DLPI_S3_OBJECTS, &l->last[0]);
    if (!wrong) wrong = dlpi_s3_list_check(l, s, DLPI_S3_PREFIXES, &l->last[1]);
    if (!wrong && (!(b = dlpi_s3_page_merge(p, &l->upto)) ||
                   (s->bounded && !dlpi_s3_block_cut(b, &s->high, &behind))))
        wrong = dlpi_s3_page_memory;
    if (!wrong && p->truncated && dlpi_s3_segment_loops(s, p->token))
        wrong = "<NextContinuationToken> comes again";
    if (!wrong) s->empty = p->run[0].n + p->run[1].n > 0 ? 0 : s->empty + 1;
    if (!wrong && s->empty >= DLPI_S3_LIST_EMPTY) wrong = "too many pages without a key";
    if (!wrong) {
        dlpi_s3_segment_on(l, s, b, behind);
    } else {
        free(b);
        free(behind);
    }
    return wrong;
}

/* ---- Segments. */

DLPI_COLD
static dlpi_s3_segment *dlpi_s3_segment_new(void) {
    return (dlpi_s3_segment *)calloc(1, sizeof(dlpi_s3_segment));
}

/* Remember the last key that was given out of the segment's first block, if any was. */
DLPI_COLD
static void dlpi_s3_list_given(dlp_s3_list *l, const dlpi_s3_segment *s) {
    dlpi_s3_record r;
    if (!s->blocks || s->blocks->at == 0) return;
    dlpi_s3_key_set(&l->given, dlpi_s3_record_at(s->blocks->records + s->blocks->given, &r));
}

/* Free the segment's first block. Its records were given out, or the segment is being dropped. */
DLPI_COLD
static void dlpi_s3_list_drop_block(dlp_s3_list *l, dlpi_s3_segment *s) {
    dlpi_s3_block *b = s->blocks;
    l->held -= b->n;
    s->blocks = b->next;
    free(b);
}

/* Leave the requests of a segment: cancel them, or pass over those that have ended. */
DLPI_COLD
static void dlpi_s3_segment_leave(dlp_s3_list *l, const dlpi_s3_segment *s) {
    for (dlpi_s3_page_request *a = l->asks; a; a = a->next) {
        if (a->of != s || a->left) continue;
        for (const dlp_s3_request *r = l->over.first; r && !a->left;
             r = (const dlp_s3_request *)r->internal)
            a->left = r == &a->r;
        if (a->left) continue;
        dlpi_s3_op_leave(l->io, (dlpi_s3_op *)a->r.internal);
        a->of = NULL;
    }
}

/* Drop all that the segment has, and leave its requests. */
DLPI_COLD
static void dlpi_s3_segment_clear(dlp_s3_list *l, dlpi_s3_segment *s) {
    dlpi_s3_segment_leave(l, s);
    for (; s->blocks; dlpi_s3_list_drop_block(l, s)) l->kept -= s->blocks->keys;
    free(s->behind);
    s->behind = NULL;
}

/* Free the segment to which *at points, which is then the next one. */
DLPI_COLD
static void dlpi_s3_list_drop(dlp_s3_list *l, dlpi_s3_segment **at) {
    dlpi_s3_segment *s = *at;
    dlpi_s3_segment_clear(l, s);
    *at = s->next;
    l->segments--;
    free(s);
}

/* Split the segment in two at a key. left: how many keys the second seems to have. Returns the
   second segment, or NULL if there is no memory. */
DLPI_COLD
static dlpi_s3_segment *dlpi_s3_list_cut(dlp_s3_list *l, dlpi_s3_segment *s,
                                         const dlpi_s3_key *split, double left) {
    dlpi_s3_segment *more = dlpi_s3_segment_new();
    if (!more) return NULL;
    more->next = s->next;
    more->low = *split;
    more->split = true;
    more->high = s->high;
    more->bounded = s->bounded;
    more->left = left;
    more->survey = s->survey;
    more->root = s->root;
    s->next = more;
    s->high = *split;
    s->bounded = true;
    l->segments++;
    return more;
}

/* ---- Seams. */

enum { DLPI_S3_SEAM_OPEN = 0, DLPI_S3_SEAM_HOLDS, DLPI_S3_SEAM_BROKEN };

/* Compare what a segment that is over saw behind its bound with the first key of the next segment.
   The seam is open as long as the next segment has seen neither a key nor the end of the list. */
DLPI_COLD
static int dlpi_s3_seam(const dlpi_s3_segment *s) {
    const dlpi_s3_segment *next = s->next;
    if (s->sealed) return DLPI_S3_SEAM_HOLDS;
    if (!next->blocks && next->state != DLPI_S3_SEGMENT_OVER) return DLPI_S3_SEAM_OPEN;
    return dlpi_s3_span_order(dlpi_s3_block_first(s->behind),
                              dlpi_s3_block_first(next->blocks ? next->blocks : next->behind)) == 0
               ? DLPI_S3_SEAM_HOLDS
               : DLPI_S3_SEAM_BROKEN;
}

/* Join each segment that is over with the next one, if that is over, too, and their seam holds. */
DLPI_COLD
static void dlpi_s3_list_join(dlp_s3_list *l) {
    for (dlpi_s3_segment **at = &l->first, *s, *next; (next = (s = *at)->next) != NULL;) {
        s->sealed = s->state == DLPI_S3_SEGMENT_OVER && dlpi_s3_seam(s) == DLPI_S3_SEAM_HOLDS;
        if (!s->sealed || next->state != DLPI_S3_SEGMENT_OVER) {
            at = &s->next;
            continue;
        }
        if (s->blocks) {
            s->blocks_last->next = next->blocks;
            if (!next->blocks) next->blocks_last = s->blocks_last;
            next->blocks = s->blocks;
            s->blocks = NULL;
        }
        dlpi_s3_list_drop(l, at);
    }
}

/* Go on page after page, because the server does not list from a key on, as a segment shows. The
   segments behind the first one are dropped. If that is the first one and began at a split, the
   list begins again, and keys that were given out are passed over. */
DLPI_COLD
static void dlpi_s3_list_serial(dlp_s3_list *l, const dlpi_s3_segment *at, const char *why) {
    dlpi_s3_segment *s = l->first;
    const bool again = at == s && s->split;
    dlpi_s3_say(l->io, "s3: %s: the server cannot list from a key on (%s): page after page, then",
                l->bucket, why);
    while (s->next) dlpi_s3_list_drop(l, &s->next);
    if (again) {
        dlpi_s3_list_given(l, s);
        l->upto = l->given;
        dlpi_s3_segment_clear(l, s);
        memset(s, 0, sizeof *s);
    } else if (s->bounded) {
        dlpi_s3_segment_add(l, s, s->behind);
        s->behind = NULL;
        s->bounded = false;
        if (s->state == DLPI_S3_SEGMENT_OVER && !s->ended) s->state = DLPI_S3_SEGMENT_WANTS;
    }
    l->most = l->wanted = 1;
}

/* Let the first segment, which is over, go on over the range of the next one, because their seam
   does not hold. Returns DLP_OK or DLP_ERR_MEMORY. */
DLPI_COLD
static int dlpi_s3_list_mend(dlp_s3_list *l) {
    dlpi_s3_segment *s = l->first, *next = s->next;
    dlpi_s3_block *behind = NULL;
    if (!s->behind) { /* the list has ended for it, but not for the next one */
        dlpi_s3_list_serial(l, s, "a list from a key on ends too early");
        return DLP_OK;
    }
    if (next->bounded && !dlpi_s3_block_cut(s->behind, &next->high, &behind)) return DLP_ERR_MEMORY;
    if (!l->settled)
        dlpi_s3_say(l->io,
                    "s3: %s: behind '%.60s' the server lists other keys than from there on: page "
                    "after page, then",
                    l->bucket, s->high.at);
    l->settled = true;
    dlpi_s3_segment_add(l, s, s->behind);
    s->behind = behind;
    s->bounded = next->bounded;
    s->high = next->high;
    s->state = s->ended || behind ? DLPI_S3_SEGMENT_OVER : DLPI_S3_SEGMENT_WANTS;
    dlpi_s3_list_drop(l, &s->next);
    return DLP_OK;
}

/* Pass the seam behind the first segment, which is over and has no records left. Returns DLP_OK;
   DLP_TIMEOUT: it is open; DLP_ERR_MEMORY. */
DLPI_COLD
static int dlpi_s3_list_pass(dlp_s3_list *l) {
    switch (dlpi_s3_seam(l->first)) {
    case DLPI_S3_SEAM_OPEN: return DLP_TIMEOUT;
    case DLPI_S3_SEAM_BROKEN: return dlpi_s3_list_mend(l);
    default: dlpi_s3_list_drop(l, &l->first); return DLP_OK;
    }
}

/* ---- where a segment is split ----
   A segment is split at folders that exist, if keys have folders. A survey asks for the folders of
   one level behind the segment's last key (delimiter "/"). If there are none in its range, the
   split is made up of bytes that keys have. */

/* Return how many pages more may turn out to be wasted. Each segment that is not over may waste
   one. */
DLPI_COLD
static double dlpi_s3_list_spare(const dlp_s3_list *l) {
    double full = (double)(l->full > 0 ? l->full : (uint64_t)l->page);
    double wasted = (double)l->asked - (double)l->kept / full;
    for (const dlpi_s3_segment *s = l->first; s; s = s->next)
        wasted += (s->state != DLPI_S3_SEGMENT_OVER) - (s->state == DLPI_S3_SEGMENT_ASKED);
    return 2.0 * l->most + (double)l->told / full - wasted;
}

/* Count the folders of a survey that lie in the range of the segment. */
DLPI_COLD
static uint64_t dlpi_s3_list_marked(const dlpi_s3_block *marks, const dlpi_s3_segment *s) {
    dlpi_s3_span low = dlpi_s3_key_span(s->pages > 0 ? &s->last : &s->low);
    dlpi_s3_record r;
    uint64_t n = 0;
    for (size_t at = 0; at < marks->n; at += dlpi_s3_record_size(&r))
        n += dlpi_s3_split_fits(dlpi_s3_record_at(marks->records + at, &r), low,
                                s->bounded ? &s->high : NULL);
    return n;
}

/* Split the segment at folders that surveys have found, into at most n more, a page of keys or more
   in each. Returns whether it was split. */
DLPI_COLD
static bool dlpi_s3_list_at_marks(dlp_s3_list *l, dlpi_s3_segment *s, uint64_t n) {
    const dlpi_s3_block *best = NULL;
    dlpi_s3_segment *at = s;
    dlpi_s3_record r;
    uint64_t fit = 0, i = 0, cuts = 0;
    double share;
    for (const dlpi_s3_block *m = l->marks; m; m = m->next) {
        uint64_t more = dlpi_s3_list_marked(m, s);
        if (more < 2 * m->keys - 1 || (best && more / m->keys <= fit / best->keys)) continue;
        best = m;
        fit = more;
    }
    if (!best) return false;
    if (n > fit / best->keys) n = fit / best->keys;
    share = s->left < DLPI_S3_LEFT_UNKNOWN / 4 ? s->left / (double)(n + 1) : DLPI_S3_LEFT_UNKNOWN;
    s->left = share < DLPI_S3_LEFT_UNKNOWN ? share : 0;
    for (size_t where = 0; where < best->n && at && cuts < n; where += dlpi_s3_record_size(&r)) {
        dlpi_s3_span mark = dlpi_s3_record_at(best->records + where, &r);
        dlpi_s3_span low = dlpi_s3_key_span(at != s || s->pages == 0 ? &at->low : &s->last);
        if (!dlpi_s3_split_fits(mark, low, at->bounded ? &at->high : NULL)) continue;
        if (i++ < (cuts + 1) * fit / (n + 1)) continue;
        dlpi_s3_key_set(&l->last[0], mark);
        at = dlpi_s3_list_cut(l, at, &l->last[0], share);
        cuts++;
    }
    if (best->given && at) at->survey = 0; /* there may be more folders behind the last mark */
    return cuts > 0;
}

DLPI_COLD
static int dlpi_s3_list_ask(dlp_s3_list *l, dlpi_s3_segment *s, size_t level, dlp_s3_error *err);

/* Ask for folders in the range of the segment, if it may have some that no survey has asked for.
   Returns whether that was done. If a survey has found no folder there, its keys are in one. */
DLPI_COLD
static bool dlpi_s3_list_survey(dlp_s3_list *l, dlpi_s3_segment *s) {
    uint64_t survey;
    if (s->pages == 0 || s->level == DLPI_S3_NO_LEVEL || s->last.bytes > DLPI_S3_LIST_TEXT ||
        l->surveys == DLPI_S3_LIST_SURVEYS)
        return false;
    survey = dlpi_s3_http_sum(s->last.at, s->level) | 1;
    if (survey == s->survey) {
        size_t root = dlpi_s3_folder(dlpi_s3_key_span(&s->last), s->same, s->level);
        if (s->groups == 1 && root > s->root) s->root = root;
        return false;
    }
    s->survey = survey;
    return dlpi_s3_list_ask(l, s, s->level, NULL) == DLP_OK;
}

/* Take in the folders of a survey of the segment, as marks. They are left out if they are so small
   that those that came are few pages, and not all. */
DLPI_COLD
static void dlpi_s3_list_surveyed(dlp_s3_list *l, dlpi_s3_segment *s, const char *body, size_t n) {
    dlpi_s3_page *p = &l->now;
    dlpi_s3_block *b;
    if (dlpi_s3_page_parse(p, body, n) || dlpi_s3_run_decode(&p->run[DLPI_S3_PREFIXES], p->escaped))
        return;
    p->run[DLPI_S3_OBJECTS].n = 0;
    b = dlpi_s3_page_merge(p, &s->last);
    if (!b) return;
    if (b->n == 0 || (p->truncated && s->groups > 1 && b->keys / s->groups < l->most)) {
        free(b);
        return;
    }
    b->keys = s->groups;
    b->given = p->truncated;
    b->next = l->marks;
    l->marks = b;
    l->surveys++;
}

/* Put '/' behind a made-up split, if the range's keys have folders: low has one behind the first
   bytes that all of the keys share (from: how many). A server that walks a tree goes on right
   behind the folder's name "a/", which need not exist. But it takes "a" for what follows the
   folder. Returns whether the split can be used. */
DLPI_COLD
static bool dlpi_s3_split_made(dlpi_s3_key *split, size_t from, dlpi_s3_span low,
                               const dlpi_s3_key *high) {
    if (low.n > from && memchr(low.at + from, '/', low.n - from) &&
        split->bytes < DLPI_S3_LIST_TEXT) {
        split->at[split->bytes] = '/';
        split->at[split->bytes + 1] = '\0';
        if (dlpi_s3_split_fits((dlpi_s3_span){split->at, split->bytes + 1}, low, high))
            split->bytes++;
        split->at[split->bytes] = '\0';
    }
    return dlpi_s3_split_fits(dlpi_s3_key_span(split), low, high);
}

/* Split the segment behind groups of keys that begin as its last page does, at most n times. from:
   bytes that all of its keys share. Returns whether it was split. */
DLPI_COLD
static bool dlpi_s3_list_ladder(dlp_s3_list *l, dlpi_s3_segment *s, size_t from, uint32_t n) {
    dlpi_s3_span last = dlpi_s3_key_span(&s->last);
    dlpi_s3_segment *at = s;
    dlpi_s3_key *split = &l->last[0];
    for (uint32_t i = 0; i < n && at; i++) {
        size_t steps = s->same - from, bytes;
        if (i >= steps) break;
        bytes = from + 1 + (steps <= n ? steps - 1 - i : (n - 1 - i) * steps / n);
        if (dlpi_s3_split_behind(last, at->bounded ? &at->high : NULL, bytes, split) &&
            dlpi_s3_split_made(split, from, last, at->bounded ? &at->high : NULL) &&
            (at == s ||
             dlpi_s3_span_order(dlpi_s3_key_span(split), dlpi_s3_key_span(&at->low)) > 0))
            at = dlpi_s3_list_cut(l, at, split, DLPI_S3_LEFT_UNKNOWN);
    }
    s->left = 0; /* until its next page */
    return at != s;
}

/* Split the segment into at most n more, or ask where it can be split. Returns false if that was
   not possible. */
DLPI_COLD
static bool dlpi_s3_list_split(dlp_s3_list *l, dlpi_s3_segment *s, uint32_t n) {
    dlpi_s3_span low = dlpi_s3_key_span(s->pages > 0 ? &s->last : &s->low);
    const dlpi_s3_key *high;
    size_t from;
    if (dlpi_s3_list_at_marks(l, s, n) || dlpi_s3_list_survey(l, s)) return true;
    high = dlpi_s3_list_range(l, s, low, &from);
    if (s->pages > 0 && s->same >= from + 4) return dlpi_s3_list_ladder(l, s, from, n);
    dlpi_s3_alphabet_learn(&l->alphabet, low, from, false);
    if (high) dlpi_s3_alphabet_learn(&l->alphabet, dlpi_s3_key_span(high), from, false);
    if (!dlpi_s3_split_middle(&l->alphabet, low, high, from, &l->last[0]) ||
        !dlpi_s3_split_made(&l->last[0], from, low, s->bounded ? &s->high : NULL) ||
        !dlpi_s3_list_cut(l, s, &l->last[0], s->left / 2))
        return false;
    s->left /= 2;
    return true;
}

/* True if the segment, the i-th, may have a page under way. Segments behind the first may not while
   too many bytes are kept before their turn. But if the first one is over, its seam needs the
   second. */
DLPI_COLD
static bool dlpi_s3_list_may(const dlp_s3_list *l, const dlpi_s3_segment *s, uint32_t i) {
    if (s->state != DLPI_S3_SEGMENT_WANTS && s->state != DLPI_S3_SEGMENT_ASKED) return false;
    if (l->first->state == DLPI_S3_SEGMENT_OVER && s == l->first->next) return true;
    return s == l->first || l->held < DLPI_S3_LIST_HOLD / 2 ||
           (i < l->most && l->held < DLPI_S3_LIST_HOLD);
}

/* Return the segment that seems to have most keys left, or NULL if none is worth a split. *out gets
   the number of pages that may still be asked for. */
DLPI_COLD
static dlpi_s3_segment *dlpi_s3_list_longest(const dlp_s3_list *l, uint32_t *out) {
    dlpi_s3_segment *longest = NULL;
    uint32_t i = 0, under_way = 0;
    double spare = dlpi_s3_list_spare(l);
    for (dlpi_s3_segment *s = l->first; s; s = s->next, i++) {
        if (!dlpi_s3_list_may(l, s, i)) continue;
        under_way += 1 + s->surveyed;
        if (s->whole || s->surveyed || s->left < 3.0 * l->page ||
            (s->pages == 0 && s->left >= DLPI_S3_LEFT_UNKNOWN / 4))
            continue;
        if (!longest || s->left > longest->left) longest = s;
    }
    *out = under_way < l->most ? l->most - under_way : 0;
    if (*out > spare) *out = spare > 0 ? (uint32_t)spare : 0;
    if (l->segments >= 4 * l->most || l->settled) *out = 0;
    return *out > 0 ? longest : NULL;
}

/* Split segments until as many pages can be asked for as are allowed at once. */
DLPI_COLD
static void dlpi_s3_list_spread(dlp_s3_list *l) {
    dlpi_s3_segment *s;
    uint32_t n;
    dlpi_s3_list_join(l);
    while (l->most > 1 && (s = dlpi_s3_list_longest(l, &n)) != NULL)
        s->whole = !dlpi_s3_list_split(l, s, n);
}

/* ---- Requests. */

/* Write the query of the segment's next page, its parameters in the order of their names. level:
   DLPI_S3_NO_LEVEL, or the bytes of the folder to survey. */
DLPI_COLD
static void dlpi_s3_list_query(const dlp_s3_list *l, const dlpi_s3_segment *s, size_t level,
                               char *to) {
    dlpi_s3_out o = {to, DLPI_S3_LIST_QUERY, 0};
    bool survey = level != DLPI_S3_NO_LEVEL, first = !s->token[0];
    char page[16], folder[DLPI_S3_LIST_TEXT + 1];
    snprintf(page, sizeof page, "%d", (int)l->page);
    if (survey) snprintf(folder, sizeof folder, "%.*s", (int)level, s->last.at);
    if (!survey) dlpi_s3_out_param(&o, "continuation-token", s->token);
    dlpi_s3_out_param(&o, "delimiter", survey ? "/" : l->delimiter);
    dlpi_s3_out_param(&o, "encoding-type", "url");
    dlpi_s3_out_param(&o, "list-type", "2");
    dlpi_s3_out_param(&o, "max-keys", page);
    dlpi_s3_out_param(&o, "prefix", survey ? folder : l->prefix);
    if (survey || first)
        dlpi_s3_out_param(&o, "start-after",
                          survey     ? s->last.at
                          : s->split ? s->low.at
                                     : l->start_after);
    dlpi_s3_out_end(&o);
}

/* Tell in *err (if not NULL) what is wrong with the segment's next page. Returns code. */
DLPI_COLD
static int dlpi_s3_list_bad(const dlp_s3_list *l, const dlpi_s3_segment *s, int code,
                            dlp_s3_error *err, const char *what) {
    char place[120] = "";
    if (!err) return code;
    memset(err, 0, sizeof *err);
    dlpi_s3_copy(err->bucket, sizeof err->bucket, l->bucket);
    if (s->split || s->last.bytes > 0)
        snprintf(place, sizeof place, " behind '%.40s'", s->last.bytes ? s->last.at : s->low.at);
    dlpi_s3_set_error(err, code, 0, "page %llu of the list%s: %s%s",
                      (unsigned long long)s->pages + 1, place, what,
                      code == DLP_ERR_REMOTE ? "; check the endpoint" : "");
    dlpi_s3_one_line(err->message);
    return code;
}

/* Return a record for a page request, with room for the answer, or NULL if there is no memory. */
DLPI_COLD
static dlpi_s3_page_request *dlpi_s3_list_ask_new(dlp_s3_list *l) {
    dlpi_s3_page_request *a = l->asks;
    while (a && a->of) a = a->next;
    if (!a) {
        a = (dlpi_s3_page_request *)calloc(1, sizeof *a);
        if (!a) return NULL;
        a->next = l->asks;
        l->asks = a;
    }
    if (a->size >= l->room) return a;
    free(a->body);
    a->body = (char *)malloc(l->room);
    a->size = a->body ? l->room : 0;
    return a->body ? a : NULL;
}

/* Send the request for the segment's next page, or for a survey of level (dlpi_s3_list_query).
   Returns DLP_OK, DLP_ERR_MEMORY, or a code of dlpi_s3_submit, such as DLP_FULL. */
DLPI_COLD
static int dlpi_s3_list_ask(dlp_s3_list *l, dlpi_s3_segment *s, size_t level, dlp_s3_error *err) {
    dlpi_s3_page_request *a = dlpi_s3_list_ask_new(l);
    int rc;
    if (!a) return dlpi_s3_list_bad(l, s, DLP_ERR_MEMORY, err, "no memory for the answer");
    memset(&a->r, 0, sizeof a->r);
    a->r.bucket = l->bucket, a->r.key = "", a->r.query = a->query;
    a->r.body = a->body, a->r.capacity = a->size;
    a->r.user = a;
    dlpi_s3_list_query(l, s, level, a->query);
    rc = dlpi_s3_submit(l->io, &a->r, &l->over);
    if (rc == DLP_OK) {
        a->of = s;
        a->survey = level != DLPI_S3_NO_LEVEL;
        if (a->survey)
            s->surveyed = true;
        else
            s->state = DLPI_S3_SEGMENT_ASKED;
        l->asked++;
    } else if (err) {
        *err = a->r.error;
        if (!err->code) err->code = rc; /* FULL: not of this request */
    }
    return rc;
}

/* Send page requests for all segments that may have one. Returns DLP_OK if any page is under way,
   else the code of what failed. */
DLPI_COLD
static int dlpi_s3_list_ask_all(dlp_s3_list *l, dlp_s3_error *err) {
    uint32_t i = 0;
    int rc = DLP_OK;
    for (dlpi_s3_segment *s = l->first; s && rc == DLP_OK && l->over.out < l->most; s = s->next)
        if (dlpi_s3_list_may(l, s, i++) && s->state == DLPI_S3_SEGMENT_WANTS)
            rc = dlpi_s3_list_ask(l, s, DLPI_S3_NO_LEVEL, err);
    return l->over.out > 0 || l->over.first ? DLP_OK : rc;
}

/* Cancel all page requests of the list. */
DLPI_COLD
static void dlpi_s3_list_cancel(dlp_s3_list *l) {
    for (const dlpi_s3_segment *s = l->first; s; s = s->next) dlpi_s3_segment_leave(l, s);
    while (dlpi_s3_over_take(&l->over)) continue;
}

/* Note that the request r of the segment's page failed. The segment tells it when its turn comes;
   but if the server refuses to start at a split, the list goes on page after page. */
DLPI_COLD
static void dlpi_s3_list_failed(dlp_s3_list *l, dlpi_s3_segment *s, const dlp_s3_request *r) {
    int status = r->error.http_status;
    size_t n;
    if (s->split && s->pages == 0 && (status == 400 || status == 501)) {
        dlpi_s3_list_serial(l, s, r->error.message);
        return;
    }
    s->state = DLPI_S3_SEGMENT_FAILED;
    s->error = r->error;
    n = strlen(s->error.message);
    if (s->last.bytes > 0 || s->split)
        snprintf(s->error.message + n, sizeof s->error.message - n, "; page behind '%.100s'",
                 s->last.bytes > 0 ? s->last.at : s->low.at);
    dlpi_s3_one_line(s->error.message);
}

/* Take in the end of a page's request. If the answer did not fit, the next request has more room:
   as much as the answer takes, or twice as much if the server does not tell. */
DLPI_COLD
static void dlpi_s3_list_came(dlp_s3_list *l, dlpi_s3_page_request *a) {
    uint64_t want = a->r.object_bytes > 0 ? a->r.object_bytes : 2 * (uint64_t)a->size;
    dlpi_s3_segment *s = a->of;
    const char *wrong;
    bool left = a->left;
    a->left = false;
    a->of = NULL;
    if (left) return;
    if (a->survey) {
        s->surveyed = false;
        if (a->r.code == DLP_OK) dlpi_s3_list_surveyed(l, s, a->body, (size_t)a->r.received);
        return;
    }
    s->state = DLPI_S3_SEGMENT_WANTS;
    if (l->over.sorts) l->most = l->wanted;
    if (a->r.code == DLP_ERR_LENGTH && want > a->size && want <= DLPI_S3_PAGE_MOST) {
        while (l->room < want) l->room *= 2;
    } else if (a->r.code == DLP_ERR_LENGTH && want > DLPI_S3_PAGE_MOST) {
        s->state = DLPI_S3_SEGMENT_FAILED;
        dlpi_s3_list_bad(l, s, DLP_ERR_LIMIT, &s->error,
                         "the answer is larger than 16 MiB; lower page");
    } else if (a->r.code != DLP_OK) {
        dlpi_s3_list_failed(l, s, &a->r);
    } else if ((wrong = dlpi_s3_list_take(l, s, a->body, (size_t)a->r.received)) != NULL) {
        int code = wrong == dlpi_s3_page_memory ? DLP_ERR_MEMORY : DLP_ERR_REMOTE;
        s->state = DLPI_S3_SEGMENT_FAILED;
        if (l->astray)
            dlpi_s3_list_serial(l, s, wrong);
        else
            dlpi_s3_list_bad(l, s, code, &s->error, wrong);
    }
}

/* Ask for pages, and take in those that have come. wait: wait until at least one comes. Returns
   DLP_OK, or the code of what failed. */
DLPI_COLD
static int dlpi_s3_list_work(dlp_s3_list *l, bool wait, dlp_s3_error *err) {
    dlp_s3_request *r;
    int rc;
    l->io->now = dlpi_s3_now_ns();
    if (l->io->pid != getpid())
        return dlpi_s3_list_bad(l, l->first, DLP_ERR_FORKED, err,
                                "this is a fork; open an io of its own here");
    dlpi_s3_list_spread(l);
    rc = dlpi_s3_list_ask_all(l, err);
    if (rc != DLP_OK) return rc;
    while (l->over.out > 0 && !l->over.first) {
        int errnum = dlpi_s3_turn(l->io, wait ? UINT64_MAX : l->io->now);
        if (errnum != 0 && !l->over.first)
            return dlpi_s3_list_bad(l, l->first, DLP_ERR_SYSTEM, err, strerror(errnum));
        if (!wait) break;
    }
    while ((r = dlpi_s3_over_take(&l->over)) != NULL)
        dlpi_s3_list_came(l, (dlpi_s3_page_request *)r->user);
    return DLP_OK;
}

/* ---- Calls. */

/* Copy the texts of a desc. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_list_texts(dlp_s3_list *l, const dlp_s3_list_desc *d) {
    if (!dlpi_s3_copy(l->bucket, sizeof l->bucket, d->bucket))
        return "bucket: must have at most 255 bytes";
    if (d->prefix && !dlpi_s3_copy(l->prefix, sizeof l->prefix, d->prefix))
        return "prefix: must have at most 1,024 bytes";
    if (d->delimiter && !dlpi_s3_copy(l->delimiter, sizeof l->delimiter, d->delimiter))
        return "delimiter: must have at most 1,024 bytes";
    if (d->start_after && !dlpi_s3_copy(l->start_after, sizeof l->start_after, d->start_after))
        return "start_after: must have at most 1,024 bytes";
    return NULL;
}

/* Return how many pages to ask for at once, of an io's requests, if the store sorts its lists. It
   is 1 with any_order, and with a delimiter, since splits would fall into common prefixes. */
DLPI_COLD
static uint32_t dlpi_s3_list_most(const dlp_s3_list_desc *d, uint32_t requests) {
    uint32_t most = requests / 2 < DLPI_S3_LIST_REQUESTS ? requests / 2 : DLPI_S3_LIST_REQUESTS;
    if (d->any_order || (d->delimiter && d->delimiter[0])) return 1;
    if (d->requests > 0) most = (uint32_t)d->requests < requests ? (uint32_t)d->requests : requests;
    return most > 0 ? most : 1;
}

DLPI_COLD
DLPDEF int dlp_s3_list_open(dlp_s3_list **out, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                            dlp_s3_error *err) {
    dlp_s3_list *l;
    const char *wrong = !out    ? "out is NULL"
                        : !io   ? "io is NULL; use dlp_s3_io_open"
                        : !desc ? "desc is NULL"
                                : NULL;
    if (err) memset(err, 0, sizeof *err);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    if (!desc->bucket || !desc->bucket[0])
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: is missing; name one");
    wrong = dlpi_s3_bucket_beyond(&io->s3->endpoint, desc->bucket);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: %s", wrong);
    if (desc->page < 0 || desc->page > 1000)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "page: is %d, must be 0..1000",
                                 (int)desc->page);
    if (desc->requests < 0)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "requests: is %d, must be 0 or more",
                                 (int)desc->requests);
    l = calloc(1, sizeof *l);
    if (l) l->first = dlpi_s3_segment_new();
    if (!l || !l->first) {
        free(l);
        return dlpi_s3_set_error(err, DLP_ERR_MEMORY, 0, "no memory for a list");
    }
    l->io = io;
    l->segments = 1;
    l->page = desc->page > 0 ? desc->page : 1000;
    l->any_order = desc->any_order != 0;
    l->wanted = dlpi_s3_list_most(desc, io->n_ops);
    l->most = desc->requests > 0 ? l->wanted : 1;
    l->room = DLPI_S3_PAGE_FIRST;
    wrong = dlpi_s3_list_texts(l, desc);
    if (wrong) {
        dlp_s3_list_close(l);
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    }
    *out = l;
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_s3_list_next(dlp_s3_list *list, dlp_s3_object *out, dlp_s3_error *err) {
    if (!list || !out) {
        if (err) memset(err, 0, sizeof *err);
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, list ? "out is NULL" : "list is NULL");
    }
    for (;;) {
        dlpi_s3_segment *s = list->first;
        bool wait;
        int rc;
        if (s->blocks && dlpi_s3_block_take(s->blocks, out)) return DLP_OK;
        if (s->blocks) {
            dlpi_s3_list_given(list, s);
            list->told += s->blocks->keys;
            dlpi_s3_list_drop_block(list, s);
        } else if (s->state == DLPI_S3_SEGMENT_OVER) {
            if (!s->next) return DLP_END;
            rc = dlpi_s3_list_pass(list);
            if (rc == DLP_ERR_MEMORY)
                return dlpi_s3_list_bad(list, s, rc, err, "no memory for the page");
            if (rc == DLP_OK) continue;
            s = s->next;
        }
        if (!s->blocks && s->state == DLPI_S3_SEGMENT_FAILED) {
            s->state = DLPI_S3_SEGMENT_WANTS;
            if (err) *err = s->error;
            return s->error.code;
        }
        wait = !s->blocks && s->state < DLPI_S3_SEGMENT_FAILED;
        rc = dlpi_s3_list_work(list, wait, err);
        if (rc != DLP_OK && wait) return rc;
    }
}

DLPI_COLD
DLPDEF void dlp_s3_list_close(dlp_s3_list *list) {
    if (!list) return;
    if (list->io->pid == getpid()) dlpi_s3_list_cancel(list);
    for (dlpi_s3_page_request *a = list->asks; a; a = a->next) a->of = NULL; /* a fork's, too */
    while (list->first) dlpi_s3_list_drop(list, &list->first);
    while (list->asks) {
        dlpi_s3_page_request *next = list->asks->next;
        free(list->asks->body);
        free(list->asks);
        list->asks = next;
    }
    while (list->marks) {
        dlpi_s3_block *next = list->marks->next;
        free(list->marks);
        list->marks = next;
    }
    free(list->now.run[0].at);
    free(list->now.run[1].at);
    free(list);
}

#ifdef DLPIPE_IMPLEMENTATION_DONE
/* ---------------------------------------------------------------------------------------------
   >>s3-impl-source       ITEMS, PARTS AND CHUNKS OF A PIPE
   A worker has in_flight records (dlpi_s3_get). One is free; held, from submit to the next reap,
   so that neighbours can be found; out, asked for by its own request or by that of a neighbour,
   whose mate it is; or over, and free again once its item has been given back. Fetches that wait
   take a record, with a dlp_s3_io of its own, for as long as they take: the record used last comes
   first, since its connections are warm.

     label  who stores                     who loads
     SU1    workers: begun, ended          close: is there one of this process */

/* ---- manifests ---- */

enum { DLPI_S3_KEY_MOST = 1024, DLPI_S3_KEYS_MOST = INT32_MAX };

struct dlp_s3_manifest {
    uint64_t n, room;
    uint64_t *offset, *length; /* [room] as in dlp_s3_entry */
    uint32_t *key;             /* [room] number of its key */
    uint64_t *items;           /* [room]; NULL: no entry has any */
    uint64_t n_keys, key_room;
    uint64_t *key_at; /* [key_room] where it begins in text */
    uint64_t text_bytes, text_room;
    char *text;      /* keys with their ETags, each of both terminated */
    bool mixed;      /* keys did not always rise: a table finds them */
    uint64_t places; /* a power of two; 0: the table is to be made */
    uint32_t *place; /* [places] number of a key + 1, 0: nobody's */
};

/* How much there was, to go back to. */
typedef struct dlpi_s3_mark {
    uint64_t n, n_keys, text_bytes;
} dlpi_s3_mark;

/* Return the bytes of an entry with this length field; 0: it has none, or they are not known. */
DLPI_COLD
static uint64_t dlpi_s3_bytes(uint64_t length) { return length == DLP_S3_EMPTY ? 0 : length; }

DLPI_COLD
static const char *dlpi_s3_src_key(const dlp_s3_manifest *m, uint64_t i) {
    return m->text + m->key_at[m->key[i]];
}

DLPI_COLD
static uint64_t dlpi_s3_key_hash(const char *key, size_t n) { /* FNV-1a, its bits mixed */
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)key[i]) * UINT64_C(0x100000001b3);
    return (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

DLPI_COLD
static void dlpi_s3_places_free(dlp_s3_manifest *m) {
    free(m->place);
    m->place = NULL;
    m->places = 0;
}

/* Return the ETag that stands behind a key in the manifest's text; it may be "". */
DLPI_COLD
static const char *dlpi_s3_key_etag(const char *key) { return key + strlen(key) + 1; }

DLPI_COLD
static bool dlpi_s3_key_same(const char *known, const char *key, const char *etag) {
    return strcmp(known, key) == 0 && strcmp(dlpi_s3_key_etag(known), etag) == 0;
}

/* Return the place in the table of a key with this ETag. If the table lacks the key, it is the
   empty place that the key would take. n: bytes of the key. */
DLPI_COLD
static uint32_t *dlpi_s3_place_of(const dlp_s3_manifest *m, const char *key, size_t n,
                                  const char *etag) {
    uint64_t mask = m->places - 1;
    for (uint64_t i = dlpi_s3_key_hash(key, n) >> 20;; i++) {
        uint32_t *place = &m->place[i & mask];
        if (*place == 0 || dlpi_s3_key_same(m->text + m->key_at[*place - 1], key, etag))
            return place;
    }
}

/* Make the table so large that one more key leaves half of it empty. False: there is no memory. */
DLPI_COLD
static bool dlpi_s3_places_ready(dlp_s3_manifest *m) {
    uint64_t places = m->places ? m->places : 64;
    if (m->places > 0 && (m->n_keys + 1) * 2 <= m->places) return true;
    while ((m->n_keys + 1) * 2 > places) places *= 2;
    dlpi_s3_places_free(m);
    m->place = calloc(places, sizeof *m->place);
    if (m->place == NULL) return false;
    m->places = places;
    for (uint64_t k = 0; k < m->n_keys; k++) {
        const char *key = m->text + m->key_at[k];
        *dlpi_s3_place_of(m, key, strlen(key), dlpi_s3_key_etag(key)) = (uint32_t)k + 1;
    }
    return true;
}

/* Change the length of an array to n elements. Returns the array, or NULL if there is no memory:
   the old array is then untouched. */
DLPI_COLD
static void *dlpi_s3_longer(void *old, uint64_t n, size_t each) {
    return n > SIZE_MAX / each ? NULL : realloc(old, n > 0 ? (size_t)n * each : 1);
}

/* Change the room for entries. Returns false if there is no memory; m->room is then as it was. */
DLPI_COLD
static bool dlpi_s3_entries_room(dlp_s3_manifest *m, uint64_t room) {
    void *offset = dlpi_s3_longer(m->offset, room, sizeof *m->offset), *length, *key, *items;
    if (offset) m->offset = offset;
    length = dlpi_s3_longer(m->length, room, sizeof *m->length);
    if (length) m->length = length;
    key = dlpi_s3_longer(m->key, room, sizeof *m->key);
    if (key) m->key = key;
    items = m->items ? dlpi_s3_longer(m->items, room, sizeof *m->items) : NULL;
    if (items) m->items = items;
    if (!offset || !length || !key || (m->items && !items)) return false;
    m->room = room;
    return true;
}

/* Make room for `keys` keys and `bytes` bytes of their text. Returns false if there is no memory;
   the keys stay valid then. */
DLPI_COLD
static bool dlpi_s3_keys_room(dlp_s3_manifest *m, uint64_t keys, uint64_t bytes) {
    void *at = dlpi_s3_longer(m->key_at, keys, sizeof *m->key_at), *text;
    if (at) m->key_at = at;
    text = dlpi_s3_longer(m->text, bytes, 1);
    if (text) m->text = text;
    if (!at || !text) return false;
    m->key_room = keys;
    m->text_room = bytes;
    return true;
}

DLPI_COLD
static uint64_t dlpi_s3_src_more(uint64_t room, uint64_t want) { /* grown by half at least */
    uint64_t more = room + room / 2;
    return more > want ? more : want + 64;
}

/* Find a key with this ETag, or add it. Returns its number, DLP_ERR_MEMORY or DLP_ERR_LIMIT. As
   long as keys rise, as they do in a list, a key that is not the last one is new. */
DLPI_COLD
static int64_t dlpi_s3_key_number(dlp_s3_manifest *m, const char *key, const char *etag) {
    size_t n = strlen(key), bytes = n + 1 + strlen(etag);
    uint32_t *place = NULL;
    const char *last = m->n_keys ? m->text + m->key_at[m->n_keys - 1] : NULL;
    if (last && dlpi_s3_key_same(last, key, etag)) return (int64_t)m->n_keys - 1;
    m->mixed = m->mixed || (last && strcmp(key, last) <= 0);
    if (m->mixed) {
        if (m->n > 0 && dlpi_s3_key_same(dlpi_s3_src_key(m, m->n - 1), key, etag))
            return m->key[m->n - 1];
        if (!dlpi_s3_places_ready(m)) return DLP_ERR_MEMORY;
        place = dlpi_s3_place_of(m, key, n, etag);
        if (*place != 0) return *place - 1;
    }
    if (m->n_keys == DLPI_S3_KEYS_MOST) return DLP_ERR_LIMIT;
    if (m->n_keys == m->key_room &&
        !dlpi_s3_keys_room(m, dlpi_s3_src_more(m->key_room, m->n_keys + 1), m->text_room))
        return DLP_ERR_MEMORY;
    if (m->text_room - m->text_bytes <= bytes &&
        !dlpi_s3_keys_room(m, m->key_room,
                           dlpi_s3_src_more(m->text_room, m->text_bytes + bytes + 1)))
        return DLP_ERR_MEMORY;
    m->key_at[m->n_keys] = m->text_bytes;
    memcpy(m->text + m->text_bytes, key, n + 1);
    memcpy(m->text + m->text_bytes + n + 1, etag, bytes - n);
    m->text_bytes += bytes + 1;
    if (place) *place = (uint32_t)m->n_keys + 1;
    return (int64_t)m->n_keys++;
}

DLPI_COLD
static bool dlpi_s3_items_ready(dlp_s3_manifest *m) {
    if (m->items == NULL) m->items = calloc((size_t)m->room, sizeof *m->items);
    return m->items != NULL;
}

DLPI_COLD
static dlpi_s3_mark dlpi_s3_mark_of(const dlp_s3_manifest *m) {
    return (dlpi_s3_mark){m->n, m->n_keys, m->text_bytes};
}

/* End the adding of many entries: free the table of keys and the unused room. back: where the
   manifest returns to, so that later entries are undone; NULL: all entries stay. */
DLPI_COLD
static void dlpi_s3_manifest_settle(dlp_s3_manifest *m, const dlpi_s3_mark *back) {
    if (back) {
        m->n = back->n;
        m->n_keys = back->n_keys;
        m->text_bytes = back->text_bytes;
    }
    dlpi_s3_places_free(m);
    if (m->n > 0) { /* shorter: cannot fail in a way that matters */
        (void)dlpi_s3_entries_room(m, m->n);
        (void)dlpi_s3_keys_room(m, m->n_keys, m->text_bytes);
    }
}

/* True if an ETag may be sent in If-Match: it is strong, and of characters that a head may have. */
DLPI_COLD
static bool dlpi_s3_etag_good(const char *etag) {
    size_t n = strnlen(etag, sizeof((dlp_s3_object *)NULL)->etag);
    return n >= 2 && n < sizeof((dlp_s3_object *)NULL)->etag && dlpi_s3_is_graphic(etag) &&
           etag[0] == '"' && strchr(etag + 1, '"') == etag + n - 1;
}

/* Return a text that tells what is wrong with an entry, or NULL if nothing is. */
DLPI_COLD
static const char *dlpi_s3_entry_wrong(const dlp_s3_entry *e) {
    uint64_t offset = e->offset == DLP_S3_WHOLE ? 0 : e->offset;
    size_t n = e->key ? strnlen(e->key, DLPI_S3_KEY_MOST + 1) : 0;
    if (n == 0 || n > DLPI_S3_KEY_MOST) return "a key must have 1 to 1024 bytes";
    if (e->length == DLP_S3_EMPTY && e->offset != DLP_S3_WHOLE)
        return "length DLP_S3_EMPTY needs offset DLP_S3_WHOLE";
    if (offset > INT64_MAX || (e->length != DLP_S3_EMPTY && e->length > INT64_MAX - offset))
        return "offset and length must end below 2^63";
    if (e->etag && e->etag[0] && !dlpi_s3_etag_good(e->etag))
        return "an ETag must be strong, in quotes, of at most 71 bytes";
    return NULL;
}

/* Add an entry in which nothing is wrong. Returns DLP_OK, DLP_ERR_MEMORY or DLP_ERR_LIMIT. */
DLPI_COLD
static int dlpi_s3_manifest_put(dlp_s3_manifest *m, const dlp_s3_entry *e) {
    int64_t key;
    if (m->n == UINT64_C(1) << 40) return DLP_ERR_LIMIT;
    if (m->n == m->room && !dlpi_s3_entries_room(m, dlpi_s3_src_more(m->room, m->n + 1)))
        return DLP_ERR_MEMORY;
    if (e->items > 0 && !dlpi_s3_items_ready(m)) return DLP_ERR_MEMORY;
    key = dlpi_s3_key_number(m, e->key, e->etag ? e->etag : "");
    if (key < 0) return (int)key;
    m->offset[m->n] = e->offset;
    m->length[m->n] = e->length;
    m->key[m->n] = (uint32_t)key;
    if (m->items) m->items[m->n] = e->items;
    m->n++;
    return DLP_OK;
}

DLPI_COLD
static int dlpi_s3_src_put_failed(dlp_s3_error *err, int rc) {
    return dlpi_s3_set_error(err, rc, 0,
                             rc == DLP_ERR_LIMIT
                                 ? "too many entries, or keys; use several manifests"
                                 : "no memory for the manifest");
}

DLPI_COLD
DLPDEF int dlp_s3_manifest_open(dlp_s3_manifest **out, dlp_s3_error *err) {
    dlp_s3_manifest *m;
    if (err) memset(err, 0, sizeof *err);
    if (out == NULL) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "out is NULL");
    m = calloc(1, sizeof *m);
    if (m == NULL) return dlpi_s3_src_put_failed(err, DLP_ERR_MEMORY);
    *out = m;
    return DLP_OK;
}

DLPI_COLD
DLPDEF void dlp_s3_manifest_close(dlp_s3_manifest *m) {
    if (m == NULL) return;
    dlpi_s3_places_free(m);
    free(m->offset);
    free(m->length);
    free(m->key);
    free(m->items);
    free(m->key_at);
    free(m->text);
    free(m);
}

DLPI_COLD
DLPDEF int dlp_s3_manifest_add(dlp_s3_manifest *m, const dlp_s3_entry *entry, dlp_s3_error *err) {
    const char *wrong;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || entry == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", m ? "entry" : "manifest");
    wrong = dlpi_s3_entry_wrong(entry);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "entry: %s", wrong);
    rc = dlpi_s3_manifest_put(m, entry);
    return rc == DLP_OK ? DLP_OK : dlpi_s3_src_put_failed(err, rc);
}

DLPI_COLD
DLPDEF int dlp_s3_manifest_list(dlp_s3_manifest *m, dlp_s3_io *io, const dlp_s3_list_desc *desc,
                                dlp_s3_error *err) {
    dlp_s3_list *list = NULL;
    dlp_s3_object o = {0};
    dlpi_s3_mark mark;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "manifest is NULL");
    mark = dlpi_s3_mark_of(m);
    rc = dlp_s3_list_open(&list, io, desc, err);
    while (rc == DLP_OK && (rc = dlp_s3_list_next(list, &o, err)) == DLP_OK) {
        dlp_s3_entry e = {o.key, DLP_S3_WHOLE, o.bytes ? o.bytes : DLP_S3_EMPTY, 0,
                          dlpi_s3_etag_good(o.etag) ? o.etag : ""};
        if (o.is_prefix || (o.bytes == 0 && o.key_bytes > 0 && o.key[o.key_bytes - 1] == '/'))
            continue;
        if (dlpi_s3_entry_wrong(&e))
            rc = dlpi_s3_set_error(
                err, DLP_ERR_REMOTE, 0,
                "the list has a key that is empty or above 1024 bytes; narrow prefix");
        else if ((rc = dlpi_s3_manifest_put(m, &e)) != DLP_OK)
            dlpi_s3_src_put_failed(err, rc);
    }
    dlp_s3_list_close(list);
    if (rc == DLP_END) rc = DLP_OK;
    dlpi_s3_manifest_settle(m, rc == DLP_OK ? NULL : &mark);
    return rc;
}

/* ---- manifests as files ---- */

enum { DLPI_S3_LINE_MOST = 3 * DLPI_S3_KEY_MOST + 160, DLPI_S3_COLUMNS = 5 };

/* Read a line without its end. Returns the number of its bytes, -1 at the end of the file, or -2 if
   the line is longer than DLPI_S3_LINE_MOST. */
DLPI_COLD
static int dlpi_s3_line(FILE *f, char *line) {
    int n = 0, c;
    while ((c = getc(f)) != EOF && c != '\n') {
        if (n == DLPI_S3_LINE_MOST) return -2;
        line[n++] = (char)c;
    }
    line[n] = 0;
    return c == EOF && n == 0 ? -1 : n;
}

/* Decode the %XX of a key in its place. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_key_decode(char *key) {
    char *to = key;
    for (const char *at = key; *at != 0; at++) {
        int high, low;
        if ((uint8_t)*at <= ' ' || *at == 0x7f)
            return "a blank or control character in a key; write it as %XX";
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        high = dlpi_s3_hex_digit(at[1]);
        low = high < 0 ? -1 : dlpi_s3_hex_digit(at[2]);
        if (low < 0) return "'%' without two hexadecimal digits; write '%' as %25";
        if (high + low == 0) return "%00 in a key, which cannot have it";
        *to++ = (char)(high << 4 | low);
        at += 2;
    }
    *to = 0;
    return NULL;
}

/* Parse a line of n bytes into an entry; its texts stay there. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_line_parse(char *line, int n, dlp_s3_entry *e) {
    char *column[DLPI_S3_COLUMNS + 1] = {line};
    int columns = 1;
    const char *wrong;
    memset(e, 0, sizeof *e);
    e->key = line;
    if (n == 0) return "an empty line; remove it";
    if (strlen(line) != (size_t)n) return "a zero byte; is it a text file?";
    for (char *tab = strchr(line, '\t'); tab != NULL && columns <= DLPI_S3_COLUMNS;
         tab = strchr(tab, '\t')) {
        *tab++ = 0;
        column[columns++] = tab;
    }
    if (columns == 2 || columns > DLPI_S3_COLUMNS)
        return "a line must have 1, 3, 4 or 5 columns, with tabs between";
    e->etag = columns > 4 ? column[4] : NULL;
    wrong = dlpi_s3_key_decode(line);
    if (wrong) return wrong;
    if (columns > 1 && strcmp(column[1], "*") == 0)
        e->offset = DLP_S3_WHOLE;
    else if (columns > 1 && !dlpi_s3_decimal(column[1], strlen(column[1]), &e->offset))
        return "the offset (column 2) must be a number, or '*'";
    if (columns > 1 && strcmp(column[2], "-") == 0)
        e->length = DLP_S3_EMPTY;
    else if (columns > 1 && !dlpi_s3_decimal(column[2], strlen(column[2]), &e->length))
        return "the length (column 3) must be a number, or '-'";
    if (columns > 3 && !dlpi_s3_decimal(column[3], strlen(column[3]), &e->items))
        return "the items (column 4) must be a number";
    return dlpi_s3_entry_wrong(e);
}

/* Add an entry for each line of a file that is no comment. Returns DLP_OK or an error code. */
DLPI_COLD
static int dlpi_s3_manifest_lines(dlp_s3_manifest *m, FILE *f, const char *path,
                                  dlp_s3_error *err) {
    char line[DLPI_S3_LINE_MOST + 1];
    const char *wrong;
    dlp_s3_entry e;
    int n, rc;
    for (uint64_t number = 1; (n = dlpi_s3_line(f, line)) != -1; number++) {
        if (line[0] == '#' && n > 0) continue;
        wrong = n == -2 ? "a line of more than 3232 bytes" : dlpi_s3_line_parse(line, n, &e);
        if (wrong)
            return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%.90s:%llu: %s", path,
                                     (unsigned long long)number, wrong);
        if ((rc = dlpi_s3_manifest_put(m, &e)) != DLP_OK) return dlpi_s3_src_put_failed(err, rc);
    }
    if (ferror(f))
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    return DLP_OK;
}

DLPI_COLD
DLPDEF int dlp_s3_manifest_read(dlp_s3_manifest *m, const char *path, dlp_s3_error *err) {
    dlpi_s3_mark mark;
    FILE *f;
    int rc;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || path == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", m ? "path" : "manifest");
    mark = dlpi_s3_mark_of(m);
    f = dlpi_stream_open(path, O_RDONLY, "rb");
    if (f == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    rc = dlpi_s3_manifest_lines(m, f, path, err);
    fclose(f);
    dlpi_s3_manifest_settle(m, rc == DLP_OK ? NULL : &mark);
    return rc;
}

/* Write an entry as a line: its key escaped, without the columns that say nothing. */
DLPI_COLD
static void dlpi_s3_entry_write(const dlp_s3_entry *e, FILE *f) {
    char key[3 * DLPI_S3_KEY_MOST + 1];
    dlpi_s3_uri_encode(key, sizeof key, e->key, strlen(e->key), true);
    fputs(key, f);
    if (e->length == DLP_S3_EMPTY)
        fputs("\t*\t-", f);
    else if (e->offset == DLP_S3_WHOLE)
        fprintf(f, "\t*\t%llu", (unsigned long long)e->length);
    else if (e->offset > 0 || e->length > 0 || e->items > 0 || e->etag[0])
        fprintf(f, "\t%llu\t%llu", (unsigned long long)e->offset, (unsigned long long)e->length);
    if (e->items > 0 || e->etag[0]) fprintf(f, "\t%llu", (unsigned long long)e->items);
    if (e->etag[0]) fprintf(f, "\t%s", e->etag);
    putc('\n', f);
}

DLPI_COLD
DLPDEF int dlp_s3_manifest_write(const dlp_s3_manifest *m, const char *path, dlp_s3_error *err) {
    char tmp[4096];
    dlp_s3_entry e;
    FILE *f;
    bool good = true;
    int fd, errnum = 0;
    if (err) memset(err, 0, sizeof *err);
    if (m == NULL || path == NULL || strlen(path) > sizeof tmp - 5)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s",
                                 m ? "path: must have 1 to 4091 bytes" : "manifest is NULL");
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    errno = dlpi_file_afresh(&fd, tmp);
    f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f == NULL) {
        dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errno, "%s: %s", tmp, strerror(errno));
        if (fd >= 0) close(fd);
        return DLP_ERR_SYSTEM;
    }
    fputs("# key, offset, length, items, etag\n", f);
    for (uint64_t i = 0; good && i < m->n && dlp_s3_manifest_get(m, i, &e) == DLP_OK; i++) {
        good = dlpi_file_may_be((uint64_t)ftello(f) + DLPI_S3_LINE_MOST);
        if (good)
            dlpi_s3_entry_write(&e, f);
        else
            errnum = errno;
    }
    good = good && !ferror(f) && fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (!good && errnum == 0) errnum = errno ? errno : EIO;
    if ((fclose(f) != 0 || (good && rename(tmp, path) != 0)) && errnum == 0) errnum = errno;
    if (errnum == 0) return DLP_OK;
    dlpi_s3_set_error(err, DLP_ERR_SYSTEM, errnum, "%s: %s", path, strerror(errnum));
    unlink(tmp);
    return DLP_ERR_SYSTEM;
}

DLPI_COLD
DLPDEF int dlp_s3_manifest_get(const dlp_s3_manifest *m, uint64_t i, dlp_s3_entry *out) {
    if (m == NULL || i >= m->n || out == NULL) return DLP_ERR_ARG;
    out->key = dlpi_s3_src_key(m, i);
    out->offset = m->offset[i];
    out->length = m->length[i];
    out->items = m->items ? m->items[i] : 0;
    out->etag = dlpi_s3_key_etag(out->key);
    return DLP_OK;
}

DLPI_COLD
DLPDEF uint64_t dlp_s3_manifest_count(const dlp_s3_manifest *m) { return m ? m->n : 0; }

DLPI_COLD
DLPDEF uint64_t dlp_s3_manifest_id(const dlp_s3_manifest *m) {
    uint64_t h = 0;
    for (uint64_t i = 0; m && i < m->n; i++) {
        const char *key = dlpi_s3_src_key(m, i);
        h = dlp_hash(h, m->offset[i], dlpi_s3_bytes(m->length[i]), m->items ? m->items[i] : 0);
        h ^= dlpi_s3_key_hash(key, strlen(key));
    }
    return h;
}

DLPI_COLD
DLPDEF uint64_t dlp_s3_manifest_bytes(const dlp_s3_manifest *m) {
    if (m == NULL) return 0;
    return sizeof *m + m->room * (2 * sizeof *m->offset + sizeof *m->key) +
           (m->items ? m->room * sizeof *m->items : 0) + m->key_room * sizeof *m->key_at +
           m->text_room + m->places * sizeof *m->place;
}

/* ---- the source ---- */

enum {
    DLPI_S3_HAND_MOST = 1024, /* records of a worker */
    DLPI_S3_MATES_MOST = 64,  /* items in a joint request */
    DLPI_S3_LOOK_MS = 50,     /* a waiting thread looks this often whether the pipe was stopped */
    DLPI_S3_STOP_LOOKS = 4    /* and waits on for this many looks: most requests are over by then */
};

enum { DLPI_S3_SRC_FREE, DLPI_S3_SRC_HELD, DLPI_S3_SRC_OUT, DLPI_S3_SRC_OVER };

enum { /* what became of an item */
       DLPI_S3_SRC_FINE,
       DLPI_S3_SRC_FAILED,  /* its request failed */
       DLPI_S3_SRC_CHANGED, /* the object has another size than the manifest says */
       DLPI_S3_SRC_SIZE,    /* more bytes than its room, or fewer than its field takes */
       DLPI_S3_SRC_RAGGED,  /* not a whole number of rows */
       DLPI_S3_SRC_STOPPED
};

typedef struct dlpi_s3_get {
    dlp_s3_request request;
    struct dlpi_s3_get *next; /* the next record of the list that it is in */
    struct dlpi_s3_get *mate; /* the next record of a joint request; NULL: the last */
    dlp_item *item;
    dlp_s3_entry at;
    dlp_s3_piece *piece; /* [2 * most mates] pieces of a joint request; NULL: not asynchronous */
    dlp_s3_io *io;       /* the I/O of a fetch that waits; NULL: none is open yet */
    uint8_t *buffer;     /* memory for bytes that decode gets; NULL: bytes go into the row */
    uint8_t *to;         /* where the bytes go: into the buffer or the row */
    uint64_t got;        /* bytes that came */
    int32_t where, what; /* DLPI_S3_SRC_FREE .. _OVER; DLPI_S3_SRC_FINE .. _STOPPED */
    bool alone;          /* it is asked for by itself, because a joint request failed */
} dlpi_s3_get;

typedef struct dlpi_s3_src_list {
    dlpi_s3_get *first, *last;
} dlpi_s3_src_list;

typedef struct dlpi_s3_source {
    dlp_source source; /* first */
    dlp_s3_source_desc d;
    char bucket[256];
    dlp_dataset dataset;
    dlp_identity identity;
    uint32_t users;      /* SU1: workers of this process that use the source */
    uint64_t capacity;   /* bytes of an item, at most; 0: the source gives no items */
    uint64_t unit;       /* bytes of one row of field 0; if it is not ragged, of the whole field */
    bool ragged;         /* field 0 is ragged */
    uint64_t longest;    /* bytes of the longest entry whose length is known */
    bool known;          /* the lengths of all entries are known */
    uint64_t *first_row; /* [entries + 1] for chunks: rows of all entries before each; else NULL */
} dlpi_s3_source;

typedef struct dlpi_s3_worker {
    dlpi_s3_source *source;
    void *state;          /* the state that the user's worker_init made */
    const dlp_pipe *pipe; /* pipe of the last item, to see that it was stopped */
    dlp_s3_io *io;    /* I/O of asynchronous fetches; NULL: not asynchronous, or it has failed */
    dlpi_s3_get *get; /* [in_flight] */
    void *memory;     /* memory of all buffers */
    dlp_s3_piece *pieces; /* memory of all pieces */
    pthread_mutex_t lock; /* guards `free`, which threads of the worker share */
    pthread_cond_t room;  /* signalled if a record became free */
    dlpi_s3_get *free;    /* list of free records, the one used last first */
    dlpi_s3_src_list held, over;
    int out;        /* requests that io has */
    int mates_most; /* items of a joint request, at most */
    int stop_looks; /* looks since the pipe was stopped */
} dlpi_s3_worker;

/* Append q to a list. where: the list's DLPI_S3_SRC_* number. q must be in no list. */
DLPI_COLD
static void dlpi_s3_src_put(dlpi_s3_src_list *l, dlpi_s3_get *q, int where) {
    q->where = where;
    q->next = NULL;
    if (l->first == NULL)
        l->first = q;
    else
        l->last->next = q;
    l->last = q;
}

DLPI_COLD
static dlpi_s3_get *dlpi_s3_src_take(dlpi_s3_src_list *l) {
    dlpi_s3_get *q = l->first;
    if (q) l->first = q->next;
    return q;
}

/* Take q out of its list. before: the record in front of q, or NULL if q is the first. */
DLPI_COLD
static void dlpi_s3_unlink(dlpi_s3_src_list *l, dlpi_s3_get *before, dlpi_s3_get *q) {
    if (before)
        before->next = q->next;
    else
        l->first = q->next;
    if (l->last == q) l->last = before;
}

/* Take a free record. If none is free, wait for one (waits), or return NULL. */
DLPI_COLD
static dlpi_s3_get *dlpi_s3_lend(dlpi_s3_worker *w, bool waits) {
    dlpi_s3_get *q;
    pthread_mutex_lock(&w->lock);
    while (waits && w->free == NULL) pthread_cond_wait(&w->room, &w->lock);
    q = w->free;
    if (q) w->free = q->next;
    pthread_mutex_unlock(&w->lock);
    return q;
}

/* Give q back to the worker's free requests, and wake a thread that waits for one. */
DLPI_COLD
static void dlpi_s3_src_give(dlpi_s3_worker *w, dlpi_s3_get *q) {
    pthread_mutex_lock(&w->lock);
    q->where = DLPI_S3_SRC_FREE;
    q->next = w->free;
    w->free = q;
    pthread_cond_signal(&w->room);
    pthread_mutex_unlock(&w->lock);
}

/* Return the pipe that makes a call, or NULL if no pipe does. call may be NULL. */
DLPI_COLD
static const dlp_pipe *dlpi_s3_pipe_of(const dlp_call *call) {
    return call != NULL && call->w != NULL ? call->w->p : NULL;
}

DLPI_COLD
static bool dlpi_s3_stopped(const dlp_pipe *p) { return p != NULL && dlpi_stopped(p); }

/* ---- one item, step by step ---- */

/* Note in the record why its item failed (DLPI_S3_SRC_*). Returns false. */
DLPI_COLD
static bool dlpi_s3_fails(dlpi_s3_get *q, int what) {
    q->what = what;
    return false;
}

/* True if an item of so many bytes fits into the room for items; if not, q->what tells why. The
   bytes have come, or the manifest tells their number. */
DLPI_COLD
static bool dlpi_s3_src_fits(const dlpi_s3_source *s, dlpi_s3_get *q, uint64_t bytes) {
    q->got = bytes;
    if (bytes > s->capacity) return dlpi_s3_fails(q, DLPI_S3_SRC_SIZE);
    if (!s->d.direct) return true;
    if (!s->ragged && bytes < s->capacity) return dlpi_s3_fails(q, DLPI_S3_SRC_SIZE);
    return bytes % s->unit == 0 || dlpi_s3_fails(q, DLPI_S3_SRC_RAGGED);
}

/* Have a request held to an ETag, which comes from by, DLPI_S3_BY_*. */
DLPI_COLD
static void dlpi_s3_held_to(dlp_s3_request *r, const char *etag, int by) {
    r->if_match = etag;
    r->internal = (void *)(uintptr_t)&dlpi_s3_etags_of[by];
}

/* Fill in a GET of a manifest's entry. For a whole object of known size, lower the capacity to
   that: one that is not larger than a part then needs no range, which some servers refuse. */
DLPI_COLD
static void dlpi_s3_src_ask(const dlpi_s3_source *s, dlp_s3_request *r, const dlp_s3_entry *at,
                            void *to, uint64_t capacity) {
    memset(r, 0, sizeof *r);
    r->bucket = s->bucket;
    r->key = at->key;
    if (at->offset != DLP_S3_WHOLE) {
        r->offset = at->offset;
        r->length = at->length;
    } else if (at->length > 0 && dlpi_s3_bytes(at->length) < capacity) {
        capacity = dlpi_s3_bytes(at->length);
    }
    r->body = to;
    r->capacity = capacity;
    if (at->etag && at->etag[0] && !s->d.any_version)
        dlpi_s3_held_to(r, at->etag, DLPI_S3_BY_MANIFEST);
}

/* True if the answer to a request for a whole object shows another size than the manifest tells.
   *is gets the size in the answer, in any case. */
DLPI_COLD
static bool dlpi_s3_other_size(const dlp_s3_request *r, const dlp_s3_entry *at, uint64_t *is) {
    *is = r->code == DLP_OK ? r->received : r->object_bytes;
    return at->offset == DLP_S3_WHOLE && at->length > 0 && *is != dlpi_s3_bytes(at->length) &&
           (r->code == DLP_OK || (r->code == DLP_ERR_LENGTH && *is > 0));
}

/* Set up a record for an item, and fill in its request. True if the request can be sent; false if
   the item has failed already, and q->what tells why. */
DLPI_COLD
static bool dlpi_s3_src_begin(const dlpi_s3_source *s, dlpi_s3_get *q, dlp_item *item) {
    q->item = item;
    q->mate = NULL;
    q->alone = false;
    q->what = DLPI_S3_SRC_FINE;
    q->to = q->buffer ? q->buffer : item->data[0];
    if (dlp_s3_manifest_get(s->d.manifest, item->index, &q->at) != DLP_OK) {
        q->at = (dlp_s3_entry){"", 0, 0, 0, ""};
        return dlpi_s3_fails(q, DLPI_S3_SRC_FAILED);
    }
    if (q->at.length > 0 && !dlpi_s3_src_fits(s, q, dlpi_s3_bytes(q->at.length))) return false;
    q->got = 0;
    dlpi_s3_src_ask(s, &q->request, &q->at, q->to, s->capacity);
    return true;
}

/* Judge the ended request of a single item: set q->got, and q->what if the item failed. */
DLPI_COLD
static void dlpi_s3_src_look(const dlpi_s3_source *s, dlpi_s3_get *q) {
    const dlp_s3_request *r = &q->request;
    if (dlpi_s3_other_size(r, &q->at, &q->got))
        dlpi_s3_fails(q, DLPI_S3_SRC_CHANGED);
    else if (r->code != DLP_OK)
        dlpi_s3_fails(q, DLPI_S3_SRC_FAILED);
    else if (q->at.length == 0)
        dlpi_s3_src_fits(s, q, r->received);
}

/* Write "s3://bucket/key" for a message; of a long key its end, which says more than the rest. */
DLPI_COLD
static void dlpi_s3_src_place(const char *bucket, const char *key, char *text, size_t size) {
    size_t n = strlen(key), most = 90;
    snprintf(text, size, "s3://%.63s/%s%s", bucket, n > most ? "..." : "",
             n > most ? key + n - most : key);
    dlpi_s3_one_line(text);
}

/* Append formatted text at text + at. Returns the new length; size or more: it was cut. */
DLPI_COLD
static size_t dlpi_s3_add_text(char *text, size_t size, size_t at, const char *format, ...)
    DLPI_PRINTF(4, 5);
DLPI_COLD
static size_t dlpi_s3_add_text(char *text, size_t size, size_t at, const char *format, ...) {
    va_list args;
    int n;
    if (at >= size) return at;
    va_start(args, format);
    n = vsnprintf(text + at, size - at, format, args);
    va_end(args);
    return n > 0 ? at + (size_t)n : at;
}

/* Write in 255 bytes why a request failed: first the object's name, last what may be cut. */
DLPI_COLD
static void dlpi_s3_words(const dlp_s3_request *r, char *text, size_t size) {
    const dlp_s3_error *e = &r->error;
    size_t n;
    dlpi_s3_src_place(r->bucket, r->key, text, size);
    n = strlen(text);
    if (r->length > 0)
        n = dlpi_s3_add_text(text, size, n, " bytes %llu-%llu", (unsigned long long)r->offset,
                             (unsigned long long)(r->offset + r->length - 1));
    else if (r->offset > 0)
        n = dlpi_s3_add_text(text, size, n, " bytes %llu-", (unsigned long long)r->offset);
    n = dlpi_s3_add_text(text, size, n, ":");
    if (e->http_status) n = dlpi_s3_add_text(text, size, n, " HTTP %d", e->http_status);
    if (e->s3_code[0]) n = dlpi_s3_add_text(text, size, n, " %s", e->s3_code);
    if (e->request_id[0]) n = dlpi_s3_add_text(text, size, n, " (request %s)", e->request_id);
    if (e->message[0])
        dlpi_s3_add_text(text, size, n, " %s", e->message);
    else if (e->errnum)
        dlpi_s3_add_text(text, size, n, " %s", strerror(e->errnum));
    else if (e->http_status == 0)
        dlpi_s3_add_text(text, size, n, " code %d", r->code);
}

/* Report by dlp_fail why an item failed. Returns DLP_ERR_LENGTH or DLP_ERR_CALLBACK, for fetch. */
DLPI_COLD
static int dlpi_s3_complain(const dlpi_s3_source *s, const dlpi_s3_get *q) {
    const bool fixed = s->d.direct && !s->ragged;
    char text[256];
    if (q->at.key[0] == 0)
        return dlp_fail(q->item->call, 0, "the manifest has only %llu entries; lower n_items",
                        (unsigned long long)dlp_s3_manifest_count(s->d.manifest));
    if (q->what == DLPI_S3_SRC_FAILED) {
        dlpi_s3_words(&q->request, text, sizeof text);
        dlp_fail(q->item->call, q->request.error.errnum, "%s", text);
        return q->request.code == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK;
    }
    dlpi_s3_src_place(s->bucket, q->at.key, text, sizeof text);
    switch (q->what) {
    case DLPI_S3_SRC_CHANGED:
        return dlp_fail(
            q->item->call, 0, "%s: has %llu bytes, the manifest says %llu; list it again", text,
            (unsigned long long)q->got, (unsigned long long)dlpi_s3_bytes(q->at.length));
    case DLPI_S3_SRC_SIZE:
        dlp_fail(q->item->call, 0, "%s: has %llu bytes, %s %llu; %s", text,
                 (unsigned long long)q->got, fixed ? "the field takes" : "the most are",
                 (unsigned long long)s->capacity,
                 s->d.direct ? "change its shape" : "raise max_bytes");
        return DLP_ERR_LENGTH;
    case DLPI_S3_SRC_RAGGED:
        dlp_fail(q->item->call, 0, "%s: %llu bytes are not whole rows of %llu", text,
                 (unsigned long long)q->got, (unsigned long long)s->unit);
        return DLP_ERR_LENGTH;
    default: return dlp_fail(q->item->call, 0, "%s: given up, the pipe was stopped", text);
    }
}

/* Make an item of the bytes that came, by decode if there is one. Returns the code for fetch: 0,
   the one that decode returned, or an error code if the item failed. */
DLPI_COLD
static int dlpi_s3_src_settle(const dlpi_s3_worker *w, const dlpi_s3_get *q) {
    const dlpi_s3_source *s = w->source;
    if (q->what != DLPI_S3_SRC_FINE) return dlpi_s3_complain(s, q);
    if (s->d.direct && s->ragged) q->item->length[0] = q->got / s->unit;
    if (s->d.decode == NULL) return 0;
    return s->d.decode(s->d.user, w->state, q->item, q->to, q->got);
}

/* ---- fetches that wait ---- */

/* Close the I/O and set *io to NULL. Its requests are dropped. */
DLPI_COLD
static void dlpi_s3_src_drop(dlp_s3_io **io) {
    dlp_s3_io_close(*io);
    *io = NULL;
}

/* True if a pipe was found stopped in DLPI_S3_STOP_LOOKS calls, which *looks counts. Called every
   DLPI_S3_LOOK_MS, so most requests have ended by then. p may be NULL. */
DLPI_COLD
static bool dlpi_s3_given_up(const dlp_pipe *p, int *looks) {
    return dlpi_s3_stopped(p) && ++*looks >= DLPI_S3_STOP_LOOKS;
}

DLPI_COLD
static int dlpi_s3_io_ready(dlp_s3_io **io, const dlpi_s3_source *s, dlp_s3_error *err) {
    return *io ? DLP_OK : dlp_s3_io_open(io, s->d.s3, err);
}

/* Note in a request that it could not be sent or was given up. Returns rc, the code of that. */
DLPI_COLD
static int dlpi_s3_broken(dlp_s3_request *r, int rc) {
    if (r->error.code == 0)
        dlpi_s3_set_error(&r->error, rc, 0,
                          rc == DLP_STOPPED ? "given up, the pipe was stopped"
                                            : "the client's I/O is broken");
    r->code = rc;
    return rc;
}

/* Send one request and wait for its end. *io has no other request; if it is NULL, it is opened. p:
   the pipe whose stop ends the wait, or NULL. Returns r->code, DLP_STOPPED if it was given up. */
DLPI_COLD
static int dlpi_s3_src_wait(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_pipe *p,
                            dlp_s3_request *r) {
    dlp_s3_request *done;
    int n, rc = dlpi_s3_io_ready(io, s, &r->error), looks = 0;
    if (rc == DLP_OK) rc = dlp_s3_submit(*io, r);
    if (rc != DLP_OK) return dlpi_s3_broken(r, rc);
    do n = dlp_s3_reap(*io, &done, 1, DLPI_S3_LOOK_MS);
    while (n == 0 && !dlpi_s3_given_up(p, &looks));
    if (n == 1) return r->code;
    dlpi_s3_src_drop(io);
    return dlpi_s3_broken(r, n == 0 ? DLP_STOPPED : n);
}

/* ---- workers ---- */

/* Return the bytes of a record's decode buffer, a multiple of 64; 0 if it has none. */
DLPI_COLD
static uint64_t dlpi_s3_stride(const dlpi_s3_source *s) {
    return s->capacity == 0 || s->d.direct ? 0 : dlpi_round_up(s->capacity, 64);
}

/* Return how many items a joint request may have; 1 if requests are not joined. */
DLPI_COLD
static int dlpi_s3_mates(const dlpi_s3_source *s) {
    int most = s->d.in_flight / 2 < DLPI_S3_MATES_MOST ? s->d.in_flight / 2 : DLPI_S3_MATES_MOST;
    return s->d.gap_bytes < 0 || most < 1 ? 1 : most;
}

/* Return how many pieces all records of a worker need. */
DLPI_COLD
static uint64_t dlpi_s3_pieces(const dlpi_s3_source *s) {
    return s->d.fields != NULL ? 2u * (uint64_t)dlpi_s3_mates(s) * (uint64_t)s->d.in_flight : 0;
}

/* Free a worker, which may be NULL or only partly made, and close its I/Os. */
DLPI_COLD
static void dlpi_s3_worker_free(dlpi_s3_worker *w) {
    if (w == NULL) return;
    for (int i = 0; w->get && i < w->source->d.in_flight; i++) dlp_s3_io_close(w->get[i].io);
    dlp_s3_io_close(w->io);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->room);
    DLPI_ADD_SEQ(&w->source->users, UINT32_MAX); /* SU1 -> SU1 */
    free(w->memory);
    free(w->pieces);
    free(w->get);
    free(w);
}

/* Make a worker, whose records are all free. Returns NULL if there is no memory. */
DLPI_COLD
static dlpi_s3_worker *dlpi_s3_worker_new(dlpi_s3_source *s) {
    size_t n = (size_t)s->d.in_flight, stride = (size_t)dlpi_s3_stride(s);
    size_t buffers = (size_t)dlpi_times(n, stride); /* a manifest may say any length */
    size_t pieces = (size_t)dlpi_s3_pieces(s);
    dlpi_s3_worker *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->source = s;
    w->mates_most = dlpi_s3_mates(s);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room, NULL);
    DLPI_ADD_SEQ(&s->users, 1u); /* SU1 -> SU1 */
    w->get = calloc(n, sizeof *w->get);
    if (pieces) w->pieces = calloc(pieces, sizeof *w->pieces);
    if (w->get == NULL || (pieces && w->pieces == NULL) ||
        (stride && posix_memalign(&w->memory, 64, buffers) != 0)) {
        dlpi_s3_worker_free(w);
        return NULL;
    }
    for (size_t i = n; i-- > 0;) {
        dlpi_s3_get *q = &w->get[i];
        if (stride) q->buffer = (uint8_t *)w->memory + i * stride;
        if (pieces) q->piece = w->pieces + i * (pieces / n);
        dlpi_s3_src_give(w, q);
    }
    return w;
}

/* Begin a worker: dlp_workers_desc.worker_init. Returns 0 or an error code, *state untouched. */
DLPI_COLD
static int dlpi_s3_worker_init(void *user, int worker, void **state) {
    dlpi_s3_source *s = user;
    dlpi_s3_worker *w = dlpi_s3_worker_new(s);
    int rc = w ? 0 : ENOMEM;
    if (rc == 0 && s->d.fields != NULL) rc = dlp_s3_io_open(&w->io, s->d.s3, NULL);
    if (rc == 0 && s->d.worker_init) rc = s->d.worker_init(s->d.user, worker, &w->state);
    if (rc == 0)
        *state = w;
    else
        dlpi_s3_worker_free(w);
    return rc;
}

DLPI_COLD
static void dlpi_s3_worker_exit(void *user, int worker, void *state) {
    dlpi_s3_source *s = user;
    dlpi_s3_worker *w = state;
    if (s->d.worker_exit) s->d.worker_exit(s->d.user, worker, w->state);
    dlpi_s3_worker_free(w);
}

/* True if state was made by dlpi_s3_worker_init, as one of the worker's seats or its stage tells.
   If no pipe calls, any state but NULL is believed. */
DLPI_COLD
static bool dlpi_s3_is_worker(const dlp_call *call, const void *state) {
    const dlpi_worker *dw = call != NULL ? call->w : NULL; /* NULL: no pipe calls */
    if (state == NULL || dw == NULL || dw->seat == NULL)
        return state != NULL && (dw == NULL || dw->st->w.worker_init == dlpi_s3_worker_init);
    for (uint32_t k = 0; k < dlpi_n_seats(dw); k++) {
        const dlpi_seat *seat = dlpi_seats(dw) + k;
        if (seat->state == state && seat->calls != NULL)
            return seat->calls->worker_init == dlpi_s3_worker_init;
    }
    return false;
}

/* Return the worker state of an item, or NULL if it is none of this source. */
DLPI_COLD
static dlpi_s3_worker *dlpi_s3_worker_of(const dlpi_s3_source *s, const dlp_item *item) {
    dlpi_s3_worker *w = item->worker_state;
    return dlpi_s3_is_worker(item->call, w) && w->source == s ? w : NULL;
}

DLPI_COLD
static int dlpi_s3_no_worker(const dlp_item *item) {
    return dlp_fail(item->call, 0, "leave worker_init and worker_user to the source of objects");
}

/* Fetch one item and wait for it: dlp_dataset.fetch. Returns 0 or an error code. */
DLPI_COLD
static int dlpi_s3_src_fetch(void *user, dlp_item *item) {
    const dlpi_s3_source *s = user;
    dlpi_s3_worker *w = dlpi_s3_worker_of(s, item);
    dlpi_s3_get *q;
    int rc;
    if (w == NULL) return dlpi_s3_no_worker(item);
    q = dlpi_s3_lend(w, true);
    if (dlpi_s3_src_begin(s, q, item)) {
        rc = dlpi_s3_src_wait(s, &q->io, dlpi_s3_pipe_of(item->call), &q->request);
        dlpi_s3_src_look(s, q);
        if (rc == DLP_STOPPED) q->what = DLPI_S3_SRC_STOPPED;
    }
    rc = dlpi_s3_src_settle(w, q);
    dlpi_s3_src_give(w, q);
    return rc;
}

/* ---- many at once: dlp_async ---- */

/* True if one request may read range a and then b, of the same object: the gap is short enough. */
DLPI_COLD
static bool dlpi_s3_joins(const dlpi_s3_source *s, const dlpi_s3_get *a, const dlpi_s3_get *b) {
    uint64_t end = a->at.offset + a->at.length;
    return a->at.key == b->at.key && b->at.offset >= end &&
           b->at.offset - end <= (uint64_t)s->d.gap_bytes;
}

/* True if an item may share a request: a range of known length, not to be requested by itself. */
DLPI_COLD
static bool dlpi_s3_joinable(const dlpi_s3_source *s, const dlpi_s3_get *q) {
    return !q->alone && q->at.length > 0 && q->at.offset != DLP_S3_WHOLE && s->d.gap_bytes >= 0;
}

DLPI_COLD
static uint64_t dlpi_s3_src_span(const dlpi_s3_get *a, const dlpi_s3_get *b) {
    return b->at.offset + b->at.length - a->at.offset;
}

/* Take the nearest held neighbour of the ranges first to last off its list, if one request can read
   them together. Returns it, or NULL. *is_before is set to true if it lies before first. */
DLPI_COLD
static dlpi_s3_get *dlpi_s3_neighbour(dlpi_s3_worker *w, const dlpi_s3_get *first,
                                      const dlpi_s3_get *last, bool *is_before) {
    const dlpi_s3_source *s = w->source;
    dlpi_s3_get *best = NULL, *best_before = NULL, *before = NULL;
    uint64_t least = UINT64_MAX;
    for (dlpi_s3_get *q = w->held.first; q != NULL; before = q, q = q->next) {
        bool behind = dlpi_s3_joins(s, last, q), front = !behind && dlpi_s3_joins(s, q, first);
        uint64_t span;
        if (!dlpi_s3_joinable(s, q) || (!behind && !front)) continue;
        span = behind ? dlpi_s3_src_span(first, q) : dlpi_s3_src_span(q, last);
        if (span >= least || span > s->d.joint_bytes) continue;
        least = span;
        best = q;
        best_before = before;
        *is_before = front;
    }
    if (best) dlpi_s3_unlink(&w->held, best_before, best);
    return best;
}

/* Take the oldest held item and its neighbours off the list. Returns the record of the lowest
   range, whose mates follow in order, or NULL if nothing is held. */
DLPI_COLD
static dlpi_s3_get *dlpi_s3_src_gather(dlpi_s3_worker *w) {
    dlpi_s3_get *first = dlpi_s3_src_take(&w->held), *last = first, *q;
    bool before = false;
    if (first == NULL || !dlpi_s3_joinable(w->source, first)) return first;
    for (int n = 1; n < w->mates_most; n++) {
        q = dlpi_s3_neighbour(w, first, last, &before);
        if (q == NULL) break;
        if (before) {
            q->mate = first;
            first = q;
        } else {
            last->mate = q;
            last = q;
        }
    }
    return first;
}

/* Fill in the request of first so that it reads the ranges of first and its mates. */
DLPI_COLD
static void dlpi_s3_src_join(const dlpi_s3_source *s, dlpi_s3_get *first) {
    dlp_s3_request *r = &first->request;
    uint64_t at = first->at.offset;
    if (first->mate == NULL) {
        dlpi_s3_src_ask(s, r, &first->at, first->to, s->capacity);
        return;
    }
    dlpi_s3_src_ask(s, r, &first->at, NULL, 0);
    for (const dlpi_s3_get *q = first; q != NULL; q = q->mate) {
        if (q->at.offset > at)
            first->piece[r->n_pieces++] = (dlp_s3_piece){NULL, q->at.offset - at};
        first->piece[r->n_pieces++] = (dlp_s3_piece){q->to, q->at.length};
        at = q->at.offset + q->at.length;
    }
    r->length = at - first->at.offset;
    r->pieces = first->piece;
}

/* Undo a gathering: put first and its mates back at the front of the held list, because they waited
   longest. alone: from now on, each gets a request of its own. */
DLPI_COLD
static void dlpi_s3_part(dlpi_s3_worker *w, dlpi_s3_get *first, bool alone) {
    dlpi_s3_src_list apart = {NULL, NULL};
    for (dlpi_s3_get *q = first, *next; q != NULL; q = next) {
        next = q->mate;
        q->mate = NULL;
        q->alone = q->alone || alone;
        dlpi_s3_src_put(&apart, q, DLPI_S3_SRC_HELD);
    }
    apart.last->next = w->held.first; /* in front: these waited longest */
    if (w->held.first == NULL) w->held.last = apart.last;
    w->held.first = apart.first;
}

/* Take in the end of the request of first and its mates. All go to w->over; but if a joint request
   failed, they are held again, each for a request of its own. */
DLPI_COLD
static void dlpi_s3_src_came(dlpi_s3_worker *w, dlpi_s3_get *first) {
    bool joint = first->mate != NULL;
    if (joint && first->request.code != DLP_OK) {
        dlpi_s3_part(w, first, true);
        return;
    }
    if (!joint) dlpi_s3_src_look(w->source, first);
    for (dlpi_s3_get *q = first, *next; q != NULL; q = next) {
        next = q->mate;
        q->mate = NULL;
        if (joint) q->got = q->at.length;
        dlpi_s3_src_put(&w->over, q, DLPI_S3_SRC_OVER);
    }
}

/* Send requests for held items until the I/O is full. Returns 0, or negative if it is broken. */
DLPI_COLD
static int dlpi_s3_src_flush(dlpi_s3_worker *w) {
    dlpi_s3_get *first;
    int rc;
    while ((first = dlpi_s3_src_gather(w)) != NULL) {
        dlpi_s3_src_join(w->source, first);
        first->request.user = first;
        rc = dlp_s3_submit(w->io, &first->request);
        if (rc == DLP_FULL) {
            dlpi_s3_part(w, first, false);
            return 0;
        }
        if (rc == DLP_ERR_FORKED || rc == DLP_ERR_SYSTEM) return rc;
        if (rc != DLP_OK) {
            dlpi_s3_broken(&first->request, rc);
            dlpi_s3_src_came(w, first);
            continue;
        }
        w->out++;
        for (dlpi_s3_get *q = first; q != NULL; q = q->mate) q->where = DLPI_S3_SRC_OUT;
    }
    return 0;
}

/* Close the I/O of a worker whose pipe was stopped. All of its items fail as stopped. */
DLPI_COLD
static void dlpi_s3_src_give_up(dlpi_s3_worker *w) {
    dlpi_s3_src_drop(&w->io);
    w->out = 0;
    w->held.first = w->over.first = NULL;
    for (int i = 0; i < w->source->d.in_flight; i++) {
        dlpi_s3_get *q = &w->get[i];
        if (q->where == DLPI_S3_SRC_FREE) continue;
        q->mate = NULL;
        q->what = DLPI_S3_SRC_STOPPED;
        dlpi_s3_src_put(&w->over, q, DLPI_S3_SRC_OVER);
    }
}

/* Send held requests, and wait for ended ones, for at most timeout_ms; not at all if some item is
   over. Returns 0, or a negative code if the I/O is broken. */
DLPI_COLD
static int dlpi_s3_src_move(dlpi_s3_worker *w, int timeout_ms) {
    dlp_s3_request *done[64];
    int n, rc = dlpi_s3_src_flush(w);
    if (rc != 0 || w->out == 0) return rc;
    if (w->over.first != NULL) timeout_ms = DLP_NOWAIT;
    n = dlp_s3_reap(w->io, done, 64, timeout_ms);
    if (n < 0) return n;
    for (int i = 0; i < n; i++) {
        w->out--;
        dlpi_s3_src_came(w, done[i]->user);
    }
    return n > 0 ? dlpi_s3_src_flush(w) : 0; /* there is room, and what is asked for again */
}

/* Begin to fetch an item: dlp_async.submit. Returns 0, DLP_FULL, or the code of a failure. */
DLPI_COLD
static int dlpi_s3_submit_item(void *user, void *worker_state DLPI_UNREAD, dlp_item *item) {
    const dlpi_s3_source *s = user;
    dlpi_s3_worker *w = dlpi_s3_worker_of(s, item);
    dlpi_s3_get *q;
    int rc;
    if (w == NULL || w->io == NULL) return dlpi_s3_no_worker(item);
    q = dlpi_s3_lend(w, false);
    if (q == NULL) return DLP_FULL;
    w->pipe = dlpi_s3_pipe_of(item->call);
    if (dlpi_s3_src_begin(s, q, item)) {
        dlpi_s3_src_put(&w->held, q, DLPI_S3_SRC_HELD);
        return 0;
    }
    rc = dlpi_s3_complain(s, q);
    dlpi_s3_src_give(w, q);
    return rc;
}

/* Settle ended items and give them back. Returns how many. With a decode it is one at a time: so
   its record serves the next request, and sockets are looked at, before the next decode. */
DLPI_COLD
static int dlpi_s3_hand_back(dlpi_s3_worker *w, dlp_item **done, int *code, int max) {
    int n = 0, most = w->source->d.decode ? 1 : max;
    dlpi_s3_get *q;
    while (n < most && n < max && (q = dlpi_s3_src_take(&w->over)) != NULL) {
        done[n] = q->item;
        code[n++] = dlpi_s3_src_settle(w, q);
        dlpi_s3_src_give(w, q);
    }
    return n;
}

/* Give back ended items: dlp_async.reap. After a stop, the first call returns 0: its items could
   still be taken for failed ones. Later calls give all requests up: only the records are wanted. */
DLPI_COLD
static int dlpi_s3_reap_items(void *user DLPI_UNREAD, void *worker_state, dlp_item **done,
                              int *code, int max, int timeout_ms) {
    dlpi_s3_worker *w = worker_state;
    bool stopped = dlpi_s3_stopped(w->pipe);
    int rc;
    if (timeout_ms == 0 || timeout_ms > DLPI_S3_LOOK_MS) timeout_ms = DLPI_S3_LOOK_MS;
    if (stopped && w->stop_looks++ == 0) return 0;
    if (stopped && w->io) dlpi_s3_src_give_up(w);
    if (!stopped && (rc = dlpi_s3_src_move(w, timeout_ms)) != 0) {
        dlpi_s3_src_drop(&w->io);
        return rc;
    }
    return dlpi_s3_hand_back(w, done, code, max);
}

#ifndef DLPIPE_NO_PARTS
/* ---- parts ---- */

DLPI_COLD
static int dlpi_s3_part_complain(const dlp_part *part, const dlp_s3_request *r) {
    char text[256];
    dlpi_s3_words(r, text, sizeof text);
    dlp_fail(part->call, r->error.errnum, "%s", text);
    return r->code == DLP_ERR_LENGTH ? DLP_ERR_LENGTH : DLP_ERR_CALLBACK;
}

/* Find the manifest's entry of a part. Returns 0, or DLP_ERR_CALLBACK if there is none. */
DLPI_COLD
static int dlpi_s3_part_entry(const dlpi_s3_source *s, const dlp_part *part, dlp_s3_entry *at) {
    *at = (dlp_s3_entry){"", 0, 0, 0, ""};
    if (dlp_s3_manifest_get(s->d.manifest, part->index, at) == DLP_OK) return 0;
    return dlp_fail(part->call, 0, "the manifest has only %llu entries; lower n_parts",
                    (unsigned long long)dlp_s3_manifest_count(s->d.manifest));
}

/* Compare an object's bytes with the manifest's, if known. Returns 0, or DLP_ERR_CALLBACK. */
DLPI_COLD
static int dlpi_s3_part_size(const dlpi_s3_source *s, const dlp_part *part, const dlp_s3_entry *at,
                             uint64_t bytes) {
    char text[256];
    uint64_t said = dlpi_s3_bytes(at->length);
    if (at->length == 0 || bytes == said) return 0;
    dlpi_s3_src_place(s->bucket, at->key, text, sizeof text);
    return dlp_fail(part->call, 0, "%s: has %llu bytes, the manifest says %llu; list it again",
                    text, (unsigned long long)bytes, (unsigned long long)said);
}

/* Read a part's bytes to the memory at to. etag: NULL, or the ETag that the object must have if it
   is strong and the manifest has none. Returns 0, DLP_ERR_LENGTH or DLP_ERR_CALLBACK. */
DLPI_COLD
static int dlpi_s3_part_get(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                            const dlp_s3_entry *at, void *to, uint64_t capacity, const char *etag,
                            dlp_s3_request *r) {
    uint64_t is;
    dlpi_s3_src_ask(s, r, at, to, capacity);
    if (etag && etag[0] == '"' && !r->if_match) dlpi_s3_held_to(r, etag, DLPI_S3_BY_HEAD);
    dlpi_s3_src_wait(s, io, dlpi_s3_pipe_of(part->call), r);
    if (dlpi_s3_other_size(r, at, &is)) return dlpi_s3_part_size(s, part, at, is);
    return r->code == DLP_OK ? 0 : dlpi_s3_part_complain(part, r);
}

DLPI_COLD
DLPDEF int dlp_s3_part_load(void *source, dlp_part *part) {
    dlpi_s3_source *s = source;
    dlpi_s3_worker *w = part->worker_state;
    dlpi_s3_get *q;
    dlp_s3_entry at;
    int rc = dlpi_s3_part_entry(s, part, &at);
    if (rc != 0) return rc;
    if (!dlpi_s3_is_worker(part->call, w) || w->source != s)
        return dlp_fail(part->call, 0,
                        "give the objects as load.source; its workers have the connections");
    q = dlpi_s3_lend(w, true);
    rc = dlpi_s3_part_get(s, &q->io, part, &at, part->data, part->capacity, NULL, &q->request);
    if (rc == 0) part->bytes = q->request.received;
    dlpi_s3_src_give(w, q);
    return rc;
}

/* Ask by HEAD for an object. r->etag gets its ETag, at->length the bytes to download. Returns 0 or
   an error code. */
DLPI_COLD
static int dlpi_s3_download_size(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                                 dlp_s3_entry *at, dlp_s3_request *r) {
    int rc;
    dlpi_s3_src_ask(s, r, at, NULL, 0);
    r->method = DLP_S3_HEAD;
    r->offset = r->length = 0;
    if (dlpi_s3_src_wait(s, io, dlpi_s3_pipe_of(part->call), r) != DLP_OK)
        return dlpi_s3_part_complain(part, r);
    if (at->offset != DLP_S3_WHOLE && at->offset > r->object_bytes)
        return dlp_fail(part->call, 0,
                        "%s: has %llu bytes, the manifest's offset is %llu; list it again", at->key,
                        (unsigned long long)r->object_bytes, (unsigned long long)at->offset);
    rc = at->offset == DLP_S3_WHOLE ? dlpi_s3_part_size(s, part, at, r->object_bytes) : 0;
    if (at->length == 0 || at->offset == DLP_S3_WHOLE)
        at->length = r->object_bytes - (at->offset == DLP_S3_WHOLE ? 0 : at->offset);
    return rc;
}

/* Download an entry into a file by way of a mapping. The file's blocks are allocated first, so that
   a full disk is an error and no SIGBUS. Returns 0 or an error code. */
DLPI_COLD
static int dlpi_s3_download_to(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part,
                               const dlp_s3_entry *at, const char *etag, int fd) {
    dlp_s3_request r;
    void *map;
    int rc = dlpi_file_may_be(at->length) ? posix_fallocate(fd, 0, (off_t)at->length) : errno;
    if (rc != 0) return dlp_fail(part->call, rc, "%s: %s", at->key, strerror(rc));
    map = mmap(NULL, (size_t)at->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return dlp_fail(part->call, errno, "%s: mmap: %s", at->key, strerror(errno));
    rc = dlpi_s3_part_get(s, io, part, at, map, at->length, etag, &r);
    munmap(map, (size_t)at->length);
    return rc;
}

/* Download a part into the file fd. *io: the client's loop, opened if it is NULL. Returns 0 or a
   failure's code, said in the part's call. */
DLPI_COLD
static int dlpi_s3_download(const dlpi_s3_source *s, dlp_s3_io **io, const dlp_part *part, int fd) {
    dlp_s3_request head;
    dlp_s3_entry at;
    int rc = dlpi_s3_part_entry(s, part, &at);
    if (rc == 0) rc = dlpi_s3_download_size(s, io, part, &at, &head);
    if (rc != 0 || at.length == 0) return rc;
    return dlpi_s3_download_to(s, io, part, &at, head.etag, fd);
}

DLPI_COLD
DLPDEF int dlp_s3_part_download(void *source, const dlp_part *part, const char *path DLPI_UNREAD,
                                int fd) {
    const dlpi_s3_source *s = source;
    dlpi_s3_worker *w = part->worker_state;
    dlp_s3_io *io = NULL;
    dlpi_s3_get *q;
    int rc;
    if (!dlpi_s3_is_worker(part->call, w) || w->source->d.s3 != s->d.s3) {
        rc = dlpi_s3_download(s, &io, part, fd);
        dlp_s3_io_close(io);
        return rc;
    }
    q = dlpi_s3_lend(w, true);
    rc = dlpi_s3_download(s, &q->io, part, fd);
    dlpi_s3_src_give(w, q);
    return rc;
}

/* Fill in a desc of parts as far as the source knows it: dlp_source.parts. */
DLPI_COLD
static void dlpi_s3_parts(const dlp_source *source, dlp_node_load *parts) {
    dlpi_s3_source *s = (dlpi_s3_source *)(uintptr_t)source;
    parts->n_parts = dlp_s3_manifest_count(s->d.manifest);
    parts->manifest_id = dlp_s3_manifest_id(s->d.manifest);
    if (parts->count == NULL && parts->max_items == 0 && parts->items == NULL)
        parts->items = s->d.manifest->items;
    if (parts->max_part_bytes == 0) parts->max_part_bytes = s->longest;
    if (parts->load == NULL) {
        parts->load = dlp_s3_part_load;
        parts->user = s;
    }
}
#endif /* DLPIPE_NO_PARTS */

#ifndef DLPIPE_NO_SPLIT
/* ---- chunks ---- */

/* The rows of a chunk that are still to be asked for, in the order of the dataset. */
typedef struct dlpi_s3_rows {
    const dlpi_s3_source *s;
    dlp_chunk *c;
    uint8_t *to;
    uint64_t at, end;    /* dataset rows that are still to be asked for: [at, end) */
    uint32_t *place;     /* [chunk_rows] 1 + place of each row, 0: not wanted; NULL: not shuffled */
    dlp_s3_piece *piece; /* [2 * count] pieces of a shuffled chunk */
    uint64_t n_pieces;   /* pieces in use */
} dlpi_s3_rows;

/* Return the end of the rows that a request from row x->at on may read: they are rows of one entry
   of the manifest, and of at most joint_bytes. */
DLPI_COLD
static uint64_t dlpi_s3_rows_most(const dlpi_s3_rows *x, uint64_t entry) {
    uint64_t most = x->s->d.joint_bytes / x->s->d.row_bytes, end = x->s->first_row[entry + 1];
    if (most == 0) most = 1;
    if (end > x->end) end = x->end;
    return end - x->at > most ? x->at + most : end;
}

/* Add a wanted row to a request, as a piece of the chunk's memory. gap: rows before it that nobody
   wants; they become a piece without memory. */
DLPI_COLD
static void dlpi_s3_rows_piece(dlpi_s3_rows *x, dlp_s3_request *r, uint64_t row, uint64_t gap) {
    uint64_t bytes = x->s->d.row_bytes;
    dlp_s3_piece *p = &x->piece[x->n_pieces];
    uint32_t n = 0;
    if (gap > 0) p[n++] = (dlp_s3_piece){NULL, gap * bytes};
    p[n++] = (dlp_s3_piece){x->to + (x->place[row - x->c->chunk_first] - 1u) * bytes, bytes};
    x->n_pieces += n;
    r->n_pieces += n;
    r->length += (gap + 1) * bytes;
}

DLPI_COLD
static bool dlpi_s3_rows_wants(const dlpi_s3_rows *x, uint64_t row) {
    return x->place[row - x->c->chunk_first] != 0;
}

/* Fill a request with the wanted rows from x->at up to end, or up to a gap that is too long. */
DLPI_COLD
static void dlpi_s3_rows_gather(dlpi_s3_rows *x, dlp_s3_request *r, uint64_t end) {
    const dlpi_s3_source *s = x->s;
    uint64_t gap = 0, bytes = s->d.row_bytes;
    uint64_t most = s->d.gap_bytes < 0 ? 0 : (uint64_t)s->d.gap_bytes / bytes;
    r->pieces = &x->piece[x->n_pieces];
    for (; x->at < end && gap <= most; x->at++) {
        if (!dlpi_s3_rows_wants(x, x->at)) {
            gap++;
            continue;
        }
        dlpi_s3_rows_piece(x, r, x->at, gap);
        gap = 0;
    }
}

/* Fill in the next request for rows of the chunk. Returns false if all requests were made. */
DLPI_COLD
static bool dlpi_s3_rows_next(dlpi_s3_rows *x, dlp_s3_request *r) {
    const dlpi_s3_source *s = x->s;
    uint64_t entry, end, bytes = s->d.row_bytes, first;
    dlp_s3_entry at = {"", 0, 0, 0, ""};
    while (x->place && x->at < x->end && !dlpi_s3_rows_wants(x, x->at)) x->at++;
    if (x->at == x->end) return false;
    entry = dlpi_file_of(s->first_row, sizeof *s->first_row, dlp_s3_manifest_count(s->d.manifest),
                         x->at);
    end = dlpi_s3_rows_most(x, entry);
    (void)dlp_s3_manifest_get(s->d.manifest, entry, &at);
    first = (x->at - s->first_row[entry]) * bytes;
    at.offset = at.offset == DLP_S3_WHOLE ? first : at.offset + first;
    at.length = 0;
    dlpi_s3_src_ask(s, r, &at, NULL, 0);
    if (x->place) {
        dlpi_s3_rows_gather(x, r, end);
        return true;
    }
    r->length = r->capacity = (end - x->at) * bytes;
    r->body = x->to + (x->at - x->c->first) * bytes;
    x->at = end;
    return true;
}

/* Begin to read a chunk's rows into the memory at to. Returns false if there is no memory for that;
   dlpi_s3_rows_end must follow in any case. */
DLPI_COLD
static bool dlpi_s3_rows_begin(dlpi_s3_rows *x, const dlpi_s3_source *s, dlp_chunk *c, void *to) {
    *x = (dlpi_s3_rows){.s = s, .c = c, .to = to, .at = c->first, .end = c->first + c->count};
    if (!c->shuffled) return true;
    x->at = c->chunk_first;
    x->end = c->chunk_first + c->chunk_rows;
    x->place = calloc((size_t)c->chunk_rows, sizeof *x->place);
    x->piece = calloc((size_t)c->count, 2 * sizeof *x->piece);
    for (uint64_t k = 0; x->place && k < c->count; k++)
        x->place[dlp_chunk_row(c, k) - c->chunk_first] = (uint32_t)k + 1;
    return x->place != NULL && x->piece != NULL;
}

DLPI_COLD
static void dlpi_s3_rows_end(dlpi_s3_rows *x) {
    free(x->place);
    free(x->piece);
}

DLPI_COLD
static int dlpi_s3_chunk_complain(const dlp_chunk *c, const dlp_s3_request *r) {
    char text[256];
    dlpi_s3_words(r, text, sizeof text);
    return dlp_fail(c->call, r->error.errnum, "%s", text);
}

/* Requests of a chunk under way, with the I/O of the first record. */
typedef struct dlpi_s3_joint {
    dlpi_s3_worker *w;
    dlpi_s3_rows *rows;
    dlp_s3_io **io;
    dlpi_s3_get *idle, *next; /* records without a request; a record whose request found no room */
    int out;                  /* requests that io has */
} dlpi_s3_joint;

/* Send requests until no row, record or room is left. Returns 0, or DLP_ERR_CALLBACK on failure. */
DLPI_COLD
static int dlpi_s3_joint_send(dlpi_s3_joint *x) {
    for (int rc;;) {
        dlpi_s3_get *q = x->next ? x->next : x->idle;
        if (q == NULL) return 0;
        if (x->next == NULL) {
            if (!dlpi_s3_rows_next(x->rows, &q->request)) return 0;
            x->idle = q->next;
            q->request.user = q;
        }
        x->next = q;
        rc = dlp_s3_submit(*x->io, &q->request);
        if (rc == DLP_FULL && x->out > 0) return 0;
        if (rc != DLP_OK) {
            dlpi_s3_broken(&q->request, rc);
            return dlpi_s3_chunk_complain(x->rows->c, &q->request);
        }
        x->next = NULL;
        x->out++;
    }
}

/* Wait DLPI_S3_LOOK_MS for ended requests, and make their records idle. Returns 0, or
   DLP_ERR_CALLBACK if a request failed, the I/O is broken, or the pipe was stopped. */
DLPI_COLD
static int dlpi_s3_joint_reap(dlpi_s3_joint *x, int *looks) {
    dlp_s3_request *done[16];
    int n = dlp_s3_reap(*x->io, done, 16, DLPI_S3_LOOK_MS), rc = 0;
    if (n < 0) return dlp_fail(x->rows->c->call, 0, "the client's I/O is broken, code %d", n);
    if (n == 0 && dlpi_s3_given_up(dlpi_s3_pipe_of(x->rows->c->call), looks))
        return dlp_fail(x->rows->c->call, 0, "given up, the pipe was stopped");
    for (int i = 0; i < n; i++) {
        dlpi_s3_get *q = done[i]->user;
        x->out--;
        q->next = x->idle;
        x->idle = q;
        if (rc == 0 && done[i]->code != DLP_OK) rc = dlpi_s3_chunk_complain(x->rows->c, done[i]);
    }
    return rc;
}

/* Read all rows, by one I/O and as many records as are free. Returns 0 or DLP_ERR_CALLBACK. */
DLPI_COLD
static int dlpi_s3_rows_run(dlpi_s3_worker *w, dlpi_s3_rows *rows) {
    dlpi_s3_get *lead = dlpi_s3_lend(w, true), *q;
    dlpi_s3_get *mine[DLPI_S3_HAND_MOST];
    dlpi_s3_joint x = {w, rows, &lead->io, NULL, NULL, 0};
    int n = 0, looks = 0, rc = dlpi_s3_io_ready(x.io, w->source, &lead->request.error);
    if (rc != DLP_OK) rc = dlp_fail(rows->c->call, 0, "%s", lead->request.error.message);
    for (q = lead; q != NULL; q = n < w->source->d.in_flight ? dlpi_s3_lend(w, false) : NULL) {
        q->next = x.idle;
        x.idle = mine[n++] = q;
    }
    while (rc == 0) {
        rc = dlpi_s3_joint_send(&x);
        if (rc != 0 || x.out == 0) break;
        rc = dlpi_s3_joint_reap(&x, &looks);
    }
    if (rc != 0 && lead->io) dlpi_s3_src_drop(&lead->io); /* with what is still out */
    while (n > 0) dlpi_s3_src_give(w, mine[--n]);
    return rc;
}

DLPI_COLD
DLPDEF int dlp_s3_chunk_read(dlp_source *from, dlp_chunk *chunk, uint32_t field) {
    dlpi_s3_source *source = (dlpi_s3_source *)(void *)from;
    dlpi_s3_worker *w = chunk->worker_state;
    const dlpi_field *f;
    dlpi_s3_rows rows;
    int rc;
    if (!dlpi_s3_is_worker(chunk->call, w) || w->source->d.s3 != source->d.s3)
        return dlp_fail(chunk->call, 0,
                        "give the objects as chunks.source; its workers have the connections");
    if (source->first_row == NULL)
        return dlp_fail(chunk->call, 0, "row_bytes: is 0; set it in the desc of the source");
    if (field >= chunk->n_fields)
        return dlp_fail(chunk->call, 0, "field: is %u, must be below %u", field, chunk->n_fields);
    f = &chunk->call->w->p->items.at[field];
    if (f->row_bytes / (uint64_t)f->f.shape[0] != source->d.row_bytes)
        return dlp_fail(chunk->call, 0, "row_bytes is %llu, rows of field %s have another size",
                        (unsigned long long)source->d.row_bytes, f->name);
    if (chunk->chunk_first + chunk->chunk_rows >
        source->first_row[dlp_s3_manifest_count(source->d.manifest)])
        return dlp_fail(chunk->call, 0, "the objects end before row %llu; lower n_items",
                        (unsigned long long)(chunk->chunk_first + chunk->chunk_rows - 1));
    rc = dlpi_s3_rows_begin(&rows, source, chunk, chunk->data[field])
             ? dlpi_s3_rows_run(w, &rows)
             : dlp_fail(chunk->call, ENOMEM, "no memory for the order of %llu rows",
                        (unsigned long long)chunk->chunk_rows);
    dlpi_s3_rows_end(&rows);
    return rc;
}

/* Read a chunk's first field: dlp_chunk_fn. */
DLPI_COLD
static int dlpi_s3_chunk_load(void *source, dlp_chunk *chunk) {
    return dlp_s3_chunk_read(source, chunk, 0);
}

/* Fill in a desc of chunks as far as the source knows it: dlp_source.chunks. */
DLPI_COLD
static void dlpi_s3_chunks(const dlp_source *source, dlp_chunks_desc *chunks) {
    dlpi_s3_source *s = (dlpi_s3_source *)(uintptr_t)source;
    if (s->first_row) chunks->n_items = s->first_row[dlp_s3_manifest_count(s->d.manifest)];
    if (chunks->load == NULL) {
        chunks->load = dlpi_s3_chunk_load;
        chunks->user = s;
    }
}
#endif /* DLPIPE_NO_SPLIT */

/* ---- open, wire, close ---- */

/* Return a text that tells what is wrong with a desc, or NULL if nothing is. */
DLPI_COLD
static const char *dlpi_s3_source_wrong(const dlp_s3_source_desc *d) {
    if (d->s3 == NULL) return "s3: is NULL; use dlp_s3_open";
    if (d->bucket == NULL || d->bucket[0] == 0 || strlen(d->bucket) > 255)
        return "bucket: must have 1 to 255 bytes";
    if (dlp_s3_manifest_count(d->manifest) == 0)
        return "manifest: is NULL, or empty; list or add objects first";
    if (d->in_flight < 0 || d->in_flight > DLPI_S3_HAND_MOST) return "in_flight: must be 0..1024";
    if (d->max_bytes > UINT64_C(1) << 40) return "max_bytes: must be at most 2^40";
    if (d->max_bytes != 0 && (d->direct || !d->decode))
        return "max_bytes: must be 0 without a decode, or with direct";
    if (d->gap_bytes < DLP_NONE) return "gap_bytes: must be DLP_NONE, or 0 and more";
    if ((d->fields == NULL) != (d->n_fields == 0))
        return "fields: must be set if n_fields is above 0, and only then";
    if (d->moved != 0 && d->moved != 1) return "moved: must be 0 or 1";
    if (d->fields && (d->direct || !d->decode) && dlpi_field_item_bytes(d->fields) == 0)
        return "fields[0]: must have a dtype of 8 to 64 bits, a shape of 1 and more";
    return NULL;
}

/* Find the longest entry of the manifest, and whether the manifest has the lengths of all entries.
   */
DLPI_COLD
static void dlpi_s3_lengths(dlpi_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    s->known = true;
    for (uint64_t i = 0; i < m->n; i++) {
        uint64_t bytes = dlpi_s3_bytes(m->length[i]);
        if (bytes > s->longest) s->longest = bytes;
        s->known = s->known && m->length[i] > 0;
    }
}

DLPI_COLD
static const char *dlpi_s3_entry_key(const void *of, uint64_t i) { return dlpi_s3_src_key(of, i); }

/* Set what the entries are: keys, ranges and lengths, and ETags if all keys have one. */
DLPI_COLD
static void dlpi_s3_identify(dlpi_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    const dlpi_names keys = {m, m->n, 0, dlpi_s3_entry_key};
    dlp_identity *id = &s->identity;
    bool etags = !s->d.any_version;
    dlpi_identity_names(id, &keys);
    id->sizes = id->content = m->n;
    for (uint64_t i = 0; i < m->n; i++) {
        const char *etag = dlpi_s3_key_etag(dlpi_s3_src_key(m, i));
        id->sizes = dlpi_absorb(dlpi_absorb(id->sizes, m->offset[i]), m->length[i]);
        id->content = dlpi_absorb_bytes(id->content, etag, strlen(etag));
        etags = etags && etag[0] != 0;
    }
    id->sizes = dlpi_known(id->sizes);
    id->content = etags ? dlpi_known(id->content) : 0;
    id->moved = s->d.moved;
}

/* Set the room that an item has: capacity, unit, direct, ragged. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_room_wrong(dlpi_s3_source *s) {
    const dlp_field *field = s->d.fields;
    if (field == NULL) return NULL;
    s->d.direct = s->d.direct || s->d.decode == NULL;
    if (s->d.direct) {
        s->ragged = field->ragged != 0;
        s->capacity = dlpi_field_item_bytes(field);
        s->unit = s->ragged ? s->capacity / (uint64_t)field->shape[0] : s->capacity;
        return NULL;
    }
    s->capacity = s->d.max_bytes ? s->d.max_bytes : s->known ? s->longest : 0;
    return s->capacity ? NULL : "max_bytes: is 0; set it, as some lengths are unknown";
}

static const char dlpi_s3_no_memory[] = "no memory for the rows of the manifest";

/* Count all entries' rows into s->first_row, if row_bytes is set. Returns NULL or an error text. */
DLPI_COLD
static const char *dlpi_s3_rows_wrong(dlpi_s3_source *s) {
    const dlp_s3_manifest *m = s->d.manifest;
    uint64_t rows = 0;
    if (s->d.row_bytes == 0) return NULL;
    if (!s->known) return "row_bytes: needs the length of every entry; list the bucket for them";
    s->first_row = calloc((size_t)m->n + 1, sizeof *s->first_row);
    if (s->first_row == NULL) return dlpi_s3_no_memory;
    for (uint64_t i = 0; i < m->n; i++) {
        uint64_t bytes = dlpi_s3_bytes(m->length[i]);
        if (bytes % s->d.row_bytes != 0)
            return "row_bytes: the bytes of each entry must be a multiple of it";
        s->first_row[i] = rows;
        rows += bytes / s->d.row_bytes;
    }
    s->first_row[m->n] = rows;
    return NULL;
}

/* Tell in buf that the server has not answered for a while: dlp_workers_desc.tell. Returns the
   length of the text, 0 if there is nothing to tell. */
DLPI_COLD
static int dlpi_s3_tell(void *user, char *buf, size_t size) {
    const dlpi_s3_source *s = (const dlpi_s3_source *)user;
    uint64_t away_ns = dlpi_s3_away_for(&s->d.s3->common->shared, dlpi_s3_now_ns());
    const char *field;
    int32_t ms = dlpi_s3_bound_ms(&s->d.s3->desc, &field);
    if (away_ns < DLPI_S3_AWAY_NS) return 0;
    return snprintf(buf, size,
                    "no answer from the S3 server of bucket '%s' for %.1f s; requests "
                    "wait, and are sent again, for up to %s (%d ms)",
                    s->bucket, (double)away_ns / 1e9, field, (int)ms);
}

DLPI_COLD
static void dlpi_s3_wire_workers(dlpi_s3_source *s, dlp_workers_desc *workers) {
    workers->worker_init = dlpi_s3_worker_init;
    workers->worker_exit = dlpi_s3_worker_exit;
    workers->worker_user = s;
    workers->tell = dlpi_s3_tell;
}

/* Free the source. Returns DLP_OK, or DLP_ERR_BUSY while a worker uses it. */
DLPI_COLD
static int dlpi_s3_src_close(dlp_source *source) {
    dlpi_s3_source *s = (dlpi_s3_source *)(void *)source;
    if (DLPI_LOAD_SEQ(&s->users) != 0) return DLP_ERR_BUSY; /* SU1 <- SU1 */
    free(s->first_row);
    free(s);
    return DLP_OK;
}

/* Fill the dataset and the source, from the desc that was checked. */
DLPI_COLD
static void dlpi_s3_src_source(dlpi_s3_source *s) {
    s->dataset = (dlp_dataset){.n_items = dlp_s3_manifest_count(s->d.manifest),
                               .fields = s->d.fields,
                               .n_fields = s->d.n_fields,
                               .writes_all_bytes =
                                   s->d.writes_all_bytes || (s->d.direct && s->d.n_fields == 1),
                               .fetch = dlpi_s3_src_fetch,
                               .user = s,
                               .identity = &s->identity};
    s->source = (dlp_source){.dataset = &s->dataset,
                             .fetcher = DLP_FETCH_ASYNC,
                             .async = {dlpi_s3_submit_item, dlpi_s3_reap_items},
                             .in_flight = s->d.in_flight,
#ifndef DLPIPE_NO_PARTS
                             .parts = dlpi_s3_parts,
#endif /* DLPIPE_NO_PARTS */
#ifndef DLPIPE_NO_SPLIT
                             .chunks = dlpi_s3_chunks,
#endif /* DLPIPE_NO_SPLIT */
                             .close = dlpi_s3_src_close};
    s->dataset.worker_bytes = dlp_s3_source_worker_bytes(&s->source);
    dlpi_s3_wire_workers(s, &s->source.workers);
}

DLPI_COLD
DLPDEF int dlp_s3_source_open(dlp_source **out, const dlp_s3_source_desc *desc, dlp_s3_error *err) {
    const char *wrong;
    dlpi_s3_source *s;
    if (err) memset(err, 0, sizeof *err);
    if (out == NULL || desc == NULL)
        return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s is NULL", out ? "desc" : "out");
    wrong = dlpi_s3_source_wrong(desc);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "%s", wrong);
    wrong = dlpi_s3_bucket_beyond(&desc->s3->endpoint, desc->bucket);
    if (wrong) return dlpi_s3_set_error(err, DLP_ERR_ARG, 0, "bucket: %s", wrong);
    s = calloc(1, sizeof *s);
    if (s == NULL) return dlpi_s3_set_error(err, DLP_ERR_MEMORY, 0, "no memory for the source");
    s->d = *desc;
    dlpi_copy_text(s->bucket, sizeof s->bucket, desc->bucket);
    s->d.in_flight = desc->in_flight ? desc->in_flight : 16;
    s->d.gap_bytes = desc->gap_bytes ? desc->gap_bytes : 64 << 10;
    s->d.joint_bytes = desc->joint_bytes ? desc->joint_bytes : 8 << 20;
    dlpi_s3_lengths(s);
    wrong = dlpi_s3_room_wrong(s);
    if (wrong == NULL) wrong = dlpi_s3_rows_wrong(s);
    if (wrong == NULL) {
        dlpi_s3_identify(s);
        dlpi_s3_src_source(s);
        *out = &s->source;
        return DLP_OK;
    }
    free(s->first_row);
    free(s);
    return dlpi_s3_set_error(err, wrong == dlpi_s3_no_memory ? DLP_ERR_MEMORY : DLP_ERR_ARG, 0,
                             "%s", wrong);
}

DLPI_COLD
DLPDEF uint64_t dlp_s3_source_worker_bytes(const dlp_source *source) {
    const dlpi_s3_source *s = (const dlpi_s3_source *)(const void *)source;
    uint64_t each = dlpi_sum(sizeof(dlpi_s3_get), dlpi_s3_stride(s));
    uint64_t pieces = dlpi_times(dlpi_s3_pieces(s), sizeof(dlp_s3_piece));
    return dlpi_sum(sizeof(dlpi_s3_worker) + pieces, dlpi_times((uint64_t)s->d.in_flight, each));
}

#endif /* DLPIPE_IMPLEMENTATION_DONE */

#ifdef DLPI_S3_ASKED_GNU_SOURCE
#undef DLPI_S3_ASKED_GNU_SOURCE
#undef _GNU_SOURCE
#endif
#endif /* DLPIPE_IMPLEMENTATION */

/* ---------------------------------------------------------------------------------------------
   >>s3-history           VERSIONS
   0.1.0   The first version. Its number is always that of dlpipe.h.
   0.2.0   As dlpipe.h.

   >>s3-licence           MIT
   The licence is that of dlpipe.h. */
