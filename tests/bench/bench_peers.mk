# make bench-peers [QUICK=1]: the loader beside those of others, every byte checked.
# Lines of JSON on standard output and in build/bench/peers.jsonl. About 5 minutes; QUICK=1: 2.
# PEERS="libtorch tfdata" takes only these. libtorch's headers and libraries come with torch.
# Then make bench-hand [QUICK=1]: the loader beside what C++ programmers write by hand, in
# build/bench/hand.jsonl. About 3 minutes. BUSY=1: others use the machine, so that only ratios
# mean something.
TORCH_AT = $(firstword $(wildcard $(B)/peers/lib/python3*/site-packages/torch))

$(B)/bench/bench_peers: tests/bench/bench_peers.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)

# Left out where there is no torch: bench_peers says so.
$(B)/bench/bench_peer_libtorch: tests/bench/bench_peer_libtorch.cc
	@mkdir -p $(@D)
	@[ -z "$(TORCH_AT)" ] || { set -x; $(CXX) -std=c++20 -O2 -DNDEBUG -o $@ $< \
	    -isystem $(TORCH_AT)/include -isystem $(TORCH_AT)/include/torch/csrc/api/include \
	    -L$(TORCH_AT)/lib -ltorch_cpu -lc10 -Wl,-rpath,$(abspath $(TORCH_AT))/lib; }

# The library is compiled as the C that it is. Peers whose headers are missing are left out.
HAND_MOODYCAMEL = $(shell dpkg-query -W -f '$${Version}' libconcurrentqueue-dev 2>/dev/null)
$(B)/bench/bench_hand: tests/bench/bench_hand.c tests/bench/bench_hand_peers.cc \
                       $(wildcard tests/bench/*.h) dlpipe.h tests/bench/bench_peers.mk
	@mkdir -p $(@D)
	@l=-ltbb; echo 'int main(){}' | $(CXX) -x c++ -o /dev/null - $$l 2>/dev/null || l=; set -x; \
	    $(CC) -std=c11 $(WARN) -O2 -g -c -o $@.o $< && \
	    $(CXX) -std=c++17 -Wall -Wextra -O2 -g -DNDEBUG -fopenmp -o $@ $(word 2,$^) $@.o \
	    -DHAND_MOODYCAMEL_VERSION='"$(HAND_MOODYCAMEL)"' $(LIBS) $$l

.PHONY: bench-peers bench-hand
bench-hand: $(B)/bench/bench_hand
	@QUICK=$(QUICK) BUSY=$(BUSY) $< -o $(B)/bench/hand.jsonl

bench-peers: $(B)/bench/bench_peers $(B)/bench/bench_peer_libtorch $(B)/bench/bench_hand
	@QUICK=$(QUICK) PYTHON=$(PEERS_PYTHON) $< -o $(B)/bench/peers.jsonl \
	    -l $(B)/bench/bench_peer_libtorch -t tests/bench/bench_peers.py $(PEERS)
	@$(MAKE) --no-print-directory bench-hand
