"""Dolma's layout: attributes in their folder keep and drop what Dolma's own mixer did, and odd files are distinguished."""

import gzip
import json
import shutil
import subprocess

import pytest


@pytest.fixture(scope="module")
def dolma(shared):
    return shared / "data" / "text" / "dolma"


@pytest.fixture(scope="module")
def tokenizer(athanor, tmp_path_factory):
    """A small one: what is kept does not depend on the tokenizer, and OLMo's takes longer to load than a file to prepare."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "docs.jsonl").write_text(json.dumps({"text": "words of the documents"}) + "\n")
    athanor.run("tokenizer", "train", "--vocab-size", 260, "--special-token", "<|endoftext|>", "--out", folder / "tokenizer.json",
                folder / "docs.jsonl")
    return folder / "tokenizer.json"


def rows(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def prepare(athanor, tokenizer, out, *arguments, check=True):
    return athanor.run("prepare", "--tokenizer", tokenizer, "--seq-len", 32, "--overwrite", "--out", out, *arguments, check=check)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def shards(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.npy"))}


MIXER = ["--attributes", "pii,toxicity", "--keep", "metadata.length < 10000", "--drop", "metadata.length < 500",
         "--drop", "attributes.pii.too_much_pii == true", "--drop", "attributes.toxicity > 0.8"]
BY_SPANS = ["--attributes", "sample", "--keep", "attributes.sample__random_number_v1__random[0][2] < 0.5",
            "--drop", "any(attributes.dummy > 0.5)"]


@pytest.mark.parametrize("arguments,expected", [(MIXER, "mixer"), (BY_SPANS, "filter-by-spans")])
def test_what_is_kept_is_what_dolmas_mixer_kept(athanor, dolma, tokenizer, tmp_path, arguments, expected):
    prepare(athanor, tokenizer, tmp_path / "ours", *arguments, dolma / "data" / "provided" / "documents")
    mixed = dolma / "data" / "expected" / f"{expected}.json.gz"
    prepare(athanor, tokenizer, tmp_path / "theirs", mixed)
    assert shards(tmp_path / "ours") == shards(tmp_path / "theirs")
    said = manifest(tmp_path / "ours")
    assert said["documents"] == len(rows(mixed)) == 6
    assert sum(said["skipped"].values()) == 4
    assert said["selection"]["keep"] == [arguments[arguments.index("--keep") + 1]]
    assert said["selection"]["attributes"] == arguments[1].split(",")


def test_what_dropped_a_document_is_counted_by_expression(athanor, dolma, tokenizer, tmp_path):
    prepare(athanor, tokenizer, tmp_path / "out", *MIXER, dolma / "data" / "provided" / "documents")
    assert manifest(tmp_path / "out")["skipped"] == {
        "dropped by --keep metadata.length < 10000": 1,
        "dropped by --drop metadata.length < 500": 1,
        "dropped by --drop attributes.pii.too_much_pii == true": 1,
        "dropped by --drop attributes.toxicity > 0.8": 1,
    }


def test_documents_and_attributes_may_be_packed_differently(athanor, dolma, tokenizer, tmp_path):
    provided = dolma / "data" / "provided"
    prepare(athanor, tokenizer, tmp_path / "expected", *MIXER, provided / "documents")
    lines = gzip.open(provided / "documents" / "000.json.gz", "rb").read()
    packed = {"000.jsonl": lines, "000.jsonl.gz": gzip.compress(lines),
              "000.jsonl.zst": subprocess.run(["zstd", "-c"], input=lines, capture_output=True, check=True).stdout}
    try:
        import io
        import pyarrow
        import pyarrow.parquet as parquet
        table = pyarrow.table({"id": [r["id"] for r in map(json.loads, lines.splitlines())],
                               "text": [r["text"] for r in map(json.loads, lines.splitlines())],
                               "metadata": [{"length": r["metadata"]["length"]} for r in map(json.loads, lines.splitlines())]})
        buffer = io.BytesIO()
        parquet.write_table(table, buffer)
        packed["000.parquet"] = buffer.getvalue()
    except ImportError:
        pass
    if not athanor.path.with_name("libathanor_parquet.so").exists():
        packed.pop("000.parquet", None)
    for name, data in packed.items():
        root = tmp_path / f"as.{name}"
        (root / "documents").mkdir(parents=True)
        (root / "documents" / name).write_bytes(data)
        for attribute in ("pii", "toxicity"):
            source = gzip.open(provided / "attributes" / attribute / "000.json.gz", "rb").read()
            (root / "attributes" / attribute).mkdir(parents=True)
            target = root / "attributes" / attribute / "000.jsonl.zst"
            target.write_bytes(subprocess.run(["zstd", "-c"], input=source, capture_output=True, check=True).stdout)
        prepare(athanor, tokenizer, tmp_path / "out", *MIXER, root / "documents")
        assert shards(tmp_path / "out") == shards(tmp_path / "expected"), name


DOCUMENTS = 4000  # in a file: enough for several chunks


def test_many_threads_and_many_documents(athanor, tokenizer, tmp_path):
    """Rows of attributes stay with their documents, however chunks are cut, and with many files."""
    for part in range(3):
        for kind in ("documents", "attributes/q"):
            (tmp_path / kind / "sub").mkdir(parents=True, exist_ok=True)
        with gzip.open(tmp_path / "documents" / "sub" / f"{part}.jsonl.gz", "wt") as file:
            for i in range(DOCUMENTS):
                file.write(json.dumps({"id": f"{part}-{i}", "text": f"text {part} {i} " + "word " * 40}) + "\n")
        with gzip.open(tmp_path / "attributes" / "q" / "sub" / f"{part}.jsonl.gz", "wt") as file:
            for i in range(DOCUMENTS):
                file.write(json.dumps({"id": f"{part}-{i}", "attributes": {"e__t__score": [[0, 9, i % 10]]}}) + "\n")
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({"text": f"text {part} {i} " + "word " * 40}) + "\n"
                             for part in range(3) for i in range(DOCUMENTS) if i % 10 >= 7))
    for threads in (1, 4):
        prepare(athanor, tokenizer, tmp_path / str(threads), "--threads", threads, "--attributes", "q",
                "--keep", "max(attributes.e__t__score) >= 7", tmp_path / "documents")
        assert manifest(tmp_path / str(threads))["documents"] == 3 * DOCUMENTS * 3 // 10
    prepare(athanor, tokenizer, tmp_path / "plain", plain)
    assert shards(tmp_path / "1") == shards(tmp_path / "4") == shards(tmp_path / "plain")


def test_attributes_that_do_not_belong_are_refused(athanor, dolma, tokenizer, tmp_path):
    shutil.copytree(dolma / "data" / "provided", tmp_path / "d", copy_function=shutil.copyfile)
    for folder in [tmp_path / "d", *(tmp_path / "d").rglob("*")]:
        folder.chmod(0o755)
    file = tmp_path / "d" / "attributes" / "toxicity" / "000.json.gz"
    lines = gzip.open(file, "rt").read().splitlines(keepends=True)

    def said(changed, *more):
        file.write_bytes(changed if isinstance(changed, bytes) else gzip.compress("".join(changed).encode()))
        done = prepare(athanor, tokenizer, tmp_path / "out", "--attributes", "toxicity", "--drop", "attributes.toxicity > 0.8", *more,
                       tmp_path / "d" / "documents", check=False)
        assert done.returncode == 2 and not (tmp_path / "out").exists(), done.stderr
        return done.stderr

    assert "toxicity/000.json.gz: ends after 9 rows" in said(lines[:9])
    assert "toxicity/000.json.gz:11: a row too many" in said(lines + lines[:1])
    assert "toxicity/000.json.gz:4: id \"http://clizbeats" in said(lines[:3] + lines[4:5] + lines[3:4] + lines[5:])
    assert "toxicity/000.json.gz:4: id \"http://clizbeats" in said(lines[:3] + lines[4:5] + lines[3:4] + lines[5:],
                                                                   "--on-error", "skip")
    assert "toxicity/000.json.gz:3: invalid JSON" in said(lines[:2] + ["{nonsense\n"] + lines[3:])
    assert "toxicity/000.json.gz:3: a row {" in said(lines[:2] + ["[1]\n"] + lines[3:])
    assert "toxicity/000.json.gz: gzip data is cut off" in said(gzip.compress("".join(lines).encode())[:-20])
    file.unlink()
    done = prepare(athanor, tokenizer, tmp_path / "out", "--attributes", "toxicity", "--drop", "attributes.toxicity > 0.8",
                   tmp_path / "d" / "documents", check=False)
    assert done.returncode == 2 and "toxicity/000.json.gz does not exist" in done.stderr


def test_every_file_of_the_tree_is_read_or_refused_in_a_line(athanor, dolma, tokenizer, tmp_path):
    accepted, refused = set(), {}
    for path in sorted(p for p in dolma.rglob("*") if p.is_file()):
        name = str(path.relative_to(dolma))
        done = prepare(athanor, tokenizer, tmp_path / "out", path, check=False)
        if done.returncode == 0:
            accepted.add(name)
        else:
            assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, (name, done.stderr)
            assert path.name in done.stderr, done.stderr
            refused[name] = done.stderr
    assert {n for n in accepted if "multiple_files" in n} == {
        f"multiple_files/cc_en_head-{n}.jsonl{e}" for n in ("0091", "0174") for e in ("", ".gz")}
    assert {"data/provided/documents/000.json.gz", "data/expected/mixer.json.gz"} <= accepted
    assert not any("attributes" in n or "warc" in n or "config" in n for n in accepted)
    assert "unknown kind of file (.warc.gz)" in refused["warc/sample-0000.warc.gz"]
    assert "unknown kind of file (.yaml)" in refused["config/email-spans-jq.yaml"]
    assert 'no field "text"; there is id, attributes' in refused["data/provided/attributes/pii/000.json.gz"]
    assert 'there is message' in refused["data/formats/test.jsonl.zst"]


def test_a_mistyped_path_is_told(athanor, dolma, tokenizer, tmp_path):
    done = prepare(athanor, tokenizer, tmp_path / "out", "--drop", "metadata.lenght < 500", dolma / "data" / "provided" / "documents")
    assert "no document has metadata.lenght" in done.stderr


def test_adding_files_keeps_the_selection(athanor, dolma, tokenizer, tmp_path):
    provided = dolma / "data" / "provided" / "documents"
    prepare(athanor, tokenizer, tmp_path / "out", "--keep", "metadata.length < 10000", provided)
    athanor.run("prepare", "--add", "--out", tmp_path / "out", dolma / "multiple_files" / "cc_en_head-0091.jsonl")
    lengths = [r["metadata"]["length"] for r in rows(provided / "000.json.gz")]
    lengths += [r["metadata"]["length"] for r in rows(dolma / "multiple_files" / "cc_en_head-0091.jsonl.gz")]
    assert manifest(tmp_path / "out")["documents"] == sum(n < 10000 for n in lengths)
    done = athanor.run("prepare", "--add", "--out", tmp_path / "out", "--keep", "metadata.length < 9",
                       dolma / "multiple_files" / "cc_en_head-0174.jsonl", check=False)
    assert done.returncode == 2 and "other --attributes, --keep or --drop" in done.stderr
