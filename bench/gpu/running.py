"""Runs one part of gpu_check: its commands, with a limit of time, and what their outputs mean."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time


class Failed(Exception):
    """A part did not do what it should; the text is one line."""


class Skipped(Exception):
    """A part cannot run here; the text is the reason."""


@dataclasses.dataclass
class Part:
    """`run(machine, clock)` returns (summary, figures), or raises Failed or Skipped."""

    name: str
    what: str
    limit_s: int
    run: callable
    least_s: int = 3  # with less time left it is not begun


@dataclasses.dataclass
class Outcome:
    name: str
    state: str  # passed, failed, skipped
    summary: str
    seconds: float = 0.0
    figures: dict = dataclasses.field(default_factory=dict)


class Clock:
    """What is left of a part's time."""

    def __init__(self, limit_s):
        self.limit_s, self.end = limit_s, time.monotonic() + limit_s

    def left_s(self):
        return self.end - time.monotonic()


class Interruptions:
    """Holds signals back while a child starts: one that cut Popen in two would leave the child running."""

    def __enter__(self):
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        return self

    def let_through(self):
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def __exit__(self, *_):
        self.let_through()


@dataclasses.dataclass
class Machine:
    programs: pathlib.Path
    libtorch: pathlib.Path
    device: str
    out: pathlib.Path
    root: pathlib.Path
    gpus: int = 1

    def main_program(self):
        """athanor; on devices that the host plays, a program for tests that is athanor with such devices."""
        return self.program("athanor" if self.device == "cuda" else "athanor_on_guarded")

    def several_device(self):
        """train.device of ranks that have a device each."""
        return "cuda" if self.device == "cuda" else "auto"

    def program(self, name):
        path = self.programs / name
        if not path.exists():
            raise Skipped(f"{path} is missing")
        return path

    def environment(self):
        """libtorch's libraries, and those that a bundle brings, are found wherever they are."""
        folders = [self.programs] + ([self.libtorch / "lib"] if self.libtorch else [])
        folders = [str(each) for each in folders if each.exists()] + [os.environ.get("LD_LIBRARY_PATH", "")]
        peers = self.root / "peers"
        python_path = [str(peers)] if peers.exists() else []
        if self.libtorch and (self.libtorch / "__init__.py").exists():
            python_path.append(str(self.libtorch.parent))  # the torch of the peer
        if os.environ.get("PYTHONPATH"):
            python_path.append(os.environ["PYTHONPATH"])
        return dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, folders)), PYTHONPATH=":".join(python_path),
                    ATHANOR_TEST_DEVICE=self.device, ATHANOR_SOURCE_DIR=str(self.root), CUBLAS_WORKSPACE_CONFIG=":4096:8",
                    ATHANOR_MATMUL="default")  # a path that was measured may be another in the next run, with other last bits

    def facts(self):
        facts = {"device": "a device that the host simulates", "time": time.strftime("%Y-%m-%d %H:%M"), "programs": str(self.programs)}
        if self.device == "cuda":
            facts["device"] = first_line(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
        if (self.programs / "athanor").exists():
            facts["athanor"] = first_line([self.programs / "athanor", "--version"], self.environment())
        return facts

    def call(self, command, clock, log, environment=None):
        """Runs a command; its output goes to OUT/log. Returns (exit code, output).

        @raises Failed  if it does not end in time; it is ended with everything that it started.
        """
        path = self.out / f"{log}.log"
        words = [str(word) for word in command]
        with open(path, "wb") as output, Interruptions() as interruptions:
            try:
                child = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, cwd=self.out, start_new_session=True,
                                         env=environment or self.environment(), preexec_fn=interruptions.let_through)
            except FileNotFoundError:
                raise  # a tool that this machine does not have
            except OSError as error:
                raise Failed(f"{words[0]} cannot be executed: {error.strerror}") from None
            try:
                interruptions.let_through()
                code = child.wait(timeout=max(clock.left_s(), 0.1))
            except BaseException as error:
                end_group(child)  # also if this program is ended
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise Failed(f"not over after {clock.limit_s:.0f} s: {' '.join(words[:3])}; see {path.name}") from None
        return code, path.read_text(errors="replace")

    def check_call(self, command, clock, log):
        code, output = self.call(command, clock, log)
        if code != 0:
            raise Failed(f"{pathlib.Path(command[0]).name} {how_it_ended(code)}: {last_line(output)}; see {log}.log")
        return output


def how_it_ended(code):
    """"ended with 3", or "was killed by SIGSEGV"."""
    try:
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    except ValueError:
        return f"was killed by signal {-code}"


def read_report(path, program, code, output, log, pick=lambda report: report):
    """What `pick` takes from the JSON that a program was to write. A program that is killed leaves none, or a part of it.

    @raises Failed  in one line, if it is missing or is not what the program writes.
    """
    try:
        return pick(json.loads(path.read_text()))
    except FileNotFoundError:
        what = "before it could report"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        what = f"and left a broken report, {path.name}"
    raise Failed(f"{program} {how_it_ended(code)} {what}: {last_line(output)}; see {log}.log")


def end_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no output"


def first_line(command, environment=None):
    try:
        said = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=30, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return (said.stdout or said.stderr).strip().split("\n")[0] or f"unknown ({command[0]} printed nothing)"


def run_part(part, machine, limit_s):
    begin = time.monotonic()
    figures = {}
    try:
        summary, figures = part.run(machine, Clock(limit_s))
        state = "passed"
    except Failed as failure:
        state, summary = "failed", str(failure)
    except Skipped as reason:
        state, summary = "skipped", str(reason)
    except Exception as error:  # a part must not take the others with it
        state, summary = "failed", f"{type(error).__name__}: {error}"
    return Outcome(part.name, state, summary, time.monotonic() - begin, figures)
