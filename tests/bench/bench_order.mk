# make bench-order: nanoseconds an index of a shuffled order.
B ?= build

.PHONY: bench-order
bench-order: $(B)/bench/bench_order
	$(B)/bench/bench_order

$(B)/bench/bench_order: tests/bench/bench_order.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
