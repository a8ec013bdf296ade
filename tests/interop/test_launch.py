"""`athanor launch` on this machine: the dry run, real starts under each MPI and without one, signals, and what is refused."""
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mpi"))
import launchers  # noqa: E402

# Variables of a job that these tests themselves may run in.
OF_A_JOB = ("SLURM_", "PBS_", "LSB_", "OMP_", "OMPI_COMM", "RANK", "WORLD_SIZE")
RANK = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}"


@pytest.fixture
def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_A_JOB)}
    return {**kept, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


@pytest.fixture
def launch(athanor, environment, tmp_path):
    def run(*words, env=None, cwd=tmp_path):
        return subprocess.run([str(athanor.path), "launch", *map(str, words)], env={**environment, **(env or {})}, cwd=cwd,
                              capture_output=True, text=True, timeout=300)
    return run


@pytest.fixture(params=["Open MPI", "MPICH", "sockets"])
def launcher(request):
    if request.param == "sockets":
        return "sockets"
    if (found := launchers.find(request.param)) is None:
        pytest.skip(f"no mpirun of {request.param} on the PATH")
    return found.path


def script(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def refused(done):
    """The one line of a refusal."""
    assert done.returncode == 2 and not done.stdout, done.stdout + done.stderr
    line = done.stderr.strip()
    assert "\n" not in line, line
    return line


def test_each_launcher_starts_the_ranks_with_their_arguments_threads_and_cores(launch, launcher, tmp_path):
    program = script(tmp_path / "program", f'echo "$@" >{tmp_path}/said-{RANK}', f'echo "$OMP_NUM_THREADS" >>{tmp_path}/said-{RANK}',
                     f"grep Cpus_allowed_list /proc/self/status >>{tmp_path}/said-{RANK}")
    done = launch("-n", 2, "--launcher", launcher, "--", program, "--set", "a=$(id) b")
    assert done.returncode == 0, done.stderr
    said = [(tmp_path / f"said-{rank}").read_text().splitlines() for rank in range(2)]
    allowed = sorted(os.sched_getaffinity(0))
    for rank in range(2):
        assert said[rank][0] == "--set a=$(id) b"
        if len(allowed) == 2:  # a core for each rank
            assert said[rank][1:] == ["1", f"Cpus_allowed_list:\t{allowed[rank]}"]


def test_the_exit_code_of_a_rank_is_passed_on(launch, launcher, tmp_path):
    program = script(tmp_path / "program", "sleep 0.2", f'[ "{RANK}" = 1 ] && exit 10', "exit 0")
    assert launch("-n", 2, "--launcher", launcher, "--", program).returncode == 10


@pytest.mark.parametrize("number,passed", [(signal.SIGTERM, "TERM"), (signal.SIGUSR1, "USR1")])
def test_a_signal_reaches_the_ranks(athanor, environment, launcher, tmp_path, number, passed):
    program = script(tmp_path / "program", f"trap 'echo got >{tmp_path}/got; exit 0' {passed}", f": >{tmp_path}/ready",
                     "while :; do sleep 0.05; done")
    process = subprocess.Popen([athanor.path, "launch", "-n", "1", "--launcher", launcher, "--", program], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    process.wait(timeout=300)
    assert (tmp_path / "got").exists()


def test_ranks_of_athanor_find_each_other(launch, launcher, athanor):
    recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes/olmoe-tiny.toml"
    done = launch("-n", 2, "--launcher", launcher, "--", athanor.path, "verify", recipe, "--set", "model.num_hidden_layers=1", "--set",
                  "model.hidden_size=64", "--set", "model.vocab_size=256", "--set", "data.seq_len=16", "--steps", "1")
    assert done.returncode == 0 and "2 ranks" in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_printed_command_does_what_launch_does_when_it_is_pasted(launch, environment, tmp_path):
    program = script(tmp_path / "program", f'echo "$@" >{tmp_path}/said')
    line = launch("-n", 1, "--dry-run", "--", program, "it's", "$HOME", "a  b").stdout
    assert not (tmp_path / "said").exists()
    subprocess.run(["sh", "-c", line], env=environment, check=True, cwd=tmp_path, timeout=300)
    assert (tmp_path / "said").read_text() == "it's $HOME a  b\n"


def test_what_cannot_start_is_refused_before_the_launcher_starts_it(launch, athanor, tmp_path):
    mpirun = script(tmp_path / "mpirun", f"echo started >>{tmp_path}/started", "echo 'mpirun (Open MPI) 4.1.4'")
    begin = ("-n", 2, "--launcher", mpirun, "--")
    assert "nowhere.toml does not exist" in refused(launch(*begin, athanor.path, "train", "nowhere.toml"))
    assert 'athanor has no command trian (did you mean "train"?)' in refused(launch(*begin, athanor.path, "trian", "run.toml"))
    (tmp_path / "program").write_text("echo hello\n")
    (tmp_path / "program").chmod(0o755)
    assert "is a text without #! in its first line" in refused(launch(*begin, "./program"))
    assert (tmp_path / "started").read_text() == "started\n", "asked for its version, once"


def test_a_timeout_is_seconds_or_a_duration(launch):
    for timeout in ("900", "15m", "0", "1h30m"):
        assert launch("-n", 1, "--dry-run", "--timeout", timeout, "true").returncode == 0
    script = launch("--print-script", "slurm", "--timeout", "15m", "true").stdout
    assert "--timeout 900" in script
    assert "expected seconds, or a duration such as 90s, 15m or 2h, got soon" in refused(launch("--timeout", "soon", "true"))


def test_the_dry_run_names_where_each_part_comes_from(launch):
    out = launch("-n", 2, "--dry-run", "true").stdout
    for part in ("# scheduler  local: ", "# hosts      1 host: ", "# devices ", "# cores ", "# ranks      2 on 1 host, 2 each: -n"):
        assert part in out, out


def test_options_of_the_command_are_not_those_of_launch(launch):
    done = launch("--dry-run", "-n", 1, "echo", "--dry-run", "--nodes", "9", "--help")
    assert done.returncode == 0 and done.stdout.endswith("echo --dry-run --nodes 9 --help\n"), done.stdout + done.stderr


def test_a_job_of_slurm_is_found_by_its_environment(launch, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    script(tools / "srun", f'echo "$@" >{tmp_path}/called')
    host = os.uname().nodename
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": f"{host},other[1-3]", "SLURM_MPI_TYPE": "pmix", "PATH": f"{tools}:{os.environ['PATH']}"}
    done = launch("--ppn", 1, "--", "true", "a b", env=env)
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_text()
    assert called.startswith(f"--nodes=4 --ntasks=4 --ntasks-per-node=1 --nodelist={host},other1,other2,other3 "), called
    assert called.endswith(" --disable-status true a b\n"), called


def test_what_contradicts_itself_is_refused_in_one_line_and_starts_nothing(launch, tmp_path):
    ran = tmp_path / "ran"
    program = script(tmp_path / "program", f": >{ran}")
    (tmp_path / "twice").write_text("n1\nn1\n")
    (tmp_path / "empty").write_text("# none\n")
    (tmp_path / "shell").write_text("n1;touch ran\n")
    (tmp_path / "outside").write_text("n9\n")
    (tmp_path / "slots").write_text("localhost slots=2\n")
    (tmp_path / "text").write_text("text\n")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    cases = [
        (["--hostfile", "twice", program], {}, "twice:2: n1 has a line already (1)"),
        (["--hostfile", "empty", program], {}, "empty: there is no host in it"),
        (["--hostfile", "shell", program], {}, 'shell:1: "n1;touch" is no name of a host'),
        (["--hostfile", "nowhere", program], {}, "nowhere"),
        (["--hostfile", "outside", program], job, "n9 is not among the hosts of slurm job 7, which has 2 hosts: n1, n2"),
        (["--hostfile", "slots", "-n", "3", program], {}, "-n 3: there are only 2 slots on 1 host (slots)"),
        (["-n", "5", "--ppn", "2", program], {}, "-n 5 and --ppn 2 contradict each other"),
        (["--nodes", "2", program], {}, "--nodes 2: there are only 1 host"),
        (["--scheduler", "slurm", program], {}, "SLURM_JOB_ID is not set"),
        (["--launcher", "nowhere", program], {}, "--launcher nowhere: there is no such program"),
        ([tmp_path / "nowhere"], {}, "there is no file"),
        ([tmp_path / "text"], {}, "is no program that you may execute"),
        ([tmp_path], {}, "is no program that you may execute"),
        (["no-such-program"], {}, "there is no program no-such-program on the path"),
        ([], {}, "COMMAND is required"),
        ([""], {}, "COMMAND is required"),
        ([program], {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-"}, "a bracket is not closed"),
        ([program], {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "$(touch ran)"}, "is no name of a host"),
        ([program], {"SLURM_JOB_ID": "7", "PBS_JOBID": "8"}, "are both set"),
        ([program], {"PBS_JOBID": "8", "PBS_NODEFILE": "/nowhere"}, "/nowhere"),
        ([program], job, "the number of ranks is not known: this machine is none of 2 hosts: n1, n2"),
        (["--reserve-cores", "1000", program], {}, "--reserve-cores 1000: a rank has"),
        (["--exclude-cores", "x", program], {}, "--exclude-cores: expected numbers and ranges"),
        (["--hostfile", "twice", "--print-script", "slurm", program], {}, "contradict each other"),
    ]
    for words, env, part in cases:
        assert part in refused(launch(*words, env=env)), words
    assert not ran.exists()


def test_without_mpi_several_hosts_are_refused_and_one_host_uses_sockets(launch, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "true").symlink_to(shutil.which("true"))
    (tmp_path / "hosts").write_text(f"{os.uname().nodename}\nother\n")
    env = {"PATH": str(tools)}
    assert "there is no MPI" in refused(launch("--hostfile", "hosts", "--", "true", env=env))
    out = launch("-n", 2, "--dry-run", "--", "true", env=env).stdout
    assert "launcher   none: none of mpirun, mpiexec, mpiexec.hydra is on the path" in out and "RANK=1 WORLD_SIZE=2" in out, out


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_printed_script_is_one_that_bash_reads_with_the_words_as_they_are(launch, tmp_path, scheduler):
    done = launch("--print-script", scheduler, "--nodes", 3, "--", "athanor", "train", "my run.toml", "--set", "a=$(touch ran)")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "job"
    path.write_text(done.stdout)
    subprocess.run(["bash", "-n", path], check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("command="))
    said = subprocess.run(["bash", "-c", line + '; printf "%s\\n" "${command[@]}"'], capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.splitlines() == ["athanor", "train", "my run.toml", "--set", "a=$(touch ran)"] and not (tmp_path / "ran").exists()
    if shutil.which("shellcheck"):
        found = subprocess.run(["shellcheck", "--shell=bash", path], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout


def test_a_printed_script_names_the_program_and_asks_for_the_spares(launch, athanor):
    for scheduler, line in (("slurm", "#SBATCH --nodes=5"), ("pbs", "#PBS -l select=5:")):
        out = launch("--print-script", scheduler, "--nodes", 3, "--auto-retry", "--spare-nodes", 2, "--", "true").stdout
        assert f"\n{line}" in out, out
        assert f"\nlaunch=({athanor.path.resolve()} launch --nodes 3 --auto-retry --spare-nodes 2)\n" in out, out


def verdict(folder, number=1):
    return json.loads((folder / f"{number:03}" / "verdict.json").read_text())


def test_an_attempt_leaves_its_log_its_hosts_and_why_it_ended(launch, launcher, tmp_path):
    program = script(tmp_path / "program", "echo 'step 1 loss 2.0'", "echo 'MemoryError: no memory' >&2", "exit 1")
    for number in (1, 2):
        done = launch("-n", 1, "--launcher", launcher, "--attempts", "kept/attempts", "--", program)
        assert done.returncode == 1 and done.stdout == "step 1 loss 2.0\n" and "MemoryError: no memory\n" in done.stderr, done.stderr
        assert f"attempt {number} ended with code 1 after step 1: out_of_memory; use a smaller microbatch" in done.stderr, done.stderr
        assert '; "MemoryError: no memory"' in done.stderr, done.stderr
    attempts = tmp_path / "kept/attempts"
    assert (attempts / "002/hosts").read_text() == os.uname().nodename + "\n"
    log = (attempts / "002/log").read_text()
    assert "step 1 loss 2.0\n" in log and "MemoryError: no memory\n" in log, log
    said = verdict(attempts, 2)
    assert (said["attempt"], said["exit_code"], said["kind"], said["hosts"], said["last_step"]) == (2, 1, "out_of_memory", [], 1), said
    assert "MemoryError" in said["evidence"][0]["text"] and said["started"] <= said["ended"], said


def test_a_training_that_is_refused_leaves_nothing(launch, athanor, tmp_path):
    (tmp_path / "run.toml").write_text('[data]\npath = "nowhere"\n[train]\nrun_dir = "run"\n')
    done = launch("-n", 1, "--launcher", "sockets", "--", athanor.path, "train", "run.toml")
    assert done.returncode == 2 and "nowhere" in done.stderr, done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["run.toml"]
    (tmp_path / "file").write_text("")
    assert "--attempts file is or is in a file" in refused(launch("--attempts", "file", "--", "true"))


def tries(folder, *lines):
    """A program whose lines know by $try which attempt it is."""
    return script(folder / "program", f"try=$(($(cat {folder}/tries 2>/dev/null || echo 0) + 1)); echo $try >{folder}/tries", *lines)


def kinds(folder):
    return [json.loads(each.read_text())["kind"] for each in sorted(folder.glob("*/verdict.json"))]


def test_a_command_without_output_is_ended_with_code_124(launch, launcher, tmp_path):
    program = script(tmp_path / "program", "echo 'step 1 loss 2.0'", "exec sleep 1000")
    done = launch("-n", 1, "--launcher", launcher, "--timeout", 1, "--attempts", "attempts", "--", program)
    assert done.returncode == 124 and "no progress for" in done.stderr, done.stderr
    assert verdict(tmp_path / "attempts")["kind"] == "silent_hang"
    assert launch("-n", 1, "--launcher", "sockets", "--timeout", 1, "--", program).returncode == 124


def test_a_failure_after_a_step_is_tried_again_at_once_and_the_end_is_told(launch, tmp_path):
    program = tries(tmp_path, "echo 'step 1 loss 2.0'", 'exit $((try == 1))')
    done = launch("-n", 1, "--launcher", "sockets", "--retries", 3, "--", program)
    assert done.returncode == 0 and done.stderr.splitlines()[-1].endswith("complete after 2 attempts"), done.stderr
    assert kinds(tmp_path / "attempts") == ["success_marker", "success"]


def test_an_attempt_whose_record_cannot_be_written_ends_with_its_own_code_and_is_tried_again(launch, tmp_path):
    program = tries(tmp_path, "rm -r attempts/00$try; : >attempts/00$try", "echo 'step 1 loss 2.0'", 'exit $((try == 1 ? 3 : 0))')
    done = launch("-n", 1, "--launcher", "sockets", "--retries", 3, "--", program)
    assert done.returncode == 0 and done.stderr.splitlines()[-1].endswith("complete after 2 attempts"), done.stderr
    assert "the record of attempt 1 lacks this" in done.stderr and "attempt 1 ended with code 3" in done.stderr, done.stderr


def test_a_signal_reaches_what_a_script_has_started(athanor, environment, tmp_path):
    child = script(tmp_path / "child", f": >{tmp_path}/ready", "trap 'exit 0' TERM", f"trap ': >{tmp_path}/got' EXIT", "while :; do sleep 0.02; done")
    process = subprocess.Popen([athanor.path, "launch", "-n", "1", "--launcher", "sockets", "--", script(tmp_path / "program", str(child), "echo ended")],
                               env=environment, cwd=tmp_path)
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    time.sleep(0.1)  # its traps are set
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) == 143
    end = time.monotonic() + 300
    while not (tmp_path / "got").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert (tmp_path / "got").exists()


def test_two_attempts_without_a_step_stop(launch, tmp_path):
    done = launch("-n", 1, "--launcher", "sockets", "--retries", 9, "--", tries(tmp_path, "exit 7"))
    assert done.returncode == 7 and (tmp_path / "tries").read_text() == "2\n", done.stderr
    assert "FAILOVER STOP: crash_unknown: 2 attempts in a row took no step" in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize("code,kind", [(10, "stopped"), (77, "stopped"), (1, "configuration")])
def test_what_no_further_attempt_can_cure_is_not_tried_again(launch, tmp_path, code, kind):
    program = tries(tmp_path, "echo 'error: unrecognized arguments: --foo'" if code == 1 else ":", f"exit {code}")
    done = launch("-n", 1, "--launcher", "sockets", "--auto-retry", "--", program)
    assert done.returncode == code and (tmp_path / "tries").read_text() == "1\n", done.stderr
    assert kinds(tmp_path / "attempts") == [kind] and f"FAILOVER STOP: {kind}: " in done.stderr.splitlines()[-1], done.stderr


def test_a_signal_ends_the_wait_for_another_attempt(athanor, environment, tmp_path):
    program = tries(tmp_path, "exit 7")
    process = subprocess.Popen([athanor.path, "launch", "-n", "1", "--launcher", "sockets", "--retries", "9", "--", program], env=environment,
                               cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    said = ""
    while "runs it again in 5 s" not in said:
        assert (line := process.stderr.readline()), said
        said += line
    process.send_signal(signal.SIGTERM)
    assert "FAILOVER STOP: SIGTERM came before the next attempt" in process.stderr.read()
    assert process.wait(timeout=300) == 7 and (tmp_path / "tries").read_text() == "1\n"


def test_a_spare_node_takes_the_place_of_the_one_at_fault(launch, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    called = tmp_path / "called"
    script(tools / "srun", 'case "$*" in *" probe "*) exit 0;; esac', 'all="$*"; list=${all#*--nodelist=}; list=${list%% *}',
           f'[ -e "$list" ] && list=$(paste -sd, "$list"); echo "$list" >>{called}', f'[ $(wc -l <{called}) -gt 2 ] && exit 0',
           f'[ $(wc -l <{called}) -eq 1 ] && bad=n1 || bad=n4', 'echo "step 5 loss 2.0"', 'echo "srun: error: Node failure on $bad" >&2', "exit 1")
    host = os.uname().nodename
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": f"{host},n[1-5]", "SLURM_MPI_TYPE": "pmix", "PATH": f"{tools}:{os.environ['PATH']}"}
    done = launch("--ppn", 1, "--nodes", 3, "--auto-retry", "--spare-nodes", 2, "--", "true", env=env)
    assert done.returncode == 0 and "n3 takes the place of n1" in done.stderr, done.stderr
    lists = called.read_text().splitlines()
    assert lists == [f"{host},n1,n2", f"{host},n3,n2", f"{host},n3,n2"], done.stderr  # n4 is not of the attempt: it is not at fault
    assert (tmp_path / "attempts/002/hosts").read_text() == f"{host}\nn3\nn2\n"
    assert verdict(tmp_path / "attempts", 1)["hosts"] == ["n1"]


def test_a_spare_that_does_not_pass_the_probe_is_not_used(launch, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    script(tools / "srun", 'case "$*" in *--nodelist=n3*" probe "*) echo "no device"; exit 1;; *" probe "*) exit 0;; esac',
           f'[ -e {tmp_path}/second ] && exit 0', f"touch {tmp_path}/second", 'echo "step 5 loss 2.0"', 'echo "srun: error: Node failure on n1" >&2', "exit 1")
    host = os.uname().nodename
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": f"{host},n[1-5]", "SLURM_MPI_TYPE": "pmix", "PATH": f"{tools}:{os.environ['PATH']}"}
    words = ["--ppn", 1, "--nodes", 3, "--auto-retry", "--", "true"]
    assert "# spares     3 hosts: n3, n4, n5 (the next ones of the job)\n" in launch("--dry-run", *words, env=env).stdout
    done = launch(*words, env=env)
    assert done.returncode == 0, done.stderr
    assert "n3 did not pass the probe (code 1; attempts/001/probe-n3.txt), and is used no more" in done.stderr, done.stderr
    assert "n4 takes the place of n1" in done.stderr and (tmp_path / "attempts/001/probe-n3.txt").read_text() == "no device\n"


def test_options_of_spares_need_auto_retry(launch):
    assert "are for --auto-retry" in refused(launch("--spare-nodes", 3, "--", "true"))
    assert "are for --auto-retry" in refused(launch("--max-failover-retries", 3, "--", "true"))
    assert "are for --auto-retry" in refused(launch("--min-nodes", 1, "--", "true"))
    assert "are for --auto-retry" in refused(launch("--swap-suspects", "no", "--", "true"))
    assert "expected at most the number of nodes in use, 1" in refused(launch("--min-nodes", 2, "--auto-retry", "--", "true"))
    assert "are for --resubmit" in refused(launch("--max-jobs", 3, "--", "true"))
    assert "needs a job of Slurm or PBS" in refused(launch("--resubmit", "--", "true"))
