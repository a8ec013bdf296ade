"""What `scripts/pace` refuses before it measures."""
import pathlib
import subprocess

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "pace"


def test_an_unknown_part_is_refused_and_the_times_of_the_last_measurement_stay(tmp_path):
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "pace"
    script.write_text(SCRIPT.read_text())
    script.chmod(0o755)
    times = tmp_path / "build" / "pace" / "times"
    times.parent.mkdir(parents=True)
    times.write_text("round 1: test\n")
    for words in (["tests"], ["2", "program", "all"]):
        done = subprocess.run([script, *words], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"pace: unknown part {words[-1]}; there are program, change, quickstart and test\n"
    assert times.read_text() == "round 1: test\n"
