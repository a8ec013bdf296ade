"""GPT-2's older form, vocab.json with merges.txt, gives the same ids as `tokenizers` and `transformers` from the same files."""

import json
import shutil

import pytest
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from tokenizers.models import BPE

NAMES = [("vocab.json", "merges.txt"), ("gpt2_vocab.json", "gpt2_merges.txt"), ("encoder.json", "vocab.bpe")]
TEXTS = [
    "Hello world, it's 2024!  We'LL see\r\n\r\n\tTabs   and\u00a0spaces ",
    "<|endoftext|>a<|endoftext|> b<|endoftext|",
    "日本語のテキスト、Ελληνικά и русский 🤗🏽 ﬁ é e\u0301",
    "\x00\x01\x7f\u2028\u0085x",
    "",
]


@pytest.fixture(scope="module")
def files(shared):
    folder = shared / "data" / "tokenizers" / "gpt2"
    return folder / "gpt2_vocab.json", folder / "gpt2_merges.txt"


def encode(athanor, tokenizer, texts):
    done = athanor.run("tokenizer", "encode", "--jsonl", "--tokenizer", tokenizer, input="\n".join(map(json.dumps, texts)))
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def refusal(athanor, tokenizer):
    done = athanor.run("tokenizer", "encode", "--tokenizer", tokenizer, input="x", check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    return done.stderr


@pytest.mark.parametrize("names, by_folder", [
    pytest.param(names, by_folder, marks=[] if by_folder == (i != 1) else pytest.mark.slow, id=f"{names[0]}-{by_folder}")
    for i, names in enumerate(NAMES) for by_folder in (True, False)])
def test_every_way_to_name_the_files_gives_the_ids_of_tokenizers(athanor, files, shared, tmp_path, names, by_folder):
    for source, name in zip(files, names):
        shutil.copyfile(source, tmp_path / name)
    theirs = ByteLevelBPETokenizer(*map(str, files))
    theirs.add_special_tokens(["<|endoftext|>"])
    texts = TEXTS + (shared / "data/text/tinyshakespeare.txt").read_text().split("\n\n")[:500]
    ours = encode(athanor, tmp_path if by_folder else tmp_path / names[0], texts)
    assert ours == [encoding.ids for encoding in theirs.encode_batch(texts)]


def test_ids_are_those_of_transformers(athanor, files, tmp_path):
    from transformers import GPT2Tokenizer

    shutil.copyfile(files[0], tmp_path / "vocab.json")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + files[1].read_text(encoding="utf-8"), encoding="utf-8")
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    assert encode(athanor, tmp_path, TEXTS) == [theirs.encode(text) for text in TEXTS]


def test_prepared_data_carries_a_tokenizer_json_that_says_the_same(athanor, files, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    athanor.run("prepare", "--tokenizer", files[0], "--seq-len", 8, "--out", tmp_path / "out", tmp_path / "a.jsonl")
    theirs = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert encode(athanor, tmp_path / "out", TEXTS) == [theirs.encode(text).ids for text in TEXTS]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["eos_id"] == theirs.token_to_id("<|endoftext|>")


def test_lines_of_windows_and_a_version_line_change_nothing(athanor, files, tmp_path):
    shutil.copyfile(files[0], tmp_path / "vocab.json")
    merges = files[1].read_bytes()
    (tmp_path / "merges.txt").write_bytes(b"#version: 0.2\r\n" + merges.replace(b"\n", b"\r\n") + b"\r\n")
    assert encode(athanor, tmp_path, TEXTS) == encode(athanor, files[0], TEXTS)


def test_a_vocabulary_trained_on_the_spot_equals(athanor, shared, tmp_path):
    text = (shared / "data/text/wagahaiwa_nekodearu_ja.txt").read_text(encoding="utf-8")[:60_000]
    theirs = ByteLevelBPETokenizer()
    theirs.train_from_iterator(text.split("\n"), vocab_size=1500, special_tokens=["<|endoftext|>"])
    theirs.save_model(str(tmp_path))
    reloaded = Tokenizer(BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    reloaded.pre_tokenizer, reloaded.decoder = theirs._tokenizer.pre_tokenizer, theirs._tokenizer.decoder
    lines = text.split("\n")[:400]
    assert encode(athanor, tmp_path, lines) == [reloaded.encode(line).ids for line in lines]


def test_what_is_missing_or_wrong_is_named(athanor, files, tmp_path):
    assert "holds no tokenizer" in refusal(athanor, tmp_path)
    shutil.copyfile(files[0], tmp_path / "vocab.json")
    assert f"no file {tmp_path}/merges.txt" in refusal(athanor, tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ t\nĠ a b\n", encoding="utf-8")
    assert f'{tmp_path}/merges.txt:3: expected two tokens with one space between them, found "Ġ a b"' in refusal(
        athanor, tmp_path
    )
    (tmp_path / "merges.txt").write_text("Ġ t\nĠ 日本\n", encoding="utf-8")
    assert '"日本" is not in model.vocab' in refusal(athanor, tmp_path)
    assert "name the vocabulary" in refusal(athanor, tmp_path / "merges.txt")
    (tmp_path / "merges.txt").write_bytes(b"a b\n\xff c\n")
    assert "merges.txt: byte 4 (0xFF) is not UTF-8" in refusal(athanor, tmp_path)
    (tmp_path / "vocab.json").write_text("[1]")
    assert f"{tmp_path}/vocab.json" in refusal(athanor, tmp_path)
    shutil.copyfile(files[0], tmp_path / "other_vocab.json")
    assert "several tokenizers: other_vocab.json, vocab.json" in refusal(athanor, tmp_path)
