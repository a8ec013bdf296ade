"""SentencePiece models: the same ids and the same text as the `sentencepiece` package."""

import io
import json
import random
from pathlib import Path

import pytest
import sentencepiece

MODELS = ["test_model", "test_ja_model"]
ODD = [
    "",
    " ",
    "  two  spaces ",
    "new\nlines\r\n\tand tabs\n",
    "nul\x00inside",
    "ﬁ ＡＢＣ e\u0301 \u00a0 \u3000 \u200b ①",
    "🤗🏽 \U0010ffff \ufffd \ue000",
    "</s> <s> <unk> <0x41> ▁ ▁▁",
    "日本語のテキスト Ελληνικά русский العربية",
    "a" * 5000,
    "ab " * 3000,
]


def spm_lines(athanor, command, model, lines):
    done = athanor.run("tokenizer", command, "--jsonl", "--tokenizer", model, input="\n".join(map(json.dumps, lines)))
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def assert_equal(athanor, model, texts):
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
    ids = spm_lines(athanor, "encode", model, texts)
    assert len(ids) == len(texts)
    for text, ours in zip(texts, ids):
        expected = theirs.encode(text)
        if ours != expected:
            at = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), min(len(ours), len(expected)))
            pytest.fail(f"{text[:80]!r}: token {at}: {ours[at:at + 5]} instead of {expected[at:at + 5]}")
    assert spm_lines(athanor, "decode", model, ids) == [theirs.decode(i) for i in ids]
    draw = random.Random(1)
    anything = [[draw.randrange(theirs.vocab_size()) for _ in range(draw.randrange(40))] for _ in range(200)]
    assert spm_lines(athanor, "decode", model, anything) == [theirs.decode(i) for i in anything]


def random_texts(seed, count):
    draw = random.Random(seed)
    everything = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
    pools = [everything, range(0x20, 0x7F), range(0x300, 0x370), range(0x3040, 0x3100), range(0xFF00, 0xFFF0),
             [0x20, 0x0A, 0x09, 0xA0, 0x3000, 0x2581, 0x200B, 0x00], range(0xAC00, 0xAD00), range(0x1F300, 0x1F700)]
    return ["".join(chr(draw.choice(draw.choice(pools))) for _ in range(draw.randrange(1, 80))) for _ in range(count)]


@pytest.fixture(scope="session")
def texts(shared):
    folder = shared / "data" / "text"
    texts = [path.read_text(encoding="utf-8")[:300_000] for path in sorted(folder.glob("books/*.md"))]
    texts += [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    texts += [json.loads(line)["text"] for line in (folder / "udhr.jsonl").read_text(encoding="utf-8").splitlines()]
    texts += [t for t in json.loads((folder / "blns.json").read_text(encoding="utf-8"))]
    return texts + ODD


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_text_equal_on_real_and_on_random_texts(athanor, shared, texts, name):
    real = [part for text in texts for part in (text[:8_000], text[8_000:][-4_000:])]
    assert_equal(athanor, shared / "data/tokenizers" / f"{name}.model", real + random_texts(1, 300))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_ids_and_text_equal_on_all_real_and_on_random_texts(athanor, shared, texts, name):
    assert_equal(athanor, shared / "data/tokenizers" / f"{name}.model", texts + random_texts(1, 1000))


OPTIONS = {
    "model_type": ["unigram", "bpe", "char", "word"],
    "vocab_size": [3000, 5000, 8000],
    "byte_fallback": [True, False],
    "character_coverage": [0.98, 0.9995, 1.0],
    "normalization_rule_name": ["nfkc", "identity", "nmt_nfkc", "nfkc_cf"],
    "split_digits": [True, False],
    "add_dummy_prefix": [True, False],
    "remove_extra_whitespaces": [True, False],
    "treat_whitespace_as_suffix": [True, False],
    "allow_whitespace_only_pieces": [True, False],
    "split_by_unicode_script": [True, False],
    "user_defined_symbols": [[], ["<x>", "日本", " the ", "\n"]],
    "control_symbols": [[], ["<pad0>"]],
}


def train(shared, folder, seed):
    draw = random.Random(seed)
    options = {key: draw.choice(values) for key, values in OPTIONS.items()}
    options["model_type"] = ["unigram", "bpe", "char", "word"][seed % 4] if seed % 8 >= 6 else ["unigram", "bpe"][seed % 2]
    if options["model_type"] == "word":
        options["treat_whitespace_as_suffix"] = False  # libsentencepiece 0.1.97 cannot encode everything with these two
    rows = [json.loads(r)["text"] for r in (shared / "data/text/udhr.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [line[:2000] for row in draw.sample(rows, 12) for line in row.split("\n") if line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2, num_threads=1, **options
    )
    path = folder / f"random{seed}.model"
    path.write_bytes(model.getvalue())
    return path, options


# Four of these seeds together have every value of every option.
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed in (7, 12, 13, 14) else pytest.mark.slow) for seed in range(15)])
def test_models_with_random_options_equal(athanor, shared, texts, tmp_path, seed):
    path, options = train(shared, tmp_path, seed)
    print(options)
    draw = random.Random(seed)
    assert_equal(athanor, path, [t[:20_000] for t in draw.sample(texts, 200)] + ODD + random_texts(seed, 300))


def test_prepared_data_carries_the_model_and_ends_documents_with_its_eos(athanor, shared, tmp_path):
    import numpy

    model = shared / "data/tokenizers/test_model.model"
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
    texts = ["Hello world, how are you today?", "One\n\ntwo.", "x\x00y"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    athanor.run("prepare", "--tokenizer", model, "--seq-len", 2, "--out", tmp_path / "out", tmp_path / "a.jsonl")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["tokenizer_file"] == "tokenizer.model" and manifest["eos_id"] == theirs.eos_id()
    assert (tmp_path / "out/tokenizer.model").read_bytes() == model.read_bytes()
    stream = [i for text in texts for i in [*theirs.encode(text), theirs.eos_id()]]
    rows = numpy.concatenate([numpy.load(tmp_path / "out" / f["file"]) for f in manifest["splits"]["train"]["files"]])
    expected = [tuple(stream[i : i + 2]) for i in range(0, len(stream) - 1, 2)]
    assert sorted(map(tuple, rows.tolist())) == sorted(expected)


def test_text_that_is_not_utf8_is_refused(athanor, shared, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good \xff bad")
    done = athanor.run("prepare", "--tokenizer", shared / "data/tokenizers/test_model.model", "--seq-len", 2, "--out",
                       tmp_path / "out", tmp_path / "a.txt", check=False)
    assert done.returncode == 2 and "UTF-8" in done.stderr


@pytest.mark.parametrize("num_ends,num_flipped", [(12, 40), pytest.param(60, 200, marks=pytest.mark.slow)])
def test_damaged_models_are_refused_or_work_but_never_crash(athanor, shared, tmp_path, num_ends, num_flipped):
    whole = (shared / "data/tokenizers/test_model.model").read_bytes()
    draw = random.Random(3)
    ends = [0, 1, 2, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(num_ends))]
    damaged = [whole[:end] for end in ends] + [b"x" * 100, b"{}", bytes(1000), draw.randbytes(5000)]
    for seed in range(num_flipped):
        flipped = bytearray(whole)
        for _ in range(draw.choice([1, 3, 50])):
            flipped[draw.randrange(len(whole) - 60_000 if seed % 2 else 0, len(whole))] = draw.randrange(256)
        damaged.append(bytes(flipped))
    text = "Hello ﬁ Ａ １ ① world ㍿ e\u0301 日本 ½ ² " + "".join(map(chr, range(0xA0, 0x400)))
    for number, data in enumerate(damaged):
        path = tmp_path / f"damaged{number}.model"
        path.write_bytes(data)
        done = athanor.run("tokenizer", "encode", "--tokenizer", path, input=text, check=False)
        assert done.returncode in (0, 2), (number, done)
        if number < len(ends) + 4:
            assert done.returncode == 2 and str(path) in done.stderr and done.stderr.count("\n") == 1, (number, done)
        path.unlink()
