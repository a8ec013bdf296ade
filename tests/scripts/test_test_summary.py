"""The last line of a test run counts what really ran: a program that ended early or a part that never ran is no success."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTEST = '<testsuites><testsuite><testcase name="a"/><testcase name="b"><skipped/></testcase></testsuite></testsuites>'


def last_line(folder, ctest, gtest=None, pytest_xml=PYTEST, fuzz='{"npy_fuzz": true}'):
    (folder / "gtest").mkdir()
    (folder / "ctest.xml").write_text(f"<testsuite>{ctest}</testsuite>")
    if gtest:
        (folder / "gtest" / "base_test.xml").write_text(f"<testsuites><testsuite>{gtest}</testsuite></testsuites>")
    (folder / "pytest.xml").write_text(pytest_xml)
    if fuzz:
        (folder / "fuzz.json").write_text(fuzz)
    done = subprocess.run([sys.executable, ROOT / "scripts/test_summary", folder], capture_output=True, text=True)
    line = done.stdout.splitlines()[-1]
    assert (done.returncode == 0) == line.endswith(" 0 failed")
    return line


PASSED, FAILED = '<testcase name="base" status="run"/>', '<testcase name="base" status="fail"><failure/></testcase>'
CASE = '<testcase name="{}" status="run" result="completed">{}</testcase>'


def test_a_program_counts_as_its_cases(tmp_path):
    assert last_line(tmp_path, PASSED, CASE.format("x", "") + CASE.format("y", "")) == "4 passed, 0 failed"


def test_a_failed_case_is_one_failure(tmp_path):
    assert last_line(tmp_path, FAILED, CASE.format("x", "") + CASE.format("y", "<failure/>")) == "3 passed, 1 failed"


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
