# The two commands: `make train` and `make test`. Each target calls a script or CMake; `make help` lists them.
PRESET ?= release
BUILD := build/$(PRESET)
PREFIX ?= /usr/local
# Not every shell has replaced the ~.
INTO = $(abspath $(patsubst ~/%,$(HOME)/%,$(PREFIX)))
JOBS ?= $(shell nproc)
MAIN_JOB := ./$(BUILD)/ballast train --config configs/first_run.toml --workers 2 --report

.DEFAULT_GOAL := help
.PHONY: all help setup build install train test test-long dist wheel format tidy twin clean

help: ## this list
	@echo 'make TARGET [PRESET=release|debug|asan|tsan] [LIBTORCH=/path/to/libtorch]'
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

train: build ## install what is missing, build, and train the first model (a few minutes on two cores)
	$(MAIN_JOB)

test: all ## install what is missing, build, and run all tests but the long ones
	ctest --preset $(PRESET) --parallel $(JOBS) --label-exclude '^long$$'

test-long: all ## the tests that take minutes each
	ctest --preset $(PRESET) --parallel $(JOBS) --label-regex '^long$$'

all:
	@tools/setup --tests
	@tools/build $(PRESET) all

build: setup ## build the program: build/release/ballast
	@tools/build $(PRESET) program

setup: ## install what is missing to build
	@tools/setup

install: build ## install the program, libraries and headers into PREFIX (/usr/local)
	@cmake --install $(BUILD) --strip --prefix $(INTO) >$(BUILD)/install.log
	@echo 'installed: $(DESTDIR)$(INTO)/bin/ballast, and what $(BUILD)/install_manifest.txt lists'

dist: setup ## pack a folder that runs on another machine; INSIDE=libtorch: one with libtorch, for the CPU
	@tools/build release $(if $(INSIDE),program,all)
	@tools/dist $(if $(INSIDE),--inside $(INSIDE))

wheel: setup ## pack the Python package: dist/ballast-VERSION-py3-none-linux_x86_64.whl
	@.deps/python/bin/python -m pip wheel --no-deps --wheel-dir dist .

format: ## format the C++ files that git tracks
	@tools/setup --tests
	@tools/format

tidy: setup ## run clang-tidy over the library and the program (slow)
	@tools/build $(PRESET) all
	@tools/tidy $(BUILD)

twin: ## a Python environment with a whole PyTorch, for comparisons: .deps/twin
	@tools/setup --twin

clean: ## delete what was built; what was installed in .deps stays
	rm -rf build dist
