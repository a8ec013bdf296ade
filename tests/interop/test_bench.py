"""`athanor bench`: its measurements are in the table and in the JSON."""

import json


def test_bench_data_verifies_and_measures_every_part(athanor, shared, tmp_path):
    books = shared / "data" / "text" / "books"
    tokenizer = shared / "data" / "tokenizers" / "allenai_dolma2.json"
    done = athanor.run("bench", "data", "--tokenizer", tokenizer, "--rounds", 2, "--threads", 2, "--json",
                       tmp_path / "report.json", books / "Lewis_Carroll_Alices_Adventures_in_Wonderland.md",
                       env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verified_bytes"] == report["text_bytes"] > 140_000
    names = ["memory copy", "read and parse, one thread", "cut into words, one thread", "encode, one thread",
             "encode, 2 threads", "whole prepare"]
    assert set(report["rows"]) == set(names)
    for name in names:
        row = report["rows"][name]
        assert 0 < row["min"] <= row["median"] <= row["max"] and len(row["values"]) == 2
        assert name in done.stdout
    assert not list(tmp_path.glob("athanor-bench-*")), "its scratch folder stays behind"


def test_bench_data_takes_a_sentencepiece_model(athanor, shared, tmp_path):
    (tmp_path / "a.txt").write_text("Some text, and some more of it.\n" * 1000)
    done = athanor.run("bench", "data", "--tokenizer", shared / "data/tokenizers/test_model.model", "--rounds", 1,
                       "--encode-only", tmp_path / "a.txt")
    assert "encode, one thread" in done.stdout


def test_bench_data_without_text_ends_with_2(athanor, shared, tmp_path):
    (tmp_path / "a.txt").write_text("")
    done = athanor.run("bench", "data", "--tokenizer", shared / "data/tokenizers/test_model.model", tmp_path / "a.txt",
                       check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
