"""scripts/gpu_check: its order, its limits of time, its report, and the bundle that scripts/gpu_bundle makes."""
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest.mock

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import several  # noqa: E402
import shapes  # noqa: E402
import speed  # noqa: E402
from running import Clock, Failed, Machine, read_report  # noqa: E402

# A program of GoogleTest that passes one test; its arguments name the file of results.
PASSES = """#!/bin/sh
for word; do case $word in --gtest_output=json:*) file=${word#--gtest_output=json:} ;; esac; done
echo '{"testsuites": [{"name": "Suite", "testsuite": [{"name": "Test", "result": "COMPLETED"}]}]}' > "$file"
"""
PROGRAMS = ("kernels_cuda_test", "ops_test", "comm_test", "train_test", "saves_test", "run_test")


def programs_in(folder, **different):
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(different.get(name, PASSES))
        (folder / name).chmod(0o755)
    return folder


def check(folder, *arguments):
    """Runs gpu_check on the guarded device; returns (exit code, what it printed, its parts by name)."""
    out = folder / "out"
    said = subprocess.run([ROOT / "scripts" / "gpu_check", "--device", "guarded", "--programs", folder / "programs", "--libtorch",
                           folder, "--out", out, *arguments], capture_output=True, text=True, timeout=300)
    path = out / "result.json"
    parts = json.loads(path.read_text())["parts"] if path.exists() else []
    return said.returncode, said.stdout + said.stderr, {part["name"]: part for part in parts}


def test_parts_run_in_order_and_a_failure_costs_only_itself(tmp_path):
    programs_in(tmp_path / "programs", ops_test="#!/bin/sh\necho broken\nexit 3\n")
    code, said, parts = check(tmp_path)
    assert code == 1 and "failed: ops" in said, said
    assert list(parts)[:4] == ["kernels", "memcheck", "racecheck", "ops"]
    assert parts["kernels"]["state"] == parts["training"]["state"] == parts["checkpoints"]["state"] == "passed"
    assert parts["ops"]["state"] == "failed" and "ended with 3" in parts["ops"]["summary"]
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| ops | failed |" in table and "| kernels | passed |" in table


def test_a_part_that_hangs_is_ended_with_its_children_and_the_rest_is_skipped_in_time(tmp_path):
    marker = f"31{os.getpid()}"
    programs_in(tmp_path / "programs", ops_test=f"#!/bin/sh\nsleep {marker} &\nsleep {marker}\n")
    begin = time.monotonic()
    code, said, parts = check(tmp_path, "--minutes", "0.15")
    assert time.monotonic() - begin < 60 and code == 1, said
    assert "not over after" in parts["ops"]["summary"]
    assert parts["training"]["state"] == "skipped" and "are left" in parts["training"]["summary"]
    assert subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True).returncode == 1


def test_a_test_that_was_skipped_or_that_does_not_exist_is_a_failure(tmp_path):
    programs_in(tmp_path / "programs", kernels_cuda_test=PASSES.replace("COMPLETED", "SKIPPED"),
                ops_test=PASSES.replace('[{"name": "Suite", "testsuite": [{"name": "Test", "result": "COMPLETED"}]}]', "[]"))
    _, _, parts = check(tmp_path)
    assert parts["kernels"]["state"] == "failed" and "all 1 tests were skipped" in parts["kernels"]["summary"]
    assert parts["ops"]["state"] == "failed" and "has no test" in parts["ops"]["summary"]


TRUNCATED = PASSES.replace("}]}' >", "' >")  # a disk that is full, or a kill while it writes


@pytest.mark.parametrize("program, words", [
    ("#!/bin/sh\necho 3 of 9\nkill -SEGV $$\n", "ops_test was killed by SIGSEGV before it could report: 3 of 9; see ops.log"),
    (TRUNCATED, "ops_test ended with 0 and left a broken report, ops.json: no output; see ops.log"),
    (TRUNCATED + "echo aborting\nkill -ABRT $$\n", "ops_test was killed by SIGABRT and left a broken report, ops.json: aborting; see ops.log"),
    (PASSES.replace('"testsuites"', '"tests"'), "ops_test ended with 0 and left a broken report, ops.json: no output; see ops.log"),
    (PASSES + "kill -KILL $$\n", "0 of 1 failed, 0 were skipped: ops_test was killed by SIGKILL; see ops.log"),
    ("\x7fELF", "programs/ops_test cannot be executed: Exec format error")], ids=["killed", "truncated", "aborted", "other", "late", "no program"])
def test_a_broken_program_is_one_plain_line_of_the_table(tmp_path, program, words):
    programs_in(tmp_path / "programs", ops_test=program)
    code, _, parts = check(tmp_path, "--only", "ops")
    assert code == 1 and parts["ops"]["state"] == "failed"
    assert parts["ops"]["summary"].removeprefix(str(tmp_path) + "/") == words
    line, = [line for line in (tmp_path / "out" / "table.md").read_text().splitlines() if line.startswith("| ops |")]
    assert words in line and "Error: " not in line


@pytest.mark.parametrize("text", ["", "[{\"name\": ", "[{\"median_s\": 1}]", "{}"])
def test_a_broken_report_of_a_benchmark_is_one_plain_line(tmp_path, text):
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(Failed, match=r"^athanor bench step ended with 0 and left a broken report, step.json: last; see log.log$"):
        read_report(tmp_path / "step.json", "athanor bench step", 0, "first\nlast\n", "log", speed.by_name)
    assert speed.figures_of(text) in (None, {})


def test_all_parts_together_fit_in_the_time_if_those_that_measure_take_what_is_left(tmp_path):
    listed = subprocess.run([ROOT / "scripts" / "gpu_check", "--list"], capture_output=True, text=True, check=True).stdout
    limits = {line[:22].strip(): int(line[22:27]) for line in listed.splitlines()}
    correctness = [limits[name] for name in ("kernels", "memcheck", "racecheck", "ops", "training", "smoke", "checkpoints", "program")]
    assert sum(correctness) <= 6 * 60
    assert sum(limits.values()) <= 14 * 60  # the limits, not the usual times: those that come last are cut at nine minutes


def test_an_unknown_part_is_refused_in_one_line(tmp_path):
    said = subprocess.run([ROOT / "scripts" / "gpu_check", "--only", "nothing"], capture_output=True, text=True)
    assert said.returncode == 2 and said.stderr.count("\n") == 1 and "there is no part nothing; there are kernels" in said.stderr


def test_what_could_only_fail_in_every_part_is_refused_in_one_line(tmp_path):
    programs_in(tmp_path / "programs")
    for arguments, words in ((["--minutes", "0"], "there is no time"), (["--programs", tmp_path], "has none of the programs"),
                             (["--out", "/proc/none/x"], "--out: "), (["--device", "cuda", "--libtorch", tmp_path], "no lib/libtorch.so")):
        said = subprocess.run([ROOT / "scripts" / "gpu_check", "--device", "guarded", "--programs", tmp_path / "programs", "--out",
                               tmp_path / "out", *arguments], capture_output=True, text=True)
        assert said.returncode == 2 and said.stderr.count("\n") == 1 and words in said.stderr, said.stderr


def test_nothing_that_passed_is_no_success(tmp_path):
    programs_in(tmp_path / "programs")
    code, said, _ = check(tmp_path, "--only", "block, smoke")
    assert code == 2 and "0 passed, 0 failed" in said


def test_results_go_where_the_caller_is(tmp_path):
    programs_in(tmp_path / "programs")
    subprocess.run([ROOT / "scripts" / "gpu_check", "--device", "guarded", "--programs", "programs", "--only", "kernels", "--out", "here"],
                   cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "here" / "table.md").exists()


def test_the_shapes_have_the_parameters_of_their_models():
    billions = {name: shape.parameters() / 1e9 for name, shape in shapes.SHAPES.items()}
    assert billions["olmo-1b"] == pytest.approx(1.18, abs=0.01) and billions["olmoe-1b-7b"] == pytest.approx(6.92, abs=0.01)


def test_a_roofline_is_the_larger_of_products_and_copies_for_each_kernel():
    work = [("product", 100.0, 1.0), ("copy", 0.0, 50.0)]
    assert shapes.roofline_s(work, gemm_rate=10.0, copy_rate=5.0) == 10.0 + 10.0


def test_the_flops_of_a_step_are_six_for_each_parameter_that_a_token_uses_and_attention():
    shape = shapes.SHAPES["olmo-1b"]
    tokens = 2 * shape.seq_len
    used = shape.parameters()  # tied: the embedding is the head's matrix
    attention = shape.layers * 3.5 * 2 * tokens * shape.seq_len * shape.heads * shape.head_dim
    assert shapes.flops(shapes.step_work(shape, 2)) == pytest.approx(6 * used * tokens + attention)


def test_the_lines_of_the_kernels_benchmark_are_read():
    # As src/kernels/cuda/kernels_cuda_bench.cpp prints them, with its header, the copy and a remark.
    def line(name, ms, rate, share, remark=""):
        return f"{name:<28} {ms:10.3f} {rate:10.0f} {share:8.2f}{remark}\n"

    output = f"{'kernel':<28} {'ms':>10} {'GB/s':>10} {'of copy':>8}\n{'copy of 1 GiB':<28} {'':>10} {4300:10.0f} {'1.00':>8}\n" + \
        line("adamw, bf16 + 16 bits", 1.5, 3655, 0.85) + line("top_k", 0.01, 900, 0.2, "  (last bits of a logarithm differ from the host's)")
    assert speed.kernel_shares(output) == {"adamw, bf16 + 16 bits": 0.85, "top_k": 0.2}


def test_a_step_on_a_device_is_reported_from_what_the_benchmark_writes_there(tmp_path):
    steps = speed.Steps(Machine(tmp_path, None, "cuda", tmp_path, ROOT), Clock(60), "olmo-1b")
    steps.mine = [{"step": {"median_s": 0.2, "limit": 700e12, "launches": 900, "device_waits": 1}, "AdamW": {"median_s": 0.01},
                   "gradient norm": {"median_s": 0.005}, "copy": {"limit_is": "copy, read + written", "limit": 4e12}}]
    steps.theirs = {"grouped_mm": [{"step_s": 0.4, "backward_and_forward_s": 0.37, "gemm_rate": 690e12, "copy_rate": 3e12}]}
    text, figures = speed.summary_of(steps, 4)
    assert figures["ratios"]["grouped_mm"]["step"] == pytest.approx(2.0)
    assert figures["ratios"]["grouped_mm"]["forward_and_backward"] == pytest.approx(2.0)
    assert figures["copy_rate"] == 4e12 and 0 < figures["of_roofline"] < 1 and "2.00 times as fast as grouped_mm" in text


def test_several_gpus_add_parts_after_those_of_one(tmp_path):
    listed = [subprocess.run([ROOT / "scripts" / "gpu_check", "--list", "--gpus", gpus], capture_output=True, text=True,
                             check=True).stdout.splitlines() for gpus in "12"]
    assert listed[1][:len(listed[0])] == listed[0]
    assert [line.split()[0] for line in listed[1][len(listed[0]):]] == ["layouts", "data-parallel", "expert-parallel", "model-parallel"]
    programs_in(tmp_path / "programs")
    for gpus in ("0", "17"):
        code, said, _ = check(tmp_path, "--gpus", gpus)
        assert code == 2 and said.startswith(f"gpu_check: --gpus {gpus}: from 1 to 16")


# On GPUs: 6 steps of 4 layers, 128 tokens, and 128 dimensions.
@pytest.mark.parametrize("names,steps,layers,seq_len,hidden_size", [
    (("experts-2",), 2, 1, 32, 16), pytest.param(("experts-2", "pipeline-2"), 6, 4, 128, 128, marks=pytest.mark.slow)])
def test_layouts_of_several_devices_have_the_losses_of_one_cpu(tmp_path, names, steps, layers, seq_len, hidden_size):
    program = BUILD / "athanor_on_guarded"
    if not program.exists():
        pytest.skip("there is no athanor_on_guarded; scripts/build athanor_tests makes it")
    few = {name: several.layouts(2)[name] for name in names}
    machine, rounds = Machine(BUILD, None, "guarded", tmp_path, ROOT, gpus=2), several.checkpoint_round
    train = several.train

    def train_smaller(machine, clock, folder, run, ranks, settings, log):
        train(machine, clock, folder, run, ranks, [*settings, f"model.num_hidden_layers={layers}"], log, steps=steps)

    smaller = rounds.CONFIG.replace("seq_len = 128", f"seq_len = {seq_len}").replace("hidden_size = 128", f"hidden_size = {hidden_size}")
    with unittest.mock.patch.object(several, "layouts", lambda _: few), \
            unittest.mock.patch.object(several, "train", train_smaller), \
            unittest.mock.patch.object(rounds, "CONFIG", smaller), \
            unittest.mock.patch.object(rounds, "prepare", functools.partial(rounds.prepare, seq_len=seq_len)):
        summary, figures = several.check_layouts(machine, Clock(240))
    assert set(figures["differences"]) == set(few) and f"{len(few)} layouts: losses within" in summary


def test_of_ranks_the_first_that_fails_gives_the_exit_code_and_its_last_lines():
    ranks = ROOT / "bench" / "gpu" / "ranks.py"
    said = subprocess.run([ranks, "3", "sh", "-c", "echo I am $RANK of $WORLD_SIZE; test $RANK != 2 || exit 7"],
                          capture_output=True, text=True, timeout=300)
    assert said.returncode == 7 and said.stdout.splitlines() == ["I am 0 of 3", "rank 2:", "I am 2 of 3"], said
    start = time.monotonic()
    said = subprocess.run([ranks, "2", "sh", "-c", "test $RANK = 1 && kill -9 $$; exec sleep 600"], capture_output=True, timeout=500)
    assert said.returncode == 137 and time.monotonic() - start < 400
    assert subprocess.run([ranks, "2", "true"], timeout=300).returncode == 0


def test_an_interrupted_check_leaves_no_program_behind(tmp_path):
    marker = f"32{os.getpid()}"
    programs_in(tmp_path / "programs", kernels_cuda_test=f"#!/bin/sh\nsleep {marker}\n")
    child = subprocess.Popen([ROOT / "scripts" / "gpu_check", "--device", "guarded", "--programs", tmp_path / "programs", "--out",
                              tmp_path / "out"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True).returncode != 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=300) == 130 and child.stderr.read().strip() == "gpu_check: interrupted"
    assert subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True).returncode == 1


def test_an_interruption_while_a_program_starts_leaves_none_behind(tmp_path):
    marker = f"33{os.getpid()}"
    programs_in(tmp_path / "programs", kernels_cuda_test=f"#!/bin/sh\nkill -INT $PPID\nsleep {marker}\n")
    code, said, _ = check(tmp_path, "--only", "kernels")
    assert code == 130 and "gpu_check: interrupted" in said
    assert subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True).returncode == 1


def test_a_part_that_is_repeated_leaves_the_figures_of_the_others(tmp_path):
    programs_in(tmp_path / "programs")
    check(tmp_path, "--only", "kernels,ops")
    _, _, parts = check(tmp_path, "--only", "training")
    assert list(parts) == ["kernels", "ops", "training"]


needs_build = pytest.mark.skipif(not (BUILD / "train_test").exists(), reason="build/ has no tests: scripts/build all athanor_tests")


def libtorch():
    return pathlib.Path(next(iter(ROOT.glob(".venv/lib/python3*/site-packages/torch"))))


@needs_build
@pytest.mark.parametrize("name", shapes.SHAPES)
def test_only_the_missing_gpu_stops_the_steps(name, tmp_path):
    steps = speed.Steps(Machine(BUILD, None, "cuda", tmp_path, ROOT), Clock(60), name)
    with pytest.raises(Failed, match="train.device is cuda: "):
        steps.ours(1, 0, graphs=True)


@needs_build
@pytest.mark.slow
def test_the_parts_pass_on_the_device_that_the_host_plays(tmp_path):
    out = tmp_path / "out"
    said = subprocess.run([ROOT / "scripts" / "gpu_check", "--device", "guarded", "--programs", BUILD, "--libtorch", libtorch(),
                           "--out", out], capture_output=True, text=True, timeout=600)
    states = {part["name"]: part["state"] for part in json.loads((out / "result.json").read_text())["parts"]}
    assert said.returncode == 0, said.stdout
    assert {states[name] for name in ("kernels", "ops", "training", "checkpoints")} == {"passed"}


BARE = r"""
set -e
root=$1 bundle=$2 torch=$3; shift 3
mkdir -p $root/lib $root/lib64 $root/dev $root/proc $root/tmp $root/bundle $root/torch
for library in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libgcc_s.so.1; do
  cp -L /lib/x86_64-linux-gnu/$library $root/lib/
done
cp -L /usr/lib/x86_64-linux-gnu/libstdc++.so.6 $root/lib/
cp -L /lib64/ld-linux-x86-64.so.2 $root/lib64/
for device in null urandom; do touch $root/dev/$device; mount --bind /dev/$device $root/dev/$device; done
mount -t proc proc $root/proc
mount --bind $bundle $root/bundle
mount --bind $torch $root/torch
LD_LIBRARY_PATH=/bundle/bin:/torch/lib:/lib exec chroot $root "$@"
"""


def can_change_root():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0 and \
        os.path.exists("/lib/x86_64-linux-gnu/libc.so.6")


@needs_build
@pytest.mark.slow
@pytest.mark.skipif(not can_change_root(), reason="needs root and Debian's folders, to look into a bare system")
def test_a_bundle_runs_where_there_is_nothing_but_glibc_libstdcpp_and_libtorch(tmp_path):
    if not (BUILD / "kernels_cuda_bench").exists():
        pytest.skip("no nvcc: build/ has no kernels_cuda_bench")
    archive = tmp_path / "athanor-gpu.tar.xz"
    subprocess.run([ROOT / "scripts" / "gpu_bundle", archive], check=True, timeout=600)
    assert archive.stat().st_size < 60 * 10**6
    shutil.unpack_archive(archive, tmp_path)
    bundle = tmp_path / "athanor-gpu"
    for words, expected in ((["athanor", "--version"], "athanor "),
                            (["kernels_cuda_test", "--gtest_filter=*/CudaOnHost"], "[  PASSED  ]"),
                            (["ops_test", "--gtest_filter=OnDevice*/GuardedLatest*"], "[  PASSED  ]"),
                            (["saves_test", "--gtest_filter=OnDeviceStep*Refuses*"], "[  PASSED  ]")):
        said = subprocess.run(["unshare", "-m", "sh", "-c", BARE, "sh", tmp_path / "root", bundle, libtorch(),
                               f"/bundle/bin/{words[0]}", *words[1:]], capture_output=True, text=True, timeout=300)
        assert said.returncode == 0 and expected in said.stdout, said.stdout[-2000:] + said.stderr[-2000:]
