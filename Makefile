# `make` lists what there is. Everything is built for release, so that one build serves running and testing.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build quickstart test test-gpu format lint deny generate clean libtorch editor-tools

TARGET := $(or $(CARGO_TARGET_DIR),target)
# Continuous integration fails where Cargo.lock does not fit, and has cargo-deny built where it is missing.
LOCKED := $(if $(CI),--locked)

# The build script of torch-sys runs in a folder of its own, and takes empty variables for set ones.
ifeq ($(LIBTORCH),)
unexport LIBTORCH
else
override export LIBTORCH := $(shell realpath -m '$(LIBTORCH)')
endif
ifeq ($(LIBTORCH_USE_PYTORCH),)
unexport LIBTORCH_USE_PYTORCH
endif

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(or $(shell command -v cargo-deny),$(wildcard target/tools/bin/cargo-deny))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: libtorch ## Put libtorch in place and build the release binaries `rlpipe` and `rlpipe-worker`
	cargo build --release --workspace --bins $(LOCKED)

quickstart: build ## Build, then train a small model on this machine: pipelines/quickstart.yaml
	$(TARGET)/release/rlpipe run pipelines/quickstart.yaml

test: format build lint editor-tools ## Build, then check format, lints, every test and the licences of dependencies
	@if cargo nextest --version >/dev/null 2>&1; then \
		set -x; cargo nextest run --release --workspace $(LOCKED) && cargo test --doc --release --workspace $(LOCKED); \
	else \
		set -x; cargo test --release --workspace --no-fail-fast $(LOCKED); \
	fi
	@if [ -n "$(CI)$(CARGO_DENY)" ]; then \
		$(MAKE) --no-print-directory deny; \
	else \
		echo "licences, bans and sources of dependencies are not checked: \`make deny\` builds cargo-deny, then checks"; \
	fi

test-gpu: build ## Run all tests of the worker on this machine's card, which must be there
	RLPIPE_TEST_CARD=1 cargo test --release -p rlpipe-torch --no-fail-fast $(LOCKED)

format: # Formatting alone
	cargo fmt --all --check -- -l || { echo 'these files are not formatted: run `cargo fmt --all`'; exit 1; }

lint: libtorch ## Clippy alone, warnings denied
	cargo clippy --release --workspace --all-targets $(LOCKED) -- -D warnings

deny: $(or $(CARGO_DENY),target/tools/bin/cargo-deny) ## Check licences, bans and sources of dependencies (builds cargo-deny, 2 min, once)
	$< check licenses bans sources

generate: ## Write anew what is made from code: the schema, the reference pages, expected faults and output
	RLPIPE_WRITE=1 cargo test --release -p rlpipe-tests --test compile $(LOCKED)
	RLPIPE_WRITE=1 cargo test --release -p rlpipe --test verbs $(LOCKED)

target/tools/bin/cargo-deny:
	cargo install --locked --root target/tools --no-default-features cargo-deny@$(CARGO_DENY_VERSION)

libtorch:
	@scripts/libtorch.sh

editor-tools:
	@scripts/editor_tools.sh

clean: ## Remove everything that was built or fetched (`runs/` stays)
	cargo clean
	rm -rf libtorch libtorch.partial.*
