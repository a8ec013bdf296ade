"""Patterns with hand-written cutters, each in a tokenizer trained here, give the ids of `tokenizers`."""

import json
import random

import pytest
from test_tokenizers import ALL_CODE_POINTS, single_code_points
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
PATTERNS = {
    "gpt2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "llama3": [rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{SPACES}"],
    "cl100k": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "qwen2": [rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{SPACES}"],
    "qwen3.5": [rf"{CONTRACTIONS}|{LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{SPACES}"],
    "deepseek": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+".replace(r"\"", '"'),
    ],
    "o200k": [
        rf"{LEAD}{CAPITALS}*{SMALL}+{CONTRACTIONS}?|{LEAD}{CAPITALS}+{SMALL}*{CONTRACTIONS}?|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{SPACES}"
    ],
    "tekken": [
        rf"{LEAD}{CAPITALS}*{SMALL}+|{LEAD}{CAPITALS}+{SMALL}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{SPACES}"
    ],
}
PATTERNS["deepseek"][2] = PATTERNS["deepseek"][2].replace(r"\"", '"')


def make_texts(shared, num_random, points, every=1):
    """Returns random texts, these code points after different ones, and texts of many languages, or one in `every` of them."""
    draw = random.Random(1)
    everything = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    pools = [everything, range(0x20, 0x7F), [ord(c) for c in "'''sSſtTrReEvVmMlLdD  \r\n\t/!1２½aBéǅʰª漢か"],
             range(0x300, 0x370), range(0xC0, 0x250), range(0x2000, 0x2070), range(0x3000, 0x3100)]
    texts = ["".join(chr(draw.choice(draw.choice(pools))) for _ in range(draw.randrange(1, 90))) for _ in range(num_random)]
    before = ["", " ", "'", "a", "A", "\u0301", "!"]
    for at in range(0, len(points), 512):
        texts.append("".join(draw.choice(before) + chr(c) for c in points[at : at + 512]))
    rows = (shared / "data/text/udhr.jsonl").read_text(encoding="utf-8").split("\n")
    texts += [json.loads(row)["text"] for row in rows[::every] if row]
    texts += json.loads((shared / "data/text/blns.json").read_text(encoding="utf-8"))
    return texts + [(shared / "data/text/wagahaiwa_nekodearu_ja.txt").read_text(encoding="utf-8")[: 100_000 // every]]


@pytest.fixture(scope="module")
def texts(shared):
    return make_texts(shared, 600, single_code_points(), every=5)


@pytest.fixture(scope="module")
def more_texts(shared):
    return make_texts(shared, 4000, ALL_CODE_POINTS)


CASES = [*((name, "isolated") for name in PATTERNS), ("cl100k", "removed")]


@pytest.mark.parametrize("name,behavior", CASES)
def test_ids_equal(athanor, texts, tmp_path, name, behavior):
    assert_ids_equal(athanor, texts, tmp_path, name, behavior)


@pytest.mark.slow
@pytest.mark.parametrize("name,behavior", CASES)
def test_ids_equal_on_every_code_point(athanor, more_texts, tmp_path, name, behavior):
    assert_ids_equal(athanor, more_texts, tmp_path, name, behavior)


def assert_ids_equal(athanor, texts, tmp_path, name, behavior):
    theirs = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(p), behavior, invert=behavior == "removed") for p in PATTERNS[name]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    theirs.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    theirs.train_from_iterator(texts[-300:], trainer)
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    done = athanor.run("tokenizer", "encode", "--jsonl", "--tokenizer", path, input="\n".join(map(json.dumps, texts)))
    ours = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    for text, ids, expected in zip(texts, ours, theirs.encode_batch_fast(texts), strict=True):
        assert ids == expected.ids, repr(text[:200])
