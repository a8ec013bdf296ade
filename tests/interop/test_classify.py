"""`athanor classify` finds cause and hosts in logs, answers bad input in one line, and agrees with logs that people have labelled."""
import collections
import gzip
import json
import os
import stat
import subprocess

import pytest

# Verdicts of a job that has failed. A job whose time was up, or that its user stopped, has not.
FAILED = {"bad_node", "soft_failure", "systemic", "out_of_memory", "silent_hang", "stuck_before_training"}


def classify(athanor, log, *options):
    return json.loads(athanor.run("classify", log, "--json", *options).stdout)


def refusal(athanor, *words):
    """Runs a command that is refused; returns its line."""
    done = athanor.run("classify", *words, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines), done.stdout) == (2, 1, ""), done.stderr + done.stdout
    return lines[0]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "job.log"
    path.write_text("step: 1  loss: 3.1\nn7.site.org: shepherd died from signal 9\nn2.site.org: rank 3 died from signal 15\n")
    return path


def test_json_has_all_that_decides(athanor, log, tmp_path):
    found = classify(athanor, log, "--exit-code", 143)
    assert {key: found[key] for key in ("format", "exit_code", "cause", "kind", "verdict", "hosts", "last_step", "lines", "bytes",
                                        "swap_may_cure")} == {
        "format": 1, "exit_code": 143, "cause": "bad_node", "kind": "bad_node", "verdict": "bad_node", "hosts": ["n7.site.org"],
        "last_step": 1, "lines": 3, "bytes": log.stat().st_size, "swap_may_cure": "yes"}
    assert found["evidence"] == [{"line": 2, "text": "n7.site.org: shepherd died from signal 9", "signature": "pals-shepherd"}]
    (tmp_path / "hosts").write_text("n2\nn7-hsn0  # with the name of an interface\n")
    assert classify(athanor, log, "--hostfile", tmp_path / "hosts")["hosts"] == ["n7-hsn0"]
    (tmp_path / "hosts").write_text("n2\n")
    assert classify(athanor, log, "--hostfile", tmp_path / "hosts")["hosts"] == []


def test_people_read_the_same(athanor, log):
    lines = athanor.run("classify", log, "--exit-code", 143).stdout.splitlines()
    assert lines[:3] == ["cause: bad_node", "verdict: bad_node", "hosts: n7.site.org"]
    assert "evidence: line 2: n7.site.org: shepherd died from signal 9" in lines


def test_signatures_of_users_come_first(athanor, log, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('[[signature]]\nname = "ours"\ncause = "licence"\nhas = "shepherd"\npattern = "shepherd died"\n')
    found = classify(athanor, log, "--exit-code", 143, "--signatures", mine)
    assert (found["cause"], found["evidence"][0]["signature"]) == ("licence", "ours")


def test_bad_input_is_answered_in_one_line(athanor, log, tmp_path):
    (tmp_path / "empty.log").touch()
    assert "the cause is unknown" in refusal(athanor, tmp_path / "empty.log")
    assert "nowhere.log" in refusal(athanor, tmp_path / "nowhere.log")
    assert f"LOG {tmp_path} is a folder" in refusal(athanor, tmp_path)
    assert "--exit-code" in refusal(athanor, log, "--exit-code", "many")
    (tmp_path / "hosts").write_text("# none\n")
    assert "hosts" in refusal(athanor, log, "--hostfile", tmp_path / "hosts")
    mine = tmp_path / "mine.toml"
    for text, answer in [('[[signature]]\nname = "ours"\ncause = "licence"\nhas = "she"\npattern = "(she"\n', "signature ours: the pattern"),
                         ('[[signature]]\nname = "ours"\ncause = "license"\nhas = "she"\npattern = "she"\n', "licence"),
                         ("x = [\n", "mine.toml")]:
        mine.write_text(text)
        assert answer in refusal(athanor, log, "--signatures", mine)


def test_a_log_may_be_compressed_or_standard_input_or_several_files(athanor, log, tmp_path):
    text = log.read_bytes()
    packed = tmp_path / "packed.log"  # the bytes tell, not the name
    packed.write_bytes(gzip.compress(text))
    wanted = classify(athanor, log) | {"log": None}
    assert wanted["hosts"] == ["n7.site.org"] and wanted["bytes"] == len(text)
    assert classify(athanor, packed) | {"log": None} == wanted
    for file in (log, packed):
        piped = subprocess.Popen(["cat", file], stdout=subprocess.PIPE)
        found = json.loads(athanor.run("classify", "-", "--json", stdin=piped.stdout).stdout)
        assert found["log"] == "standard input" and found | {"log": None} == wanted
    lines = [json.loads(line) for line in athanor.run("classify", packed, log, "--json").stdout.splitlines()]
    assert [line.pop("log") for line in lines] == [str(packed), str(log)]
    assert lines[0] == lines[1]
    shown = athanor.run("classify", packed, log).stdout.splitlines()
    assert shown[0] == f"log: {packed}" and shown.count("hosts: n7.site.org") == 2 and f"log: {log}" in shown


def test_an_empty_or_a_binary_log_is_said_to_be_that_and_the_others_are_answered(athanor, log, tmp_path):
    empty, binary = tmp_path / "empty.log", tmp_path / "core"
    empty.touch()
    binary.write_bytes(b"\x7fELF\2\1\1" + bytes(range(256)) * 100)
    assert f"LOG {binary} is binary" in refusal(athanor, binary, "--exit-code", 1)
    assert f"LOG {empty} is empty" in refusal(athanor, empty)
    done = athanor.run("classify", empty, log, binary, "--json", check=False)
    assert done.returncode == 2 and json.loads(done.stdout)["hosts"] == ["n7.site.org"]
    assert len(done.stderr.splitlines()) == 1 and "is empty" in done.stderr and "is binary" in done.stderr


def test_nothing_of_a_log_is_run_or_changed(athanor, tmp_path):
    path = tmp_path / "job.log"
    path.write_text(f"$(touch {tmp_path}/made): shepherd died from signal 9\n`touch {tmp_path}/made`: shepherd died from signal 9\n"
                    "n1;reboot: shepherd died from signal 9\n--version: shepherd died from signal 9\n")
    path.chmod(stat.S_IRUSR)
    before = path.read_bytes()
    assert all(host.replace("-", "").isalnum() for host in classify(athanor, path, "--exit-code", 1)["hosts"])
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["job.log"]


def test_a_large_log_is_read_within_bounded_memory(athanor, tmp_path):
    small, large, rubbish = tmp_path / "small", tmp_path / "large", tmp_path / "rubbish"
    lines = b"".join(b"2026-01-05 11:20:17 step: %d  loss: 2.5  grad_norm: 0.7\nn1: [0] RuntimeError: try %d\n" % (i, i) for i in range(1000))
    small.write_bytes(lines)
    with large.open("wb") as file:
        for _ in range(600):
            file.write(lines)
    rubbish.write_bytes(bytes(range(256)) * 4096 + b"\0" * (60 << 20) + b"\x1b[" * (4 << 20) + b"\nKeyboardInterrupt\n")
    _, least = athanor.measure("classify", small)
    for path in (large, rubbish):
        # The buffer of the reader is there for the small log too, so what is left is a few pages.
        assert athanor.measure("classify", path)[1] < least + (4 << 20)


@pytest.fixture(scope="module")
def labelled(shared):
    folder = shared / "data" / "failure-logs"
    if not folder.is_dir():
        pytest.skip(f"no logs in {folder}; set ATHANOR_SHARED")
    return folder


def short(name):
    """An address as it is; of a name the machine."""
    return name if name[0].isdigit() else name.lower().split(".")[0].rsplit("-hsn", 1)[0]


def test_labelled_endings_have_their_causes_and_hosts(athanor, labelled, tmp_path):
    rows = [json.loads(line) for line in (labelled / "signatures.jsonl").read_text().splitlines()]
    right, wanted, innocent, others, misses = 0, collections.Counter(), [], [], []
    for row in rows:
        path = tmp_path / "log"
        path.write_text(row["text"])
        found = classify(athanor, path, *(["--exit-code", row["rc"]] if row["rc"] is not None else []))
        hosts = {short(host) for host in found["hosts"]}
        at_fault = {short(host) for host in row["bad_hosts"]} | set(row["bad_ips"])
        wanted["all"] += len(at_fault)
        wanted["found"] += len(at_fault & hosts)
        innocent += hosts & {short(host) for host in row["innocent_hosts"]}
        others += hosts - at_fault
        right += found["cause"] == row["cause"]
        if found["cause"] != row["cause"]:
            misses.append(f"{row['id']}: {found['cause']} for {row['cause']}")
    print(f"{right} of {len(rows)} causes, {wanted['found']} of {wanted['all']} hosts; {misses}")
    assert right >= 0.9 * len(rows), misses
    assert wanted["all"] == 13 and wanted["found"] >= 11
    assert not innocent and not others


def test_jobs_that_ran_to_their_end_have_not_failed(athanor, labelled, tmp_path):
    logs = sorted((labelled / "full").glob("*.gz"))
    assert len(logs) == 23
    for code in (["--exit-code", 0], []):
        answers = athanor.run("classify", *logs, "--json", *code).stdout.splitlines()
        for packed, answer in zip(logs, map(json.loads, answers), strict=True):
            assert answer["verdict"] not in FAILED and not answer["hosts"] and answer["lines"] > 10, (packed.name, code, answer)
