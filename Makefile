# Every target does its own set-up: a fresh clone needs Python >= 3.11, pip and make, nothing else.
# `make` or `make help` lists the targets. Choose the Python with `make PYTHON=python3.12 test`.

PYTHON ?= python3
BIN := .venv/bin
# Python writes .pyc files, also where the environment says no: tests start hundreds of processes, and without the files
# each compiles the package again, which takes a second.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-threads test-cuda test-cuda-compile test-hip test-metal test-hip-compile test-wasm test-export test-llvm-targets test-opencl test-webgpu test-mpi test-targets test-units compiled test-compiled check surface bench bench-quick bench-against bench-host bench-eager bench-export bench-devices bench-cuda golden choices corpus docs site clean
.PHONY: clang emulators node pocl vulkan
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.stamp-demo ## train on handwritten digits, save, load, show the kernels
	$(BIN)/python examples/digits.py

# a process for each core, eight at most: kernels have threads of their own
PARALLEL := -n auto --maxprocesses 8 --dist worksteal

SOME := --draw=32

test: .venv/.stamp-test ## run the tests, without the slow ones; of the cells of sweeps one in thirty-two
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(SOME)

test-all: .venv/.stamp-test ## run all tests and all cells, with many more random examples
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=thorough

test-threads: .venv/.stamp-test ## run the tests with 1, 3, 4 and 8 threads: the number changes the plans
	set -e; for n in 1 3 4 8; do THREADS=$$n $(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(SOME); done

test-cuda-compile: .venv/.stamp-test .venv/.stamp-cuda-compile ## compile kernels for NVIDIA GPUs; none is needed
	$(BIN)/python -m pytest $(PARALLEL) tests/backend/test_gpu_compile.py -k "not hip and not clang" -rs
	$(BIN)/python -m pytest $(PARALLEL) tests/backend/test_llvm_gpu.py -k "not amd and not linker and not spirv" -rs

test-cuda: .venv/.stamp-test .venv/.stamp-cuda ## run everything that CUDA runs; needs an NVIDIA GPU and its driver
	$(BIN)/monolect devices
	$(BIN)/python -m pytest tests/backend -k cuda -rs

test-hip: .venv/.stamp-test ## run everything that HIP runs; needs an AMD GPU, its driver, and clang or lld
	$(BIN)/monolect devices
	$(BIN)/python -m pytest tests/backend -k hip -rs

# What targets without a GPU need is installed where it is not there. Packages of TOOLS are unpacked beside the sources:
# that needs Debian's apt, and no rights; node and drivers are installed as packages of the system.
TOOLS := PATH="$$PWD/.tools/usr/bin:$$PATH" LD_LIBRARY_PATH="$$PWD/.tools/usr/lib/$$(uname -m)-linux-gnu"
PACKAGES_clang := clang-19 lld-19 libclang-cpp19 libllvm19 libclang-common-19-dev
PACKAGES_emulators := qemu-user qemu-user-static spirv-tools # from Debian 13 on, the second has only links to the first
UNPACK = $(MAKE) --no-print-directory .tools/.stamp-$@
INSTALL = if [ "$$(id -u)" = 0 ]; then root=; else root=sudo; fi; $$root apt-get update -qq && $$root apt-get install -y -qq

.tools/.stamp-%:
	@mkdir -p .tools
	cd .tools && apt-get download $(PACKAGES_$*) && \
	  for package in *.deb; do dpkg -x "$$package" . || exit 1; done && rm -f *.deb
	@touch $@

clang:
	@command -v clang-19 && command -v ld.lld-19 && command -v wasm-ld-19 || $(UNPACK)
emulators:
	@command -v qemu-aarch64-static && command -v spirv-val || $(UNPACK)
node:
	@command -v node || { $(INSTALL) nodejs; }
pocl:
	@ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || { $(INSTALL) pocl-opencl-icd ocl-icd-libopencl1; }
vulkan:
	@ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2>/dev/null | grep -q . || { \
	  $(INSTALL) mesa-vulkan-drivers; }

test-units: .venv/.stamp-test ## run the tests of products under the matrix units of x86 processors, in software
	for u in amx bf16 vnni avxvnni; do EMULATE_UNITS=$$u $(BIN)/python -m pytest $(PARALLEL) -m "not slow" \
	  tests/unit/test_narrow_products.py tests/unit/test_linalg.py tests/unit/test_conv.py tests/unit/test_nn.py || exit 1; done

test-metal: .venv/.stamp-test .venv/.stamp-metal ## run everything that Metal runs; needs a Mac
	$(BIN)/monolect devices
	$(BIN)/python -m pytest tests/backend -k metal -rs

test-hip-compile: .venv/.stamp-test clang ## compile kernels for AMD GPUs; none is needed, nor ROCm
	$(TOOLS) $(BIN)/python -m pytest $(PARALLEL) tests/backend/test_gpu_compile.py tests/backend/test_llvm_gpu.py \
	  -k "hip or clang or amd or linker" -rs

test-wasm: .venv/.stamp-test clang node ## link kernels as WebAssembly and run them in node
	$(TOOLS) $(BIN)/python -m pytest tests/backend/test_elsewhere.py -k wasm32 -rs

test-export: .venv/.stamp-test clang node ## export models as C and WebAssembly, build and run them
	$(TOOLS) $(BIN)/python -m pytest tests/export -rs

test-llvm-targets: .venv/.stamp-test clang emulators ## run kernels of AArch64 and RISC-V under qemu, validate SPIR-V
	$(TOOLS) $(BIN)/python -m pytest $(PARALLEL) tests/backend/test_elsewhere.py tests/backend/test_llvm_gpu.py \
	  -k "not wasm32" -rs

# The methods of Tensor that run on a device beside the tests of its own.
ON_DEVICES := $(patsubst %,tests/backend/test_%.py,group_devices training methods ops_suite)

test-opencl: .venv/.stamp-test .venv/.stamp-opencl pocl ## run everything that OpenCL runs, on PoCL where no driver is
	$(BIN)/monolect devices
	$(BIN)/python -m pytest $(PARALLEL) tests/unit/test_handles.py tests/backend/test_opencl.py
	$(BIN)/python -m pytest $(PARALLEL) $(ON_DEVICES) -k opencl

test-webgpu: .venv/.stamp-test .venv/.stamp-webgpu vulkan ## run everything that WebGPU runs, by software where no driver is
	$(BIN)/monolect devices
	$(BIN)/python -m pytest $(PARALLEL) tests/backend/test_webgpu.py
	$(BIN)/python -m pytest $(PARALLEL) $(ON_DEVICES) -k webgpu

test-mpi: .venv/.stamp-test .venv/.stamp-mpi ## jobs of several processes on this machine
	$(BIN)/python -m pytest tests/distributed -rs

# What the targets above run, once and together, and the rest of the folder.
EXTRAS := $(patsubst %,.venv/.stamp-%,cuda-compile opencl webgpu)
INSTALLED := clang emulators node pocl vulkan

test-targets: .venv/.stamp-test $(EXTRAS) $(INSTALLED) ## install and run all that runs or compiles for targets without a GPU
	$(TOOLS) $(BIN)/python -m pytest $(PARALLEL) tests/backend tests/unit/test_handles.py -rs

# A copy: a compiled module beside a source that is edited would hide the edits.
compiled: .venv/.stamp-compiled ## compile nodes and scheduler by mypyc, in build/compiled; needs a C compiler
	rm -rf build/compiled && mkdir -p build/compiled
	cp -pR $(filter-out build dist site,$(wildcard *)) build/compiled
	cd build/compiled && MONOLECT_COMPILED=1 ../../$(BIN)/python setup.py --quiet build_ext --inplace

test-compiled: .venv/.stamp-test compiled ## run the tests on what `make compiled` makes
	cd build/compiled && PYTHONPATH="$$PWD" ../../$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

check: .venv/.stamp-dev ## format, lint, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.stamp-bench ## the table beside other libraries, some twenty minutes; then what the host does
	$(BIN)/python -m benchmarks.cpu
	$(BIN)/python -m benchmarks.host
	$(BIN)/python -m benchmarks.first

bench-quick: .venv/.stamp-bench ## a representative part of the table, under three minutes
	$(BIN)/python -m benchmarks.cpu --quick

bench-against: .venv/.stamp-test ## the table against that of another commit of monolect: make bench-against REV=main~10
	$(BIN)/python -m benchmarks.commits $(REV)

bench-host: .venv/.stamp-bench ## what the host does beside the kernels, beside other libraries, a minute
	$(BIN)/python -m benchmarks.host

bench-eager: .venv/.stamp-bench ## single operations and small steps without jit, beside other libraries, a minute
	$(BIN)/python -m benchmarks.eager

bench-export: .venv/.stamp-test ## exported steps against the devices c and cpu, some minutes
	$(BIN)/python -m benchmarks.export

bench-devices: .venv/.stamp-test .venv/.stamp-mpi ## sums and steps over several devices and processes, a minute
	$(BIN)/python -m benchmarks.devices

bench-cuda: .venv/.stamp-test .venv/.stamp-cuda ## the table of a GPU beside PyTorch; needs an NVIDIA GPU and its driver
	$(BIN)/python -m benchmarks.gpu

golden: .venv/.stamp-test ## write the golden files again; review the diff
	$(BIN)/python -m pytest tests/golden --update-golden

choices: .venv/.stamp-test ## write the choices of the frozen corpus of kernels again; review the diff
	$(BIN)/python -m pytest tests/optimize --update-golden

surface: .venv/.stamp-test ## write in-place forms and functions again, from the methods of Tensor
	$(BIN)/monolect surface
	$(BIN)/ruff format -q monolect

corpus: .venv/.stamp-test ## collect the kernels of the corpus again, then `make choices`
	$(BIN)/python -m tests.optimize.collect tests/optimize/kernels.ir.gz

docs: .venv/.stamp-dev ## write docs/reference/ from the tables of the code, and the chart of docs/index.md
	@mkdir -p docs/reference
	@set -e; for table in ops passes rules actions accuracy settings devices tuning modules glossary torch-parity; do \
	  $(BIN)/monolect $$table --markdown > docs/reference/$$table.md; echo "docs/reference/$$table.md"; done
	$(BIN)/python -m benchmarks.chart

site: .venv/.stamp-docs ## build the site from docs/, with the API from the docstrings, in site/
	$(BIN)/mkdocs build --strict

clean: ## delete the virtual environment, caches and builds
	rm -rf .venv .tools build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find monolect tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Some systems ship Python without the part of venv that installs pip; then the pip that is there fills the environment.
.venv/bin/python:
	$(PYTHON) -m venv .venv || { rm -rf .venv && $(PYTHON) -m venv --without-pip .venv && \
	  $(PYTHON) -m pip --python .venv/bin/python install pip; }

# One stamp for each set of extras of pyproject.toml.
.venv/.stamp-%: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	$(BIN)/python -m compileall -q monolect
	@touch $@
