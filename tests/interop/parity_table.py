#!/usr/bin/env python3
"""Prints the table of docs/evidence.md: how far Athanor and `transformers` in fp32 are from fp64, by family.

    ATHANOR_PARITY_TABLE=parity.jsonl .venv/bin/pytest tests/interop/test_transformers_parity.py -k logits
    tests/interop/parity_table.py parity.jsonl
"""
import collections
import json
import pathlib
import sys


def main():
    by_family = collections.defaultdict(list)
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        by_family[json.loads(line)["family"]].append(json.loads(line))
    print("| family | compared | logits, ours / theirs | loss, ours / theirs | share of the bound, ours / theirs | of ours, the worst tensor |")
    print("|---|---|---|---|---|---|")
    for family, lines in sorted(by_family.items()):
        worst = {what: [max(line[side][what] for line in lines) for side in ("ours", "theirs")] for what in ("logits", "loss", "share")}
        name = max(lines, key=lambda line: line["ours"]["share"])["ours"]["name"]
        print(f"| `{family}` | {len(lines)} | " + " | ".join(" / ".join(f"{value:.1e}" for value in worst[what]) for what in ("logits", "loss"))
              + f" | {worst['share'][0]:.2f} / {worst['share'][1]:.2f} | `{name}` |")


if __name__ == "__main__":
    main()
