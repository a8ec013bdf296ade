# This file is thin on purpose: each target sets up what it needs and calls a script, whose first lines describe it.

.PHONY: setup build install quickstart test test-all faults fuzz-layouts check format bench bench-moe bench-overhead bench-data learning clean

build:       ## build/athanor
	@scripts/build

install:     ## what was built, into PREFIX (/usr/local): program, libraries, headers, recipes
	@scripts/build
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

setup:       ## system packages and libtorch, so that nothing is fetched later
	@scripts/setup --tests --check

quickstart:  ## text, tokenizer, shards, a small model trained for about three minutes, a sample: everything in quickstart/
	@scripts/quickstart

test:        ## every test that needs no GPU, but the slow ones; with ROOM="moe ops" those of these rooms alone
	@scripts/test $(foreach room,$(ROOM),--room $(room))

test-all:    ## the slow ones too, each fuzzer, and 200 layouts drawn from seeds in each type; PART=layouts is one part of it
	@scripts/test --all $(foreach part,$(PART),--part $(part))

faults:      ## every cell of the bench of faults on virtual hosts, as root: the table of docs/resilience.md, in build/results/faults.md
	@scripts/setup --tests
	@scripts/build
	@mkdir -p build/results
	@.venv/bin/python tests/faults/run_bench.py --out build/results/faults.md

fuzz-layouts:  ## N layouts drawn from seeds (100), each compared with one rank by `athanor verify`
	@scripts/setup --tests
	@scripts/build
	@scripts/fuzz_layouts $(or $(N),100)

check:       ## format, rooms, words, clang-tidy, fast tests
	@scripts/check

format:
	@scripts/setup --check
	@scripts/format

bench:       ## the same training step by transformers and by Athanor, in one run
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/run

bench-moe:   ## the sparse block by transformers and by Athanor, alternately: five shapes
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/moe

bench-overhead:  ## one tiny layer by transformers and by Athanor, alternately
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/overhead

learning:    ## a dense and a sparse model at equal compute, three seeds (about an hour): the tables and pictures of docs/learning.md
	@scripts/setup --tests --text
	@scripts/build
	@.venv/bin/pip install --quiet matplotlib
	@.venv/bin/python bench/learning/run --books $(or $(ATHANOR_SHARED),../shared)/data/text/books --rows $(or $(ATHANOR_SHARED),../shared)/data/eval --pictures docs/pictures

bench-data:  ## encoding by `tokenizers` and by Athanor alternately, on the shared texts
	@scripts/setup --tests
	@scripts/build
	@.venv/bin/python bench/peers/tokenizers_speed.py

clean:       ## removes what was built; the virtual environment and runs stay
	@rm -rf build build-*
