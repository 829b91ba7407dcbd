# make bench-files: local files by io_uring and by threads, cold and warm.
B ?= build

.PHONY: bench-files
bench-files: $(B)/bench/bench_files
	$(B)/bench/bench_files

$(B)/bench/bench_files: tests/bench/bench_files.c $(wildcard tests/bench/*.h) dlpipe.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)
