"""Compares Parquet with pyarrow: its files are read row for row, and errors in a file are reported, never a crash."""

import hashlib
import json
import random
import shutil

import pyarrow
import pyarrow.parquet as parquet
import pytest

EOS = "<|endoftext|>"


@pytest.fixture(scope="module")
def with_parquet(athanor):
    if not athanor.path.with_name("libathanor_parquet.so").exists():
        pytest.skip("this build has no Parquet (scripts/setup --parquet)")


pytestmark = pytest.mark.usefixtures("with_parquet")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory, athanor):
    folder = tmp_path_factory.mktemp("tokenizer")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 20)
    athanor.run("tokenizer", "train", "--vocab-size", 300, "--special-token", EOS, "--out", folder / "t.json", text)
    return folder / "t.json"


def some_texts(count, seed=0):
    rng = random.Random(seed)
    words = "the quick brown fox é 漢字 😀 \n".split(" ")
    return [" ".join(rng.choices(words, k=rng.randint(0, 60))) for _ in range(count)]


def prepare(athanor, tokenizer, out, *inputs, check=True, **options):
    flags = [item for name, value in options.items() for item in ("--" + name.replace("_", "-"), value)]
    return athanor.run("prepare", "--tokenizer", tokenizer, "--seq-len", 16, "--out", out, *flags, *inputs, check=check)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def shards(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.npy"))}


def refused(athanor, tokenizer, tmp_path, *inputs, **options):
    """Returns the message for an input that is refused: one line, exit code 2, nothing left."""
    done = prepare(athanor, tokenizer, tmp_path / "refused", *inputs, check=False, **options)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "refused").exists()
    return done.stderr


def same_as_jsonl(athanor, tokenizer, tmp_path, texts, table, **write_options):
    """Checks that the table's shards are those of the texts as lines of JSON."""
    lines = tmp_path / "same.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parquet.write_table(table, tmp_path / "same.parquet", **write_options)
    folders = [tmp_path / "lines", tmp_path / "table"]
    for folder, file in zip(folders, (lines, tmp_path / "same.parquet")):
        prepare(athanor, tokenizer, folder, file)
    assert shards(folders[0]) == shards(folders[1])


def test_the_same_rows_in_three_formats_make_the_same_shards(athanor, shared, tmp_path):
    olmo = shared / "data" / "tokenizers" / "allenai_gpt-neox-olmo-dolma-v1_5.json"
    for ending in ("jsonl.gz", "jsonl.zst", "parquet"):
        file = shared / "data" / "text" / "dolma_form" / f"books-400.{ending}"
        athanor.run("prepare", "--tokenizer", olmo, "--seq-len", 512, "--seed", 3, "--out", tmp_path / ending, file)
    assert manifest(tmp_path / "parquet")["documents"] == 400
    assert shards(tmp_path / "parquet") == shards(tmp_path / "jsonl.gz") == shards(tmp_path / "jsonl.zst")


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_codec_and_page_version(athanor, tokenizer, tmp_path, compression, version):
    texts = some_texts(300)
    same_as_jsonl(athanor, tokenizer, tmp_path, texts, pyarrow.table({"text": texts}), compression=compression,
                  data_page_version=version, data_page_size=700, row_group_size=70)


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary", "string_view", "dictionary"])
@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_every_kind_and_encoding_of_strings(athanor, tokenizer, tmp_path, kind, encoding):
    texts = some_texts(200, seed=1) * 2
    arrow_type = (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()) if kind == "dictionary"
                  else getattr(pyarrow, kind)())
    values = [text.encode() for text in texts] if "binary" in kind else texts
    column = pyarrow.array(texts).dictionary_encode() if kind == "dictionary" else pyarrow.array(values, arrow_type)
    options = {} if encoding == "dictionary" else {"use_dictionary": False, "column_encoding": {"text": encoding}}
    same_as_jsonl(athanor, tokenizer, tmp_path, texts, pyarrow.table({"n": range(len(texts)), "text": column}),
                  row_group_size=150, **options)


def test_a_text_in_a_struct_is_named_by_its_path(athanor, tokenizer, tmp_path):
    texts = some_texts(100)
    table = pyarrow.table({"doc": [{"body": text, "n": 1} for text in texts], "dotted.name": texts})
    parquet.write_table(table, tmp_path / "a.parquet")
    prepare(athanor, tokenizer, tmp_path / "a", tmp_path / "a.parquet", text_field="doc.body")
    prepare(athanor, tokenizer, tmp_path / "b", tmp_path / "a.parquet", text_field="dotted.name")
    assert manifest(tmp_path / "a")["documents"] == 100
    assert shards(tmp_path / "a") == shards(tmp_path / "b")


def test_a_name_is_looked_for_in_tables_as_in_lines(athanor, tokenizer, tmp_path):
    texts = some_texts(50)
    nested = [{"body": text + " no"} for text in texts]
    parquet.write_table(pyarrow.table({"doc": nested, "doc.body": texts}), tmp_path / "both.parquet")
    (tmp_path / "both.jsonl").write_text("".join(json.dumps({"doc": {"body": "no"}, "doc.body": text}) + "\n" for text in texts))
    (tmp_path / "path.jsonl").write_text("".join(json.dumps({"doc": {"body": text}}) + "\n" for text in texts))
    parquet.write_table(pyarrow.table({"doc": [{"body": text} for text in texts]}), tmp_path / "path.parquet")
    made = {}
    for name in ("both.parquet", "both.jsonl", "path.jsonl", "path.parquet"):
        prepare(athanor, tokenizer, tmp_path / name.replace(".", "_"), tmp_path / name, text_field="doc.body",
                drop="len(doc.body) < 30")
        made[name] = shards(tmp_path / name.replace(".", "_"))
    assert len(set(map(str, made.values()))) == 1, made
    twice = pyarrow.Table.from_arrays([pyarrow.array(texts), pyarrow.array(texts)], names=["text", "text"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    (tmp_path / "twice.jsonl").write_text('{"text": "a", "text": "b"}\n')
    for name, kind in (("twice.parquet", "column"), ("twice.jsonl", "field")):
        assert f'the {kind} "text" occurs 2 times' in refused(athanor, tokenizer, tmp_path, tmp_path / name)


def test_threads_do_not_change_the_result_of_many_tables(athanor, tokenizer, tmp_path):
    for i in range(5):
        table = pyarrow.table({"text": some_texts(300, seed=i)})
        parquet.write_table(table, tmp_path / f"{i}.parquet", row_group_size=50)
    for threads in (1, 4):
        prepare(athanor, tokenizer, tmp_path / str(threads), tmp_path / "*.parquet", threads=threads)
    assert shards(tmp_path / "1") == shards(tmp_path / "4")


def test_nulls_and_broken_utf8_are_bad_documents_with_their_row(athanor, tokenizer, tmp_path):
    texts = some_texts(50)
    broken = [text.encode() for text in texts]
    texts[16] = None
    broken[29] = b"ab\xffc"
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "null.parquet", row_group_size=10)
    parquet.write_table(pyarrow.table({"text": pyarrow.array(broken, pyarrow.binary())}), tmp_path / "utf8.parquet")
    said = refused(athanor, tokenizer, tmp_path, tmp_path / "null.parquet")
    assert "null.parquet:row 17: column \"text\" is null" in said
    said = refused(athanor, tokenizer, tmp_path, tmp_path / "utf8.parquet")
    assert "utf8.parquet:row 30: invalid UTF-8 at byte 2 of the text (0xFF)" in said
    prepare(athanor, tokenizer, tmp_path / "out", tmp_path / "null.parquet", tmp_path / "utf8.parquet", on_error="skip")
    assert manifest(tmp_path / "out")["skipped"] == {"field that is not a string": 1, "invalid UTF-8": 1}
    assert manifest(tmp_path / "out")["documents"] == 98


def test_columns_that_hold_no_text_are_refused_by_name_and_type(athanor, tokenizer, tmp_path):
    table = pyarrow.table({"n": [1], "f": [1.5], "l": [["a"]], "s": [{"a": "b"}], "d": pyarrow.array([1], pyarrow.date32()),
                           "fixed": pyarrow.array([b"ab"], pyarrow.binary(2)),
                           "decimal": pyarrow.array([1], pyarrow.decimal128(30, 2)), "null": pyarrow.nulls(1)})
    parquet.write_table(table, tmp_path / "a.parquet")

    def said(field):
        return refused(athanor, tokenizer, tmp_path, tmp_path / "a.parquet", text_field=field)

    assert 'no column "text"; there is "n", "f", "l.list.element", "s.a"' in said("text")
    assert 'column "n" is INT64, a string is needed' in said("n")
    assert 'column "f" is DOUBLE' in said("f")
    assert 'column "l" is nested' in said("l")
    assert "is a list" in said("l.list.element")
    assert 'column "s" is nested' in said("s")
    assert 'column "d" is INT32 (Date)' in said("d")
    assert 'column "fixed" is FIXED_LEN_BYTE_ARRAY' in said("fixed")
    assert 'column "decimal" is FIXED_LEN_BYTE_ARRAY (Decimal' in said("decimal")
    assert 'column "null" is INT32 (Null)' in said("null")


def test_files_without_rows_are_named(athanor, tokenizer, tmp_path):
    schema = pyarrow.schema([("text", pyarrow.string())])
    parquet.write_table(schema.empty_table(), tmp_path / "rows.parquet")
    parquet.ParquetWriter(tmp_path / "groups.parquet", schema).close()
    (tmp_path / "empty.parquet").write_bytes(b"")
    assert parquet.ParquetFile(tmp_path / "groups.parquet").num_row_groups == 0
    assert "rows.parquet holds no documents" in refused(athanor, tokenizer, tmp_path, tmp_path / "rows.parquet")
    assert "groups.parquet holds no documents" in refused(athanor, tokenizer, tmp_path, tmp_path / "groups.parquet")
    assert "empty.parquet is empty" in refused(athanor, tokenizer, tmp_path, tmp_path / "empty.parquet")
    # A row group without rows among others is read like any other.
    with parquet.ParquetWriter(tmp_path / "some.parquet", schema) as writer:
        for texts in ([], some_texts(40), [], some_texts(40, seed=1), []):
            writer.write_table(pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())}))
    prepare(athanor, tokenizer, tmp_path / "out", tmp_path / "some.parquet")
    assert manifest(tmp_path / "out")["documents"] == 80


def test_an_empty_file_is_skipped_when_asked_and_counted(athanor, tmp_path):
    (tmp_path / "empty.parquet").write_bytes(b"")
    parquet.write_table(pyarrow.table({"text": some_texts(40)}), tmp_path / "some.parquet")
    command = ["tokenizer", "train", "--vocab-size", 270, "--out", tmp_path / "t.json", tmp_path / "empty.parquet", tmp_path / "some.parquet"]
    done = athanor.run(*command, check=False)
    assert done.returncode == 2 and "empty.parquet is empty" in done.stderr and not (tmp_path / "t.json").exists()
    done = athanor.run(*command, "--on-error", "skip")
    assert "of 40 documents; skipped: 1 " in done.stdout, done.stdout
    assert (tmp_path / "t.json").exists()


def test_garbage_and_encryption_are_refused_by_name(athanor, tokenizer, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"\1\2 this is no Parquet at all")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    (tmp_path / "c.parquet").write_bytes(b"PAR1" + bytes(50) + b"\xff\xff\xff\x7fPAR1")
    (tmp_path / "d.parquet").write_bytes(b"PAR1" + bytes(50) + b"\x10\x00\x00\x00PARE")
    for name in "abcd":
        said = refused(athanor, tokenizer, tmp_path, tmp_path / f"{name}.parquet")
        assert f"{name}.parquet: cannot be read as Parquet" in said and "get the file again" in said
    (tmp_path / "a.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    assert "a.parquet is a pointer of Git LFS" in refused(athanor, tokenizer, tmp_path, tmp_path / "a.parquet")


@pytest.mark.parametrize("attempts", [24, pytest.param(60, marks=pytest.mark.slow)])
def test_damage_never_crashes(athanor, tokenizer, tmp_path, attempts):
    """A file may be truncated or have any bit flipped: either its shards are those of the whole file, or it is refused in a line."""
    rng = random.Random(7)
    table = pyarrow.table({"id": range(120), "text": some_texts(120, seed=3), "k": [{"a": 1.5}] * 120})
    whole = tmp_path / "whole.parquet"
    parquet.write_table(table, whole, compression="zstd", row_group_size=50, write_page_checksum=True)
    data = whole.read_bytes()
    prepare(athanor, tokenizer, tmp_path / "whole", whole)
    expected = shards(tmp_path / "whole")
    damaged = tmp_path / "damaged.parquet"
    outcomes = {0: 0, 2: 0}
    for attempt in range(attempts):
        changed = bytearray(data)
        if attempt % 3 == 0:
            changed = changed[: rng.randrange(len(data))]
        else:
            # Half of them are in the footer, which has all positions.
            for _ in range(rng.randint(1, 8)):
                at = rng.randrange(len(data)) if attempt % 3 == 1 else rng.randrange(len(data) - 800, len(data))
                changed[at] ^= 1 << rng.randrange(8)
        damaged.write_bytes(changed)
        out = tmp_path / "out"
        done = athanor.run("prepare", "--tokenizer", tokenizer, "--seq-len", 16, "--overwrite", "--out", out,
                           "--keep", "id >= 0 and default(k.a, 0) >= 0", damaged, check=False, timeout=300)
        assert done.returncode in (0, 2), (attempt, done.returncode, done.stderr)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 0 or len([line for line in lines if " E " in line]) == 1, (attempt, done.stderr)
        outcomes[done.returncode] += 1
        if done.returncode == 0 and attempt % 3 == 0:
            pytest.fail("a file that was cut off was read")
    assert outcomes[2] > attempts // 3, outcomes
    assert expected


def test_columns_of_a_table_select_documents(athanor, tokenizer, tmp_path):
    texts = some_texts(200, seed=5)
    table = pyarrow.table({
        "text": texts, "source": ["web" if i % 2 else "book" for i in range(200)],
        "metadata": [{"length": i, "score": None if i % 5 == 0 else i / 200, "good": i % 3 == 0} for i in range(200)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=30, data_page_size=200)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    select = ["--keep", "source == 'web' or metadata.good", "--drop", "metadata.score < 0.25", "--drop",
              "metadata.length in [150, 151, 153]", "--drop", "len(text) < 20"]
    for name in ("a.parquet", "a.jsonl"):
        athanor.run("prepare", "--tokenizer", tokenizer, "--seq-len", 16, "--out", tmp_path / f"out.{name}", *select,
                    tmp_path / name)
    kept = [row for row in table.to_pylist()
            if (row["source"] == "web" or row["metadata"]["good"])
            and not (row["metadata"]["score"] is not None and row["metadata"]["score"] < 0.25)
            and row["metadata"]["length"] not in (150, 151, 153) and len(row["text"]) >= 20]
    assert manifest(tmp_path / "out.a.parquet")["documents"] == len(kept) > 10
    assert shards(tmp_path / "out.a.parquet") == shards(tmp_path / "out.a.jsonl")
    said = refused(athanor, tokenizer, tmp_path, tmp_path / "a.parquet", keep="metadata > 1")
    assert 'column "metadata" is nested; expressions read only' in said


@pytest.mark.parametrize("megabytes", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_a_document_of_many_megabytes(athanor, tokenizer, tmp_path, megabytes):
    text = "the quick brown fox " * (megabytes * 50_000)
    schema = pyarrow.schema([("text", pyarrow.string())])
    with parquet.ParquetWriter(tmp_path / "a.parquet", schema, compression="zstd") as writer:
        for part in (["a"], [text], ["b"]):
            writer.write_table(pyarrow.table({"text": part}, schema=schema))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ("a", text, "b")))
    (tmp_path / "a.txt").write_text(text)
    documents = {}
    for name in ("a.parquet", "a.jsonl", "a.txt"):
        athanor.run("prepare", "--tokenizer", tokenizer, "--seq-len", 1024, "--threads", 1, "--memory", "4G", "--out",
                    tmp_path / f"out.{name}", tmp_path / name)
        documents[name] = manifest(tmp_path / f"out.{name}")["text_bytes"]
    assert documents == {"a.parquet": len(text) + 2, "a.jsonl": len(text) + 2, "a.txt": len(text)}
    assert shards(tmp_path / "out.a.parquet") == shards(tmp_path / "out.a.jsonl")


def test_without_the_library_parquet_is_refused_with_the_remedy(athanor, tokenizer, tmp_path):
    alone = tmp_path / "build" / "athanor"
    alone.parent.mkdir()
    for file in [athanor.path, *athanor.path.parent.glob("libathanor.so.*")]:
        shutil.copy(file, alone.parent)
    parquet.write_table(pyarrow.table({"text": some_texts(20)}), tmp_path / "a.parquet")
    said = refused(type(athanor)(alone), tokenizer, tmp_path, tmp_path / "a.parquet")
    assert "built without Parquet" in said and "scripts/setup --parquet" in said
