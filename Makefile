# Targets for contributors. `make help` lists them.

GO            ?= go
FUZZTIME      ?= 10s
BENCH         ?= .
TESTFLAGS     ?=
MUTANTS       ?=
LINT_VERSION  := v2.14.0
STAT_VERSION  := v0.0.0-20260908200009-22c9c6c9d4da

# bench-save runs these benchmarks and bench-diff compares them, except for benchmarks of sockets, which
# vary with the load of the machine.
NAME          ?= new
OLD           ?= old
NEW           ?= new
BENCHTIME     ?= 100ms
MICRO         := ./internal/mcast ./internal/wire ./internal/p2p ./internal/node ./internal/fabric/session ./internal/fabric/ip \
                 ./internal/reduce
SOCKETS       := ^Benchmark(Send|Receive|SendReceive|TCP.*)$$

# A suite is a package. The tests of SUITES_DATAPATH work on any datapath. internal/e2e/secure is not
# among them, because the kernel can neither decrypt nor verify checksums. Neither is internal/e2e/offload,
# because its tests choose the datapath themselves.
SUITES_DATAPATH := . ./internal/e2e/observe

# Packages with code for the build tag verbs.
VERBS         := ./internal/fabric/verbs ./internal/world ./cmd/allcast/...

# Tools are built once, outside the repository.
TOOLS ?= $(HOME)/.cache/allcast-ci
LINT  := $(TOOLS)/golangci-lint-$(LINT_VERSION)/golangci-lint

# PyTorch for tests, in a virtual environment of its own. TORCH_VERSION=2.9.1 tests another release.
TORCH_VERSION  ?= 2.15.0
TORCH          := $(TOOLS)/torch-$(TORCH_VERSION)
TORCH_PACKAGES := torch==$(TORCH_VERSION) numpy safetensors pytest expecttest hypothesis
TORCH_RUN       = PYTHONPATH=$(CURDIR)/bindings/python/src ALLCAST_LIBRARY=$(CURDIR)/bin/lib/liballcast.so $(TORCH)/bin/python

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

# ALLCAST_ABI of bindings/c/include/allcast.h
ABI         := 1
LIB         ?= bin/lib
LIB_LDFLAGS := -Wl,-soname,liballcast.so.$(ABI) -Wl,--version-script=$(CURDIR)/bindings/c/allcast.map

RELEASEFLAGS ?=
.PHONY: release
release: ## Build binaries for all systems, checksums, a bill of materials and a container file into bin/release (offline)
	$(GO) run ./internal/tools/release $(RELEASEFLAGS)

.PHONY: release-check
release-check: ## Build the release twice, the second time elsewhere and without a build cache, and compare all bytes
	$(GO) run ./internal/tools/release -twice -cold $(RELEASEFLAGS)

.PHONY: lib
lib: ## Build the C library, its header and its pkg-config file into LIB (bin/lib; needs gcc)
	$(GO) build -buildmode=c-shared -o $(LIB)/liballcast.so -ldflags '-extldflags "$(LIB_LDFLAGS)"' ./bindings/c
	@rm -f $(LIB)/liballcast.h # cgo writes it, for use with Go
	@ln -sf liballcast.so $(LIB)/liballcast.so.$(ABI)
	@cp bindings/c/include/allcast.h $(LIB)/
	@sed "s/@VERSION@/$$(sed -n 's/^const Version = "\(.*\)"/\1/p' options.go)/" bindings/c/allcast.pc.in >$(LIB)/allcast.pc

# One build per MPI, because their ABIs differ. MPICC=mpicc builds with one compiler, into LIB/mpi.
MPI_NAMES  := openmpi mpich
MPI_CFLAGS := -std=gnu11 -O2 -g -fPIC -Wall -Wextra -Werror -fvisibility=hidden -Ibindings/c/include
MPI_FLAGS  ?=
MPI_CORE   := $(addprefix bindings/mpi/,native.c comm.c join.c data.c transfer.c calls.c requests.c stats.c init.c fortran.c)

.PHONY: mpi
mpi: lib ## Build the library for MPI programs into LIB/openmpi and LIB/mpich (MPICC=mpicc: with that compiler, into LIB/mpi)
	@if [ -n "$(MPICC)" ]; then $(MAKE) --no-print-directory mpi-one MPICC="$(MPICC)" MPI_DIR=$(LIB)/mpi; else \
		found=; for name in $(MPI_NAMES); do \
			if command -v mpicc.$$name >/dev/null; then found=1; \
				$(MAKE) --no-print-directory mpi-one MPICC=mpicc.$$name MPI_DIR=$(LIB)/$$name || exit 1; \
			fi; \
		done; \
		if [ -z "$$found" ]; then echo 'found neither mpicc.openmpi nor mpicc.mpich: set MPICC' >&2; exit 1; fi; \
	fi

# Builds the two objects with MPICC into MPI_DIR.
.PHONY: mpi-one
mpi-one:
	@mkdir -p $(MPI_DIR)
	$(MPICC) $(MPI_CFLAGS) $(MPI_FLAGS) -shared -o $(MPI_DIR)/liballcast_mpi_core.so $(MPI_CORE) -pthread -ldl
	$(MPICC) $(MPI_CFLAGS) $(MPI_FLAGS) -fvisibility=default -shared -Wl,--as-needed -o $(MPI_DIR)/liballcast_mpi.so \
		bindings/mpi/preload.c -pthread -ldl

GATE      := GOFLAGS='-buildvcs=false -trimpath' $(GO) run ./internal/tools/gate
GATEFLAGS ?=

.PHONY: test
test: ## Test what users rely on, in a few minutes (needs only Go; GATEFLAGS='-only pure' runs one stage)
	@$(GATE) test $(GATEFLAGS)

.PHONY: check
check: ## Run the checks that every change must pass (needs gcc; CHECK=all: also those whose inputs have not changed)
	@$(GATE) check $(GATEFLAGS)

.PHONY: soak
soak: ## Explore for hours: new seeds, race detector everywhere, fuzzing, chaos, mutants (needs root; CHAOSTIME=10m)
	@$(GATE) soak $(GATEFLAGS)

.PHONY: test-c
test-c: ## Test the C library with C programs under AddressSanitizer (needs gcc)
	$(GO) test -count 1 -timeout 20m $(TESTFLAGS) ./bindings/c/...

# MPI_CALLS=10000 makes the random program longer.
.PHONY: test-mpi
test-mpi: ## Test the library for MPI programs under the MPIs that are installed (needs gcc; MPI_CALLS=10000 TESTFLAGS='-run Random')
	MPI_TESTS=1 $(GO) test -count 1 -timeout 30m $(TESTFLAGS) ./bindings/mpi/...

.PHONY: test-mpi4py
test-mpi4py: mpi ## Run mpi4py's test suite with and without the library, under each MPI (needs PyPI once, and some minutes)
	bash bindings/mpi/tests/mpi4py.sh $(LIB) $(TOOLS)

# The tools of the Python package, with pinned versions from PyPI.
PYTHON       ?= python3
PYTHON_NEEDS := bindings/python/requirements-dev.txt
PYTHON_TOOLS  = $(TOOLS)/python-$(firstword $(shell cksum $(PYTHON_NEEDS)))
PYTHON_DIR   := $(CURDIR)/bin/python
PYTHON_CODE  := . ../../examples/python ../../examples/torch ../../bench/torch

.PHONY: python-tools
python-tools: ## Install the tools of test-python (needs PyPI once)
	@if [ ! -e $(PYTHON_TOOLS)/complete ]; then \
		$(PYTHON) -m venv --clear $(PYTHON_TOOLS) && \
		$(PYTHON_TOOLS)/bin/python -m pip install --quiet -r $(PYTHON_NEEDS) && touch $(PYTHON_TOOLS)/complete; \
	fi

.PHONY: wheel
wheel: python-tools ## Build the Python wheel into bin/wheel/, for glibc 2.17 and later
	@rm -rf bin/wheel
	GO="$(GO)" $(PYTHON_TOOLS)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation -w bin/wheel ./bindings/python
	@$(PYTHON_TOOLS)/bin/auditwheel show bin/wheel/*.whl

.PHONY: python-package
python-package: wheel # The wheel in bin/python, for tests.
	@rm -rf $(PYTHON_DIR)
	@$(PYTHON_TOOLS)/bin/python -m pip install --quiet --no-deps --no-index --target $(PYTHON_DIR) bin/wheel/*.whl

.PHONY: lint-python
lint-python: python-tools ## Check format, style and types of the Python package
	cd bindings/python && $(PYTHON_TOOLS)/bin/ruff format --config pyproject.toml --diff $(PYTHON_CODE)
	cd bindings/python && $(PYTHON_TOOLS)/bin/ruff check --config pyproject.toml $(PYTHON_CODE)
	cd bindings/python && $(PYTHON_TOOLS)/bin/mypy

.PHONY: test-python
test-python: lint-python python-package ## Check and test the Python package as the wheel installs it (needs PyPI once)
	cd bindings/python && PYTHONPATH=$(PYTHON_DIR) $(PYTHON_TOOLS)/bin/python -m pytest $(TESTFLAGS)

.PHONY: torch
torch: ## Install PyTorch for tests outside the repository, unless it is there (several GB)
	@$(TORCH)/bin/python -c 'import torch, numpy, safetensors, pytest, expecttest, hypothesis' 2>/dev/null || \
		{ $(PYTHON) -m venv $(TORCH) && $(TORCH)/bin/pip install --quiet $(TORCH_PACKAGES); }

.PHONY: test-torch
test-torch: lib torch python-tools ## Test the PyTorch backend: its types, its own tests except the longest, and some of PyTorch's
	cd bindings/python && $(PYTHON_TOOLS)/bin/mypy --python-executable $(TORCH)/bin/python src/allcast/torch/*.py
	$(TORCH_RUN) -m pytest -q -rs -m 'not long' bindings/python/tests_torch
	$(TORCH_RUN) bindings/python/tests_torch/suite.py --quick

.PHONY: test-torch-all
test-torch-all: lib torch ## Test the PyTorch backend with all of PyTorch's distributed tests, and compare with gloo
	$(TORCH_RUN) -m pytest -q -rs bindings/python/tests_torch
	$(TORCH_RUN) bindings/python/tests_torch/suite.py

.PHONY: test-network
test-network: ## Test doctor, the tutorial and MPI's launchers on hosts of a lab with sshd (needs root and openssh-server)
	ALLCAST_TEST_NETWORK=1 $(GO) test -count 1 -timeout 20m $(TESTFLAGS) ./cmd/allcast/internal/run \
		./cmd/allcast/internal/doctor ./cmd/allcast/internal/docstest

.PHONY: test-manifests
test-manifests: ## Decode the Kubernetes manifests of docs/ strictly (needs the Go proxy once)
	cd internal/tools/manifests && $(GO) test -count 1 $(TESTFLAGS) ./...

.PHONY: test-offload
test-offload: ## Run SUITES_DATAPATH with the kernel's datapath (needs root)
	@for h in sockfilter tcx; do \
		echo "ALLCAST_DATAPATH=bpf ALLCAST_HOOK=$$h"; \
		ALLCAST_DATAPATH=bpf ALLCAST_HOOK=$$h $(GO) test -p 1 -count 1 -timeout 20m $(TESTFLAGS) $(SUITES_DATAPATH) || exit 1; \
	done

.PHONY: lint
lint: $(LINT) ## Check format, style and imports
	$(GO) vet ./...
	$(LINT) fmt --diff ./...
	$(LINT) run ./...
	@if [ -e /usr/include/infiniband/verbs.h ] && [ -e /usr/include/rdma/rdma_cma.h ]; then \
		echo $(LINT) run --build-tags verbs $(VERBS); $(LINT) run --build-tags verbs $(VERBS); \
	else echo 'skipped: lint with the build tag verbs, because RDMA headers are not installed'; fi

.PHONY: vet-systems
vet-systems: ## Compile and vet all packages and their tests for macOS and Windows
	@for os in darwin windows; do \
		echo "GOOS=$$os CGO_ENABLED=0 $(GO) vet ./..."; GOOS=$$os CGO_ENABLED=0 $(GO) vet ./... || exit 1; \
	done

.PHONY: fmt
fmt: $(LINT) ## Format the code
	$(LINT) fmt ./...

# The guest has its own kernel and Soft-RoCE devices, so the host needs no RDMA hardware, KVM or
# privileges. As root, the target installs missing packages.
VERBSFLAGS ?=
.PHONY: test-verbs
test-verbs: ## Test the verbs fabric on Soft-RoCE in a QEMU guest (VERBSFLAGS='-run TestLoss'; -skip: skip if QEMU is missing)
	$(GO) run ./internal/tools/verbsguest $(VERBSFLAGS)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (10s)
	GO="$(GO)" bash .ci/fuzz $(FUZZTIME)

.PHONY: mutants
mutants: ## Check that the simulator's tests catch each of a list of mistakes in the receive path (MUTANTS=regexp)
	$(GO) run ./internal/tools/mutants -run '$(MUTANTS)'

.PHONY: spin
spin: ## Check the models of the protocols in formal/ (needs spin and gcc)
	bash formal/check

.PHONY: bench
bench: ## Run the benchmarks that match BENCH, and report allocations
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# Six rounds over all benchmarks instead of -count 6: if the machine is slow for a while, many benchmarks
# vary more, instead of one that seems to have changed.
.PHONY: bench-save
bench-save: ## Run the micro benchmarks 6 times and save the results in bin/bench/NAME.txt (NAME=new)
	@mkdir -p bin/bench && rm -f bin/bench/$(NAME).tmp
	@for round in 1 2 3 4 5 6; do \
		echo "round $$round of 6"; \
		$(GO) test -run '^$$' -bench '$(BENCH)' -skip '$(SOCKETS)' -benchmem -benchtime $(BENCHTIME) -count 1 -timeout 1h $(MICRO) \
			>>bin/bench/$(NAME).tmp || { cat bin/bench/$(NAME).tmp; exit 1; }; \
	done
	@mv bin/bench/$(NAME).tmp bin/bench/$(NAME).txt

.PHONY: bench-diff
bench-diff: ## Compare results of bench-save (OLD=old NEW=new), with confidence intervals
	$(GO) run golang.org/x/perf/cmd/benchstat@$(STAT_VERSION) bin/bench/$(OLD).txt bin/bench/$(NEW).txt

BPF_CC = clang-14 -O2 -g -Wall -Werror -mcpu=v3 -target bpfel -fno-ident -fdebug-compilation-dir=. \
	-I/usr/include/$$(gcc -print-multiarch)

.PHONY: bpf
bpf: ## Recompile the eBPF program of the receive path (needs clang-14, llvm-14 and libbpf-dev)
	cd internal/offload/bpf && $(BPF_CC) -c place.c -o place.o && $(BPF_CC) -DFAULTS -c place.c -o fault.o && \
		llvm-strip-14 -g place.o fault.o

.PHONY: docs
docs: ## Measure the tables in docs/ again (PAGES=docs/dpa.md: only those of one page)
	$(GO) run ./internal/tools/docs $(PAGES)

.PHONY: packages
packages: ## Draw the packages and their imports in docs/packages.md
	$(GO) run ./internal/tools/docs docs/packages.md

.PHONY: figure12
figure12: ## Measure Figure 12 of the paper in the lab (needs root and some minutes)
	$(GO) run ./internal/paper/figure12

.PHONY: bench-peers
bench-peers: ## Compare with Open MPI, MPICH and bare multicast in the lab (needs root and some minutes)
	$(GO) run ./bench/peers

OVERSUBSCRIBEDFLAGS ?=
.PHONY: bench-oversubscribed
bench-oversubscribed: ## Compare on oversubscribed networks in the lab (needs root; OVERSUBSCRIBEDFLAGS='-parts agree')
	$(GO) run ./bench/peers oversubscribed $(OVERSUBSCRIBEDFLAGS)

TRANSFERFLAGS ?=
.PHONY: bench-transfer
bench-transfer: ## Compare allcast send with UFTP and TCP in the lab (needs root and uftp; TRANSFERFLAGS='-parts fast')
	$(GO) run ./bench/transfer $(TRANSFERFLAGS)

SCALEFLAGS ?=
.PHONY: bench-scale
bench-scale: ## Measure how Allcast scales, row by row (needs root; SCALEFLAGS='-list', a row's name, '-markdown docs/benchmarks.md')
	$(GO) run ./bench/scale $(SCALEFLAGS)

CHAOSFLAGS ?= -time 10m
.PHONY: chaos
chaos: ## Inject random faults in the lab and check every call (needs root; CHAOSFLAGS='-mode faults|loss|cancel|leave|aggregators -time 10m -seed S')
	$(GO) run ./internal/tools/chaos $(CHAOSFLAGS)

.PHONY: clean
clean: ## Remove build outputs
	rm -rf bin

$(LINT):
	GOBIN=$(dir $(LINT)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
