#pragma once
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
