# Thin on purpose: each target does all of its own set-up and hands over to a script that says what it does.

.PHONY: setup build install quickstart test test-all fuzz-layouts check format bench bench-moe bench-overhead bench-data clean

build:       ## build/athanor
	@scripts/build

install:     ## what was built, into PREFIX (/usr/local): program, libraries, headers, recipes
	@scripts/build
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

setup:       ## system packages and libtorch, so that nothing is fetched later
	@scripts/setup --tests --check

quickstart:  ## text, tokenizer, shards, a small model trained for what fits five minutes, a sample: everything in quickstart/
	@scripts/quickstart

test:        ## every test that needs no GPU
	@scripts/test

test-all: test  ## and the slow ones, and 200 layouts drawn from seeds in each type
	@ctest --test-dir build -L slow --no-tests=ignore --output-on-failure
	@scripts/fuzz_layouts 200 --dtype float32
	@scripts/fuzz_layouts 200 --dtype bfloat16

fuzz-layouts:  ## N layouts drawn from seeds (100), each held against one rank by `athanor verify`
	@scripts/setup --tests
	@scripts/build
	@scripts/fuzz_layouts $(or $(N),100)

check:       ## format, includes, clang-tidy, fast tests
	@scripts/check

format:
	@scripts/setup --check
	@scripts/format

bench:       ## the same training step by transformers and by us, in one run
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/run

bench-moe:   ## the sparse block by transformers and by us, in turns: five shapes
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/moe

bench-overhead:  ## one tiny layer by transformers and by us, in turns
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/overhead

bench-data:  ## encoding by `tokenizers` and by us in turns, on the shared texts
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/tokenizers_speed.py

clean:       ## what was built; the virtual environment and runs stay
	@rm -rf build build-*
