# make bench-compose: filters, expanders and push beside a plain chain of the same rounds.
B ?= build

.PHONY: bench-compose
bench-compose: $(B)/bench/bench_compose
	$(B)/bench/bench_compose $(BENCH_ARGS)

$(B)/bench/bench_compose: tests/bench/bench_compose.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
