"""Several ranks resume past checkpoints that are damaged or not finite: all take the same older one."""
import json
import shutil
import subprocess

import pytest
from test_runs import RankRun, data, open_mpi  # noqa: F401

LAYOUTS = [(2, ["parallelism.sharding=none"]), (3, ["train.global_batch_size=3"]),
           (4, ["parallelism.sharding=ep_aware", "parallelism.expert_parallel_degree=2", "parallelism.tensor_parallel_degree=2"])]


def damage_newest(run):
    manifest = json.loads((run.checkpoint(8) / "manifest.json").read_text())
    piece = manifest["pieces"][-1]
    file = run.checkpoint(8) / piece["file"]
    content = bytearray(file.read_bytes())
    content[piece["byte_offset"] + 1] ^= 4
    file.write_bytes(content)


def spoil_newest(run):
    out = run.folder / "changed"
    subprocess.run([run.program.with_name("checkpoint_tool"), "change", run.checkpoint(8), out, "exp_avg/lm_head.weight", "70", "nan"],
                   check=True)
    shutil.rmtree(run.checkpoint(8))
    out.rename(run.checkpoint(8))


# `make test` has each layout and each fault.
@pytest.mark.parametrize("ranks, layout, fault", [
    pytest.param(*layout, fault, marks=[] if i % 2 == (fault is spoil_newest) else pytest.mark.slow)
    for i, layout in enumerate(LAYOUTS) for fault in (damage_newest, spoil_newest)])
def test_ranks_pass_over_the_newest_together_and_get_its_bits_again(open_mpi, program, data, tmp_path, ranks, layout, fault):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run").on(open_mpi, ranks, *layout)
    whole = run.metrics()
    hashes = [piece["hash"] for piece in json.loads((run.checkpoint(8) / "manifest.json").read_text())["pieces"]]
    fault(run)
    run.on(open_mpi, ranks, *layout)
    word = "damaged: tensor" if fault is damage_newest else "not finite although its hashes are right: element [2, 6]"
    assert run.said.count("passing over a checkpoint") == 1 and word in run.said and "step 6" in run.said
    assert [line["loss"] for line in run.metrics()] == [line["loss"] for line in whole]
    assert [piece["hash"] for piece in json.loads((run.checkpoint(8) / "manifest.json").read_text())["pieces"]] == hashes
    names = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    assert names == ["not-finite-step-00000008"] * (fault is spoil_newest) + ["step-00000006", "step-00000008"]
