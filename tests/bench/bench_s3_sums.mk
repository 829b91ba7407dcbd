# make bench-s3-sums [QUICK=1]: processor time of the S3 client for an object of 100 KB over
# loopback, with its checksum compared and without, in each way that the processor has. Lines of
# JSON in build/bench/s3_sums.jsonl. Half a minute. The server is a process of the program's own.
$(B)/bench/bench_s3_sums: tests/bench/bench_s3_sums.c $(wildcard tests/bench/*.h) \
    dlpipe.h dlpipe_s3.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O2 -g -o $@ $< $(LIBS)

.PHONY: bench-s3_sums bench-s3-sums
bench-s3-sums: bench-s3_sums
bench-s3_sums: $(B)/bench/bench_s3_sums
	@rm -f $(B)/bench/s3_sums.jsonl
	QUICK=$(QUICK) $< -o $(B)/bench/s3_sums.jsonl
