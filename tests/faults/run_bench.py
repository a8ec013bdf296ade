"""Plays cells of the bench of faults one after the other, and prints a table in Markdown.

    run_bench.py                        all cells
    run_bench.py SIGKILL lost_node      those whose names have one of these words
    run_bench.py --out FILE             also writes the table into a file
    run_bench.py --ppn 2 --parts KILL   with 2 ranks on each host; also prints where the seconds to the next step go
    run_bench.py --keep                 leaves the folders of the runs

It needs root and the packages that tests/cluster/hosts.py names.
"""
import argparse
import datetime
import os
import pathlib
import shutil
import sys
import tempfile
import time

import bench
from cells import CELLS, FAULTY_HOST, IMPOSSIBLE
from hosts import Hosts, missing
from runs import make_data
from test_runs import Athanor

HEAD = ["fault", "phase", "detected as", "detection s", "next step s", "named", "steps lost", "same weights", "verdict of the bench"]


def line(cells):
    return "| " + " | ".join(str(each) for each in cells) + " |"


class Bench:
    """Hosts on which cells are played, with the weights of runs without a fault, one for each configuration."""

    def __init__(self, program, folder):
        self.program, self.folder, self.references = program, pathlib.Path(folder), {}
        (self.folder / "data").mkdir()
        self.data = make_data(Athanor(program), self.folder / "data")
        self.hosts = Hosts(bench.NUM_HOSTS + bench.SPARES, self.folder / "h")

    def __enter__(self):
        self.hosts.__enter__()
        return self

    def __exit__(self, *_):
        self.hosts.__exit__()

    def reference(self, overrides, **options):
        steps = tuple(each for each in overrides if each.startswith("train.steps"))
        key = (steps, tuple(sorted(options.items())))
        if key not in self.references:
            home = self.folder / f"plain{len(self.references)}"
            self.references[key] = bench.undisturbed(self.hosts, self.program, self.data, home, overrides=steps, **options)
        return self.references[key]

    def play(self, cell, **options):
        reference = self.reference(cell.overrides, **options)
        return bench.play(self.hosts, self.program, self.data, cell, self.folder / cell.name, reference, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--ppn", type=int, default=1, help="ranks of each host")
    parser.add_argument("--parts", action="store_true", help="also print where the seconds from the fault to the next step go")
    arguments = parser.parse_args()
    if why := missing() or bench.missing():
        sys.exit(f"faults: {why}")
    program = pathlib.Path(os.environ.get("ATHANOR_BIN", bench.ROOT / "build" / "athanor")).resolve()
    cells = [cell for cell in CELLS if not arguments.names or any(name in cell.name for name in arguments.names)]
    folder = tempfile.mkdtemp(prefix="fb-", dir="/tmp")  # Open MPI's sockets need short paths
    start, rows, failed = time.time(), [line(HEAD), line(["---"] * len(HEAD))], 0
    print("\n".join(rows), flush=True)
    with Bench(program, folder) as played:
        for cell in cells:
            outcome = played.play(cell, ppn=arguments.ppn)
            failed += bool(outcome.wrong)
            rows.append(line(outcome.row()))
            print(rows[-1], flush=True)
            if arguments.parts:
                print("".join(f"    {seconds:5.2f} s  {name}\n" for name, seconds in outcome.parts()), end="", flush=True)
    minutes = (time.time() - start) / 60
    text = (f"`make faults`, {datetime.date.today()}, {len(cells)} cells in {minutes:.0f} minutes, {failed} of them not as they should be; "
            f"{bench.NUM_HOSTS} hosts with a rank each and {bench.SPARES} spares, {os.cpu_count()} cores for all; the fault is that of {FAULTY_HOST}.\n\n")
    text += "\n".join(rows) + "\n\n" + "".join(f"- {fault}: {why}.\n" for fault, why in IMPOSSIBLE.items())
    if arguments.out:
        arguments.out.write_text(text)
    print(f"\n{len(cells)} cells in {minutes:.1f} minutes, {failed} not as they should be" + (f"; runs in {folder}" if arguments.keep else ""))
    if not arguments.keep:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
