"""docs/dry-run.md shows what `verify --dry-run` prints: its block of output and the totals of its tables are those of this program.

No number of a dry run depends on the machine, so the block is compared as text, and a total within the last digit that the page has.
"""
import functools
import json
import pathlib
import re
import shlex

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "dry-run.md").read_text()
LAST_DIGIT = 0.05001  # half a unit of it
GIB = 1 << 30


def test_the_report_that_the_page_shows_is_the_one_that_is_printed(athanor):
    shown = re.search(r"\n```\n\$ athanor (verify .*?)\n(\d+ ranks: .*?)\n```", PAGE, re.DOTALL)
    command = shlex.split(shown[1].replace("\\\n", " "))
    printed = athanor.run(*[ROOT / word if word.startswith("recipes/") else word for word in command]).stdout
    assert printed.strip().splitlines() == shown[2].splitlines()


@functools.cache
def total(athanor, recipe, ranks, *settings):
    words = [word for setting in settings for word in ("--set", setting)]
    done = athanor.run("verify", ROOT / "recipes" / f"{recipe}.toml", "--dry-run", "--json", "--ranks", ranks, *words)
    return json.loads(done.stdout)["memory_bytes"]["total"] / GIB


def rows_of(first_cell):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if re.match(first_cell, line)]
    assert rows, f"the page has no row {first_cell}"
    return rows


def test_the_totals_of_the_mula_models_are_those_of_their_dry_runs(athanor):
    rows = rows_of(r"\| Mula-")
    assert len(rows) == 5
    for name, *_, shown, _ in rows:
        assert total(athanor, name.lower(), 3072) == pytest.approx(float(shown.removesuffix(" GiB")), abs=LAST_DIGIT), name
    shown = float(re.search(r"the rank would need (\S+) GiB in total", PAGE)[1])
    assert total(athanor, "mula-220b-a10b", 3072, "parallelism.recompute=[]") == pytest.approx(shown, abs=LAST_DIGIT)


def test_the_totals_of_qwen3_are_those_of_its_dry_runs(athanor):
    again = 'parallelism.recompute=["norm", "moe"]'
    for devices, _, plain, recomputed in rows_of(r"\| (8|128) \("):
        ranks = int(devices.split()[0])
        settings = ["train.micro_batch_size=8", f"train.global_batch_size={8 * ranks}"]
        for shown, more in ((plain, []), (recomputed, [again])):
            assert total(athanor, "qwen3-30b-a3b", ranks, *settings, *more) == pytest.approx(float(shown.split()[0]), abs=LAST_DIGIT), (devices, more)
