"""`athanor bench checkpoint` as a job of several ranks."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from test_bench_checkpoint import CONFIG  # noqa: E402


def report_of(launcher, program, tmp_path, *settings):
    """What a save of two expert groups of two ranks on two nodes reports, and what it prints."""
    (tmp_path / "run.toml").write_text(CONFIG.replace("disk/", f"{tmp_path}/disk/"))
    (tmp_path / "disk").mkdir()
    report = tmp_path / "report.json"
    both = ["topology.ranks_per_node=2", "parallelism.expert_parallel_degree=2", "train.global_batch_size=8", *settings]
    code, out, err, _ = launcher.run(4, program("athanor"), "bench", "checkpoint", tmp_path / "run.toml", "--saves", 1, "--json", report,
                                     *(word for each in both for word in ("--set", each)))
    assert code == 0, out + err
    return json.loads(report.read_text()), out


def test_ranks_write_together_and_the_bytes_of_each_node_are_counted(mpi, program, tmp_path):
    found, _ = report_of(mpi, program, tmp_path)
    assert found["ranks"] == 4 and found["bytes"] == 12 * found["parameters"]
    assert [node["node"] for node in found["nodes"]] == [0, 1]
    assert sum(node["bytes"] for node in found["nodes"]) == found["bytes"]


def test_the_first_of_the_groups_writes_what_all_have_if_it_is_asked_to(mpi, program, tmp_path):
    found, out = report_of(mpi, program, tmp_path, "parallelism.sharding=none", "checkpoint.writers=first")
    # With sharding none the first expert group, which is the first node, owns what the other owns, too.
    assert [node["bytes"] for node in found["nodes"]] == [found["bytes"], 0]
    assert out.count("no step under way") == 1 and list((tmp_path / "disk").iterdir()) == []


def test_ranks_with_other_options_are_refused(mpi, program, tmp_path):
    (tmp_path / "run.toml").write_text(CONFIG)
    command = 'exec "$0" bench checkpoint "$1" --saves $((1 + ${OMPI_COMM_WORLD_RANK:-$PMI_RANK}))'
    code, out, err, _ = mpi.run(2, "sh", "-c", command, program("athanor"), tmp_path / "run.toml")
    assert code == 2 and "--saves" in err, out + err
