"""The last line of a test run counts what really ran: a program that ended early or a part that never ran is no success."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTEST = '<testsuites><testsuite><testcase name="a"/><testcase name="b"><skipped/></testcase></testsuite></testsuites>'


def summary(folder, ctest, gtest=None, pytest_xml=PYTEST, fuzz='{"npy_fuzz": true}', parts=()):
    """The lines of the summary of these results."""
    (folder / "gtest").mkdir()
    (folder / "ctest.xml").write_text(f"<testsuite>{ctest}</testsuite>")
    if gtest:
        (folder / "gtest" / "base.xml").write_text(f"<testsuites><testsuite>{gtest}</testsuite></testsuites>")
    (folder / "pytest.xml").write_text(pytest_xml)
    for part in ("ranks", "alone"):
        (folder / f"pytest_{part}.xml").write_text("<testsuites/>")
    if fuzz:
        (folder / "fuzz.json").write_text(fuzz)
    done = subprocess.run([sys.executable, ROOT / "scripts/test_summary", folder, *parts], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode == 0) == lines[-1].endswith(" 0 failed")
    return lines


def last_line(folder, *results, **more):
    return summary(folder, *results, **more)[-1]


PASSED, FAILED = '<testcase name="base" status="run"/>', '<testcase name="base" status="fail"><failure/></testcase>'
CASE = '<testcase name="{}" status="run" result="completed">{}</testcase>'


def test_a_program_counts_as_its_cases(tmp_path):
    assert last_line(tmp_path, PASSED, CASE.format("x", "") + CASE.format("y", "")) == "4 passed, 0 failed"


def test_a_failed_case_is_one_failure(tmp_path):
    assert last_line(tmp_path, FAILED, CASE.format("x", "") + CASE.format("y", "<failure/>")) == "3 passed, 1 failed"


def test_a_failed_case_is_named_with_the_first_words_of_why(tmp_path):
    lines = summary(tmp_path, FAILED, CASE.format("x", "") + CASE.format("y", '<failure message="&#10; 3 is not 4&#10;more"/>'))
    assert "  base: .y: 3 is not 4" in lines[lines.index("Failed:"):]


def test_a_skipped_case_is_neither(tmp_path):
    skipped = '<testcase name="x" status="run" result="skipped"><skipped/></testcase>'
    assert last_line(tmp_path, PASSED, skipped + CASE.format("y", "")) == "3 passed, 0 failed"


def test_a_program_that_died_before_it_reported_is_a_failure(tmp_path):
    assert last_line(tmp_path, FAILED) == "2 passed, 1 failed"


def test_a_program_that_failed_after_its_cases_passed_is_a_failure(tmp_path):
    assert last_line(tmp_path, FAILED, CASE.format("x", "")) == "3 passed, 1 failed"


def test_a_part_that_never_ran_is_a_failure(tmp_path):
    assert last_line(tmp_path, PASSED, fuzz=None) == "2 passed, 1 failed"


def test_a_fuzzer_that_crashed_is_a_failure(tmp_path):
    assert last_line(tmp_path, PASSED, fuzz='{"npy_fuzz": true, "toml_fuzz": false}') == "3 passed, 1 failed"


def test_a_source_that_fails_its_format_is_a_failure(tmp_path):
    (tmp_path / "checks.json").write_text('{"format": false, "rooms": true}')
    parts = ["checks", "C++", "Python", "ranks", "alone", "fuzzers"]
    assert last_line(tmp_path, PASSED, CASE.format("x", ""), parts=parts) == "4 passed, 1 failed"


def test_a_part_that_was_asked_for_and_never_ran_is_a_failure(tmp_path):
    assert last_line(tmp_path, PASSED, parts=["C++", "layouts"]) == "1 passed, 1 failed"


def test_the_twenty_slowest_of_all_parts_come_first_and_in_order(tmp_path):
    cases = "".join(f'<testcase classname="Npy" name="Case{i}" status="run" result="completed" time="{i}"/>' for i in range(1, 40))
    slow_python = '<testsuites><testcase classname="tests.interop.test_train" name="test_resume" time="30.5"/></testsuites>'
    lines = summary(tmp_path, PASSED, cases, pytest_xml=slow_python)
    assert lines[0] == "The 20 slowest tests:"
    names = [line.split(" s  ")[1] for line in lines[1:21]]
    expected = [f"base: Npy.Case{i}" for i in range(39, 20, -1)]
    expected.insert(9, "tests.interop.test_train.test_resume")
    assert names == expected
    assert lines[21].startswith("C++: 39 passed")


BUDGETS = json.loads((ROOT / "tests/rooms.json").read_text())
LIMIT = BUDGETS["case"]
MEASURED = ('<testcase classname="{0}" name="x" status="run" result="completed"><properties><property name="cpu_s" value="{1}"/>'
            "</properties></testcase>")


def budgeted(folder, cases, unit_s=1.0):
    """The last line and those about budgets, of these cases of the program `base` on a machine of that speed."""
    (folder / "calibration.json").write_text(f"[{unit_s}]")
    lines = summary(folder, PASSED, cases, parts=["C++"])
    return lines[-1], [line for line in lines if line.startswith("over budget:")]


def test_a_case_of_more_units_than_one_may_take_fails_unless_it_is_marked_slow(tmp_path):
    (tmp_path / "one").mkdir(), (tmp_path / "all").mkdir()
    last, over = budgeted(tmp_path / "one", MEASURED.format("Npy", LIMIT + 0.5))
    assert over[0].startswith(f"over budget: base: Npy.x took {LIMIT + 0.5} units, more than the {LIMIT}"), over
    last, over = budgeted(tmp_path / "all", MEASURED.format("TestAllNpy", LIMIT + 0.5))
    assert last.endswith(", 0 failed") and not over


def test_on_a_machine_of_half_the_speed_the_same_work_is_within_the_budget(tmp_path):
    assert budgeted(tmp_path, MEASURED.format("Npy", LIMIT + 0.5), unit_s=2.0)[1] == []


def test_a_room_that_takes_more_than_twice_its_budget_fails(tmp_path):
    budget = BUDGETS["rooms"]["base"]["budget"]
    cases = "".join(MEASURED.format(f"Npy{i}", 4) for i in range(budget // 2 + 1))
    last, over = budgeted(tmp_path, cases)
    assert last.endswith(" 1 failed") and over[0].startswith("over budget: base took "), (last, over)


def test_every_python_test_belongs_to_one_room():
    listed = [test for room in BUDGETS["rooms"].values() for test in room["tests"]]
    there = [str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").glob("*/test_*.py")]
    assert sorted(listed) == sorted(there)
