"""Compares our token ids with those of the `tokenizers` library."""

import gzip
import json
import os
import random
import subprocess
import unicodedata
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]
ATHANOR = Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor"))
SHARED = Path(os.environ.get("ATHANOR_SHARED", ROOT.parent / "shared"))
TEXT = SHARED / "data" / "text"
TOKENIZERS = SHARED / "data" / "tokenizers"

pytestmark = pytest.mark.skipif(not ATHANOR.exists(), reason=f"{ATHANOR} is not built; set ATHANOR_BIN")
needs_text = pytest.mark.skipif(not TEXT.is_dir(), reason=f"no texts in {TEXT}; set ATHANOR_SHARED")
needs_tokenizers = pytest.mark.skipif(
    not TOKENIZERS.is_dir(), reason=f"no tokenizers in {TOKENIZERS}; set ATHANOR_SHARED"
)

ALL_CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def athanor(*arguments, lines=()):
    """Returns the JSON lines that `athanor tokenizer` prints for JSON lines."""
    done = subprocess.run(
        [ATHANOR, "tokenizer", *map(str, arguments)],
        input="\n".join(map(json.dumps, lines)).encode(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(*arguments, lines=()):
    """Returns the one line in which `athanor tokenizer` refuses its input."""
    done = subprocess.run(
        [ATHANOR, "tokenizer", *map(str, arguments)], input="\n".join(lines).encode("latin-1"), capture_output=True
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr.decode()


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def read_exactly(path):
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="replace")


def json_lines(path):
    """Returns the strings in a file of JSON lines; a broken line is text, too."""
    for line in read_exactly(path).split("\n"):
        try:
            yield from strings_in(json.loads(line))
        except json.JSONDecodeError:
            yield line


@pytest.fixture(scope="session")
def real_texts():
    texts = [read_exactly(p) for p in sorted(TEXT.glob("books/*.md")) + sorted(TEXT.glob("*.txt"))]
    for path in [*sorted(TEXT.glob("*.jsonl")), *sorted(TEXT.glob("dolma/**/*"))]:
        if path.is_file() and path.name.endswith((".jsonl", ".json", ".json.gz", ".jsonl.gz")):
            texts += json_lines(path)
    texts += list(json_lines(TEXT / "dolma_form" / "books-400.jsonl.gz"))[:100]  # more of the books' kind
    texts += strings_in(json.loads((TEXT / "blns.json").read_text(encoding="utf-8")))
    texts = [t.encode("utf-8", errors="replace").decode() for t in texts]  # JSON may hold lone surrogates
    assert sum(map(len, texts)) > 8_000_000
    return texts


@pytest.fixture(scope="session")
def some_real_texts():
    """Returns the beginning and a later piece of every text file, and some rows of every file of rows."""
    texts = []
    for path in sorted(TEXT.glob("books/*.md")) + sorted(TEXT.glob("*.txt")):
        text = read_exactly(path)
        texts += [text[:15_000], text[len(text) // 2 :][:10_000]]
    for path in [*sorted(TEXT.glob("*.jsonl")), *sorted(TEXT.glob("dolma/**/*"))]:
        if path.is_file() and path.name.endswith((".jsonl", ".json", ".json.gz", ".jsonl.gz")):
            rows = list(json_lines(path))
            texts += [row[:2_000] for row in rows[:: 1 + len(rows) // 100]]
    texts += strings_in(json.loads((TEXT / "blns.json").read_text(encoding="utf-8")))
    texts = [t.encode("utf-8", errors="replace").decode() for t in texts]
    assert 300_000 < sum(map(len, texts)) < 900_000
    return texts


def random_texts(seed, count=3000):
    """Returns texts with every kind of trouble: marks to reorder and compose, odd spaces, controls, whole planes."""
    draw = random.Random(seed)
    pools = [
        ALL_CODE_POINTS,
        [c for c in range(0x20, 0x7F)],
        [
            0x09,
            0x0A,
            0x0B,
            0x0C,
            0x0D,
            0x20,
            0x20,
            0x85,
            0xA0,
            0x1680,
            0x180E,
            0x2003,
            0x2028,
            0x202F,
            0x205F,
            0x3000,
            0x200B,
        ],
        list(range(0x300, 0x370)) + [0x61, 0x65, 0x6F, 0x41, 0xE9, 0x1E9, 0x1EA5],
        list(range(0x1100, 0x1200)) + list(range(0xAC00, 0xAC40)),
        list(range(0x900, 0xE00)),
        list(range(0x3040, 0x3100)) + list(range(0xFF00, 0xFFA0)),
        list(range(0xF900, 0xFB50)),
        list(range(0x1D100, 0x1D200)) + list(range(0x11000, 0x11A00)),
        [ord(c) for c in "'stremvldSTREMVLD  \n0123456789ſK"],
    ]
    texts = []
    for _ in range(count):
        pool = draw.choice(pools)
        other = draw.choice(pools)
        texts.append("".join(chr(draw.choice(draw.choice([pool, pool, other]))) for _ in range(draw.randrange(1, 120))))
    return texts


def every_code_point(points=ALL_CODE_POINTS):
    """Returns each code point alone, after a space, or between marks that it may reorder; many in each text."""
    draw = random.Random(17)
    before = ["", " ", "é\u0316"]
    return [
        "".join(draw.choice(before) + chr(c) for c in points[at : at + 512])
        for at in range(0, len(points), 512)
    ]


def single_code_points():
    """Returns every code point but most of the ideographs, syllables of Hangul, private and unassigned ones.

    Those are nineteen in twenty, and thousands of neighbours have the same properties.
    """
    many = [unicodedata.category(chr(c)) in ("Cn", "Co") or 0x3400 <= c <= 0x9FFF or 0xAC00 <= c <= 0xD7A3 or 0x17000 <= c <= 0x18CFF
            or 0x20000 <= c <= 0x3FFFF for c in ALL_CODE_POINTS]
    return [c for c, one_of_many in zip(ALL_CODE_POINTS, many, strict=True) if not one_of_many or c % 61 == 0 or c & 0xFF in (0, 0xFF)]


def assert_equal_ids(path, texts, round_trip=False):
    theirs = Tokenizer.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    expected = [e.ids for e in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    ids = athanor("encode", "--jsonl", "--tokenizer", path, lines=texts)
    assert len(ids) == len(texts)
    for text, ours, other in zip(texts, ids, expected):
        if ours != other:
            at = next((i for i, (a, b) in enumerate(zip(ours, other)) if a != b), min(len(ours), len(other)))
            pytest.fail(f"{text[:80]!r}: token {at}: {ours[at - 2 : at + 5]} instead of {other[at - 2 : at + 5]}")
    decoded = athanor("decode", "--jsonl", "--tokenizer", path, lines=ids)
    assert decoded == theirs.decode_batch(ids, skip_special_tokens=False)
    skipped = athanor("decode", "--jsonl", "--skip-special-tokens", "--tokenizer", path, lines=ids[:200])
    assert skipped == theirs.decode_batch(ids[:200], skip_special_tokens=True)
    if round_trip:
        assert decoded == texts


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    files = [str(TOKENIZERS / "gpt2" / name) for name in ("gpt2_vocab.json", "gpt2_merges.txt")]
    tokenizer = Tokenizer(models.BPE.from_file(*files))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))
    return path


SUPPORTED = ["allenai_eleuther-ai-gpt-neox-20b-pii-special", "allenai_gpt-neox-olmo-dolma-v1_5", "allenai_dolma2"]


@needs_text
@needs_tokenizers
@pytest.mark.parametrize("name", SUPPORTED)
def test_ids_equal_on_real_texts(name, some_real_texts):
    assert_equal_ids(TOKENIZERS / f"{name}.json", some_real_texts)


@pytest.mark.slow
@needs_text
@needs_tokenizers
@pytest.mark.parametrize("name", SUPPORTED)
def test_ids_equal_on_all_real_texts(name, real_texts):
    assert_equal_ids(TOKENIZERS / f"{name}.json", real_texts)


@needs_text
@needs_tokenizers
def test_gpt2_ids_equal_and_its_texts_come_back(gpt2, some_real_texts):
    assert_equal_ids(gpt2, some_real_texts, round_trip=True)


@pytest.mark.slow
@needs_text
@needs_tokenizers
def test_gpt2_ids_equal_on_all_real_texts_which_come_back(gpt2, real_texts):
    assert_equal_ids(gpt2, real_texts, round_trip=True)


@needs_tokenizers
@pytest.mark.parametrize("name", SUPPORTED)
@pytest.mark.parametrize("seed,count", [(1, 600), *(pytest.param(seed, 3000, marks=pytest.mark.slow) for seed in (1, 2))])
def test_ids_equal_on_random_unicode(name, seed, count):
    assert_equal_ids(TOKENIZERS / f"{name}.json", random_texts(seed, count))


@needs_tokenizers
@pytest.mark.parametrize("name", SUPPORTED[1:])
def test_ids_equal_on_every_code_point_that_is_not_one_of_many(name):
    assert_equal_ids(TOKENIZERS / f"{name}.json", every_code_point(single_code_points()))


@pytest.mark.slow
@needs_tokenizers
@pytest.mark.parametrize("name", SUPPORTED[1:])
def test_ids_equal_on_every_code_point(name):
    assert_equal_ids(TOKENIZERS / f"{name}.json", every_code_point())


@needs_tokenizers
def test_ids_equal_around_added_tokens():
    draw = random.Random(5)
    parts = [
        "<|endoftext|>",
        "<|padding|>",
        "|||EMAIL_ADDRESS|||",
        "<|endof",
        "|||",
        " ",
        "    ",
        " " * 24,
        " " * 60,
        "\n",
        "a",
        "é",
    ]
    texts = ["".join(draw.choices(parts, k=draw.randrange(1, 9))) for _ in range(500)]
    for name in SUPPORTED:
        assert_equal_ids(TOKENIZERS / f"{name}.json", texts)


def train(out, files, *arguments):
    subprocess.run(
        [ATHANOR, "tokenizer", "train", "--out", out, *arguments, *map(str, files)], check=True, capture_output=True
    )


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory):
    """Makes invented words, so that training is tested on every machine."""
    draw = random.Random(7)
    words = ["".join(draw.choices("aeioutnsrhldé漢 '", k=draw.randrange(1, 9))) for _ in range(400)]
    text = "".join(draw.choice(words) + draw.choice([" ", " ", "\n", ". ", "'s ", " 19"]) for _ in range(30000))
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_trained_tokenizer_equals_the_one_tokenizers_trains(tmp_path, small_corpus):
    ours = tmp_path / "tokenizer.json"
    train(
        ours,
        [small_corpus],
        "--vocab-size",
        "2000",
        "--min-frequency",
        "3",
        "--special-token",
        "<|end|>",
        "--special-token",
        "<|pad|>",
    )
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        min_frequency=3,
        special_tokens=["<|end|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([small_corpus.read_text(encoding="utf-8")], trainer)
    mine, other = json.loads(ours.read_text(encoding="utf-8"))["model"], json.loads(theirs.to_str())["model"]
    assert mine["vocab"] == other["vocab"]
    assert [m.split(" ") for m in mine["merges"]] == other["merges"]


def test_a_trained_tokenizer_encodes_identically_and_loses_nothing(tmp_path, small_corpus):
    path = tmp_path / "tokenizer.json"
    train(path, [small_corpus], "--vocab-size", "1000")
    texts = [small_corpus.read_text(encoding="utf-8"), *random_texts(3, 1000)]
    assert_equal_ids(path, texts, round_trip=True)
    # `transformers` can also encode and decode anything.
    again = tmp_path / "again.json"
    Tokenizer.from_file(str(path)).save(str(again))
    assert_equal_ids(again, texts[:100], round_trip=True)


@needs_text
def test_training_on_the_books_equals_tokenizers(tmp_path):
    books = sorted(TEXT.glob("books/*.md"))[:2]
    path = tmp_path / "tokenizer.json"
    train(path, books, "--vocab-size", "8192")
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=8192,
        min_frequency=2,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([read_exactly(b) for b in books], trainer)
    mine, other = json.loads(path.read_text(encoding="utf-8"))["model"], json.loads(theirs.to_str())["model"]
    assert mine["vocab"] == other["vocab"]
    assert [m.split(" ") for m in mine["merges"]] == other["merges"]


def byte_tokenizer(words=(), **parts):
    """Makes a tokenizer of the bytes and a few words, with `tokenizers`."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                vocab[word[:end]] = len(vocab)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, **parts.pop("model", {})))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for name, value in parts.items():
        setattr(tokenizer, name, value)
    return tokenizer


def check(tokenizer, texts, folder):
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    assert_equal_ids(path, texts)


FLAGS = [
    dict(lstrip=True),
    dict(rstrip=True),
    dict(lstrip=True, rstrip=True),
    dict(single_word=True),
    dict(normalized=True),
]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "+".join(flags))
@pytest.mark.parametrize("special", [True, False])
def test_flags_of_added_tokens_mean_what_they_mean_there(tmp_path, flags, special):
    tokenizer = byte_tokenizer(["Ġthe", "in"], normalizer=normalizers.NFC())
    add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
    add(
        [
            AddedToken("<x>", **flags),
            AddedToken("é", **flags),
            AddedToken("  ", normalized=False),
            AddedToken("in", **flags),
        ]
    )
    draw = random.Random(11)
    parts = ["<x>", "é", "e\u0301", " ", "  ", "\u00a0", "\n", "in", "thin", "_", "\u0301", "x", "٣", "\u200d"]
    check(tokenizer, ["".join(draw.choices(parts, k=draw.randrange(1, 9))) for _ in range(3000)], tmp_path)


PATTERNS = [
    # cl100k, o200k's simpler relatives, and odd ones
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"\d{1,3}(?=(?:\d{3})*(?:\D|\z))",
    r"\s",
    r"^.|.$",
    r"\p{Lu}\p{Ll}*|\p{Han}+",
    r"x*",
    r"\w+|\W",
    r"\W",
    r"[\wé'-]+",
]


CUTS = [*map(Regex, PATTERNS), " ", "in", "a.b", "\n"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
SPLITS = [(behavior, invert) for invert in (False, True) for behavior in BEHAVIORS]


@pytest.mark.parametrize("behavior,invert,count,patterns", [
    # Each pattern with several behaviors, inverted and not.
    *(pytest.param(*split, 100, CUTS[at % 4 :: 4], id=f"{split[0]}-{split[1]}") for at, split in enumerate(SPLITS)),
    *(pytest.param(*split, 400, CUTS, marks=pytest.mark.slow, id=f"{split[0]}-{split[1]}-all") for split in SPLITS),
])
def test_split_cuts_as_there(tmp_path, behavior, invert, count, patterns):
    texts = random_texts(4, count) + [
        "a1b22  c\n\nd",
        "",
        " ",
        "xx",
        "axxbx",
        "1234567 12345",
        "\n",
        "a\n",
        "\na",
        "ſ'ſ K'K",
        "¼²ª x½",
        "👩\u200d🚀 क्\u200dष می\u200cخواهم a\u200db",
    ]
    # How a class other than \p{L}, \p{N} and \s treats the newest characters depends on PCRE2's version.
    texts = ["".join(c for c in t if unicodedata.category(c) != "Cn") for t in texts]
    for pattern in patterns:
        split = pre_tokenizers.Split(pattern, behavior, invert=invert)
        steps = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        check(byte_tokenizer(["Ġthe"], pre_tokenizer=steps), texts, tmp_path)


@pytest.mark.parametrize("use_regex", [True, False])
def test_a_prefix_space_is_put_where_it_is_put_there(tmp_path, use_regex):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=use_regex)
    tokenizer = byte_tokenizer(["Ġthe", "in"], pre_tokenizer=byte_level)
    tokenizer.add_special_tokens(["<x>"])
    texts = ["", " ", "the", " the", "<x>the<x> in", "\nin", "<x>", "a<x>\n<x> "]
    check(tokenizer, texts, tmp_path)
    steps = pre_tokenizers.Sequence([pre_tokenizers.Split("n", "isolated"), byte_level])
    tokenizer.pre_tokenizer = steps
    check(tokenizer, texts, tmp_path)


def test_ignore_merges_and_merges_as_pairs(tmp_path):
    tokenizer = byte_tokenizer(["Ġthere", "her"], model={"ignore_merges": True})
    check(tokenizer, ["there here", " there", "her hers"], tmp_path)


def test_long_words_cost_no_more_than_their_length_and_equal(tmp_path):
    tokenizer = byte_tokenizer(["aaaa", "aaaaaaaa", "abab", "ba"])
    draw = random.Random(13)
    texts = ["".join(draw.choices("ab", k=n)) for n in (47, 48, 49, 50, 500, 5000)] + ["a" * 1_000_000]
    check(tokenizer, texts, tmp_path)


def test_bad_input_is_refused_in_one_line_with_its_place(tmp_path):
    path = tmp_path / "tokenizer.json"
    byte_tokenizer(["in"]).save(str(path))
    assert "line 2: byte 2" in refused("encode", "--tokenizer", path, lines=["ok", "ab\xff"])
    assert "line 1" in refused("encode", "--jsonl", "--tokenizer", path, lines=["{"])
    assert "token id 9999 is beyond the vocabulary" in refused("decode", "--tokenizer", path, lines=["[9999]"])
    good = path.read_text(encoding="utf-8")
    path.write_text(good[:1000], encoding="utf-8")
    message = refused("encode", "--tokenizer", path, lines=["x"])
    assert "not JSON at byte 10" in message and str(path) in message and message.count("\n") == 1
    out = tmp_path / "out.json"
    assert "vocab-size (12) must be at least 257" in refused("train", "--vocab-size", 12, "--out", out, path)
    assert "make the folder" in refused("train", "--vocab-size", 300, "--out", tmp_path / "no" / "t.json", path)
    assert "no such file" in refused("encode", "--tokenizer", tmp_path / "missing.json")
    assert not out.exists()
