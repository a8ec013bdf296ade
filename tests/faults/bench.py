"""Runs trainings under `athanor launch --auto-retry` on virtual hosts, does something to them, and measures what becomes of them.

All times are those that the run and launch wrote into their files; the driver only notes when it did something to a host.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("cluster", "interop", "mpi"):
    sys.path.insert(0, str(ROOT / "tests" / folder))
from cells import FAULTY_HOST, SAVE_STEP, STEP  # noqa: E402
from hosts import NETWORK  # noqa: E402
from launchers import kind_of  # noqa: E402
from runs import CONFIG  # noqa: E402

NUM_HOSTS, SPARES = 4, 2
STEPS = 12
SETTINGS = {"steps = 8": f"steps = {STEPS}\nnum_threads = 1\ndtype = \"float32\"", "micro_batch_size = 2": "micro_batch_size = 1",
            "global_batch_size = 4": "global_batch_size = 8", "validation_interval = 4": "validation_interval = 0",
            "interval = 3\nmodel_interval = 4": "interval = 2\nmodel_interval = 0\nkeep = 20\nasync = false"}


def missing():
    """Returns which program is missing, or None."""
    return None if shutil.which("mpirun") and kind_of("mpirun")[0] == "Open MPI" else "mpirun on the PATH is not Open MPI's"


def environment(hosts):
    """What Open MPI needs here, and nothing that the machine's user has set for it."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "SLURM_", "PBS_", "ATHANOR_FAULT"))}
    network = f"{NETWORK}.0/24"
    return {**variables, "OMPI_MCA_plm_rsh_agent": hosts.agent, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_oob_tcp_if_include": network, "OMPI_MCA_btl_tcp_if_include": network,
            "ATHANOR_ALLOW_FAULTS": "1", "OMP_NUM_THREADS": "1", "ATHANOR_MATMUL": "default", "TMPDIR": str(hosts.folder / "tmp")}


def lines_of(path):
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            pass  # a killed process has left half a line
    return found


class Run:
    """A run under launch, in its own folder."""

    def __init__(self, hosts, program, data, home, plan=(), overrides=(), ppn=1, timeout=12, options=("--auto-retry", "--spare-nodes", str(SPARES)),
                 under=""):
        self.hosts, self.program, self.home, self.folder = hosts, program, home, home / "run"
        self.overrides, self.ppn, self.timeout, self.options, self.under = overrides, ppn, timeout, options, under
        home.mkdir(parents=True)
        (hosts.folder / "tmp").mkdir(exist_ok=True)
        text = CONFIG.format(family="olmoe", experts=8, topk=2, data=data, run="run")
        for before, after in SETTINGS.items():
            assert before in text, before
            text = text.replace(before, after)
        for entry in plan:
            text += "\n[[faults.plan]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
        (home / "run.toml").write_text(text)
        (home / "hosts").write_text("".join(f"{name} slots={ppn}\n" for name in hosts.names))

    def command(self):
        sets = [word for each in self.overrides for word in ("--set", each)]
        where = [] if self.under == "PBS" else ["--hostfile", "hosts"]
        return ["env", "-C", self.home, self.program, "launch", *where, "--nodes", NUM_HOSTS, "--ppn", self.ppn, "--timeout",
                self.timeout, *self.options, "--", self.program, "train", "run.toml", *sets]

    def variables(self):
        """The environment of launch. That of PBS is a stand-in: what its documentation states that a job gets."""
        found = environment(self.hosts)
        if self.under == "PBS":
            nodes = self.home / "nodes"
            nodes.write_text("".join(f"{name}\n" for name in self.hosts.names))
            found |= {"PBS_JOBID": "123.server", "PBS_JOBNAME": "athanor", "PBS_QUEUE": "workq", "PBS_ENVIRONMENT": "PBS_BATCH",
                      "PBS_O_WORKDIR": str(self.home), "PBS_NODEFILE": str(nodes), "NCPUS": "1"}
        return found

    def start(self):
        self.out = open(self.home / "launch.log", "w", encoding="utf-8")
        self.process = self.hosts.start("node1", self.command(), env=self.variables(), stdout=self.out, stderr=self.out)

    def wait(self, seconds):
        """Returns the exit code, or None if launch has not ended by then."""
        limit = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        return self.process.poll()

    def steps(self):
        return [line["step"] for line in lines_of(self.folder / "metrics.jsonl")]

    def events(self):
        return lines_of(self.folder / "events.jsonl")

    def until(self, holds, seconds=60):
        limit = time.monotonic() + seconds
        while not holds() and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)

    def said(self):
        return (self.home / "launch.log").read_text(errors="replace")

    def verdicts(self):
        found = []
        for each in sorted((self.folder / "attempts").glob("[0-9]*")):
            try:
                found.append({**json.loads((each / "verdict.json").read_text()), "used": (each / "hosts").read_text().split()})
            except OSError:
                found.append({"used": (each / "hosts").read_text().split(), "kind": "none", "hosts": []})
        return found

    def weights(self):
        """The bytes of the newest checkpoint's tensors, by file."""
        newest = sorted((self.folder / "checkpoints").glob("step-*"))
        return newest[-1].name if newest else "", {path.name: path.read_bytes() for path in newest[-1].glob("*.safetensors")} if newest else {}


class Outcome:
    """What became of a cell; `wrong` lists what is not as it has to be."""

    def __init__(self, cell, run, code, fault_time, reference):
        self.cell, self.run, self.code, self.fault_time = cell, run, code, fault_time
        self.metrics, self.events = lines_of(run.folder / "metrics.jsonl"), lines_of(run.folder / "events.jsonl")
        self.verdicts = run.verdicts()
        self.first = self.verdicts[0] if self.verdicts else {"kind": "none", "hosts": []}
        self.equal = bool(reference[1]) and run.weights() == reference
        self.wrong = list(self._faults())

    @property
    def detected(self):
        return self.first["kind"] if self.cell.causes else self.cell.event or self.cell.shown

    @property
    def detection_s(self):
        """Seconds to the first file that tells of the fault: last words, an event, or the verdict."""
        times = [line["time"] for line in self.events if line["event"] == self.cell.event]
        if self.cell.says and self.fault_time and self._line():  # the clock of the log has whole seconds
            day = time.strftime("%Y-%m-%d ", time.localtime(self.fault_time))
            times = [max(time.mktime(time.strptime(day + self._line()[:8], "%Y-%m-%d %H:%M:%S")), self.fault_time)]
        if self.cell.causes:
            times = [self.first.get("ended", 0)]
            words = [json.loads(path.read_text()) for path in (self.run.folder / "log").glob("last-words*.json")]
            times += [each["time"] for each in words if each.get("attempt") == 1]
            times += [line["time"] for line in self.events if line["event"] == "stop" and line["attempt"] == 1]
        times = [each - self.fault_time for each in times if each and self.fault_time]
        return min(times) if times else None

    def _line(self):
        return next((line for line in self.run.said().splitlines() if self.cell.says in line), "")

    @property
    def named(self):
        """The hosts at fault, or in brackets those that the evidence names: one dead process proves nothing about its host."""
        if self.first["hosts"]:
            return self.first["hosts"]
        texts = [each["text"] for each in self.first.get("evidence", [])] if self.cell.causes else [self._line()] if self.cell.says else []
        return [f"({host})" for host in self.run.hosts.names if any(re.search(rf"\bnode {host} exited|\({host}\):|rank \d+ \({host}\)", text) for text in texts)]

    @property
    def next_step_s(self):
        first_attempt = [line for line in self.metrics if line["attempt"] == 1]
        later = [line["time"] for line in self.metrics if line["attempt"] > 1 or (not self.cell.causes and line["time"] > (self.fault_time or 0))]
        if first_attempt or later:
            return min(later) - self.fault_time if later and self.fault_time else None
        return None

    @property
    def steps_lost(self):
        if len(self.verdicts) < 2:
            return 0
        last, again = self.first.get("last_step"), self.verdicts[1].get("first_step")
        return (last or 0) - again + 1 if again else None

    @property
    def swapped(self):
        return [sorted(set(a["used"]) - set(b["used"])) for a, b in zip(self.verdicts, self.verdicts[1:])]

    def parts(self):
        """Where the seconds from the fault to the next step go."""
        if len(self.verdicts) < 2 or not self.fault_time:
            return []
        begun = [line["time"] for line in self.events if line["event"] in ("start", "resume") and line["attempt"] == 2]
        stepped = [line["time"] for line in self.metrics if line["attempt"] == 2]
        launcher_end = (self.run.folder / "attempts" / "001" / "log").stat().st_mtime
        marks = [self.fault_time, launcher_end, self.verdicts[1]["started"], *begun[:1], *stepped[:1]]
        names = ["the launcher ends the other ranks", "the verdict, and any wait", "MPI starts, the checkpoint is loaded and verified", "the first step"]
        return [(name, after - before) for name, before, after in zip(names, marks, marks[1:])]

    def _faults(self):
        cell = self.cell
        if self.code is None:
            yield "launch did not end"
        elif self.code != cell.final_code:
            yield f"code {self.code}"
        if self.fault_time is None:
            yield "the fault did not act"
        if len(self.verdicts) != cell.attempts:
            yield f"{len(self.verdicts)} attempts"
        if cell.causes and self.first["kind"] not in cell.causes:
            yield f"detected as {self.first['kind']}"
        if cell.codes and self.first.get("exit_code") not in cell.codes:
            yield f"first code {self.first.get('exit_code')}"
        named = {host.strip("()") for host in [*self.named, *(host for each in self.verdicts for host in each["hosts"])]}
        wrong = sorted(named - {FAULTY_HOST, *(["node1"] if cell.kind == "torn_checkpoint" else [])})  # rank 0 tears
        if cell.kind == "slow":  # on a busy machine others may be slow as well
            wrong = []
        if cell.names and FAULTY_HOST not in named:
            yield "its host is not named"
        if wrong:
            yield f"named {' '.join(wrong)}"
        wanted = [FAULTY_HOST] if cell.swaps else []
        if [host for each in self.swapped for host in each] != wanted:
            yield f"swapped {self.swapped}"
        if cell.event and not any(line["event"] == cell.event for line in self.events):
            yield f"no event {cell.event}"
        if cell.says and cell.says not in self.run.said():
            yield f"the output has no {cell.says!r}"
        if cell.equal and cell.final_code == 0 and not self.equal:
            yield "other weights"

    def row(self):
        def seconds(value):
            return "–" if value is None else f"{value:.1f}"
        named = " ".join(self.named) or "–"
        fault = self.cell.fault + (f", hosts from {self.cell.under}'s stand-in" if self.cell.under else "")
        return [fault, self.cell.phase, str(self.detected), seconds(self.detection_s), seconds(self.next_step_s), named,
                str(self.steps_lost), "yes" if self.equal else "no", "; ".join(self.wrong) or "ok"]


def play(hosts, program, data, cell, home, reference, limit=150, ppn=1, **options):
    """Runs a cell; returns its outcome."""
    run = Run(hosts, program, data, home, plan=cell.plan(ppn), overrides=cell.overrides, ppn=ppn, timeout=cell.timeout, under=cell.under, **options)
    run.start()
    marker = run.home / "done_to_host"
    if cell.is_from_outside:
        if cell.phase == "start":
            run.until(lambda: run.events())
        else:
            run.until(lambda: (SAVE_STEP if cell.phase == "save" else STEP - 1) in run.steps())
        time.sleep(1)
        marker.touch()
        getattr(hosts, cell.kind)(FAULTY_HOST)
    code = run.wait(limit)
    if not cell.is_from_outside:
        marker = run.folder / "log" / "faults" / ("1" if cell.kind == "torn_checkpoint" else "0")
    hosts.heal()
    run.process.wait()
    fault_time = marker.stat().st_mtime if marker.exists() else None
    if cell.kind == "slow":
        fault_time = next((line["time"] for line in lines_of(run.folder / "metrics.jsonl") if line["step"] == 2), None)
    return Outcome(cell, run, code, fault_time, reference)


def undisturbed(hosts, program, data, home, overrides=(), **options):
    """Runs without a fault; returns the newest checkpoint's weights."""
    run = Run(hosts, program, data, home, overrides=overrides, **options)
    run.start()
    code = run.wait(120)
    hosts.heal()
    assert code == 0, run.said()
    return run.weights()
