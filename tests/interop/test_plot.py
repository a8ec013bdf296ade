"""`athanor plot` draws the curves of runs, and answers what it cannot draw in plain words."""
import json
import os
import pty
import subprocess
import xml.etree.ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"


def write_run(folder, losses, **more):
    """Writes a metrics.jsonl with these losses, and a validation loss every fourth step."""
    folder.mkdir(exist_ok=True)
    with open(folder / "metrics.jsonl", "w") as file:
        for step, loss in enumerate(losses, 1):
            line = {"step": step, "loss": loss, "tokens_seen": 1000 * step, "step_s": 2.0, "attempt": 1, "time": 1e9 + 2 * step}
            if step % 4 == 0:
                line["validation_loss"] = 5.5
            file.write(json.dumps({**line, **{name: values[step - 1] for name, values in more.items()}}) + "\n")
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [9 - 0.01 * step for step in range(300)])


def texts(path):
    return [element.text for element in xml.etree.ElementTree.parse(path).iter(SVG + "text")]


def test_the_svg_has_both_losses_of_each_run_and_the_lines(athanor, run, tmp_path):
    other = write_run(tmp_path / "other", [8.0] * 100)
    out = tmp_path / "loss.svg"
    athanor.run("plot", run, other, "--out", out, "--line", "unigram entropy=6.556")
    words = texts(out)
    assert any(f"{run}: training loss 6.025".endswith(word[1:]) for word in words if len(word) > 20)  # the mean of the last four
    assert any(f"{other}: training loss 8".endswith(word[1:]) for word in words if len(word) > 20)
    assert words.count("validation loss 5.5") == 2
    assert "unigram entropy 6.556" in words and "step" in words
    assert any(word.startswith("Each line is the mean over 1 to 7 steps") for word in words)
    lines = [element for element in xml.etree.ElementTree.parse(out).iter(SVG + "polyline") if element.get("class") == "line"]
    assert len({line.get("stroke") for line in lines}) == 2


def test_without_a_terminal_it_is_plain_text_of_80_columns(athanor, run):
    done = athanor.run("plot", run)
    assert done.stdout.isascii() and "\033" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(run) not in line) == 79


def on_terminal(athanor, columns, *words):
    """Runs the program on a terminal of this width; returns what it shows."""
    main, terminal = pty.openpty()
    subprocess.run(["stty", "cols", str(columns), "rows", "30"], stdin=terminal, check=True)
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen([athanor.path, *words], stdout=terminal, stderr=subprocess.PIPE, env=environment)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    assert child.wait() == 0, child.stderr.read()
    child.stderr.close()
    os.close(main)
    return shown.decode()


def test_a_terminal_shows_braille_in_colour_as_wide_as_it_is(athanor, run):
    for columns in (60, 120):
        shown = on_terminal(athanor, columns, "plot", run)
        assert "\033[38;5;" in shown and any("\u2800" < c < "\u28ff" for c in shown)
        assert max(len(line) for line in shown.split("\r\n") if "─" in line) == columns - 1


@pytest.mark.parametrize("axis, label", [("steps", "step"), ("tokens", "tokens"), ("time", "minutes of training")])
def test_the_axis_is_what_was_asked_for(athanor, run, tmp_path, axis, label):
    athanor.run("plot", run, "--x", axis, "--out", tmp_path / "x.svg")
    assert label in texts(tmp_path / "x.svg")


def test_time_between_attempts_is_no_training(athanor, tmp_path):
    gap = [1e9 + 2 * step + (1e6 if step > 50 else 0) for step in range(1, 101)]
    run = write_run(tmp_path / "run", [8.0] * 100, time=gap, attempt=[1] * 50 + [2] * 50)
    athanor.run("plot", run, "--x", "time", "--out", tmp_path / "x.svg")
    assert "minutes of training" in texts(tmp_path / "x.svg")  # 200 seconds, and not days


def test_a_run_that_is_training_may_be_plotted(athanor, run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 301, "lo')
    assert "training loss 6.025" in athanor.run("plot", run).stdout


def test_a_run_named_twice_is_drawn_once(athanor, run):
    done = athanor.run("plot", run, f"{run}/../run/")
    assert "is the same run as" in done.stderr
    assert done.stdout.count("training loss") == 1


def test_one_step_makes_a_picture(athanor, tmp_path):
    assert "training loss 9" in athanor.run("plot", write_run(tmp_path / "run", [9.0])).stdout


def test_a_run_without_the_field_is_left_out(athanor, run, tmp_path):
    other = write_run(tmp_path / "other", [8.0] * 20, extra=[1.5] * 20)
    done = athanor.run("plot", run, other, "--y", "extra")
    assert f"no step of {run} has a finite extra" in done.stderr and f"{other}: extra 1.5" in done.stdout


def refusal(athanor, *words):
    done = athanor.run("plot", *words, check=False)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def test_what_cannot_be_drawn_is_answered_in_plain_words(athanor, run, tmp_path):
    assert f"{tmp_path}/none does not exist" in refusal(athanor, tmp_path / "none")
    assert "has no metrics.jsonl: it is no run folder, or its run has done no step yet" in refusal(athanor, tmp_path)
    assert 'has a number los (did you mean "loss"?); there are step, loss, tokens_seen' in refusal(athanor, run, "--y", "los")
    assert "expected NAME=VALUE" in refusal(athanor, run, "--line", "entropy")
    assert "give it a name that ends with .svg" in refusal(athanor, run, "--out", tmp_path / "x.png")
    assert "--x: " in refusal(athanor, run, "--x", "epochs")
    nans = write_run(tmp_path / "nans", [float("nan")] * 20)
    (nans / "metrics.jsonl").write_text((nans / "metrics.jsonl").read_text().replace("NaN", "null").replace("5.5", "null"))
    assert "loss is not finite in any of the 20 steps" in refusal(athanor, nans)
    (run / "metrics.jsonl").write_text('{"step": 1')
    assert "has no whole line yet" in refusal(athanor, run)
    (run / "metrics.jsonl").write_text("no JSON\n")
    assert "none of its 1 lines is the JSON of a step" in refusal(athanor, run)
