"""Starts jobs without MPI: processes with the variables of torchrun, and nothing else that would join or end them."""
import os
import pathlib
import socket
import subprocess
import tempfile
import time

GRACE_S = 60  # for the processes that are left when the first one has failed


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def is_stopped(process):
    """True for a process that got SIGSTOP, and cannot end by itself."""
    return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class TorchrunLike:
    """A launcher with the interface of launchers.Launcher.

    A job that fails has to end by itself, as under srun: this launcher ends no process before all have had time for it.
    With `agent`, a program that serves a store, it does what torchrun does: it serves the meeting place itself, and ends the
    other processes as soon as one has failed.
    """
    name = "torchrun"

    def __init__(self, agent=None):
        self.agent = agent
        self.codes = []  # exit codes of the last job, by rank
        self.ended = []  # ranks of the last job that had to be ended
        self.processes = []

    def __repr__(self):
        return "torchrun with an agent" if self.agent else self.name

    def run(self, ranks, program, *arguments, timeout=120, env=None, delays=None, cwd=None):
        """As Launcher.run. `delays` has the seconds after which ranks start. The code is that of the first rank that failed."""
        with tempfile.TemporaryDirectory() as folder:
            streams = [open(pathlib.Path(folder) / name, "w+") for name in ("out", "err")]
            start = time.monotonic()
            agent = self.serve() if self.agent else None
            port = agent.port if agent else free_port()
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                           "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
            if agent:
                environment |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
            self.processes = []
            for rank in sorted(range(ranks), key=lambda rank: (delays or {}).get(rank, 0)):
                time.sleep(max(0, start + (delays or {}).get(rank, 0) - time.monotonic()))
                own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), **(env or {})}
                self.processes.append((rank, subprocess.Popen([str(program), *map(str, arguments)], env=own, cwd=cwd,
                                                             stdout=streams[0], stderr=streams[1])))
            try:
                code = self.wait(start + timeout)
            finally:
                for _, process in self.processes:
                    process.kill()
                    process.wait()
                if agent:
                    agent.stdin.close()
                    agent.wait(timeout=60)
            seconds = time.monotonic() - start
            texts = []
            for stream in streams:
                stream.seek(0)
                texts.append(stream.read())
                stream.close()
            if code is None:
                raise AssertionError(f"{program} {arguments}\nnot over after {timeout} s\n{texts[0][-2000:]}{texts[1][-4000:]}")
            return code, *texts, seconds

    def serve(self):
        agent = subprocess.Popen([self.agent, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        agent.port = int(agent.stdout.readline())
        return agent

    def wait(self, end):
        """Waits for all; returns the code of the first that failed, or None after `end`."""
        open_ones, first, patience = dict(self.processes), 0, None
        self.codes, self.ended = [None] * len(open_ones), []
        while open_ones:
            for rank, process in list(open_ones.items()):
                if process.poll() is None:
                    continue
                del open_ones[rank]
                self.codes[rank] = process.returncode if process.returncode >= 0 else 128 - process.returncode
                if self.codes[rank] and not first:
                    first, patience = self.codes[rank], time.monotonic() + GRACE_S
                    if self.agent:
                        for other in open_ones.values():
                            other.terminate()
            now = time.monotonic()
            if now > end:
                return None
            for rank, process in open_ones.items():
                if patience and rank not in self.ended and (now > patience or is_stopped(process)):
                    self.ended.append(rank)
                    process.kill()
            time.sleep(0.02)
        return first
