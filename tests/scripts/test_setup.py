"""scripts/setup on machines that lack something, played by stand-ins for apt-get and for the tools: nothing is installed."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

APT_CACHE = """
[ "$1" = policy ] && printf '%s:\\n  Installed: (none)\\n  Candidate: %s\\n' "$2" "$(cat "$(dirname "$0")/candidate.$2" 2>/dev/null || echo '(none)')"
"""


@pytest.fixture
def machine(tmp_path):
    """A checkout with scripts/setup alone, and a folder for the only programs that it finds: some of the system, and what a test adds."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/setup", tmp_path / "scripts/setup")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "chmod", "cp", "cmp", "cut", "dirname", "basename", "env", "grep", "head", "id", "ldconfig", "mkdir", "mktemp", "printf", "rm", "sed",
                 "sort", "tail", "touch", "tr", "uname", "sh", "awk"):
        if (path := shutil.which(name)) is not None:
            (programs / name).symlink_to(path)

    class Machine:
        folder, asked = tmp_path, tmp_path / "apt-get.asked"

        def has(self, name, script):
            (programs / name).write_text("#!/bin/bash\n" + script + "\n")
            (programs / name).chmod(0o755)

        def offers(self, package, version):
            (programs / f"candidate.{package}").write_text(version)

        def setup(self, *options, **variables):
            done = subprocess.run([programs / "bash", tmp_path / "scripts/setup", *options], capture_output=True, text=True, cwd=tmp_path,
                                  env={"PATH": str(programs), "HOME": str(tmp_path), **variables})
            return done.returncode, done.stderr

    machine = Machine()
    machine.has("apt-cache", APT_CACHE)
    machine.has("apt-get", f'echo "$*" >>{machine.asked}')
    return machine


OLD = ("setup: this system is too old: g++ 10.2.1 (12 is needed), CMake 3.18.4 (3.25 is needed), Python 3.9.2 (3.10 is needed); Debian 12 has what is "
       "needed, and nothing was installed\n")


def test_an_older_system_is_refused_in_one_line_that_lists_what_is_too_old(machine):
    machine.has("g++", "echo 10.2.1")
    machine.has("cmake", 'echo "cmake version 3.18.4"')
    machine.has("python3", '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1')
    assert machine.setup(ATHANOR_PYTHON="python3") == (1, OLD)
    assert not machine.asked.exists()


def test_what_apt_would_install_is_judged_before_it_installs(machine):
    machine.offers("g++", "4:10.2.1-1")
    machine.offers("cmake", "3.18.4-2+deb11u1")
    machine.offers("python3", "3.9.2-3")
    assert machine.setup(ATHANOR_PYTHON="python3") == (1, OLD)
    assert not machine.asked.exists()


@pytest.mark.parametrize("said,old", [("10.2.1", True), ("10", True), ("12", False), ("12.2.0", False)])
def test_a_compiler_is_known_by_its_version_and_not_by_other_numbers_behind_a_launcher(machine, said, old):
    machine.has("g++-custom", f'[ "$1" = -dumpfullversion ] && echo {said} || echo "g++ (crosstool-NG 1.25.0) {said}"')
    machine.offers("cmake", "3.18.4")
    _, err = machine.setup(ATHANOR_PYTHON="python3", CXX="ccache g++-custom -O2")
    assert "CMake 3.18.4 (3.25 is needed)" in err and (f"g++-custom {said} (12 is needed)" in err) == old, err


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for packages as root")
@pytest.mark.parametrize("updates,installs,asks", [
    ("Hit:1", "E: Unable to locate package libtomlplusplus-dev", False),
    # Without a network `apt-get update` only warns, and what follows from it does not tell why.
    ("W: Failed to fetch InRelease  Temporary failure resolving the mirror", "E: Unable to locate package libtomlplusplus-dev", True),
    ("Hit:1", "E: Failed to fetch the package  Could not connect to the mirror: connection timed out", True)])
def test_the_network_is_named_only_where_nothing_answered(machine, updates, installs, asks):
    machine.has("apt-get", f'case "$*" in *" install "*) echo "{installs}"; exit 100;; *) echo "{updates}";; esac')
    code, err = machine.setup(ATHANOR_PYTHON="python3")
    assert code == 1 and "apt-get could not install " in err
    assert ("; is the network reachable?" in err) == asks


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for packages as root")
@pytest.mark.parametrize("name,has", [("libclang_rt.fuzzer-x86_64.a", "14.0.6"), ("libclang_rt.fuzzer.a", "19.1.7"), (None, "19.1.7")])
def test_the_runtime_of_fuzzers_is_that_of_the_clang_that_is_here_wherever_it_keeps_it(machine, name, has):
    if os.uname().machine != "x86_64":
        pytest.skip("the file has the name of the processor")
    runtime = machine.folder / "lib"
    runtime.mkdir()
    if name:
        (runtime / name).touch()
    machine.has("clang++", f'case $1 in -dumpversion) echo {has};; *) f={runtime}/${{1#*=}}; [ -e "$f" ] && echo "$f" || echo "${{1#*=}}";; esac')
    machine.setup("--tests", ATHANOR_PYTHON="python3")
    asked = machine.asked.read_text()
    assert (f"libclang-rt-{has.split('.')[0]}-dev" in asked) == (name is None), asked
    assert "libclang-rt-14-dev" not in asked
