# modelhost: `make demo` shows it, `make test` tests it, `make` lists everything.
.DEFAULT_GOAL := help
.PHONY: help demo demo-down test lint unit molecule bench lock clean

# Containers need root; where we are not root, sudo is asked for.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)
ENGINE ?=
PYTHON ?=
SCENARIO ?=
ONLY ?=

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

demo: ## Provision a container host, serve a real model, switch it, measure it
	@$(AS_ROOT) tools/demo

demo-down: ## Remove everything that `make demo` made on this machine
	@$(AS_ROOT) tools/demo-down

test: lint unit molecule ## Run all tests

lint: .venv ## yamllint and ansible-lint, production profile
	.venv/bin/yamllint --strict .
	PATH="$(CURDIR)/.venv/bin:$$PATH" ansible-lint --offline --profile production --strict

unit: .venv ## Tests that need no host, a file of them on each processor
	@tools/programs
	PATH="$(CURDIR)/.venv/bin:$$PATH" pytest -q --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 12

molecule: .venv ## Tests on systemd hosts in containers; one of them: make molecule SCENARIO=standin
	@$(AS_ROOT) tools/molecule $(SCENARIO)

bench: .venv ## Measure against floors in the same run, on the host of `make demo`; one of them: make bench ONLY=install
	@$(AS_ROOT) tools/view .venv/bin/python bench/bench.py $(if $(ONLY),--only $(ONLY))

lock: .venv ## Make a lock anew: make lock ENGINE=vllm-0.33.0 PYTHON=3.12; without ENGINE the controller's
	@tools/lock $(ENGINE) $(PYTHON)

clean: ## Remove the controller's environment and caches
	rm -rf .venv .cache artifacts

.venv: FORCE
	@tools/controller
FORCE:
