# make bench-topologies [QUICK=1]: the ways to wire a loader, and PyTorch's, on JPEG files.
# Lines of JSON on standard output and in build/bench/topologies.jsonl, timelines as SVG beside it.
# About 15 minutes; QUICK=1: 3. ROWS="economic classic_seq" takes only rows that begin so.

$(B)/bench/bench_topologies: tests/bench/bench_topologies.c $(wildcard tests/bench/*.h) dlpipe.h \
                             dlpipe_shm.h
	@mkdir -p $(@D)
	@l=-ljpeg; echo 'int main(void){return 0;}' | $(CC) -x c -o /dev/null - $$l 2>/dev/null || l=; \
	    set -x; $(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS) $$l

.PHONY: bench-topologies
bench-topologies: $(B)/bench/bench_topologies
	@QUICK=$(QUICK) PYTHON=$(PEERS_PYTHON) $< -o $(B)/bench/topologies.jsonl \
	    -t tests/bench/bench_topologies_torch.py \
	    -j $(B)/bench/jpegs -s $(B)/bench $(ROWS)
