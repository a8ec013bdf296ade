"""`athanor config --ranks N` prints the groups, state and traffic of a layout, or all its faults at once."""

import pathlib
import re

import pytest

RECIPES = pathlib.Path(__file__).parents[2] / "recipes"


@pytest.fixture
def tables(athanor):
    def run(recipe, ranks, *overrides, check=True):
        sets = [word for override in overrides for word in ("--set", override)]
        return athanor.run("config", RECIPES / f"{recipe}.toml", "--brief", "--ranks", ranks, *sets, check=check)
    return run


@pytest.mark.parametrize("recipe, ranks", [("mula-1b", 3072), ("mula-7b-a1b", 3072), ("mula-20b-a2b", 3072),
                                           ("mula-100b-a7b", 3072), ("mula-220b-a10b", 384), ("mula-220b-a10b", 12288),
                                           ("qwen3-30b-a3b", 8), ("qwen3-30b-a3b", 128)])
def test_recipes_start_on_the_ranks_of_the_papers(tables, recipe, ranks):
    text = tables(recipe, ranks).stdout
    assert f"# {ranks} ranks: pipeline" in text and re.search(r"sharding \w+ \*", text) and "together" in text


def test_a_pipeline_is_shown_with_its_layers_and_its_schedule(tables):
    lines = tables("mula-100b-a7b", 3072).stdout.splitlines()
    stages = [line for line in lines if line.startswith("# rank ")]
    assert [line.split("GiB  ")[-1] for line in stages] == ["embedding, 0-11", "12-23", "24-35", "36-47, output"]
    assert sum(float(line.split("%")[0].split()[-1]) for line in stages) == pytest.approx(100, abs=0.3)
    assert "#   rank 3: F0 B0 F1 B1 F2 B2 F3 B3" in lines
    assert any("42.9% of the time waited; played with equal stages 42.9%" in line for line in lines)  # 3 / (4 + 3)
    assert any(line.split() == ["#", "expert", "256", "12", "0,", "1,", "2,", "…,", "11"] for line in lines)


def test_a_long_schedule_is_not_listed(tables):
    text = tables("mula-100b-a7b", 48, "train.global_batch_size=3072").stdout
    assert "256 microbatches" in text and "#   rank 0:" not in text


def test_several_stages_of_a_rank_are_all_listed(tables):
    text = tables("mula-100b-a7b", 3072, "parallelism.virtual_stages=2",
                  'parallelism.pipeline_schedule="interleaved_1f1b"').stdout
    assert "embedding, 0-5, 24-29" in text and "#   rank 0: F0.0 F1.0" in text


def test_everything_that_does_not_fit_is_said_at_once(tables):
    done = tables("olmoe-tiny", 8, "parallelism.tensor_parallel_degree=3", "parallelism.pipeline_parallel_degree=3",
                  "parallelism.virtual_stages=2", "parallelism.pipeline_split=[1, 2]",
                  "parallelism.sequence_parallel=true", check=False)
    assert done.returncode == 2
    for part in ("9 does not divide the 8 ranks", "must divide model.num_attention_heads (8)",
                 "must divide model.intermediate_size (128)", "must divide data.seq_len (512)",
                 "= 6 stages, and the model has 4 layers", "pipeline_split has 2 numbers for the 6 stages",
                 "adds up to 3 layers, and the model has 4", "virtual_stages is 2"):
        assert done.stderr.count(part) == 1, done.stderr
