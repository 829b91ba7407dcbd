# make bench-ragged: items of any length, in rooms of any size, beside packing by hand.
B ?= build

.PHONY: bench-ragged
bench-ragged: $(B)/bench/bench_ragged
	$(B)/bench/bench_ragged $(BENCH_ARGS)

$(B)/bench/bench_ragged: tests/bench/bench_ragged.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
