# dlpipe: nothing needs building to use it (copy dlpipe.h); this file runs its tests and examples.
# "make help" lists the targets. All that is built lies in build/.

CC ?= cc
CXX ?= c++
JOBS ?= 2
O ?= -O2
B := build

WARN := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wcast-align \
        -Wstrict-prototypes -Wmissing-prototypes -Wvla
ifeq ($(STRICT),1)
WARN += -Werror
endif
CFLAGS ?= $(O) -g
LIBS := -lpthread -lm

HEADERS := $(wildcard dlpipe*.h)
COMMON := $(wildcard tests/*.h)
UNITS := $(filter-out bench_%,$(patsubst tests/%.c,%,$(wildcard tests/*.c)))
SCRIPTS := $(patsubst tests/%.sh,%,$(wildcard tests/test_*.sh))
CASES := $(addprefix compile/,$(shell sh tests/compile/matrix list))
EXAMPLES := $(patsubst examples/%.c,%,$(wildcard examples/*.c))
ALL := $(UNITS) $(SCRIPTS) $(CASES) $(addprefix musl/,$(UNITS)) $(addprefix aarch64/,$(UNITS))

# TESTS="queue_spsc order" or "compile/*" selects.
ifdef TESTS
WANTED := $(filter $(subst *,%,$(TESTS)),$(ALL))
UNKNOWN := $(foreach t,$(TESTS),$(if $(filter $(subst *,%,$(t)),$(ALL)),,$(t)))
ifneq ($(UNKNOWN),)
$(error no such test: $(UNKNOWN); there are: $(ALL))
endif
else
WANTED := $(ALL)
endif

.PHONY: help run test programs deps deps-bench bench lint sanitize clean examples
.DEFAULT_GOAL := help

help:
	@echo 'make run            train a classifier of Fashion-MNIST through dlpipe'
	@echo 'make test           compile and run the test suite (needs a C compiler only)'
	@echo '                    TESTS="queue_spsc compile/*" selects, STRICT=1 forbids skips'
	@echo 'make examples       compile the example programs into build/examples'
	@echo 'make sanitize       the unit tests under the thread, address and undefined sanitizers'
	@echo 'make lint           house rules, cppcheck, clang-tidy'
	@echo 'make bench          all benchmarks: bench-queue bench-loader bench-order'
	@echo 'make deps           install what the whole suite and the linters want (Debian)'
	@echo 'make deps-bench     install the peers that the benchmarks compare with (Debian)'
	@echo 'make clean          remove build/'

# ---- tests ---------------------------------------------------------------------------------------

PROGRAMS := $(addprefix $(B)/tests/,$(filter $(UNITS),$(WANTED)))
FOREIGN := $(addprefix $(B)/,$(filter musl/% aarch64/%,$(WANTED)))
RESULTS := $(patsubst compile/%,$(B)/compile/%,$(filter compile/%,$(WANTED)))

# A program that does not compile is a failed test, which shows what the compiler said.
$(B)/tests/%: tests/%.c $(HEADERS) $(COMMON) Makefile
	@mkdir -p $(@D)
	@rm -f $@
	@$(CC) -std=c11 $(WARN) $(CFLAGS) -o $@ $< $(LIBS) >$@.log 2>&1 || true

$(B)/musl/%: tests/%.c $(HEADERS) $(COMMON)
	@sh tests/compile/matrix build musl $* || true

$(B)/aarch64/%: tests/%.c $(HEADERS) $(COMMON)
	@sh tests/compile/matrix build aarch64 $* || true

$(B)/compile/%: $(HEADERS) tests/compile/matrix $(wildcard tests/compile/*.c tests/compile/*.cc)
	@mkdir -p $(@D)
	@sh tests/compile/matrix run $* >$@.log 2>&1; echo $$? >$@

programs: $(PROGRAMS) $(FOREIGN) $(RESULTS)

# Results of compile tests that are not "passed" are made anew.
test:
	@mkdir -p $(B)/compile $(B)/log
	@for f in $(RESULTS); do [ ! -f $$f ] || [ "$$(cat $$f)" = 0 ] || rm -f $$f; done
	@$(MAKE) --no-print-directory -k -j$(JOBS) programs
	@: >$(B)/list
	@for t in $(WANTED); do case $$t in \
	    compile/*) echo "$$t @$(B)/$$t" ;; \
	    */*) echo "$$t sh tests/compile/matrix exec $${t%/*} $${t#*/}" ;; \
	    *) if [ -f tests/$$t.sh ]; then echo "$$t sh tests/$$t.sh"; \
	       else x=$(B)/tests/$$t; echo "$$t [ -x $$x ] || { cat $$x.log; exit 1; }; $$x"; fi ;; \
	    esac; done >$(B)/list
	@STRICT=$(STRICT) sh tests/run $(B)/list

clean:
	rm -rf $(B)
