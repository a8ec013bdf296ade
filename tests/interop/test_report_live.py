"""`athanor report --live`: the page is that of the report, can only be read, by this machine alone, and gets the new steps of a run."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse

import pytest
from made_up_runs import add_attempts, write_run
from test_report import browser, refused  # noqa: F401


class Live:
    """`athanor report --live`."""

    def __init__(self, athanor, *words):
        self.process = subprocess.Popen([athanor.path, "report", *map(str, words), "--live"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def ask(self, path="/", method="GET", host=None, body=None):
        target = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(target.hostname, target.port, timeout=300)
        connection.request(method, path, body=body, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=300), self.process.stderr.read()


@pytest.fixture
def live(athanor):
    started = []

    def start(*words):
        started.append(Live(athanor, *words))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()


def test_the_live_page_is_the_page_and_can_only_be_read(live, tmp_path):
    run = write_run(tmp_path / "run", 400)
    before = {path: path.read_bytes() for path in run.iterdir()}
    server = live(run)
    status, text, answer = server.ask()
    assert status == 200 and "Report of" in text and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store" and answer.headers["X-Content-Type-Options"] == "nosniff"
    assert server.ask("/version")[1].strip() in text
    status, body, answer = server.ask(method="HEAD")
    assert (status, body, answer.headers["Content-Length"]) == (200, "", str(len(text.encode())))
    target = urllib.parse.urlsplit(server.url)
    kept = http.client.HTTPConnection(target.hostname, target.port, timeout=300)  # one connection for both
    for method in ("HEAD", "GET"):
        kept.request(method, "/version")
        assert kept.getresponse().read().decode().strip() == ("" if method == "HEAD" else server.ask("/version")[1].strip())
    assert [server.ask(path)[0] for path in ("/config.toml", "/../config.toml", "//etc/passwd", "/%2e%2e/x", "/?x=1")] == [404, 404, 404, 404, 200]
    assert [server.ask(method=method)[0] for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")] == [405] * 5
    assert server.ask(method="POST", body="x" * 100)[0] in (405, 413)
    assert {path: path.read_bytes() for path in run.iterdir()} == before
    code, said = server.stop()
    assert code == 0 and said.count("\n") <= 3, said


def test_another_name_for_this_host_is_not_answered(live, tmp_path):
    server = live(write_run(tmp_path / "run", 20))
    assert [server.ask(host=host)[0] for host in ("localhost:80", "127.0.0.1", "[::1]:9", "LOCALHOST.", "evil.example", "127.0.0.1.evil.example", "localhost.evil",
                                                    "[::1]evil.com", "localhost:80:evil.com", "[::1")] == [200] * 4 + [403] * 6


def test_slow_readers_share_one_copy_of_the_page(live, tmp_path):
    server = live(write_run(tmp_path / "run", 2000))
    page = len(server.ask()[1])
    target = urllib.parse.urlsplit(server.url)

    def memory():
        return sum(int(line.split()[1]) << 10 for line in open(f"/proc/{server.process.pid}/status") if line.startswith("RssAnon"))

    before, readers = memory(), []
    for _ in range(64):  # they ask and read nothing; the kernel takes a part of the page, the server keeps the rest
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect((target.hostname, target.port))
        reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        readers.append(reader)
    assert server.ask()[0] == 200
    assert memory() - before < 16 * page  # copies would take 64 pages, and more with the buffers' slack
    for reader in readers:
        reader.close()


def test_an_address_that_nobody_can_read_is_an_error(athanor, tmp_path):
    run = write_run(tmp_path / "run", 20)
    with open("/dev/full", "w") as full:
        ended = subprocess.run([athanor.path, "report", run, "--live"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert ended.returncode != 0 and "cannot write to standard output" in ended.stderr, ended


def test_an_open_page_gets_the_new_steps_and_keeps_what_the_reader_chose(live, browser, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "run", 300)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:200]))
    browser.open(live(run).url)
    browser.js("document.querySelector('input[value=steps]').click(); document.querySelectorAll('main details')[1].open = true")
    last = "return JSON.parse(document.getElementById('loss-data').textContent).series[0].points.steps.at(-1)"
    assert browser.js(last) == 200
    with open(run / "metrics.jsonl", "a") as out:
        out.write("".join(lines[200:]))
    deadline = time.monotonic() + 300
    while browser.js(last) != 300 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert browser.js(last) == 300
    assert browser.js("return document.body.dataset.axis") == "steps" and browser.js("return document.querySelectorAll('main details')[1].open")
    assert "Live:" in browser.js("return document.querySelector('footer').textContent")
    browser.js("document.querySelector('#loss .pictures').focus()")
    assert browser.errors() == []


def test_a_page_of_a_run_that_is_gone_tells_so_and_gets_the_verdict_of_an_attempt(live, browser, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "run", 30)
    add_attempts(run, [(["n1"], None)])
    server = live(run)
    before = server.ask("/version")[1]
    (run / "attempts" / "001" / "verdict.json").write_text(json.dumps({"exit_code": 75, "cause": "soft_failure"}))
    assert server.ask("/version")[1] != before and "soft_failure" in server.ask()[1]
    browser.open(server.url)
    run.rename(tmp_path / "elsewhere")
    deadline = time.monotonic() + 300
    while "last state" not in browser.js("return document.querySelector('footer').textContent") and time.monotonic() < deadline:
        time.sleep(0.5)
    assert "does not exist" in browser.js("return document.querySelector('footer').textContent")


def test_more_connections_than_file_descriptors_neither_end_nor_occupy_the_server(athanor, tmp_path):
    run = write_run(tmp_path / "run", 20)
    command = ["sh", "-c", 'ulimit -n 48; exec "$0" "$@"', str(athanor.path), "report", str(run), "--live"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    target = urllib.parse.urlsplit(process.stdout.readline().strip())
    idle = [socket.create_connection((target.hostname, target.port)) for _ in range(80)]
    time.sleep(2)
    ticks = sum(map(int, open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))
    assert ticks / os.sysconf("SC_CLK_TCK") < 1, "it does not spin"
    for each in idle:
        each.close()
    time.sleep(0.5)
    connection = http.client.HTTPConnection(target.hostname, target.port, timeout=300)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) == 0 and len(process.stderr.read()) < 1000


def test_a_run_without_steps_is_waited_for(live, tmp_path):
    run = write_run(tmp_path / "run", 20)
    lines = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").unlink()
    server = live(run)
    status, text, _ = server.ask()
    assert status == 503 and 'http-equiv="refresh"' in text and "<script" not in text
    (run / "metrics.jsonl").write_text(lines)
    assert server.ask()[0] == 200


def test_a_live_page_is_refused_before_it_is_served_if_it_cannot_be(athanor, live, tmp_path):
    run = write_run(tmp_path / "run", 20)
    assert "leave out --out" in refused(athanor, run, "--live", "--out", tmp_path / "a.html")
    assert "does not exist" in refused(athanor, tmp_path / "nowhere", "--live")
    assert "expected an address" in refused(athanor, run, "--live", "--address", "localhost:80")
    port = urllib.parse.urlsplit(live(run).url).port
    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in refused(athanor, run, "--live", "--port", port)
    assert refused(athanor, run, "--port", 8080, "--out", tmp_path / "a.html")
