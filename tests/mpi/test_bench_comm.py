"""`athanor bench comm`: its tables and their JSON, in a job small enough for a test."""
import json
import subprocess

SMALL = ["--rounds", 1, "--least", 1000, "--most", 20000, "--tokens", "8,32", "--hidden", 64]


def test_every_collective_has_a_rate_beside_a_copy_and_rank_0_alone_prints(mpi, program, tmp_path):
    report = tmp_path / "comm.json"
    code, out, err, _ = mpi.run(4, program("athanor"), "bench", "comm", *SMALL, "--inner", 2, "--json", report)
    assert code == 0, out + err
    assert out.count("microseconds a call") == 1 and "4 ranks" in out
    found = json.loads(report.read_text())
    names = ["copy", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send", "2l all_reduce", "2l all_to_all"]
    assert [line["name"] for line in found["collectives"]] == names * 3  # 1000, 4000, 16000 bytes
    for line in found["collectives"]:
        assert line["median_s"] > 0 and line["rate"] > 0
    by_name = {line["name"]: line["sent"] for line in found["collectives"][-len(names):]}
    assert by_name["all_reduce"] == 2 * by_name["all_gather"] == 2 * 16000 * 3 / 4
    assert [(line["expert_degree"], line["tokens"]) for line in found["dispatches"]] == [(2, 8), (2, 32), (4, 8), (4, 32)]


def test_one_process_is_told_how_to_start_several(program):
    done = subprocess.run([program("athanor"), "bench", "comm"], capture_output=True, text=True)
    assert done.returncode == 2 and "mpirun -n 4 athanor bench comm" in done.stderr


def test_ranks_that_do_not_divide_are_refused_once(mpi, program):
    code, out, err, _ = mpi.run(3, program("athanor"), "bench", "comm", *SMALL, "--inner", 2)
    assert code == 2 and err.count("--inner (2) must divide the number of ranks (3)") == 1, out + err


def test_the_cpu_is_chosen_by_name_and_a_device_that_is_missing_is_refused_once(mpi, program, tmp_path):
    code, out, err, _ = mpi.run(2, program("athanor"), "bench", "comm", *SMALL, "--device", "cpu", "--json", tmp_path / "comm.json")
    assert code == 0 and "device" not in json.loads((tmp_path / "comm.json").read_text()), out + err
    code, out, err, _ = mpi.run(2, program("athanor"), "bench", "comm", *SMALL, "--device", "xpu")
    assert code == 2 and err.count("--device is xpu: ") == 1 and "use --device cpu" in err, out + err


def test_a_wrong_collective_is_refused_before_it_is_timed(mpi, program):
    code, out, err, _ = mpi.run(2, program("athanor"), "bench", "comm", *SMALL, env={"ATHANOR_FAULT": "bench.result:eio@1"})
    assert code == 1 and "wrong, so not timed: reduce_scatter" in err and "microseconds" not in out, out + err
