# make bench-queue: queues against the peers that are installed; tells which are not. Then claim and
# gather, which have none. BENCH_ARGS="-r 7 -t 20 claim spsc": rounds, ms of a sample, which ones.
# The library is compiled as the C that it is; only the driver is C++.
B ?= build
BENCH_QUEUE_DPDK := $(shell pkg-config --cflags libdpdk 2>/dev/null)
BENCH_QUEUE_MOODYCAMEL := $(shell dpkg-query -W -f '$${Version}' libconcurrentqueue-dev \
                            2>/dev/null)
BENCH_QUEUE_DEFS := -DBENCH_CK_VERSION='"$(shell pkg-config --modversion ck 2>/dev/null)"' \
    -DBENCH_MOODYCAMEL_VERSION='"$(BENCH_QUEUE_MOODYCAMEL)"'
BENCH_QUEUE_LIBS := -lpthread
ifneq ($(BENCH_QUEUE_DPDK),)
BENCH_QUEUE_DEFS += -DBENCH_DPDK $(BENCH_QUEUE_DPDK)
BENCH_QUEUE_LIBS += -lrte_ring -lrte_eal
endif

.PHONY: bench-queue
bench-queue: $(B)/bench/bench_queue $(B)/bench/bench_claim
	$(B)/bench/bench_queue $(BENCH_ARGS)
	$(B)/bench/bench_claim $(BENCH_ARGS)

$(B)/bench/dlpipe.o: dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -g -DDLPIPE_IMPLEMENTATION -x c -c -o $@ dlpipe.h

$(B)/bench/bench_queue: tests/bench/bench_queue.cc \
    $(B)/bench/dlpipe.o tests/bench/bench_probe.h dlpipe.h tests/bench/bench_queue.mk
	$(CXX) -std=c++17 -O2 -g $(BENCH_QUEUE_DEFS) -o $@ $< $(B)/bench/dlpipe.o $(BENCH_QUEUE_LIBS)

$(B)/bench/bench_claim: tests/bench/bench_claim.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
