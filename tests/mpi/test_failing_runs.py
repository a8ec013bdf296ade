"""Whole runs in which a rank fails: what the user reads last, and after what time."""
import json
import re
import subprocess

from launchers import with_fault_on
from test_failures import SECONDS, last_line, without_clock
from test_runs import RankRun, data  # noqa: F401

LAYOUT = ["parallelism.expert_parallel_degree=2", "checkpoint.interval=0", "checkpoint.model_interval=0", "train.validation_interval=0"]


def start(mpi, program, data, folder, *overrides, env=None):  # noqa: F811
    run = RankRun(program, folder, data, "run")
    return run, mpi.run(4, run.program, "train", *run.words([*LAYOUT, *overrides]), env=env)


def last_words(run):
    return json.loads((run.folder / "log" / "last-words.json").read_text())


def events(run):
    return [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]


def test_what_one_rank_meets_in_a_step_ends_all_and_names_rank_host_and_step(launcher, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 2, "data.read:eio@1+", tmp_path / "third_cannot_read")
    code, out, err, seconds = launcher.run(4, script, "train", *run.words(LAYOUT))
    assert re.search(r"rank 2 \(\S+\): step 1: cannot read \S+train-00000.npy at byte \d+: ", err), out + err
    assert code == 74  # data that fail in a run
    words = last_words(run)
    assert (words["rank"], words["step"], words["cause"], words["exit_code"]) == (2, 1, "io", 74)
    ends = [line for line in events(run) if line["event"] == "end"]
    assert len(ends) == 1 and ends[0]["rank"] == 2
    assert seconds < SECONDS


def test_data_that_one_rank_can_no_longer_read_end_the_run_saved(mpi, program, data, tmp_path):  # noqa: F811
    settings = ["train.validation_interval=0", "checkpoint.interval=100", "checkpoint.model_interval=0"]
    whole = RankRun(program, tmp_path, data, "whole").on(mpi, 2, *settings)
    run = RankRun(program, tmp_path, data, "run")
    # Two of the four sequences of a step belong to this rank: the fifth batch.
    script = with_fault_on(run.program, 1, "data.read:eio@9+", tmp_path / "second_cannot_read")
    code, out, err, seconds = mpi.run(2, script, "train", *run.words([*settings, "data.verify=false"]))  # row by row
    assert code == 74, out + err
    assert re.search(r"rank 1 \(\S+\): step 5: cannot read \S+train-00000.npy at byte \d+: ", err), out + err
    assert "step 4 is saved" in err
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4]
    assert seconds < SECONDS
    run.on(mpi, 2, *settings)
    assert [line["loss"] for line in run.metrics()] == [line["loss"] for line in whole.metrics()]


def many_shards(program, data, folder):
    """Returns the shards of the documents of `data`, prepared again into small ones."""
    source = data.parent
    subprocess.run([program("athanor"), "prepare", "--tokenizer", source / "tokenizer.json", "--seq-len", "32", "--seed", "1",
                    "--validation-fraction", "0.1", "--shard-bytes", "2000", "--out", folder, source / "docs.jsonl"], check=True,
                   capture_output=True)
    shards = sorted(folder.glob("train-*.npy"))
    assert len(shards) > 8
    return shards


def test_ranks_share_the_files_to_look_at_and_all_name_the_first_that_is_wrong(mpi, program, data, tmp_path):  # noqa: F811
    shards = many_shards(program, data, tmp_path / "data")
    whole = [shards[2].read_bytes(), shards[-1].read_bytes()]
    for shard, content in zip((shards[2], shards[-1]), whole):  # one in the first rank's share, and one in the last one's
        shard.write_bytes(content[:-1])
    run = RankRun(program, tmp_path, tmp_path / "data", "run")
    code, out, err, _ = mpi.run(2, run.program, "train", *run.words([]))
    assert code == 2, out + err
    assert err.count(f"{shards[2].name}: ends at byte") == 1 and shards[-1].name not in err, out + err
    shards[2].write_bytes(whole[0])
    code, out, err, _ = mpi.run(2, run.program, "train", *run.words([]))
    assert code == 2 and f"{shards[-1].name}: ends at byte" in err, out + err
    assert not (run.folder / "config.toml").exists()


def test_ranks_share_the_shards_of_older_folders_and_verify_them_during_the_run(mpi, program, data, tmp_path):  # noqa: F811
    shards = many_shards(program, data, tmp_path / "data")
    damaged = bytearray(shards[-1].read_bytes())  # in the last rank's share
    damaged[-2] ^= 1
    shards[-1].write_bytes(damaged)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    for part in manifest["parts"]:
        del part["checksums"]
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    run = RankRun(program, tmp_path, tmp_path / "data", "run")
    code, out, err, _ = mpi.run(2, run.program, "train", *run.words(["train.steps=100000", "train.validation_interval=0"]))
    assert code == 74, out + err
    assert re.search(rf"rank 1 \(\S+\): step \d+: \S+{shards[-1].name}: damaged: its checksum is", err), out + err


def test_a_loss_that_is_not_finite_is_told_once(launcher, program, data, tmp_path):  # noqa: F811
    run, (code, out, err, seconds) = start(launcher, program, data, tmp_path, "optimizer.lr=1e30", "optimizer.weight_decay=0", "optimizer.min_lr=0", "optimizer.warmup_steps=0")
    assert re.match(r"rank 0 \(\S+\): step \d+: the loss is", without_clock(last_line(err))), out + err
    assert err.count("Nothing was updated") == 1
    assert code == 76
    assert last_words(run)["cause"] == "numbers"
    assert seconds < SECONDS
