"""`athanor bench gemm|moe|step|optimizer|overhead|pipeline`: the fields exist, and wrong results are not timed. No test checks speed."""

import json
import os

import pytest
from runs import BENCH_CONFIG

MOE = ("moe", "--tokens", 48, "--hidden", 32, "--ffn", 16, "--experts", 4, "--topk", 2)
GEMM = ("gemm", "--experts", 3, "--rows", 20, "--k", 32, "--n", 48)


def bench_in(athanor, folder, threads=1):
    """Runs a benchmark; returns the objects of its JSON by name, and its output."""
    def run(*arguments):
        file = folder / "report.json"
        done = athanor.run("bench", *arguments, "--rounds", 2, "--threads", threads, "--json", file, cwd=folder)
        objects = json.loads(file.read_text())
        assert isinstance(objects, list)
        for entry in objects:
            assert 0 < entry["min_s"] <= entry["max_s"] or entry["name"] in ("everything else", "one layer")
            assert entry["min_s"] <= entry["median_s"] <= entry["max_s"] and entry["rounds"] == 2
            assert (entry["limit"] is None) == (entry["limit_share"] is None)
            if entry["limit"]:
                assert entry["limit_share"] == pytest.approx(entry["work"] / entry["median_s"] / entry["limit"])
            assert entry["name"] in done.stdout
        return {entry["name"]: entry for entry in objects}, done.stdout
    return run


@pytest.fixture
def bench(athanor, tmp_path):
    return bench_in(athanor, tmp_path)


@pytest.fixture
def bench_on_two_threads(athanor, tmp_path):
    return bench_in(athanor, tmp_path, threads=2)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def test_moe_says_what_it_verified_and_gives_the_shape(bench, dtype):
    report, printed = bench(*MOE, "--dtype", dtype)
    assert set(report) == {"moe", "moe, router", "moe, experts", "moe, backward", "matmul 1024", "matmul 2048",
                           "grouped 4 x 512, 1024"}
    block = report["moe"]
    assert [block[field] for field in ("tokens", "hidden", "ffn", "experts", "topk", "dtype")] == [48, 32, 16, 4, 2, dtype]
    assert block["work"] == 2 * 3 * 48 * (2 * 3 * 32 * 16 + 32 * 4) and block["unit"] == "FLOP/s"
    assert block["limit_is"] == f"{dtype} GEMM peak" and block["max_over_mean"] >= 1
    assert "verified at this shape against fp64" in printed


def test_moe_can_be_given_the_same_load_for_each_expert(bench):
    report, _ = bench(*MOE, "--dtype", "float32", "--uniform")
    assert report["moe"]["max_over_mean"] == 1


def test_gemm_measures_all_three_products_beside_the_library(bench_on_two_threads):
    report, printed = bench_on_two_threads(*GEMM, "--dtype", "bfloat16")
    assert set(report) >= {"grouped forward", "grouped input gradient", "grouped weight gradient", "library, one by one"}
    entry = report["grouped weight gradient"]
    assert entry["work"] == 2 * 3 * 20 * 32 * 48 and entry["rows"] == 20 and entry["k"] == 32 and entry["n"] == 48
    assert "verified against fp64" in printed


def test_optimizer_counts_bytes_against_a_copy_and_reading(bench):
    report, printed = bench("optimizer", "--parameters", 1000, "--dtype", "bfloat16")
    assert set(report) == {"copy", "change in place", "adamw", "read", "gradient norm"}
    assert report["adamw"]["work"] == 32 * 1000 and report["adamw"]["limit_is"] == "copy, read + written"
    assert report["gradient norm"]["work"] == 4 * 1000 and report["gradient norm"]["limit_is"] == "plain reading"
    assert report["adamw"]["unit"] == "bytes/s" and "verified against fp64" in printed


def test_overhead_times_one_layer(bench):
    report, _ = bench("overhead", "--dtype", "float32")
    assert set(report) == {"one layer", "one layer and the ends", "five layers and the ends"}
    assert report["one layer"]["hidden"] == 64 and report["one layer"]["limit"] is None


def write_config(folder):
    file = folder / "run.toml"
    file.write_text(BENCH_CONFIG)
    return file


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path)


@pytest.fixture(scope="module")
def step_report(athanor, tmp_path_factory):
    """What `athanor bench step` measured and printed, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("step")
    return *bench_in(athanor, folder)("step", write_config(folder)), folder


def test_overhead_of_a_layout_is_a_share_of_each_ranks_step(bench, config):
    report, _ = bench("overhead", config, "--ranks", 8, "--set", "parallelism.pipeline_parallel_degree=2",
                      "--set", "parallelism.tensor_parallel_degree=2")
    ranks = [0, 1, 4, 5]  # the ranks of the first data rank
    assert set(report) == {f"rank {rank}: {what}" for rank in ranks for what in ("step", "framework")}
    for rank in ranks:
        step, framework = report[f"rank {rank}: step"], report[f"rank {rank}: framework"]
        assert 0 < framework["share"] < 1 and framework["median_s"] < step["median_s"] and step["ranks"] == 8


def test_overhead_of_a_layout_that_does_not_fit_says_why(athanor, config, tmp_path):
    done = athanor.run("bench", "overhead", config, "--ranks", 8, "--set", "parallelism.pipeline_parallel_degree=4",
                       "--rounds", 1, check=False, cwd=tmp_path)
    assert done.returncode == 2 and "= 4 stages, and the model has 2 layers" in done.stderr, done.stderr


def test_step_shows_each_part_and_what_they_leave(step_report):
    report, printed, folder = step_report
    parts = ["embedding", "residual add and norm", "q, k, v, o projections", "QK-norm and RoPE", "attention", "moe",
             "head and loss", "gradient norm", "AdamW", "everything else"]
    assert set(report) >= {"step", "step, forward", "step, backward", "moe, router", "moe, experts", *parts}
    # Medians of two rounds are means, which add up.
    assert sum(report[part]["step_share"] for part in parts) == pytest.approx(1)
    step = report["step"]
    assert step["parameters"] > 0 and step["seq_len"] == 32 and step["batch"] == 4 and step["dtype"] == "bfloat16"
    assert 0 < step["state_bytes"] < step["peak_bytes"] and "verified" in printed
    assert not (folder / "is-not-written").exists()


def test_step_shows_what_recomputation_saves_and_costs(bench, config, step_report):
    report, *_ = step_report
    kept = report["nothing recomputed"]["activation_bytes"]
    for kind in ("norm", "attention", "moe", "layer"):
        entry = report[f"recompute {kind}"]
        assert entry["saved_bytes"] == kept - entry["activation_bytes"] and "time_paid" in entry
    assert report["recompute layer"]["saved_bytes"] > 0
    assert not any(name.startswith("recompute") for name in bench("step", config, "--no-recompute")[0])


@pytest.mark.parametrize("arguments", [(*MOE, "--dtype", "bfloat16"), (*GEMM, "--dtype", "float32"),
                                       ("optimizer", "--parameters", 1000)])
def test_a_wrong_result_is_refused_before_it_is_timed(athanor, tmp_path, arguments):
    environment = {**os.environ, "ATHANOR_FAULT": "bench.result:eio@1"}
    done = athanor.run("bench", *arguments, "--json", tmp_path / "report.json", check=False, env=environment)
    assert done.returncode == 1 and "wrong, so not timed" in done.stderr
    assert "median" not in done.stdout and not (tmp_path / "report.json").exists()


@pytest.mark.parametrize("arguments, said", [
    (("moe", "--tokens", "0"), "--tokens"), (("moe", "--topk", "9", "--experts", "8"), "--topk (9)"),
    (("moe", "--dtype", "int8"), "--dtype"), (("moe", "--rounds", "0"), "--rounds"),
    (("moe", "--tokens", "16000000"), "of memory"), (("gemm", "--rows", "x"), "--rows"),
    (("optimizer", "--parameters", "-1"), "--parameters"), (("optimizer", "--parameters", "10000000000"), "of memory"),
    (("overhead", "--hidden", "65"), "--hidden (65)"), (("step",), "config"), (("step", "not-there.toml"), "not-there.toml"),
    (("gemm", "--json"), "--json"), (("moe", "--tokens", "4", "--experts", "2", "--topk", "1", "--json", "no/such/file"),
                                     "no/such")])
def test_a_bad_option_ends_with_2_and_a_line_that_names_it(athanor, tmp_path, arguments, said):
    done = athanor.run("bench", *arguments, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_step_takes_the_length_of_the_data_and_needs_one_without(athanor, config):
    done = athanor.run("bench", "step", config, "--set", "data.seq_len=0", check=False)
    assert done.returncode == 2 and "data.seq_len=1024" in done.stderr


def test_paced_takes_a_round_for_each_line(athanor, tmp_path):
    file = tmp_path / "report.json"
    done = athanor.run("bench", *MOE, "--dtype", "float32", "--paced", "--json", file, input="steps 1\nsteps 1\nsteps 1\n")
    assert done.stdout.splitlines()[:4] == ["ready", "done", "done", "done"]
    assert json.loads(file.read_text())[0]["rounds"] == 3
    done = athanor.run("bench", *MOE, "--dtype", "float32", "--paced", check=False, input="")
    assert done.returncode == 2 and "standard input" in done.stderr


def test_pipeline_has_every_schedule_with_its_formula_traffic_and_pictures(athanor, tmp_path):
    file = tmp_path / "report.json"
    done = athanor.run("bench", "pipeline", "--ranks", 2, "--microbatches", 4, "--forward-ms", 2, "--activation-kib", 3,
                       "--rounds", 2, "--actions", "--pictures", tmp_path, "--json", file)
    report = {entry["schedule"]: entry for entry in json.loads(file.read_text())}
    assert set(report) == {"gpipe", "1f1b", "interleaved_1f1b"}
    for entry in report.values():
        p, v, m = entry["ranks"], entry["chunks"], entry["microbatches"]
        assert entry["ideal_bubble"] == pytest.approx((p - 1) / (v * m + p - 1))
        assert entry["bytes_sent"] == 2 * (p * v - 1) * m * 3 * 1024
        assert entry["schedule"] in done.stdout
        for suffix in ("", "-measured"):
            assert (tmp_path / f"{entry['schedule']}{suffix}.svg").read_text().endswith("</svg>\n")
    assert report["1f1b"]["in_flight"] == [2, 1] and report["gpipe"]["in_flight"] == [4, 4]
    assert "rank 0: F0 F1 B0 F2 B1 F3 B2 B3" in done.stdout


def test_a_pipeline_schedule_that_cannot_be_had_ends_with_2(athanor):
    done = athanor.run("bench", "pipeline", "--schedule", "interleaved_1f1b", "--microbatches", 6, check=False)
    assert done.returncode == 2 and "groups of 4, one for each pipeline rank, and there are 6" in done.stderr
