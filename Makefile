# The one door: what a person or a CI types. Every target does its own set-up.
# The work is in CMakePresets.json and tools/; this file only names it.

# Debian's own interpreter: python3-matplotlib belongs to it and not to another one in PATH.
PYTHON ?= /usr/bin/python3

ifneq ($(shell command -v ccache 2>/dev/null),)
export CMAKE_C_COMPILER_LAUNCHER ?= ccache
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
# For the precompiled headers.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
endif

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-aarch64 test-python test-torch bench study accuracy deb wheel wheel-aarch64 docs \
  lint format clean

help:
	@echo 'make demo       train MNIST over a 100 Mbit/s link, raw and with 3LC, and compare'
	@echo 'make test       all tests, sanitizers, a fuzz smoke and lints; 24 to 45 minutes on 2 cores'
	@echo 'make test-full  everything at length: full sanitizer suites, longer fuzzing, kill campaign'
	@echo 'make test-aarch64 formats and codecs for aarch64, compiled here and run under qemu-user'
	@echo 'make test-python the Python package on a release build, with ruff and mypy'
	@echo 'make test-torch tern.torch and PyTorch'"'"'s own suite, in an environment of 1.4 GB outside of the tree'
	@echo 'make bench      codecs, and all-reduce beside Gloo and iperf3 on shaped links'
	@echo 'make study      every codec on recorded gradients and weights; rewrites the study in docs/codecs.md'
	@echo 'make accuracy   trains with every family of recipes, and with a server; rewrites docs/codecs.md'
	@echo 'make deb        Debian packages in build/deb, checked by lintian'
	@echo 'make wheel      the Python package with library and daemon, in build/wheels'
	@echo 'make wheel-aarch64 that for aarch64, compiled here and tried under qemu-user, in build/wheels-aarch64'
	@echo 'make docs       the reference of the Python package, a site in build/docs'
	@echo 'make lint       layer, tidy, docs and format checks, clang-tidy on changed files'
	@echo 'make format     apply clang-format to all files'
	@echo 'make clean      remove build/'

demo:
	tools/install_dependencies.sh demo
	cmake --preset release
	cmake --build --preset release --target ternd ternctl train_mnist
	$(PYTHON) tools/demo.py $(DEMO_FLAGS)

test:
	tools/install_dependencies.sh test
	$(PYTHON) tools/run_tests.py

test-full:
	tools/install_dependencies.sh full
	tools/make_deb.sh
	$(PYTHON) tools/run_tests.py --full

test-aarch64:
	tools/install_dependencies.sh aarch64
	$(PYTHON) tools/run_tests.py --stage aarch64

test-python:
	tools/install_dependencies.sh test
	cmake --preset release
	cmake --build --preset release --target tern ternd ternctl
	PYTHON=$(PYTHON) tools/python_tests.sh build/release/bin

test-torch:
	tools/install_dependencies.sh torch
	cmake --preset release
	cmake --build --preset release --target tern ternd ternctl
	PYTHON=$(PYTHON) tools/torch_tests.sh build/release/bin $(TORCH_FLAGS)

bench:
	tools/install_dependencies.sh test
	cmake --preset release
	cmake --build --preset release --target ternd ternctl tern-bench train_mnist
	$(PYTHON) tools/bench.py $(BENCH_FLAGS)

study:
	tools/install_dependencies.sh demo
	cmake --preset release
	cmake --build --preset release --target tern-bench train_mnist train_chars
	$(PYTHON) tools/study.py $(STUDY_FLAGS)

accuracy:
	tools/install_dependencies.sh demo
	cmake --preset release
	cmake --build --preset release --target ternd ternctl train_mnist
	$(PYTHON) tools/accuracy.py $(ACCURACY_FLAGS)

deb:
	tools/install_dependencies.sh deb
	tools/make_deb.sh

wheel:
	tools/install_dependencies.sh wheel
	PYTHON=$(PYTHON) tools/make_wheel.sh

wheel-aarch64:
	tools/install_dependencies.sh aarch64
	cmake --preset release
	cmake --build --preset release --target tern ternd ternctl
	PYTHON=$(PYTHON) tools/make_wheel.sh aarch64
	PYTHON=$(PYTHON) tools/try_wheel_aarch64.sh build/release/bin

docs:
	tools/install_dependencies.sh wheel
	PYTHON=$(PYTHON) tools/make_docs.sh

lint:
	tools/install_dependencies.sh test
	cmake --preset tidy
	PYTHON=$(PYTHON) tools/lint.sh

format:
	tools/install_dependencies.sh test
	git ls-files '*.cc' '*.h' '*.c' '*.hpp' | xargs -r clang-format -i

clean:
	rm -rf build
