"""Records one run that survives a killed rank, a lost link, a hang and a NaN, and shows its time line as text and as a picture.

    timeline.py local FOLDER      virtual hosts with a host file; mpirun starts the ranks
    timeline.py slurm FOLDER      the same hosts with a Slurm; srun starts the ranks

It writes FOLDER/timeline-local.svg and .md (or -slurm). All times are those of the run's own files, but that of the lost link.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import time

import bench
from bench import lines_of
from hosts import Hosts, missing
from runs import make_data
from slurm import Slurm
from test_runs import Athanor

STEPS, SPARES = 40, 3
KILL, LINK, HANG, NAN = 8, 16, 24, 32
PLAN = [{"kind": "kill", "step": KILL, "rank": 1, "phase": "forward"},
        {"kind": "hang", "step": HANG, "rank": 3, "phase": "forward"},
        {"kind": "nan", "step": NAN, "rank": 2, "phase": "forward"},
        {"kind": "slow", "step": 1, "steps": STEPS, "rank": 0, "phase": "update", "seconds": 0.3}]
NAMES = ["SIGKILL of rank 1", "rank 3 hangs in forward", "NaN on rank 2"]
OVERRIDES = (f"train.steps={STEPS}",)
LOST = "node3"
TIMEOUT = 30  # longer than the 22 s in which Open MPI notices a link that is down
OPTIONS = ("--auto-retry", "--spare-nodes", str(SPARES))


def start_in_slurm(slurm, run, program):
    sets = " ".join(f"--set {each}" for each in run.overrides)
    (run.home / "job.sh").write_text(
        f"#!/bin/bash\n#SBATCH --nodes={len(slurm.hosts.names)} --exclusive --no-kill --no-requeue --output=launch.log\n"
        f"exec {program} launch --nodes {bench.NUM_HOSTS} --ppn 1 --timeout {run.timeout} {' '.join(OPTIONS)} -- {program} train run.toml {sets}\n")
    environment = {name: value for name, value in bench.environment(slurm.hosts).items() if "rsh_agent" not in name and name != "TMPDIR"}
    return slurm("sbatch", "--parsable", f"--chdir={run.home}", run.home / "job.sh", env={**environment, "SLURM_CONF": slurm.environment["SLURM_CONF"]})


def record(way, folder, program):
    """Plays the run; returns it with the time of the lost link."""
    (folder / "data").mkdir()
    data = make_data(Athanor(program), folder / "data")
    with Hosts(bench.NUM_HOSTS + SPARES, folder / "h") as hosts:
        plain = bench.undisturbed(hosts, program, data, folder / "plain", overrides=OVERRIDES)
        run = bench.Run(hosts, program, data, folder / "run", plan=PLAN, overrides=OVERRIDES, options=OPTIONS, timeout=TIMEOUT)
        done = lambda: False  # noqa: E731
        if way == "slurm":
            slurm = Slurm(hosts).__enter__()
            job = start_in_slurm(slurm, run, program)
            done = lambda: slurm.state(job).get("JobState") not in ("PENDING", "RUNNING", "COMPLETING")  # noqa: E731
        else:
            run.start()
            done = lambda: run.process.poll() is not None  # noqa: E731
        limit = time.monotonic() + 400
        while not done() and LINK not in run.steps() and time.monotonic() < limit:
            time.sleep(0.1)
        lost_at = time.time()
        hosts.cut_off(LOST)
        while not done() and time.monotonic() < limit:
            time.sleep(0.5)
        run.is_equal = bool(plain[1]) and run.weights() == plain
    return run, lost_at


def entries_of(run, lost_at):
    """What happened, in the order of time: (seconds since the first attempt began, kind, text)."""
    verdicts = run.verdicts()
    start, found = verdicts[0]["started"], [(lost_at, "fault", f"the link of {LOST} goes down")]
    for i, name in enumerate(NAMES):
        marker = run.folder / "log" / "faults" / str(i)
        if marker.exists():
            found.append((marker.stat().st_mtime, "fault", name))
    metrics = lines_of(run.folder / "metrics.jsonl")
    for number, each in enumerate(verdicts, 1):
        found.append((each["started"], "attempt", f"attempt {number} starts on {' '.join(each['used'])}"))
        steps = [line for line in metrics if each["started"] <= line["time"] <= each.get("ended", time.time())]
        if steps:
            found.append((steps[0]["time"], "step", f"step {steps[0]['step']} is done, the first of attempt {number}"))
        if "ended" in each:
            named = f", {' '.join(each['hosts'])} at fault" if each["hosts"] else ""
            found.append((each["ended"], "end", f"attempt {number} ends with code {each['exit_code']} after step {each['last_step']}: {each['kind']}{named}"))
    return [(at - start, kind, text) for at, kind, text in sorted(found)]


COLORS = {"fault": "#c0392b", "end": "#8e44ad", "attempt": "#2471a3", "step": "#1e8449"}


def picture_of(run, entries, title):
    """An SVG: the steps over time, below them a row for each host with the attempts that used it, and the faults."""
    verdicts, metrics = run.verdicts(), lines_of(run.folder / "metrics.jsonl")
    start, end = verdicts[0]["started"], max(each[0] for each in entries) + 2
    left, width, top, curve, row = 70, 900, 40, 150, 22
    hosts = run.hosts.names

    def x(seconds):
        return round(left + width * seconds / end, 1)

    def y(step):
        return round(top + curve - curve * step / STEPS, 1)
    rows_top = top + curve + 30
    bottom = rows_top + row * len(hosts)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {bottom + 50}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="20" font-size="14">{title}</text>']
    for second in range(0, int(end) + 1, 10):
        parts.append(f'<line x1="{x(second)}" x2="{x(second)}" y1="{top}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(second)}" y="{bottom + 16}" text-anchor="middle" fill="#555">{second} s</text>')
    for step in range(0, STEPS + 1, 10):
        parts.append(f'<text x="{left - 6}" y="{y(step) + 4}" text-anchor="end" fill="#555">step {step}</text>')
    for line in metrics:
        parts.append(f'<circle cx="{x(line["time"] - start)}" cy="{y(line["step"])}" r="2" fill="{COLORS["step"]}"/>')
    for i, host in enumerate(hosts):
        at = rows_top + row * i
        parts.append(f'<text x="{left - 6}" y="{at + 14}" text-anchor="end">{host}</text>')
        for each in verdicts:
            if host in each["used"] and "ended" in each:
                color = "#e59866" if host in each["hosts"] else "#85c1e9"
                parts.append(f'<rect x="{x(each["started"] - start)}" y="{at + 3}" width="{round(x(each["ended"] - start) - x(each["started"] - start), 1)}" '
                             f'height="{row - 7}" fill="{color}" stroke="#555" stroke-width="0.5"/>')
    faults = [each for each in entries if each[1] == "fault"]
    for at, _, _ in faults:
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{top}" y2="{bottom}" stroke="{COLORS["fault"]}" stroke-width="1.5"/>')
    outline = 'stroke="white" stroke-width="4" paint-order="stroke"'  # a text may cross a line
    for i, (at, _, text) in enumerate(faults):
        anchor = "end" if x(at) > left + width * 0.7 else "start"
        parts.append(f'<text x="{x(at) + (4 if anchor == "start" else -4)}" y="{top + 12 + 15 * (i % 2)}" text-anchor="{anchor}" '
                     f'fill="{COLORS["fault"]}" {outline}>{text}</text>')
    parts.append(f'<text x="{left}" y="{bottom + 38}" fill="#555">Dots are steps; bars are attempts on a host, orange where the verdict names it; red lines are faults.</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(way, out):
    if why := missing():
        sys.exit(f"timeline: {why}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    run, lost_at = record(way, folder, bench.ROOT / "build" / "athanor")
    entries = entries_of(run, lost_at)
    title = {"local": "Local hosts, mpirun", "slurm": "Slurm, srun"}[way]
    text = "| seconds | what happened |\n|---|---|\n" + "".join(f"| {at:.1f} | {what} |\n" for at, _, what in entries)
    equal = "The final weights are those of a run without faults." if run.is_equal else "The final weights DIFFER from those of a run without faults."
    out.mkdir(parents=True, exist_ok=True)
    (out / f"timeline-{way}.md").write_text(f"{text}\n{equal}\n")
    (out / f"timeline-{way}.svg").write_text(picture_of(run, entries, f"{title}: a killed rank, a lost link, a hang and a NaN in one run"))
    print(text + "\n" + equal)
    shutil.copy(run.home / "launch.log", out / f"timeline-{way}.log")
    print(json.dumps([{key: each.get(key) for key in ("exit_code", "kind", "hosts", "used")} for each in run.verdicts()]))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
