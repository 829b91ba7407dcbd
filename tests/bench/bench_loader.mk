# make bench-loader [QUICK=1]: the loader beside PyTorch's DataLoader and a memcpy loop.
# Lines of JSON on standard output and in build/bench/loader.jsonl. About 12 minutes; QUICK=1: 3.
# SCENARIOS="small peak" takes only these.

$(B)/bench/bench_loader: tests/bench/bench_loader.c $(wildcard tests/bench/*.h) \
    dlpipe.h dlpipe_shm.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)

.PHONY: bench-loader
bench-loader: $(B)/bench/bench_loader
	@QUICK=$(QUICK) PYTHON=$(PEERS_PYTHON) $< -o $(B)/bench/loader.jsonl \
	    -t tests/bench/bench_loader_torch.py $(SCENARIOS)
