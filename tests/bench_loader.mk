# make bench-loader [QUICK=1]: the loader beside PyTorch's DataLoader and a memcpy loop.
# Lines of JSON on standard output and in build/bench/loader.jsonl; about 8 minutes, QUICK=1 about one.

BENCH_CFLAGS ?= -O2 -g

build/bench/bench_loader: tests/bench_loader.c dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(BENCH_CFLAGS) -o $@ $< -lpthread -lm

.PHONY: bench-loader
bench-loader: build/bench/bench_loader
	QUICK=$(QUICK) build/bench/bench_loader -o build/bench/loader.jsonl -t tests/bench_loader_torch.py
