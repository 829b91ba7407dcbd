# make bench-s3_pipe [QUICK=1]: a loader before a store 30 ms away: many items in flight from one
# thread of each worker, and one at a time. Lines of JSON in build/bench/s3_pipe.jsonl, timelines as
# SVG beside it. About 8 minutes (10 epochs); QUICK=1: 2. Wants the right to make namespaces.

$(B)/bench/bench_s3_pipe: tests/bench/bench_s3_pipe.c $(wildcard tests/bench/*.h) \
    dlpipe.h dlpipe_s3.h
	@mkdir -p $(@D)
	@l=-ljpeg; echo 'int main(void){return 0;}' | $(CC) -x c -o /dev/null - $$l 2>/dev/null || l=; \
	    set -x; $(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS) $$l

.PHONY: bench-s3_pipe bench-s3-pipe
bench-s3-pipe: bench-s3_pipe
bench-s3_pipe: $(B)/bench/bench_s3_pipe
	@rm -f $(B)/bench/s3_pipe.jsonl
	@export QUICK=$(QUICK) BENCH_ROOT=$$$$; tests/servers/with_delay.py 15 radosgw.py -- $< \
	    -o $(B)/bench/s3_pipe.jsonl -s $(B)/bench -j $(B)/bench/jpegs
