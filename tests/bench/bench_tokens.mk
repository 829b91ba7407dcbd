# make bench-tokens: windows of tokens against a plain loop of fread, out of memory.
B ?= build

.PHONY: bench-tokens
bench-tokens: $(B)/bench/bench_tokens
	$(B)/bench/bench_tokens

$(B)/bench/bench_tokens: tests/bench/bench_tokens.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
