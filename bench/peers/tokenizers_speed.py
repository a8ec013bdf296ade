#!/usr/bin/env python3
"""Measures encoding by the `tokenizers` library and by Athanor, alternately on one thread: MB of text per second, and the ratio.

Both encode the same documents; their ids are compared first. Times are those of the thread itself, so that other load on the
machine counts less; loading does not count.

Usage: bench/peers/tokenizers_speed.py --tokenizer T [--tokenizer T2 ...] [--rounds N] [--json FILE] FILE...
FILE is a .md or .txt, which is cut into paragraphs, or a .jsonl with a document in the field "text" of each line. Without a
FILE, it takes all in ../shared/data.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("ATHANOR_SHARED", ROOT.parent / "shared")) / "data"


def documents_of(path):
    text = path.read_bytes().decode("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line)["text"] for line in text.split("\n") if line]
    return re.findall(r"(?s).+?(?:\r\n\r\n|\n\n|\Z)", text)


def peer_of(path):
    if path.is_dir():  # the older form of GPT-2
        vocab = next(path.glob("*vocab.json"))
        files = str(vocab), str(vocab.with_name(vocab.name.replace("vocab.json", "merges.txt")))
        peer = tokenizers.ByteLevelBPETokenizer(*files)
        peer.add_special_tokens(["<|endoftext|>"])
        return peer
    peer = tokenizers.Tokenizer.from_file(str(path))
    peer.no_truncation()
    peer.no_padding()
    return peer


def their_turn(peer, documents):
    start = time.thread_time()
    for document in documents:
        peer.encode(document, add_special_tokens=False)
    return time.thread_time() - start


def check_ids(athanor, tokenizer, peer, rows, documents):
    command = [athanor, "tokenizer", "encode", "--jsonl", "--tokenizer", tokenizer]
    lines = "\n".join(json.dumps(document) for document in documents)
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=True)
    for document, line in zip(documents, done.stdout.splitlines(), strict=True):
        if json.loads(line) != peer.encode(document, add_special_tokens=False).ids:
            sys.exit(f"tokenizers_speed: ids differ on {document[:80]!r} of {rows}")


def compare(athanor, tokenizer, name, documents, rounds, folder):
    peer = peer_of(tokenizer)
    rows = folder / "documents.jsonl"
    rows.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents), encoding="utf-8")
    check_ids(athanor, tokenizer, peer, name, documents)
    num_bytes = sum(len(d.encode()) for d in documents)
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(num_bytes / their_turn(peer, documents) / 1e6)
        command = [athanor, "bench", "data", "--encode-only", "--rounds", "1", "--max-bytes", str(2**40), "--json",
                   folder / "report.json", "--tokenizer", tokenizer, rows]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ours += json.loads((folder / "report.json").read_text())["rows"]["encode, one thread"]["values"]
    ratio = statistics.median(ours) / statistics.median(theirs)
    spread = f"{min(ours):.1f} to {max(ours):.1f}"
    print(f"{tokenizer.stem[:36]:36} {name[:24]:24} {statistics.median(ours):9.1f} {spread:>16} "
          f"{statistics.median(theirs):9.2f} {ratio:8.1f}", flush=True)
    return {"tokenizer": str(tokenizer), "text": name, "bytes": num_bytes, "ours": ours, "tokenizers": theirs, "ratio": ratio}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--athanor", type=pathlib.Path, default=ROOT / "build" / "athanor")
    parser.add_argument("--tokenizer", type=pathlib.Path, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="*")
    options = parser.parse_args()
    if not options.athanor.exists():
        sys.exit(f"tokenizers_speed: {options.athanor} is not there: run `make build`")
    tokenizers_ = options.tokenizer or [*sorted((SHARED / "tokenizers").glob("*.json")), SHARED / "tokenizers" / "gpt2"]
    texts = {path.name: documents_of(path) for path in options.files}
    if not texts:
        texts["books"] = [d for path in sorted((SHARED / "text" / "books").glob("*.md")) for d in documents_of(path)]
        texts["46 languages"] = documents_of(SHARED / "text" / "udhr.jsonl")
        texts["a Japanese novel"] = [(SHARED / "text" / "wagahaiwa_nekodearu_ja.txt").read_text(encoding="utf-8")]
    if not all(texts.values()):
        sys.exit(f"tokenizers_speed: no documents; name files, or set ATHANOR_SHARED (now {SHARED.parent})")
    print(f"{'tokenizer':36} {'text':24} {'ours MB/s':>9} {'from to':>16} {'tokenizers':>9} {'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(options.athanor.resolve(), tokenizer, name, documents, options.rounds, pathlib.Path(folder))
                   for tokenizer in tokenizers_ for name, documents in texts.items()]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
