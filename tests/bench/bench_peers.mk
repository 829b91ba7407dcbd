# make bench-peers [QUICK=1]: the loader beside those of others, every byte checked.
# Lines of JSON on standard output and in build/bench/peers.jsonl. About 5 minutes; QUICK=1: 2.
# PEERS="libtorch tfdata" takes only these. libtorch's headers and libraries come with torch.
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

.PHONY: bench-peers
bench-peers: $(B)/bench/bench_peers $(B)/bench/bench_peer_libtorch
	@QUICK=$(QUICK) PYTHON=$(PEERS_PYTHON) $< -o $(B)/bench/peers.jsonl \
	    -l $(B)/bench/bench_peer_libtorch -t tests/bench/bench_peers.py $(PEERS)
