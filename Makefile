# The few commands of this project. They only call scripts/, which explain
# themselves with --help.
.DEFAULT_GOAL := help
.PHONY: help demo check test lint build clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the whole shop here, with a load; Ctrl-C ends it
	@scripts/demo

check: ## place 500 orders, kill processes meanwhile, and prove that nothing is lost or doubled
	@scripts/demo --check --orders 500 --kill

test: ## every test, against a real PostgreSQL and a real nats-server
	@scripts/test

lint: ## form: gofmt, vet, golangci-lint, shellcheck
	@scripts/lint

build: ## all programs into .orderpaid/bin
	@go build -o .orderpaid/bin/ ./cmd/...

clean: ## forget the demo's data, logs and programs
	@rm -rf .orderpaid
