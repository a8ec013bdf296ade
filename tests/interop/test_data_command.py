"""`athanor data info|show|verify` against numpy, `tokenizers` and the manifest."""

import json
import random

import numpy
import pytest
from tokenizers import Tokenizer

EOS = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizers_made(tmp_path_factory, athanor):
    """A small vocabulary (uint16) and one beyond 65,536 (uint32)."""
    folder = tmp_path_factory.mktemp("tokenizers")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 20)
    athanor.run("tokenizer", "train", "--vocab-size", 300, "--special-token", EOS, "--out", folder / "uint16.json", text)
    large = json.loads((folder / "uint16.json").read_text())
    size = len(large["model"]["vocab"]) + len(large["added_tokens"])
    large["model"]["vocab"].update({f"never made {i}": i for i in range(size, 66000)})
    (folder / "uint32.json").write_text(json.dumps(large))
    return folder


@pytest.fixture(params=["uint16", "uint32"])
def prepared(request, tmp_path, athanor, tokenizers_made):
    """A folder with several shards, a validation split and files that were added."""
    rng = random.Random(0)
    words = "the quick brown fox é 漢字 jumps".split()
    for name, count in (("a", 300), ("b", 100)):
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    out = tmp_path / request.param
    athanor.run("prepare", "--tokenizer", tokenizers_made / f"{request.param}.json", "--seq-len", 32, "--shard-bytes",
                4096, "--validation-fraction", 0.1, "--out", out, tmp_path / "a.jsonl")
    athanor.run("prepare", "--add", "--out", out, tmp_path / "b.jsonl")
    assert json.loads((out / "manifest.json").read_text())["dtype"] == request.param
    return out


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def row_of(folder, split, row):
    parts = [numpy.load(folder / entry["file"]) for entry in manifest(folder)["splits"][split]["files"]]
    return numpy.concatenate(parts)[row].tolist()


def test_info_has_what_the_manifest_says(athanor, prepared):
    said = manifest(prepared)
    text = athanor.run("data", "info", prepared).stdout
    for part in (f"{said['documents']} documents", f"{said['tokens']:,} tokens", "an instance has 32 tokens",
                 said["dtype"], "validation", "added 1", "a.jsonl: 300 documents", "b.jsonl: 100 documents", EOS):
        assert part in text, (part, text)
    told = json.loads(athanor.run("data", "info", "--json", prepared).stdout)
    assert {key: told[key] for key in said} == said
    files = [entry["file"] for split in said["splits"].values() for entry in split["files"]]
    files += [said["tokenizer_file"], said["remainder"]["file"]] + [part["checksums"]["file"] for part in said["parts"]]
    assert told["bytes"] == sum((prepared / file).stat().st_size for file in files)
    assert told["eos_token"] == EOS


# The last row is number -1.
@pytest.mark.parametrize("rows", [
    pytest.param([("train", 0), ("validation", 1), ("train", -1)], id="some"),
    pytest.param([(split, row) for split in ("train", "validation") for row in (0, 1, -1)], id="more", marks=pytest.mark.slow)])
def test_show_is_the_row_decoded(athanor, prepared, rows):
    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    eos = tokenizer.token_to_id(EOS)
    for split, row in rows:
        row %= manifest(prepared)["splits"][split]["instances"]
        ids = row_of(prepared, split, row)
        told = json.loads(athanor.run("data", "show", prepared, "--split", split, "--row", row, "--json").stdout)
        assert told["ids"] == ids
        pieces, begin = [], 0
        for i in [*(i for i, id in enumerate(ids) if id == eos), len(ids)]:
            if begin < len(ids):
                pieces.append(tokenizer.decode(ids[begin:i], skip_special_tokens=False))
            begin = i + 1
        assert [piece["text"] for piece in told["documents"]] == pieces
        assert sum(piece["ends"] for piece in told["documents"]) == ids.count(eos)
        shown = athanor.run("data", "show", prepared, "--split", split, "--row", row).stdout
        assert shown.count("ends the document") == ids.count(eos)
        for piece in pieces:
            assert piece in shown
        shown = athanor.run("data", "show", prepared, "--split", split, "--row", row, "--ids").stdout
        assert [int(word) for line in shown.splitlines() if "──" not in line for word in line.split()] == [
            id for id in ids if id != eos]


def test_show_refuses_rows_and_splits_that_are_not_there(athanor, prepared):
    count = manifest(prepared)["splits"]["train"]["instances"]
    for arguments, part in ((("--row", count), f"has {count} instances"), (("--row", -1), "has"),
                            (("--split", "test"), 'no split "test"')):
        done = athanor.run("data", "show", prepared, *arguments, check=False)
        assert done.returncode == 2 and part in done.stderr, done.stderr
    done = athanor.run("data", "info", prepared.parent / "nothing", check=False)
    assert done.returncode == 2 and "does not exist" in done.stderr


def test_verify_finds_each_damaged_file(athanor, prepared):
    said = athanor.run("data", "verify", prepared).stdout
    splits = manifest(prepared)["splits"]
    num_files = sum(len(split["files"]) for split in splits.values()) + 2 + len(manifest(prepared)["parts"])
    assert f"whole: {num_files} files" in said
    files = [entry["file"] for entry in splits["train"]["files"]]
    flipped, cut, gone = prepared / files[0], prepared / files[1], prepared / files[2]
    data = bytearray(flipped.read_bytes())
    data[-3] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-1])
    gone.unlink()
    tokenizer = prepared / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    done = athanor.run("data", "verify", prepared, check=False)
    assert done.returncode == 2
    for file, what in ((flipped, "checksum"), (cut, "byte"), (gone, "missing"), (tokenizer, "checksum")):
        assert any(str(file) in line and what in line for line in done.stderr.splitlines()), (file, done.stderr)
    assert f"4 of {num_files} files are damaged" in done.stderr
    assert len([line for line in done.stderr.splitlines() if " E " in line]) == 4


def test_show_refuses_a_row_of_a_damaged_shard(athanor, prepared):
    file = prepared / manifest(prepared)["splits"]["train"]["files"][0]["file"]
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    done = athanor.run("data", "show", prepared, check=False)
    assert done.returncode == 2 and str(file) in done.stderr and "checksum" in done.stderr
    later = manifest(prepared)["splits"]["train"]["files"][0]["instances"]
    athanor.run("data", "show", prepared, "--row", later)


def test_ids_beyond_the_vocabulary_are_found_even_with_a_new_checksum(athanor, prepared, tmp_path):
    """Simulates another tool that has written the shard and the manifest."""
    said = manifest(prepared)
    entry = said["splits"]["train"]["files"][0]
    rows = numpy.load(prepared / entry["file"])
    rows[1, 5] = said["vocab_size"]
    numpy.save(prepared / entry["file"], rows)
    done = athanor.run("data", "verify", prepared, check=False)
    assert done.returncode == 2
    actual = done.stderr.split("its checksum is ")[1].split(",")[0]
    entry["hash"] = actual
    (prepared / "manifest.json").write_text(json.dumps(said))
    done = athanor.run("data", "verify", prepared, check=False)
    assert done.returncode == 2 and f"token id {said['vocab_size']}" in done.stderr and entry["file"] in done.stderr
