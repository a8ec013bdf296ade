"""Data many times larger than the memory that `athanor prepare` may take (marked slow: `make test-all` runs it)."""
import json
import os
import re
import shutil
import time

import pytest
from documents import write_documents
from test_prepare import EOS, content

NUM_BYTES = int(os.environ.get("ATHANOR_SLOW_BYTES", 2_000_000_000))
MEMORY = 256 << 20


def prepare_and_measure(athanor, *arguments):
    """Returns the process's peak memory as the kernel measured it, its output, and its seconds."""
    start = time.monotonic()
    output, peak = athanor.measure("prepare", *arguments)
    return peak, output, time.monotonic() - start


@pytest.mark.slow
def test_two_gigabytes_are_prepared_within_256_mebibytes(athanor, tmp_path):
    if shutil.disk_usage(tmp_path).free < 6 * NUM_BYTES:
        pytest.skip(f"needs {6 * NUM_BYTES / 1e9:.0f} GB of disk in {tmp_path}")
    documents, text_bytes = write_documents(tmp_path / "in", NUM_BYTES)
    text = tmp_path / "text.txt"
    with open(tmp_path / "in" / "000.jsonl") as file:
        text.write_text(file.read(300_000))
    athanor.run("tokenizer", "train", "--vocab-size", 8000, "--special-token", EOS, "--out", tmp_path / "tokenizer.json", text)
    arguments = ["--tokenizer", tmp_path / "tokenizer.json", "--seq-len", 2048, "--validation-fraction", 0.001, tmp_path / "in"]

    peak, output, elapsed = prepare_and_measure(athanor, *arguments, "--memory", "256M", "--out", tmp_path / "small")
    manifest = json.loads((tmp_path / "small" / "manifest.json").read_text())
    token_bytes = 2 * manifest["tokens"]
    print(f"{text_bytes / 1e9:.2f} GB of text, {token_bytes / 1e9:.2f} GB of tokens: {peak / 2**20:.0f} MiB, {elapsed:.0f} s")
    assert peak < MEMORY and token_bytes > 2 * MEMORY * NUM_BYTES / 2e9
    assert float(re.search(r"at most ([\d.]+)MiB of memory", output).group(1)) * 2**20 < MEMORY
    assert (manifest["documents"], manifest["text_bytes"]) == (documents, text_bytes)
    splits = manifest["splits"].values()
    assert manifest["tokens"] == sum(split["tokens"] for split in splits) + manifest["remainder_tokens"]
    assert sum(len(split["files"]) for split in splits) == len(list((tmp_path / "small").glob("[tv]*.npy")))

    small = content(tmp_path / "small")
    shutil.rmtree(tmp_path / "small")
    peak, _, elapsed = prepare_and_measure(athanor, *arguments, "--memory", "6G", "--out", tmp_path / "large")
    print(f"with --memory 6G: {peak / 2**20:.0f} MiB, {elapsed:.0f} s")
    assert peak > token_bytes, "all at once in memory, so that the two ways are compared"
    assert content(tmp_path / "large") == small
    shutil.rmtree(tmp_path / "in")
    shutil.rmtree(tmp_path / "large")
