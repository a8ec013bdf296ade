"""The cells of the bench of faults, as data: what is done to a run, and how it may end.

A cell is a fault in a phase of a step. `phase` is one of those of the issue; the plan of a run names it differently (docs/failures.md).
"""
from dataclasses import dataclass, field

PHASES = {"start": "start", "forward": "forward", "collective": "reduce", "update": "update", "save": "save"}
STEP = 7  # in which a fault acts; a checkpoint is made after every second step, so that of step 6 is there
SAVE_STEP = 8
FAULTY_RANK = 2  # with one rank on each host it is node3's
FAULTY_HOST = "node3"
FROM_OUTSIDE = ("crash", "cut_off", "freeze", "terminate")  # what the driver does to the host (tests/cluster/hosts.py)


@dataclass(frozen=True)
class Cell:
    fault: str   # as the table shows it
    phase: str   # a key of PHASES
    kind: str    # one of [[faults.plan]], or one of FROM_OUTSIDE
    causes: tuple  # the kinds of verdict.json that the first attempt may end with; (): the run continues
    codes: tuple = ()       # the exit codes that it may end with; (): any
    swaps: bool = True      # exactly the faulty host is replaced; False: no host is
    attempts: int = 2
    event: str = ""         # the line of events.jsonl that shows a fault which ends no attempt
    says: str = ""          # or a text of the output
    shown: str = ""         # what the table has in place of that line
    final_code: int = 0     # of athanor launch
    options: dict = field(default_factory=dict)  # more keys of the plan
    overrides: tuple = ()
    names: bool = True      # the faulty host is named, at least in the evidence
    timeout: int = 12       # of athanor launch, in seconds
    under: str = ""         # "PBS": a stand-in of what PBS gives a job names the hosts, in place of a host file
    equal: bool = True      # final weights are those of a run without faults

    @property
    def name(self):
        return f"{self.fault.replace(' ', '_')}-{self.phase}" + (f"-{self.under}" if self.under else "")

    @property
    def is_from_outside(self):
        return self.kind in FROM_OUTSIDE

    @property
    def is_lost_host(self):
        return self.kind in ("crash", "cut_off", "freeze")

    def plan(self, ppn=1):
        """The entries of [[faults.plan]], for a number of ranks on each host."""
        step = SAVE_STEP if self.phase == "save" else STEP
        if self.is_from_outside:  # the phase takes long enough for the driver to act in it
            place = {"place": "model.layers.0", "microbatch": 0} if self.phase == "forward" else {}
            seconds = 0.5 if self.phase == "collective" else 3  # there it waits for each bucket of gradients
            return [{"kind": "slow", "step": step, "rank": 0, "phase": PHASES[self.phase], "seconds": seconds, **place}]
        entry = {"kind": self.kind, "step": step, "rank": FAULTY_RANK * ppn, "phase": PHASES[self.phase], **self.options}
        return [entry] if self.kind != "torn_checkpoint" else [entry, {"kind": "kill", "step": step + 1, "rank": FAULTY_RANK * ppn, "phase": "update"}]


ALL = tuple(PHASES)
HANG = ("silent_hang",)
NODE = ("bad_node",)


def each(fault, kind, phases, causes, **more):
    return [Cell(fault, phase, kind, causes, **more) for phase in phases]


CELLS = [
    # Another attempt shows whether the node is at fault: one dead process does not prove it.
    *each("exception", "exception", ALL, ("crash_unknown",), swaps=False),
    # The host of a process that SIGKILL ended is a suspect: its memory may have run out.
    *each("SIGKILL", "kill", ALL, ("crash_unknown",)),
    *each("SIGSEGV", "segv", ALL, ("crash_unknown",), swaps=False),
    *each("SIGSTOP", "stop", ALL[1:], HANG),
    Cell("SIGSTOP", "start", "stop", ("stuck_pre_training",)),
    # A signal to a rank is a request: the run saves and ends. Launch was not told to stop, so it continues.
    Cell("SIGTERM", "start", "terminate", ("crash_unknown", "external_kill"), swaps=False, names=False),
    *each("SIGTERM", "terminate", ALL[1:], ("external_kill",), swaps=False, names=False),
    *each("hang in compute", "hang", ("forward", "update", "save"), HANG),
    Cell("hang in compute", "start", "hang", ("stuck_pre_training",)),
    Cell("hang before a collective", "collective", "hang", HANG),
    Cell("NaN in an activation", "forward", "nan", ("soft_failure",), codes=(75,)),
    *each("flipped bit in a weight", "flip_weight", ("forward", "collective", "save"), ("soft_failure",), codes=(75,),
          overrides=("integrity.interval=1",)),
    *each("slow rank", "slow", ("forward", "collective", "update"), (), attempts=1, says="each of which waits for them: rank 2 (node3)",
          shown="slow ranks", swaps=False, options={"step": 3, "steps": 40, "seconds": 0.05}, overrides=("train.steps=60",)),
    Cell("failing write", "save", "write_fails", (), attempts=1, event="save_failed", names=False, swaps=False),
    Cell("full disk", "save", "full_disk", (), attempts=1, says="was not written: cannot write", shown="a save that failed", names=False,
         swaps=False, options={"rank": 0, "steps": 2}),
    Cell("torn checkpoint", "save", "torn_checkpoint", ("crash_unknown",), swaps=False, options={"rank": 0}),
    *each("lost node", "crash", ("forward", "save"), NODE, timeout=40),
    *each("lost link", "cut_off", ("forward", "save"), NODE, timeout=40),
    *each("frozen host", "freeze", ("forward", "save"), ("silent_hang", "bad_node")),
    Cell("SIGKILL", "forward", "kill", ("crash_unknown",), under="PBS"),
    Cell("lost node", "forward", "crash", NODE, timeout=40, under="PBS"),
]

# Cells of the matrix that cannot happen, with the reason.
IMPOSSIBLE = {
    "hang in compute": "in the collective's phase it is the hang before a collective",
    "hang before a collective": "it is the hang of the collective's phase; the other phases are those of the hang in compute",
    "NaN in an activation": "there are activations only in forward (and in backward, which tests/mpi/test_fault_cells.py plays)",
    "flipped bit in a weight": "at the start the weights have just been read and compared with their hashes; in update they are being written, "
                               "and a bit that flips then is found only if copies differ in the next step that is checked",
    "slow rank": "a start and a save are not compared between ranks: only what a rank computes in a step is",
    "failing write": "only a save writes what a run needs",
    "full disk": "only a save writes what a run needs",
    "torn checkpoint": "only a save makes one",
}
