# make bench-s3 [QUICK=1]: S3 objects, by dlpipe's client in one thread and by curl, rclone, boto3,
# obstore and wrk, from a server that this starts. Lines of JSON in build/bench/s3.jsonl, and a
# table. About 12 minutes; QUICK=1: 2. PLACES="loop 30ms faults 503s list" and PEERS="wrk curl
# rclone boto3 obstore" take only these, ROUNDS=9 so many. 503s: 0, 5, 10 and 15 % of answers are;
# list: a million keys (QUICK=1: 100,000), 75 ms a page.
PLACES ?= loop 30ms faults 503s list
S3_RADOSGW := tests/servers/radosgw.py --
S3_FAR := tests/servers/with_delay.py 15 radosgw.py --
S3_FAULTS := tests/servers/haproxy_faults.py --unavailable 5 --reset 2 --late 2 --late-ms 1500 --

$(B)/bench/bench_s3: tests/bench/bench_s3.c $(wildcard tests/bench/*.h) dlpipe.h dlpipe_s3.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)

$(B)/bench/lists: tests/servers/lists.c $(wildcard tests/rig/s3_*.h) dlpipe_s3.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)

.PHONY: bench-s3
bench-s3: $(B)/bench/bench_s3 $(B)/bench/lists
	@rm -f $(B)/bench/s3.jsonl
	@export QUICK=$(QUICK) BENCH_ROOT=$$$$; fill='tests/servers/s3.py fill many 2000 100000'; \
	bench='$< -s $(B)/bench -o $(B)/bench/s3.jsonl'; bad=0; \
	for place in $(PLACES); do case $$place in \
	    loop) $(S3_RADOSGW) sh -ec "$$fill; tests/servers/s3.py large; $$bench loop" ;; \
	    30ms) $(S3_FAR) sh -ec "$$fill; $$bench 30ms" ;; \
	    503s) $(S3_RADOSGW) sh -ec "$$fill; for p in 0 5 10 15; do \
	        tests/servers/haproxy_faults.py --unavailable \$$p -- $$bench 503_\$$p; done" ;; \
	    list) $(B)/bench/lists $(if $(QUICK),100000,1000000) 75 -- $$bench list ;; \
	    faults) $(S3_RADOSGW) sh -ec "$$fill; $(S3_FAULTS) $$bench faults" ;; \
	    esac || [ $$? = 77 ] || bad=1; done; \
	[ ! -f $(B)/bench/s3.jsonl ] || \
	    /usr/bin/python3 tests/bench/bench_s3.py table $(B)/bench/s3.jsonl; \
	exit $$bad
