"""The quickstart trains for as many steps as fit into five minutes on the machine, and for at least a hundred."""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def choose(folder, times, *arguments):
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"step": i + 1, "step_s": t}) + "\n" for i, t in enumerate(times)))
    done = subprocess.run([sys.executable, ROOT / "scripts/quickstart_steps", folder / "metrics.jsonl", *arguments],
                          capture_output=True, text=True, check=True)
    return int(done.stdout), done.stderr


def test_the_steps_fit_the_time_with_what_is_done_beside_them(tmp_path):
    steps, said = choose(tmp_path, [3, 2] + [0.5] * 10)
    assert 0.9 * 300 < steps * 0.5 < 300
    assert "a step takes 0.50 s here" in said and f"{steps} steps fit 5 minutes" in said


def test_a_slow_machine_makes_a_hundred_steps_and_says_how_long(tmp_path):
    steps, said = choose(tmp_path, [12.0] * 3)
    assert steps == 100 and "will not fit 5 minutes (about 21.3)" in said


def test_one_slow_step_among_others_does_not_count(tmp_path):
    assert choose(tmp_path, [1, 1, 0.5, 9, 0.5, 0.5, 0.5])[0] == choose(tmp_path, [1, 1, 0.5, 0.5, 0.5, 0.5, 0.5])[0]


def test_a_measurement_that_was_cut_after_one_step_is_taken_as_it_is(tmp_path):
    assert choose(tmp_path, [1.0])[0] == 280


def test_other_times_may_be_asked_for(tmp_path):
    assert choose(tmp_path, [0.1] * 6, "1")[0] == 560


@pytest.mark.parametrize("code, is_measured", [(0, True), (11, True), (1, False)])
def test_a_measurement_that_is_stopped_for_its_time_counts_and_one_that_fails_does_not(tmp_path, code, is_measured):
    program = tmp_path / "program"
    program.write_text('#!/bin/bash\nfor word in "$@"; do [[ $word == train.run_dir=* ]] && folder=${word#*=}; done\n'
                       f'echo \'{{"step_s": 12.0}}\' >"$folder/metrics.jsonl"; echo what it printed; exit {code}\n')
    program.chmod(0o755)
    script = ('eval "$(sed -n "/^measure_steps()/,/^}/p" scripts/quickstart)"; minutes=5 batch=() data=()\n'
              f"here={tmp_path} athanor={program}; measure_steps")
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode == 0) == is_measured and (tmp_path / "steps").exists() == is_measured, done.stderr
    assert is_measured or done.stdout == "what it printed\n"
