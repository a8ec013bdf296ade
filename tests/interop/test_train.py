"""A run gives the same bits however it is interrupted, and survives failures."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from runs import Run, make_data


def in_bfloat16(run):
    """The run with the type that a processor without products in it does not choose by itself."""
    run.config.write_text(run.config.read_text().replace("[train]\n", '[train]\ndtype = "bfloat16"\n'))
    return run


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


# Tests that depend on the family name it; the others run with experts in `make test`, and with both in `make test-all`.
@pytest.fixture(scope="module", params=[pytest.param("olmo", marks=pytest.mark.slow), "olmoe"])
def whole(request, athanor, data, tmp_path_factory):
    """A run without interruption."""
    run = in_bfloat16(Run(athanor, tmp_path_factory.mktemp("whole"), data, request.param))
    run.family = request.param
    run.output = run.train().stdout
    return run


@pytest.fixture
def again(whole, athanor, data, tmp_path):
    """A run folder of the same configuration, still empty."""
    return in_bfloat16(Run(athanor, tmp_path, data, whole.family))


@pytest.fixture
def copy(whole, again):
    """A copy of the run without interruption."""
    shutil.copytree(whole.folder, again.folder)
    return again


def assert_same(run, whole):
    assert run.numbers() == whole.numbers()
    assert run.hashes() == whole.hashes()


@pytest.mark.parametrize("whole", ["olmo", "olmoe"], indirect=True)
def test_the_same_configuration_gives_the_same_bits_whatever_the_data_threads(whole, again):
    again.train("data.num_threads=3")
    assert_same(again, whole)


@pytest.mark.parametrize("whole,after", [
    ("olmoe", 1), ("olmo", 3), ("olmoe", 5),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in [("olmo", 1), ("olmoe", 3), ("olmo", 5), ("olmo", 7), ("olmoe", 7)]),
], indirect=["whole"])
def test_a_killed_run_resumes_bit_for_bit(whole, again, after):
    assert again.train(fault=f"train.after_step:kill@{after}", check=False).returncode == -signal.SIGKILL
    again.train()
    assert_same(again, whole)


@pytest.mark.parametrize("fault", ["checkpoint.piece:kill@4", "checkpoint.before_commit:kill@2", "folder.before_rename:kill@2",
                                   "export.before_commit:kill@1"])
def test_a_run_killed_while_it_saves_resumes_bit_for_bit(whole, again, fault):
    assert again.train(fault=fault, check=False).returncode == -signal.SIGKILL
    again.train()
    assert_same(again, whole)
    assert again.checkpoints() == whole.checkpoints()  # no leftovers


@pytest.mark.parametrize("name,code", [("term", 143), ("int", 130)])
def test_a_signal_finishes_the_step_saves_and_says_so(whole, again, name, code):
    done = again.train(fault=f"train.after_step:{name}@2", check=False)
    assert done.returncode == code
    assert again.checkpoints()[-1] == "step-00000003"  # the step after the signal came was finished
    again.train()
    assert_same(again, whole)


def test_two_checkpoints_are_kept_and_models_all(whole):
    assert whole.checkpoints() == ["step-00000006", "step-00000008"]
    assert sorted(path.name for path in (whole.folder / "models").iterdir()) == ["step-00000004", "step-00000008"]


def test_a_damaged_checkpoint_is_named_and_passed_over(whole, copy):
    again = copy
    newest = next((again.folder / "checkpoints" / "step-00000008").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    done = again.train("train.steps=8")
    assert "step-00000008" in done.stderr and "resumed from" in done.stderr and "step 6" in done.stderr
    assert_same(again, whole)


def test_a_run_whose_every_checkpoint_is_damaged_does_not_start_anew(copy):
    for file in (copy.folder / "checkpoints").glob("*/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    done = copy.train(check=False)
    assert done.returncode == 2 and "every checkpoint in" in done.stderr


def test_a_checkpoint_cut_along_other_dims_resumes_bit_for_bit(whole, again, athanor):
    again.train("checkpoint.async=false", fault="train.after_step:kill@6", check=False)
    folder = again.folder / "checkpoints" / "step-00000006"
    tool = type(athanor)(athanor.path.with_name("checkpoint_tool"))
    tool.run("reslice", folder, again.folder / "resliced")
    before = json.loads((folder / "manifest.json").read_text())
    for file in folder.iterdir():
        file.unlink()
    for file in (again.folder / "resliced").iterdir():
        file.rename(folder / file.name)
    after = json.loads((folder / "manifest.json").read_text())
    assert len(after["pieces"]) > 2 * len(before["pieces"])
    assert after["tensors"] == before["tensors"]
    again.train()
    assert_same(again, whole)


def test_a_full_disk_costs_the_new_checkpoint_but_neither_the_old_one_nor_the_run(whole, again):
    again.train("train.steps=3", "optimizer.warmup_steps=3")  # a whole checkpoint of step 3 ...
    again.train("checkpoint.model_interval=0", "metrics.tensorboard=false", fault="checkpoint.piece:enospc@1+", check=False)
    assert again.metrics()[-1]["step"] == 8
    assert "step-00000003" in again.checkpoints()


def test_a_full_disk_is_told_and_shows_in_the_exit_code_if_the_last_checkpoint_is_lost(again):
    done = again.train("train.run_dir=" + str(again.folder), "checkpoint.model_interval=0", fault="checkpoint.piece:enospc@1+", check=False)
    assert done.returncode == 11
    assert "No space left on device" in done.stderr and "the run continues" in done.stderr
    assert again.metrics()[-1]["step"] == 8


def test_a_model_only_checkpoint_restarts_with_fresh_moments_at_its_step(whole, again):
    again.train(f"checkpoint.resume={whole.folder / 'models' / 'step-00000004'}")
    lines = again.metrics()
    assert [line["step"] for line in lines] == [5, 6, 7, 8]
    # The first loss depends only on weights (rounded to bf16, as forward reads them) and data.
    assert lines[0]["loss"] == whole.metrics()[4]["loss"]
    assert again.hashes() != whole.hashes()


def test_a_run_begun_from_a_path_goes_on_from_its_own_checkpoints(whole, again):
    path = f"checkpoint.resume={whole.folder / 'checkpoints' / 'step-00000006'}"
    again.train(path, "train.steps=7", "optimizer.warmup_steps=3")
    done = again.train(path)
    assert "at step 7" in done.stderr and "passed over" in done.stderr
    assert [line["step"] for line in again.metrics()] == [7, 8]


def test_resume_never_refuses_a_folder_that_holds_a_run(copy):
    done = copy.train("checkpoint.resume=never", check=False)
    assert done.returncode == 2 and "holds a run already" in done.stderr


def test_a_run_folder_of_another_model_is_refused_by_name(copy):
    done = copy.train("model.intermediate_size=40", check=False)
    assert done.returncode == 2
    assert "another model" in done.stderr and "intermediate_size" in done.stderr


def test_another_seed_at_a_resume_is_refused(copy):
    done = copy.train("train.seed=6", check=False)
    assert done.returncode == 2 and "train.seed" in done.stderr


def test_evaluation_changes_nothing(whole, again):
    again.train("train.validation_interval=0")
    assert again.hashes() == whole.hashes()


def test_the_loss_does_not_depend_on_the_microbatch(whole, again):
    again.train("train.micro_batch_size=4", "train.dtype=float32")
    one = [line["loss"] for line in again.numbers()]
    shutil.rmtree(again.folder)
    again.train("train.micro_batch_size=1", "train.dtype=float32")
    # fp32 rounding, grown over eight steps with a rate of 1e-2
    assert [line["loss"] for line in again.numbers()] == pytest.approx(one, rel=1e-4)


def test_the_step_line_is_the_one_people_parse(whole):
    number = r"[\d,]+(\.\d+)?"
    pattern = (rf"step: {number}  loss: {number}  grad_norm: {number}  lr: \d\.\d\de-\d\d  tps: {number}  tflops: {number}"
               rf"  mfu: {number}%  memory: {number}[KMG]iB(  eta: [\d:]+)?")
    lines = [line for line in whole.output.splitlines() if line.startswith("step:")]
    assert len(lines) == 8
    for line in lines:
        assert re.fullmatch(pattern, line), line


def test_tensorboard_reads_the_run(whole):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole.folder / "tensorboard"))
    events.Reload()
    losses = {event.step: event.value for event in events.Scalars("loss/train")}
    for line in whole.metrics():
        assert losses[line["step"]] == pytest.approx(line["loss"], rel=1e-6)


@pytest.mark.parametrize("override,words", [
    ("train.dtpye=float32", ["unknown key train.dtpye", "dtype"]),
    pytest.param("train.steps=many", ["train.steps", "expected an integer"], marks=pytest.mark.slow),
    ("model.num_attention_heads=5", ["num_attention_heads (5) must divide", "hidden_size (32)"]),
    pytest.param("model.vocab_size=200", ["model.vocab_size (200)", "300"], marks=pytest.mark.slow),
    ("data.seq_len=16", ["data.seq_len (16)", "32"]),
    pytest.param("data.path=nowhere", ["nowhere"], marks=pytest.mark.slow),
    pytest.param("data.path=", ["data.path is empty"], marks=pytest.mark.slow),
    pytest.param("train.master_dtype=bfloat16", ["master", "below 1/256"], marks=pytest.mark.slow),
    ("parallelism.expert_parallel_degree=4", ["the degrees of parallelism need 4 ranks or more"]),
    pytest.param("train.micro_batch_size=3", ["micro_batch_size (3) must divide", "(4)"], marks=pytest.mark.slow),
    pytest.param("checkpoint.resume=nowhere", ["checkpoint.resume", "nowhere"], marks=pytest.mark.slow),
    pytest.param("optimizer.no_weight_decay=[\"*bias\"]", ["*bias", "matches no parameter"], marks=pytest.mark.slow),
    ("model.hidden_size=4000000", ["GiB"]),
])
def test_bad_input_is_one_clear_line_and_leaves_no_run(athanor, data, tmp_path, override, words):
    run = Run(athanor, tmp_path, data)
    done = run.train(override, check=False)
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if " E " in line]
    assert len(errors) == 1, done.stderr
    for word in words:
        assert word in errors[0]
    assert not list(run.folder.rglob("*.safetensors"))


def test_data_that_cannot_be_read_any_more_end_the_run_saved(athanor, data, tmp_path):
    settings = ["train.validation_interval=0", "checkpoint.interval=100", "checkpoint.model_interval=0"]
    (tmp_path / "whole").mkdir()
    whole = Run(athanor, tmp_path / "whole", data)
    whole.train(*settings)
    run = Run(athanor, tmp_path, data)
    # Four sequences a step, which are read one by one: in the fifth batch.
    done = run.train(*settings, "data.verify=false", fault="data.read:eio@20+", check=False)
    assert done.returncode == 74, done.stderr
    assert re.search(r"step 5: cannot read \S+train-00000.npy at byte \d+: Input/output error; step 4 is saved", done.stderr)
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4]
    run.train(*settings)
    assert run.hashes() == whole.hashes()


def test_a_shard_that_is_cut_off_during_a_run_ends_it_saved(athanor, data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shard = copy / "train-00000.npy"
    content = shard.read_bytes()
    run = Run(athanor, tmp_path, copy)
    settings = ["train.steps=100000", "optimizer.schedule=constant", "train.validation_interval=0", "checkpoint.interval=100000",
                "checkpoint.model_interval=0", "data.verify=false"]
    words = [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen([str(athanor.path), "train", run.config, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()  # the first step is done
    os.truncate(shard, 200)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 74, said
    assert re.search(r"step \d+: cannot read \d+ bytes of \S+train-00000.npy at byte \d+: it ends at byte 200 now", said)
    last = run.metrics()[-1]["step"]
    assert run.checkpoints() == [f"step-{last:08}"]
    shard.write_bytes(content)
    run.train(*settings, f"train.steps={last + 2}")
    assert [line["step"] for line in run.metrics()] == list(range(1, last + 3))


def test_held_out_data_that_cannot_be_read_end_the_run_after_the_step_that_wanted_them(athanor, data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shard = copy / "validation-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-32 * 2 * 9:] = b"\xfe" * (32 * 2 * 9)
    shard.write_bytes(content)
    run = Run(athanor, tmp_path, copy)
    done = run.train("data.verify=false", "checkpoint.interval=100", check=False)
    assert done.returncode == 74, done.stderr
    assert "validation-00000.npy: row" in done.stderr and "step 4 is saved" in done.stderr
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4]


def test_a_warmup_that_nobody_set_stays_what_it_was_when_the_steps_are_raised(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data)
    run.config.write_text(run.config.read_text().replace("warmup_steps = 3\n", ""))
    run.train("train.steps=20", "train.validation_interval=0")  # two steps of warm-up
    run.train("train.steps=40", "train.validation_interval=0", fault="train.after_step:kill@1", check=False)  # with these it would be four
    assert "warmup_steps = 2\n" in (run.folder / "config.toml").read_text()
    (tmp_path / "other").mkdir()
    other = Run(athanor, tmp_path / "other", data)
    other.config.write_text(other.config.read_text().replace("warmup_steps = 3\n", ""))
    other.train("train.steps=40", fault="train.after_step:kill@1", check=False)
    assert "warmup_steps = 4\n" in (other.folder / "config.toml").read_text()


def test_a_run_is_not_written_among_prepared_data(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data)
    for folder in (data, data / "run"):
        done = run.train(f"train.run_dir={folder}", check=False)
        assert done.returncode == 2 and "which contains prepared data" in done.stderr, done.stderr
        assert not (data / "checkpoints").exists() and not (data / "run").exists()


@pytest.mark.parametrize("key", ["train.num_threads", "data.num_threads"])
def test_more_threads_than_a_machine_can_use_are_refused_with_its_processors(athanor, data, tmp_path, key):
    for count in (5000, 100000):
        done = Run(athanor, tmp_path, data).train(f"{key}={count}", check=False)
        assert done.returncode == 2 and key in done.stderr, done.stderr
        assert count > 5000 or "processors" in done.stderr, done.stderr


def damaged_copy(data, folder):
    """Returns a copy of the data with another bit in the last row of its first shard, and the name of the shard."""
    shutil.copytree(data, folder)
    shard = folder / "train-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-2] ^= 1
    shard.write_bytes(content)
    return folder


def test_damaged_rows_end_the_run_before_the_step_that_would_read_them(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, damaged_copy(data, tmp_path / "data"))
    done = run.train(check=False)
    assert done.returncode == 74, done.stderr
    assert re.search(r"train-00000.npy: rows 0 to \d+ are damaged: their checksum is \w+, \S+checksums-00000.npy has \w+; get it again",
                     done.stderr), done.stderr
    assert "no step was done since the run was started" in done.stderr
    assert not (run.folder / "metrics.jsonl").exists() or not run.metrics()


def test_shards_without_checksums_of_blocks_are_verified_during_the_run(athanor, data, tmp_path):
    copy = damaged_copy(data, tmp_path / "data")
    (copy / "checksums-00000.npy").unlink()
    manifest = json.loads((copy / "manifest.json").read_text())
    for part in manifest["parts"]:
        del part["checksums"]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    run = Run(athanor, tmp_path, copy)
    settings = ["train.steps=100000", "train.validation_interval=0", "checkpoint.interval=100000", "checkpoint.model_interval=0"]
    done = run.train(*settings, check=False)
    assert done.returncode == 74, done.stderr
    assert "have no checksums of blocks, and the ranks compare them during the run" in done.stderr
    assert re.search(r"step \d+: \S+train-00000.npy: damaged: its checksum is", done.stderr), done.stderr


def said(run):
    """Returns the output of a start."""
    return (run.folder / "log" / "train.log").read_text()


@pytest.mark.parametrize("dtype,path,counts", [
    ("fp32", "library", (1, 3)), ("bf16", "default", (1, 2)),
    *(pytest.param(dtype, path, (1, 2, 3), marks=pytest.mark.slow) for dtype in ("fp32", "bf16") for path in ("default", "library"))])
def test_no_bit_depends_on_the_number_of_threads(athanor, data, tmp_path, dtype, path, counts, monkeypatch):
    monkeypatch.setenv("ATHANOR_MATMUL", path)
    found = []
    for threads in counts:
        (tmp_path / str(threads)).mkdir()
        run = Run(athanor, tmp_path / str(threads), data)
        run.train(f"train.num_threads={threads}", f"train.dtype={dtype}")
        found.append((run.numbers(), run.hashes()))
    assert all(each == found[0] for each in found)


def threads_line(run, **environment):
    """Returns the log line of a start in this environment, and the threads of its steps."""
    done = run.athanor.run("train", run.config, env=dict(clean_environment(), **environment))
    line = next(line for line in done.stderr.splitlines() if re.search(r" I \d+ threads? \(", line))
    return line, {step["threads"] for step in run.metrics()}


def clean_environment():
    return {key: value for key, value in os.environ.items()
            if not key.startswith(("OMP_", "GOMP_", "SLURM_"))}


def test_omp_num_threads_is_honoured_and_named(athanor, data, tmp_path):
    line, threads = threads_line(Run(athanor, tmp_path, data), OMP_NUM_THREADS="1")
    assert "1 thread (OMP_NUM_THREADS)" in line and threads == {1}


def test_slurms_processors_of_a_task_are_honoured_and_named(athanor, data, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor leaves nothing to choose")
    line, threads = threads_line(Run(athanor, tmp_path, data), SLURM_CPUS_PER_TASK="1")
    assert "1 thread (SLURM_CPUS_PER_TASK)" in line and threads == {1}


def test_threads_sleep_after_a_short_spin_unless_the_environment_says_how_they_wait(athanor, data, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one thread waits for nobody")
    run = Run(athanor, tmp_path, data)
    assert re.search(r"waiting threads spin for about 0\.[123]\d* ms \(GOMP_SPINCOUNT=\d+\), then sleep", threads_line(run)[0])
    shutil.rmtree(run.folder)
    assert "wait as set by OMP_WAIT_POLICY=passive" in threads_line(run, OMP_WAIT_POLICY="passive")[0]


def test_an_automatic_type_follows_the_cpu_and_is_kept_by_a_resume_on_another(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data)
    settings = ["--set", "train.dtype=auto", "--set", "train.steps=3"]  # the steps of the warm-up
    run.athanor.run("train", run.config, *settings, env=dict(os.environ, ATHANOR_FAST_BF16="0"))
    assert 'dtype = "float32"\n' in (run.folder / "config.toml").read_text()
    assert "train.dtype is float32: this CPU has none for bfloat16" in said(run)
    settings[3] = "train.steps=8"
    done = run.athanor.run("train", run.config, *settings, env=dict(os.environ, ATHANOR_FAST_BF16="1"))
    assert "train.dtype stays float32, in which this run began (now it would be bfloat16)" in done.stderr
    assert 'dtype = "float32"\n' in (run.folder / "config.toml").read_text()
    (tmp_path / "whole").mkdir()
    whole = Run(athanor, tmp_path / "whole", data)
    whole.train("train.dtype=fp32")
    assert run.hashes() == whole.hashes()


def test_mfu_is_a_share_of_the_best_of_all_types_which_is_said_once(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data)
    run.train("metrics.gemm_peak_tflops=0", "train.dtype=fp32")
    lines = [line for line in said(run).splitlines() if "MFU is a share of" in line]
    assert len(lines) == 1 and re.search(r"MFU is a share of [\d.]+ [MGT]FLOP/s \((bfloat16|float32), ", lines[0]), lines
    for step in run.metrics():
        assert step["mfu"] == pytest.approx(step["tflops"] / step["gemm_peak_tflops"])
        assert step["gemm_peak_is"].split(", ")[0] in ("bfloat16", "float32")


def test_a_peak_that_is_given_is_one_devices(whole):
    assert {step["gemm_peak_tflops"] for step in whole.metrics()} == {0.1}
    assert {step["gemm_peak_is"] for step in whole.metrics()} == {"metrics.gemm_peak_tflops"}


def test_the_time_left_is_in_every_line_but_the_first(whole):
    lines = [line for line in whole.output.splitlines() if line.startswith("step:")]
    assert ["  eta: " in line for line in lines] == [False] + [True] * 7
    assert lines[-1].endswith("  eta: 0:00")


def test_threads_that_openmp_binds_do_not_look_like_one_processor(athanor, data, tmp_path):
    processors = len(os.sched_getaffinity(0))
    line, _ = threads_line(Run(athanor, tmp_path, data), OMP_PROC_BIND="true")
    assert f"may run on {processors} processor" in line, line
