# Fleetwatch. `make up` builds and runs everything; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN     := $(CURDIR)/bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STRIP   := -s -w
say     := scripts/progress.sh

GO_SOURCES      := $(shell git ls-files -co --exclude-standard -- '*.go' '*.yml' '*.tmpl' '*.html' '*.css' ':!testbed' ':!tools' ':!e2e' ':!*_test.go' 2>/dev/null) go.mod go.sum
TESTBED_SOURCES := $(shell git ls-files -co --exclude-standard -- testbed ':!*_test.go' 2>/dev/null)

KUBE_VERSION := 1.37.2
KUBE_LDFLAGS := -X k8s.io/component-base/version.gitVersion=v$(KUBE_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37

PROGRAMS := $(BIN)/fleetwatch $(BIN)/thanos
TESTBED  := $(BIN)/testbed $(BIN)/kwok $(BIN)/kube-state-metrics $(BIN)/coredns $(BIN)/node-exporter

.PHONY: help up build test test-unit test-testbed test-e2e lint bench generate verify fmt clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: build ## build, then run Fleetwatch; ARGS="--kubeconfig FILE ..." are passed on
	@exec $(BIN)/fleetwatch up $(ARGS)

build: $(PROGRAMS) $(TESTBED) ## build every program into bin/

$(BIN)/fleetwatch: $(GO_SOURCES)
	@$(say) "fleetwatch" "3 min with an empty Go build cache" \
		go build -ldflags '$(STRIP) -X github.com/fleetwatch-io/fleetwatch/internal/buildinfo.version=$(VERSION)' -o $@ ./cmd/fleetwatch
	@touch $@

$(BIN)/testbed: $(TESTBED_SOURCES)
	@$(say) "testbed (etcd and the Kubernetes control plane)" "7 min with an empty Go build cache" \
		go -C testbed build -ldflags '$(STRIP) $(KUBE_LDFLAGS)' -o $@ .
	@touch $@

# One rule per stock program: its module under tools/ pins it.
define tool
$(BIN)/$(1): tools/$(1)/go.mod tools/$(1)/go.sum $$(wildcard tools/$(1)/*.go)
	@$(say) "$(1)" "$(3)" go -C tools/$(1) build $(4) -ldflags '$(STRIP)' -o $$@ $(2)
	@touch $$@
endef
$(eval $(call tool,thanos,github.com/thanos-io/thanos/cmd/thanos,2 min with an empty Go build cache,-tags slicelabels))
$(eval $(call tool,kwok,sigs.k8s.io/kwok/cmd/kwok,2 min with an empty Go build cache))
$(eval $(call tool,kube-state-metrics,k8s.io/kube-state-metrics/v2,2 min with an empty Go build cache))
$(eval $(call tool,coredns,.,1 min with an empty Go build cache))
$(eval $(call tool,node-exporter,github.com/prometheus/node_exporter,1 min with an empty Go build cache))
$(eval $(call tool,alertmanager,github.com/prometheus/alertmanager/cmd/alertmanager,1 min with an empty Go build cache))
$(eval $(call tool,promtool,github.com/prometheus/prometheus/cmd/promtool,4 min with an empty Go build cache))
$(eval $(call tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,2 min with an empty Go build cache))

test: build test-unit test-testbed test-e2e ## every test: unit and CLI (race detector), testbed, end to end

# The packages that start real clusters run alone, after the others.
test-unit: $(BIN)/fleetwatch $(BIN)/thanos
	@echo "unit tests and CLI scripts, race detector on (6 min with an empty Go build cache)"
	go test -race -timeout 15m $$(go list ./... | grep -v /e2e)

test-testbed: $(TESTBED)
	go -C testbed test -timeout 10m ./...

test-e2e: build
	@echo "end to end on real clusters"
	go test -count=1 -timeout 20m -v ./e2e/...

# testbed/kube is left out: it is 40 lines, and linting it type-checks all of
# Kubernetes, which takes 8 GB and more than a quarter of an hour.
lint: $(BIN)/golangci-lint ## golangci-lint over both modules
	$(BIN)/golangci-lint run ./...
	cd testbed && $(BIN)/golangci-lint run --config ../.golangci.yml ./internal/... ./e2e/...

bench: build ## the measured figures, each with its bar
	@scripts/bench.sh

generate: ## rewrite what is made from the code: docs/cli.md, docs/checks.md, docs/metrics.md
	go test ./cmd/fleetwatch ./inspect/checks -run Reference -update

fmt: ## format
	gofmt -w $$(git ls-files -co --exclude-standard -- '*.go')

verify: lint ## what a change must pass before it lands
	@test -z "$$(gofmt -l $$(git ls-files -co --exclude-standard -- '*.go'))" || { gofmt -l $$(git ls-files -- '*.go'); echo "not gofmt-ed: run make fmt"; exit 1; }
	go vet ./... && go -C testbed vet ./...
	go fix -diff ./...
	$(MAKE) generate
	git diff --exit-code
	$(MAKE) test

clean: ## remove bin/, and the data that make up left here
	@test ! -e .fleetwatch/lock || flock -n .fleetwatch/lock true || { echo "a Fleetwatch runs here (pid $$(cat .fleetwatch/lock)): stop it first"; exit 1; }
	rm -rf $(BIN) .fleetwatch .testbed
