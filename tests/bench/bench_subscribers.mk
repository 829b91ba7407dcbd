# make bench-subscribers: batches that other programs take beside a pipe's own consumer.
B ?= build

.PHONY: bench-subscribers
bench-subscribers: $(B)/bench/bench_subscribers
	$(B)/bench/bench_subscribers $(BENCH_ARGS)

$(B)/bench/bench_subscribers: tests/bench/bench_subscribers.c $(wildcard tests/bench/*.h) \
		dlpipe.h dlpipe_shm.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
