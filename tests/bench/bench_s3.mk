# make bench-s3 [QUICK=1]: S3 objects, by dlpipe's client in one thread and by curl, rclone, boto3
# and wrk, from a server that this starts. Lines of JSON in build/bench/s3.jsonl, and a table. About
# 8 minutes; QUICK=1: 1. PLACES="loop 30ms faults" and PEERS="wrk curl rclone boto3" take only
# these, ROUNDS=9 so many.
PLACES ?= loop 30ms faults
S3_RADOSGW := tests/servers/radosgw.py --
S3_FAR := tests/servers/with_delay.py 15 radosgw.py --
S3_FAULTS := tests/servers/haproxy_faults.py --unavailable 5 --reset 2 --late 2 --late-ms 1500 --

$(B)/bench/bench_s3: tests/bench/bench_s3.c $(wildcard tests/bench/*.h) dlpipe.h dlpipe_s3.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)

.PHONY: bench-s3
bench-s3: $(B)/bench/bench_s3
	@rm -f $(B)/bench/s3.jsonl
	@export QUICK=$(QUICK) BENCH_ROOT=$$$$; fill='tests/servers/s3.py fill many 2000 100000'; \
	bench='$< -s $(B)/bench -o $(B)/bench/s3.jsonl'; bad=0; \
	for place in $(PLACES); do case $$place in \
	    loop) $(S3_RADOSGW) sh -ec "$$fill; tests/servers/s3.py large; $$bench loop" ;; \
	    30ms) $(S3_FAR) sh -ec "$$fill; $$bench 30ms" ;; \
	    faults) $(S3_RADOSGW) sh -ec "$$fill; $(S3_FAULTS) $$bench faults" ;; \
	    esac || [ $$? = 77 ] || bad=1; done; \
	[ ! -f $(B)/bench/s3.jsonl ] || \
	    /usr/bin/python3 tests/bench/bench_s3.py table $(B)/bench/s3.jsonl; \
	exit $$bad
