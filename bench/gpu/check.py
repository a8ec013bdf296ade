#!/usr/bin/env python3
"""Checks and measures Athanor on one GPU or several of one machine, most important first, within a limit of time.

It needs nothing but Python and a libtorch.

The programs come from bin/ (a bundle of scripts/gpu_bundle), else from build-cuda/ or build/; if none of these has any, the kernels,
the ops and their tests are built first, by the `cuda` preset. Every part has its own limit of time, so that a failure costs only
itself. On the way, OUT/result.json and OUT/table.md are rewritten after each part; the second is for docs/gpu.md.

Exit codes: 0 no part failed; 1 a part failed; 2 nothing could be run, or the command line was refused.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import signal
import sys
import tempfile
import time

import parts
import report
from running import Machine, Outcome, run_part

MOST_GPUS = 16
ROOT = pathlib.Path(__file__).resolve().parents[2]


def refuse(reason):
    print(f"gpu_check: {reason}", file=sys.stderr)
    sys.exit(2)


def why_too_few_gpus(wanted):
    """Asks the driver; None if there are as many GPUs."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver here (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the driver sees no GPU; look at nvidia-smi and CUDA_VISIBLE_DEVICES"
    if count.value < wanted:
        return f"--gpus {wanted}: the driver sees {count.value}"
    return None


def check_machine(options, libtorch, programs):
    """Refuses what could only fail in every part."""
    if not 1 <= options.gpus <= MOST_GPUS:
        refuse(f"--gpus {options.gpus}: from 1 to {MOST_GPUS}, those of one machine")
    if not options.minutes > 0:
        refuse(f"--minutes {options.minutes:g}: there is no time to run anything")
    if not any((programs / name).exists() for name in ("kernels_cuda_test", "ops_test", "train_test", "athanor")):
        refuse(f"{programs} has none of the programs; give their folder by --programs")
    if libtorch is not None and not (libtorch / "lib" / "libtorch.so").exists() and options.device == "cuda":
        refuse(f"{libtorch} has no lib/libtorch.so; give the folder of libtorch, such as .../site-packages/torch, by --libtorch")
    if options.device == "cuda":
        if reason := why_too_few_gpus(options.gpus):
            refuse(f"{reason}; --device guarded tries this program on a device that the host simulates")
        if libtorch is not None and not (libtorch / "lib" / "libc10_cuda.so").exists():
            refuse(f"the libtorch in {libtorch} has no CUDA; give one that has by --libtorch")


def find_libtorch(given):
    """The folder of libtorch: what was given, $ATHANOR_LIBTORCH, or the torch of this Python, which is not imported."""
    for folder in (given, os.environ.get("ATHANOR_LIBTORCH")):
        if folder:
            return pathlib.Path(folder).resolve()
    import importlib.util

    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.origin).parent if spec and spec.origin else None


def find_programs():
    for folder in ("bin", "build-cuda", "build"):
        if (ROOT / folder / "kernels_cuda_test").exists():
            return ROOT / folder
    return None


def build_programs(libtorch):
    """Builds the part of the project that needs no package but CMake, nvcc and libtorch."""
    if libtorch is None:
        refuse("no libtorch; give its folder (with include/ and lib/) by --libtorch or ATHANOR_LIBTORCH")
    environment = dict(os.environ, ATHANOR_LIBTORCH=str(libtorch))
    targets = ["kernels_cuda_bench", "athanor_tests"]
    for command in (["cmake", "--preset", "cuda"],
                    ["cmake", "--build", "--preset", "cuda", "-j", str(os.cpu_count() or 1), "--target", *targets]):
        try:
            ended = subprocess.run(command, cwd=ROOT, env=environment).returncode
        except OSError as error:
            refuse(f"there are no programs in bin/, and they cannot be built here: {error}")
        if ended != 0:
            refuse(f"{' '.join(command)} ended with {ended}")
    return ROOT / "build-cuda"


def parse_arguments():
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libtorch", help="the folder with include/ and lib/, such as .../site-packages/torch; default: "
                        "$ATHANOR_LIBTORCH, or the torch of this Python")
    parser.add_argument("--programs", type=pathlib.Path, help="the folder of athanor and its test programs")
    parser.add_argument("--device", choices=("cuda", "guarded"), default="cuda",
                        help="guarded: a device that the host simulates, to try this program itself")
    parser.add_argument("--gpus", type=int, default=1, help="how many of this machine's GPUs to use; with two or more, layouts and the "
                        "speed of each axis are added (1)")
    parser.add_argument("--minutes", type=float, help="for all parts together (9; with several GPUs 16)")
    parser.add_argument("--only", help="names of parts, with commas")
    parser.add_argument("--list", action="store_true", help="print the parts and their limits, and end")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_check"),
                        help="the folder of results and logs (gpu_check)")
    return parser.parse_args()


def earlier_outcomes(out, facts, chosen):
    """What an earlier call found on the same device, in the parts that this call does not run."""
    try:
        result = json.loads((out / "result.json").read_text())
        same = all(result["facts"].get(key) == facts.get(key) for key in ("device", "athanor"))
        return [part for part in result["parts"] if same and part["name"] not in {each.name for each in chosen}]
    except (OSError, ValueError, KeyError):
        return []


def in_order(results):
    names = [part.name for part in parts.all_parts(gpus=2)]
    return sorted(results, key=lambda part: names.index(part["name"]) if part["name"] in names else len(names))


def chosen_parts(options):
    every = parts.all_parts(options.gpus)
    names = [name.strip() for name in options.only.split(",")] if options.only else [part.name for part in every]
    if unknown := set(names) - {part.name for part in every}:
        refuse(f"--only: there is no part {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in every)}")
    return [part for part in every if part.name in names]


def main():
    options = parse_arguments()
    if options.minutes is None:
        options.minutes = 9 if options.gpus == 1 else 16
    chosen = chosen_parts(options)
    if options.list:
        for part in chosen:
            print(f"{part.name:22}{part.limit_s:5} s   {part.what}")
        return 0
    libtorch = find_libtorch(options.libtorch)
    programs = options.programs.resolve() if options.programs else find_programs() or build_programs(libtorch)
    check_machine(options, libtorch, programs)
    out = options.out.resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        refuse(f"--out: {error}")
    machine = Machine(programs=programs, libtorch=libtorch, device=options.device, out=out, root=ROOT, gpus=options.gpus)

    end = time.monotonic() + 60 * options.minutes
    facts, outcomes = machine.facts(), []
    kept = earlier_outcomes(out, facts, chosen)
    print(f"gpu_check: {facts['device']}; {options.minutes:g} min; results in {out}", flush=True)
    for part in chosen:
        left_s = end - time.monotonic()
        if left_s < part.least_s:
            outcome = Outcome(part.name, "skipped", f"{max(left_s, 0):.0f} s are left, and it needs at least {part.least_s}")
        else:
            outcome = run_part(part, machine, min(part.limit_s, left_s))
        outcomes.append(outcome)
        print(f"{outcome.name:22}{outcome.state:9}{outcome.seconds:6.1f} s   {outcome.summary}", flush=True)
        result = {"facts": facts, "parts": in_order(kept + [vars(each) for each in outcomes])}
        (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        (out / "table.md").write_text(report.markdown(result))
    failed = [each.name for each in outcomes if each.state == "failed"]
    print(f"gpu_check: {sum(each.state == 'passed' for each in outcomes)} passed, {len(failed)} failed"
          f"{': ' + ', '.join(failed) if failed else ''}; {out / 'table.md'}")
    if failed:
        return 1
    return 0 if any(each.state == "passed" for each in outcomes) else 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("gpu_check: interrupted", file=sys.stderr)
        sys.exit(130)
