# make bench-crop [QUICK=1]: JPEGs of which the middle is kept, beside tf.data's decode_and_crop.
# Lines of JSON on standard output and in build/bench/crop.jsonl. About a minute; QUICK=1: 20 s.

$(B)/bench/bench_crop: tests/bench/bench_crop.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	@l=-ljpeg; echo 'int main(void){return 0;}' | $(CC) -x c -o /dev/null - $$l 2>/dev/null || l=; \
	    set -x; $(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS) $$l

.PHONY: bench-crop
bench-crop: $(B)/bench/bench_crop
	@QUICK=$(QUICK) PYTHON=$(PEERS_PYTHON) $< -o $(B)/bench/crop.jsonl \
	    -t tests/bench/bench_peers.py -j $(B)/bench/crops || [ $$? = 77 ]
