# Everything a contributor runs. `make help` lists it.

GO            ?= go
FUZZTIME      ?= 10s
BENCH         ?= .
TESTFLAGS     ?=
MUTANTS       ?=
LINT_VERSION  := v2.14.0
STAT_VERSION  := v0.0.0-20260908200009-22c9c6c9d4da

# What bench-save runs and bench-diff compares. Benchmarks of sockets measure the
# machine's other work as well: they are left out.
NAME          ?= new
OLD           ?= old
NEW           ?= new
BENCHTIME     ?= 100ms
MICRO         := ./internal/mcast ./internal/p2p ./internal/node ./internal/fabric ./internal/fabric/ip ./internal/reduce
SOCKETS       := ^Benchmark(Send|Receive|SendReceive|TCP.*)$$

# A suite is a package. SUITES_DATAPATH lists those whose tests work on any datapath: the kernel can
# neither decrypt nor verify checksums, so internal/e2e/secure is not among them. SUITES_PLAIN lists
# those that do more, or that measure, without the race detector.
SUITES_DATAPATH := . ./internal/e2e/offload ./internal/e2e/observe
SUITES_PLAIN    := $(SUITES_DATAPATH) ./internal/e2e/secure ./internal/engine/... ./internal/sim \
                   ./internal/model/dpa ./internal/paper

# What has code for the tag verbs.
VERBS         := ./internal/fabric/verbs ./internal/world ./cmd/allcast/...

# Tools are built once, outside the repository.
TOOLS ?= $(HOME)/.cache/allcast-ci
LINT  := $(TOOLS)/golangci-lint-$(LINT_VERSION)/golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show the main job: Broadcast and Allgather over multicast, verified
	$(GO) run ./cmd/allcast demo

.PHONY: build
build: ## Build the command into bin/
	$(GO) build -o bin/ ./cmd/allcast

.PHONY: test
test: ## Run all tests with the race detector (needs gcc), and the suites that differ without it once more
	$(GO) test -race -timeout 20m $(TESTFLAGS) ./...
	$(GO) test -timeout 20m $(TESTFLAGS) $(SUITES_PLAIN)

.PHONY: test-offload
test-offload: ## Run the suites that use a datapath, with data that the kernel puts in place (needs root)
	@for h in sockfilter tcx; do \
		echo "ALLCAST_DATAPATH=bpf ALLCAST_HOOK=$$h"; \
		ALLCAST_DATAPATH=bpf ALLCAST_HOOK=$$h $(GO) test -p 1 -count 1 -timeout 20m $(TESTFLAGS) $(SUITES_DATAPATH) || exit 1; \
	done

.PHONY: lint
lint: $(LINT) ## Check format, style, and who may import whom
	$(GO) vet ./...
	$(LINT) fmt --diff ./...
	$(LINT) run ./...
	@if [ -e /usr/include/infiniband/verbs.h ] && [ -e /usr/include/rdma/rdma_cma.h ]; then \
		echo $(LINT) run --build-tags verbs $(VERBS); $(LINT) run --build-tags verbs $(VERBS); \
	else echo 'skipped: what is built with the tag verbs, as there are no RDMA headers'; fi

.PHONY: vet-systems
vet-systems: ## Compile and vet everything, tests included, for macOS and Windows
	@for os in darwin windows; do \
		echo "GOOS=$$os CGO_ENABLED=0 $(GO) vet ./..."; GOOS=$$os CGO_ENABLED=0 $(GO) vet ./... || exit 1; \
	done

.PHONY: fmt
fmt: $(LINT) ## Format the code
	$(LINT) fmt ./...

# The guest has a kernel, a provider and devices of its own: no RDMA hardware, KVM or
# privileges are needed. Packages that are missing are installed, as root.
VERBSFLAGS ?=
.PHONY: test-verbs
test-verbs: ## Test the verbs fabric on Soft-RoCE, in a guest under QEMU (VERBSFLAGS='-run TestLoss', -skip to skip where it cannot be)
	$(GO) run ./internal/tools/verbsguest $(VERBSFLAGS)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (10s)
	GO="$(GO)" bash .ci/fuzz $(FUZZTIME)

.PHONY: mutants
mutants: ## Put mistakes into the receive path, one at a time, and check that the simulator's tests catch each (MUTANTS=regexp to choose)
	$(GO) run ./internal/tools/mutants -run '$(MUTANTS)'

.PHONY: spin
spin: ## Check the model of the protocol in formal/ (needs spin and gcc)
	bash formal/check

.PHONY: bench
bench: ## Run the benchmarks that match BENCH, with allocations
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# Six rounds of all rather than -count 6: a machine that is slow for a while then
# shows as spread of many, not as a difference of one.
.PHONY: bench-save
bench-save: ## Run the micro benchmarks 6 times, into bin/bench/NAME.txt (NAME=new)
	@mkdir -p bin/bench && rm -f bin/bench/$(NAME).tmp
	@for round in 1 2 3 4 5 6; do \
		echo "round $$round of 6"; \
		$(GO) test -run '^$$' -bench '$(BENCH)' -skip '$(SOCKETS)' -benchmem -benchtime $(BENCHTIME) -count 1 -timeout 1h $(MICRO) \
			>>bin/bench/$(NAME).tmp || { cat bin/bench/$(NAME).tmp; exit 1; }; \
	done
	@mv bin/bench/$(NAME).tmp bin/bench/$(NAME).txt

.PHONY: bench-diff
bench-diff: ## Compare what bench-save saved (OLD=old NEW=new), with confidence intervals
	$(GO) run golang.org/x/perf/cmd/benchstat@$(STAT_VERSION) bin/bench/$(OLD).txt bin/bench/$(NEW).txt

.PHONY: bpf
bpf: ## Compile the kernel's part of the receive path again (needs clang-14, llvm-14 and libbpf-dev)
	BPF2GO_CFLAGS="-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/$$(gcc -print-multiarch)" $(GO) generate ./internal/offload/bpf

.PHONY: docs
docs: ## Measure again what the tables in docs/ show (PAGES=docs/dpa.md: only that)
	$(GO) run ./internal/tools/docs $(PAGES)

.PHONY: packages
packages: ## Draw the packages and their imports into docs/packages.md
	$(GO) run ./internal/tools/imports

.PHONY: figure12
figure12: ## Measure the paper's Figure 12 in the lab (needs root, some minutes)
	$(GO) run ./internal/paper/figure12

.PHONY: bench-peers
bench-peers: ## Measure beside Open MPI, MPICH and bare multicast in the lab (needs root, some minutes)
	$(GO) run ./bench/peers

CHAOSFLAGS ?= -time 10m
.PHONY: chaos
chaos: ## Kill, stop and cut off ranks at random in the lab, lose much or cancel calls, and check every call (needs root; CHAOSFLAGS='-mode faults|loss|cancel -time 10m -seed S')
	$(GO) run ./internal/tools/chaos $(CHAOSFLAGS)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

$(LINT):
	GOBIN=$(dir $(LINT)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
