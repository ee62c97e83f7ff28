# Everything a contributor runs. `make help` lists it.

GO            ?= go
FUZZTIME      ?= 10s
BENCH         ?= .
TESTFLAGS     ?=
LINT_VERSION  := v2.14.0

# Tools are built once, outside the repository.
TOOLS ?= $(HOME)/.cache/allcast-ci
LINT  := $(TOOLS)/golangci-lint-$(LINT_VERSION)/golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show the main job: Broadcast and Allgather over multicast, verified
	$(GO) run ./cmd/allcast demo

.PHONY: build
build: ## Build the command into bin/
	$(GO) build -o bin/ ./cmd/allcast

.PHONY: test
test: ## Run all tests with the race detector (needs gcc), and without it what is too long with it
	$(GO) test -race -timeout 20m $(TESTFLAGS) ./...
	$(GO) test -timeout 20m $(TESTFLAGS) . ./internal/engine ./internal/sim

.PHONY: lint
lint: $(LINT) ## Check format, style, and who may import whom
	$(GO) vet ./...
	$(LINT) fmt --diff ./...
	$(LINT) run ./...

.PHONY: fmt
fmt: $(LINT) ## Format the code
	$(LINT) fmt ./...

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (10s)
	GO="$(GO)" bash .ci/fuzz $(FUZZTIME)

.PHONY: spin
spin: ## Check the model of the protocol in formal/ (needs spin and gcc)
	bash formal/check

.PHONY: bench
bench: ## Run the benchmarks that match BENCH, with allocations
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: docs
docs: ## Measure again what the tables in docs/ show
	$(GO) run ./internal/tools/docs

.PHONY: figure12
figure12: ## Measure the paper's Figure 12 in the lab (needs root, some minutes)
	$(GO) run ./internal/tools/figure12

.PHONY: bench-peers
bench-peers: ## Measure beside Open MPI, MPICH and bare multicast in the lab (needs root, some minutes)
	$(GO) run ./bench/peers

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

$(LINT):
	GOBIN=$(dir $(LINT)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
