"""Starts jobs of several ranks under each MPI that this machine has, or without MPI, with a limit on their time."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from torchrun_like import TorchrunLike


# What Open MPI 5 adds to the output of its ranks, between lines of dashes, and a null character: nothing turns this off (docs/parallelism.md).
LAST_WORDS_OF_MPIRUN = re.compile(r"-{40,}\n(?:MPI_ABORT was invoked|prterun has exited|prterun detected)(?:.*\n)+?-{40,}\n|\0")


class Launcher:
    """An mpirun of one kind."""

    def __init__(self, name, path, options, version=0):
        self.name, self.path, self.options, self.version = name, path, options, version

    def __repr__(self):
        return self.name

    def run(self, ranks, program, *arguments, timeout=120, env=None):
        """Runs the job; returns (exit code, standard output, standard error, seconds). Fails if it takes longer."""
        command = [self.path, *self.options, "-n", str(ranks), str(program), *map(str, arguments)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   start_new_session=True)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end(process)
            out, err = process.communicate()
            raise AssertionError(f"{' '.join(command)}\nnot over after {timeout} s\n{out[-2000:]}{err[-4000:]}") from None
        return process.returncode, out, LAST_WORDS_OF_MPIRUN.sub("", err) if self.version >= 5 else err, time.monotonic() - start


def end(process):
    """Ends the job: with TERM, mpirun can end its ranks, which otherwise end with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(process.pid, number)
        try:
            process.wait(timeout=10)
            return
        except subprocess.TimeoutExpired:
            pass


def kind_of(mpirun):
    """Its name, and the first number of its version, which is 0 for MPICH."""
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in said or "OpenRTE" in said:
        return "Open MPI", int(re.search(r"(\d+)\.\d+", said)[1])
    return "MPICH" if "HYDRA" in said else None, 0


def find(kind):
    """Returns the launcher of that kind, or None: by Debian's name for it, or plain `mpirun`. Without MPI there always is one."""
    if kind == "torchrun":
        return TorchrunLike()
    suffix = {"Open MPI": "openmpi", "MPICH": "mpich"}[kind]
    path = shutil.which(f"mpirun.{suffix}") or shutil.which("mpirun")
    if not path:
        return None
    found, version = kind_of(path)
    if found != kind:
        return None
    options = []
    if kind == "Open MPI":
        # There are more ranks than cores, so they have to let each other run.
        options = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
    return Launcher(kind, path, options, version)


def plugin(program, kind):
    """Returns our plugin for that MPI, which is next to the program if it was built. Without MPI the program itself suffices."""
    if kind == "torchrun":
        return pathlib.Path(program)
    suffix = {"Open MPI": "openmpi", "MPICH": "mpich"}[kind]
    return pathlib.Path(program).with_name(f"libathanor_mpi_{suffix}.so")


def with_variable_on(program, rank, assignment, script):
    """Writes a script that runs the program with a variable (NAME=VALUE) on one rank of a job, or on "all"; returns its path."""
    here = "true" if rank == "all" else f'[ "${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-$RANK}}}}" = {rank} ]'
    script.write_text(f'#!/bin/sh\n{here} && export {assignment}\nexec {program} "$@"\n')
    script.chmod(0o755)
    return script


def with_fault_on(program, rank, fault, script):
    """Returns a program with a fault armed on one rank, or on "all"."""
    return with_variable_on(program, rank, f"ATHANOR_FAULT={fault}", script)


SKIPPED = 77  # for ctest's SKIP_RETURN_CODE


def main(arguments):
    """launchers.py KIND RANKS PROGRAM [ARGUMENTS...]: one job, for ctest."""
    kind, ranks, program, *rest = arguments
    launcher = find(kind)
    if launcher is None:
        print(f"skipped: no mpirun of {kind} on the PATH")
        return SKIPPED
    if not plugin(program, kind).exists():
        print(f"skipped: {plugin(program, kind).name} was not built")
        return SKIPPED
    code, out, err, seconds = launcher.run(ranks, program, *rest, timeout=240)
    print(f"{out}{err}{seconds:.1f} s, exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
