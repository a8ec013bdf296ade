"""`athanor generate` with many prompts: its greedy text is that of `transformers`, whatever else is in the batch."""
import functools
import json
import os
import subprocess
import threading

import pytest
from greedy import GREEDY, MODELS, answers_of, greedy_theirs, load, make_model, make_prompts

SLOW = pytest.mark.slow
COUNT = 24
PROMPTS = make_prompts(14)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Returns the model of a name, which is made when it is first asked for."""
    return functools.cache(lambda name: make_model(tmp_path_factory.mktemp(name) / "hf", name))


@pytest.fixture
def model(request, models):
    return models(request.param)


@pytest.fixture
def llama(models):
    return models("llama")


@functools.cache
def greedy(model):
    return greedy_theirs(model, PROMPTS, COUNT)


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("".join(prompt + "\n" for prompt in PROMPTS))
    return file


def generate(athanor, model, *words, **options):
    return athanor.run("generate", model, "--max-new-tokens", COUNT, *words, **options)


# Each model and each size of a batch; and all sizes with each model.
BATCHES = {"llama": (1, 16), "olmo": (3,), "olmoe": (16,), "qwen3": (1,), "qwen3_moe": (3,)}


@pytest.mark.parametrize("model, batches", [
    *BATCHES.items(), *(pytest.param(name, (1, 3, 16), marks=SLOW) for name in MODELS)], indirect=["model"])
def test_greedy_text_of_a_batch_equals_that_of_transformers(athanor, model, batches, prompts):
    theirs = greedy(model)
    assert len({len(ids) for ids, _ in theirs}) > 4  # texts end at different times, and others take their places
    for batch in batches:
        assert answers_of(generate(athanor, model, "--prompts", prompts, "--batch-size", batch, *GREEDY).stdout) == theirs


def usual_string(texts, size):
    """Returns the string of ASCII letters that is in most of the texts, but not in more than half of them."""
    strings = {text[i:i + size] for text in texts for i in range(len(text) - size + 1)}
    counts = {string: sum(string in text for text in texts) for string in sorted(strings) if string.isascii() and string.isalpha()}
    return max(counts, key=lambda string: counts[string] * (counts[string] <= len(texts) / 2))


@pytest.mark.parametrize("model", ["qwen3", *(pytest.param(name, marks=SLOW) for name in MODELS if name != "qwen3")], indirect=True)
def test_stop_strings_end_a_text_where_transformers_ends_it_and_are_not_shown(athanor, model, prompts):
    _, tokenizer = load(model)
    free = [tokenizer.decode(ids) for ids, _ in greedy(model)]
    stops = [usual_string(free, size) for size in (1, 2, 4)]
    theirs = [ids for ids, _ in greedy_theirs(model, PROMPTS, COUNT, stop_strings=stops, tokenizer=tokenizer)]
    words = [word for stop in stops for word in ("--stop", stop)]
    lines = [json.loads(line) for line in generate(athanor, model, "--prompts", prompts, "--batch-size", 5, *words, *GREEDY).stdout.splitlines()]
    stopped = 0
    for prompt, text, ids, line in zip(PROMPTS, free, theirs, lines, strict=True):
        ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
        assert line["stop"] == (min(ends)[2] if ends else None)
        assert line["text"] == (text[:min(ends)[0] + min(ends)[1]] if ends else text)
        # transformers also finds a stop string that begins in the prompt.
        if not any(prompt[-i:] + text[:len(stop) - i] == stop for stop in stops for i in range(1, len(stop))):
            assert line["new_ids"] == ids
            stopped += bool(ends)
    assert stopped >= 3
    shown = generate(athanor, model, "--prompts", prompts, "--batch-size", 5, *words, "--dtype", "float32", "--temperature", 0).stdout
    assert shown == "\n".join(prompt + line["text"] + "\n" for prompt, line in zip(PROMPTS, lines))


# Each path, a dense and a sparse model, and each size of a batch; and all sizes on each path with both models.
TILES = [("llama", "float32", "avx2", (1, 5)), ("qwen3_moe", "float32", "avx512", (2, 40)), ("llama", "bfloat16", "avx512", (1, 40)),
         ("qwen3_moe", "bfloat16", "avx512_bf16", (2, 5))]


@pytest.mark.parametrize("model, dtype, path, batches", [
    *TILES,
    *(pytest.param(name, dtype, path, (1, 2, 5, 40), marks=SLOW) for name in ("llama", "qwen3_moe") for _, dtype, path, _ in TILES)],
    indirect=["model"])
def test_on_tiles_no_sampled_token_depends_on_the_batch(athanor, model, prompts, dtype, path, batches):
    words = ["--prompts", prompts, "--dtype", dtype, "--json", "--seed", 4]
    environment = dict(os.environ, ATHANOR_MATMUL=path)
    if {"avx512": "avx512f"}.get(path, path) not in open("/proc/cpuinfo").read():
        pytest.skip(f"this CPU has no {path}")
    outputs = {generate(athanor, model, *words, "--batch-size", batch, env=environment).stdout for batch in batches}
    assert len(outputs) == 1


@pytest.fixture(scope="module")
def answered(athanor, models, tmp_path_factory):
    """The answers to a file of prompts."""
    file = tmp_path_factory.mktemp("answered") / "prompts.txt"
    file.write_text("".join(prompt + "\n" for prompt in PROMPTS))
    return generate(athanor, models("llama"), "--prompts", file, *GREEDY).stdout


def test_prompts_of_a_jsonl_file_and_of_the_command_line_are_answered_alike(athanor, llama, answered, prompts, tmp_path):
    # Read as `prepare` reads such a file: also with capitals, blank lines, and what Python writes into other fields.
    (tmp_path / "P.JSONL").write_text("".join(json.dumps({"id": i, "prompt": prompt, "score": float("nan")}) + "\n\n"
                                              for i, prompt in enumerate(PROMPTS)))
    assert generate(athanor, llama, "--prompts", tmp_path / "P.JSONL", *GREEDY).stdout == answered
    assert generate(athanor, llama, *(word for prompt in PROMPTS for word in ("--prompt", prompt)), *GREEDY).stdout == answered
    # Lines of standard input that end as on Unix are in test_a_pipe_is_answered_line_by_line.
    assert generate(athanor, llama, "--prompts", "-", *GREEDY, input=prompts.read_text().rstrip("\n")).stdout == answered
    prompts.write_text(prompts.read_text().replace("\n", "\r\n"))
    assert generate(athanor, llama, "--prompts", prompts, *GREEDY).stdout == answered


def test_a_pipe_is_answered_line_by_line(athanor, llama, tmp_path):
    expected = greedy_theirs(llama, PROMPTS[:3], COUNT)
    os.mkfifo(tmp_path / "pipe")
    for source in ("-", tmp_path / "pipe"):
        command = [athanor.path, "generate", llama, "--prompts", source, "--max-new-tokens", COUNT, *GREEDY]
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            into = process.stdin if source == "-" else open(source, "w")
            for prompt, answer in zip(PROMPTS, expected):
                into.write(prompt + "\n")
                into.flush()
                assert answers_of(process.stdout.readline()) == [answer]
            into.close()
            assert process.wait(timeout=300) == 0
        finally:
            process.kill()


def test_the_first_text_is_shown_as_it_comes_and_later_ones_are_held_back(athanor, llama):
    """Two texts are computed at the same time; the first is written piece by piece, before the second."""
    words = ["generate", llama, "--prompt", "the", "--prompt", "it", "--max-new-tokens", "120", "--dtype", "float32", "--seed", "1"]
    whole = subprocess.run([str(athanor.path), *map(str, words)], capture_output=True, check=True).stdout
    process = subprocess.Popen([str(athanor.path), *map(str, words)], stdout=subprocess.PIPE)
    pieces = []
    reader = threading.Thread(target=lambda: pieces.extend(iter(lambda: os.read(process.stdout.fileno(), 1 << 16), b"")))
    reader.start()
    reader.join(timeout=300)
    assert process.wait(timeout=300) == 0 and b"".join(pieces) == whole
    assert len(pieces) > 10


def test_a_wrong_prompt_in_a_pipe_loses_no_answer_to_those_before_it(athanor, llama):
    done = athanor.run("generate", llama, "--prompts", "-", "--max-new-tokens", COUNT, *GREEDY, input=f"{PROMPTS[0]}\n{PROMPTS[1]}\n\nmore\n", check=False)
    assert done.returncode == 2 and "standard input line 3 is empty" in done.stderr
    assert [json.loads(line)["prompt"] for line in done.stdout.splitlines()] == PROMPTS[:2]


def test_a_byte_order_mark_is_no_part_of_the_first_prompt(athanor, llama, answered, prompts):
    prompts.write_text("\ufeff" + prompts.read_text(encoding="utf-8"), encoding="utf-8")
    assert generate(athanor, llama, "--prompts", prompts, *GREEDY).stdout == answered


def test_memory_does_not_grow_with_the_number_of_prompts(athanor, llama, tmp_path):
    peaks = []
    for count in (40, 4000):
        (tmp_path / "many.txt").write_text("".join(f"{prompt}\n" for prompt in make_prompts(count, seed=3)))
        output, peak = athanor.measure("generate", llama, "--prompts", tmp_path / "many.txt", "--max-new-tokens", "2", *GREEDY)
        assert len(output.splitlines()) == count
        peaks.append(peak)
    # 4,000 prompts with their answers are a megabyte or more; the allocator of libtorch takes memory in steps of some megabytes.
    assert peaks[1] - peaks[0] < 16 << 20


@pytest.mark.parametrize("content,name,said", [
    (b"", "empty.txt", "empty.txt is empty; it needs a prompt on each line"),
    (b"one\n\ntwo\n", "p.txt", "p.txt line 2 is empty; remove it"),
    (b"one\ntw\xffo\n", "p.txt", "p.txt line 2 has invalid UTF-8 at byte 2"),
    (b"one\n" + b"the " * 400 + b"\n", "p.txt", "p.txt line 2 has "),
    (b"\x7b\"prompt\": \"a\"}\nnot json\n", "p.jsonl", "p.jsonl line 2 is no JSON object"),
    (b"\x7b\"prompt\": \"a\"}\n{\"text\": \"a\"}\n", "p.jsonl", 'p.jsonl line 2 has no field "prompt"'),
    pytest.param(b"\x7b\"prompt\": [1]}\n", "p.jsonl", 'p.jsonl line 1: its field "prompt" is no string', marks=SLOW),
    pytest.param(b"[]", "p.json", "--prompts: p.json: prompts are lines of text, or, in a .jsonl file", marks=SLOW),
    pytest.param(b"", "p.jsonl.gz", "--prompts: p.jsonl.gz is compressed; decompress it", marks=SLOW),
    (None, "nowhere.txt", "--prompts: nowhere.txt is not there; name a file of prompts"),
    pytest.param(None, ".", "--prompts: . is a folder", marks=SLOW),
])
def test_wrong_prompts_are_refused_in_one_line_before_anything_is_printed(athanor, llama, tmp_path, content, name, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = athanor.run("generate", llama, "--prompts", name, check=False, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("words,said", [
    ([], "there is no prompt; give --prompt TEXT, or --prompts FILE"),
    (["--prompt", "a", "--prompts", "b"], "--prompt and --prompts cannot be combined"),
    (["--prompt", "a", "--stop", ""], "--stop is empty"),
    (["--prompt", "a", "--batch-size", "0"], "--batch-size"),
    (["--prompt", "a", "--max-new-tokens", "160"], "the prompt has 1 tokens and --max-new-tokens is 160: together more than the model's 160 positions"),
    (["--prompt", "a", "--prompt", "the " * 300], "--prompt number 2 has "),
    (["--prompt", "a", "--set", "train.steps=3"], "--set train.steps=3: only the layout can be set"),
    (["--prompt", "a", "--set", "parallelism.tensor_parallel_degree=2"], "the degrees of parallelism need 2 ranks or more, and there is one"),
    (["--prompt", "a", "--set", "parallelism.sequence_parallel=true"], "sequence_parallel: it saves memory in training only"),
])
def test_wrong_options_are_refused_in_one_line(athanor, llama, words, said):
    done = athanor.run("generate", llama, *words, check=False)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_line_of_standard_input_that_is_no_prompt_is_named_after_the_answers_before_it(athanor, llama):
    done = athanor.run("generate", llama, "--prompts", "-", "--max-new-tokens", 3, *GREEDY, input="the\n\n", check=False)
    assert done.returncode == 2 and "standard input line 2 is empty" in done.stderr
