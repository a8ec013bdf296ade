"""`athanor report`: its values are those of the metrics, nothing in a run's files is executed, and the page can be read at any width, in
dark mode, on paper and without a pointer."""
import html
import json
import math
import os
import re
import xml.etree.ElementTree

import pytest
from browser import open_browser
from made_up_runs import add_attempts, add_rank_times, write_run

STEPS = 3000
EVIL = '"><img src=x onerror="window.broken=1"><script>window.broken=2</script>'
WIDTHS = {"desktop": 1280, "tablet": 768, "phone": 390}


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of which the second is worse, has hostile names in all of its files, and is still being written."""
    folder = tmp_path_factory.mktemp("runs")
    first = write_run(folder / "first", STEPS, seed=1, sources=("books", "web"))
    evil = folder / ("<b onclick=alert(1)>second" + "&quot;")
    second = write_run(evil, STEPS, seed=2, level=2.1, sources=("books", EVIL), settings={"data.path": EVIL, "optimizer.lr": 0.002}, torn=True,
                       events=[{"event": "spike", "step": 2000, "text": EVIL}, {"event": EVIL, "step": 2001}])
    write_scores(second / "evals")
    return first, second


def write_scores(folder):
    folder.mkdir()
    for step, acc in ((1000, 0.3), (2000, 0.4)):
        (folder / f"step-{step:08}.json").write_text(json.dumps({
            "results": {EVIL: {"acc,none": acc, "acc_stderr,none": 0.05}}, "athanor": {"step": step, "tokens": 4096 * step, "chance": {EVIL: 0.25}}}))


@pytest.fixture(scope="module")
def page(athanor, runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    athanor.run("report", *runs, "--out", out)
    return out


@pytest.fixture(scope="module")
def browser():
    browser = open_browser()
    yield browser
    browser.driver.quit()


def data_of(page, figure):
    return json.loads(re.search(f'<script type="application/json" id="{figure}-data">(.*?)</script>', page.read_text(), re.S)[1])


def table_after(page, caption):
    """The rows of the table with this caption."""
    text = page.read_text()
    table = text[text.index(f"<caption>{caption}"):].split("</table>")[0]
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in table.split("<tr>")[1:]]


# ---- What it shows ------------------------------------------------------------------------------------------------------


def test_the_line_is_the_mean_over_the_window_and_the_pale_one_keeps_the_extremes(runs, page):
    losses = [line["loss"] for line in metrics(runs[0])]
    series = data_of(page, "loss")["series"]
    line, faint, dots = series[:3]
    window = STEPS // 50 | 1
    for step, value in zip(line["points"]["steps"], line["points"]["y"]):
        at, reach = step - 1, min(window // 2, step - 1)
        expected = losses[at - reach: at + reach + 1]
        assert math.isclose(value, sum(expected) / len(expected), rel_tol=1e-4), step
    assert math.isclose(max(faint["points"]["y"]), max(losses), rel_tol=1e-4) and math.isclose(min(faint["points"]["y"]), min(losses), rel_tol=1e-4)
    held_out = {line["step"]: line["validation_loss"] for line in metrics(runs[0]) if "validation_loss" in line}
    assert dots["points"]["steps"] == list(held_out) and all(map(lambda a, b: math.isclose(a, b, rel_tol=1e-4), dots["points"]["y"], held_out.values()))
    assert line["points"]["tokens"] == [4096 * step for step in line["points"]["steps"]]
    assert math.isclose(line["points"]["time"][-1], 0.41 * (STEPS - 1) + 0.4 - 0.01, rel_tol=1e-3), "the hour between the attempts does not count"


def test_runs_are_compared_at_the_same_tokens(runs, page):
    rows = table_after(page, "Training loss")
    assert [row[0] for row in rows[1:]] == [f"{4096 * STEPS * share // 4:,}" for share in (1, 2, 3, 4)]
    for row, share in zip(rows[1:], (1, 2, 3, 4)):
        last = STEPS * share // 4
        means = []
        for run, cell in zip(runs, (row[1], row[2])):
            losses = [line["loss"] for line in metrics(run)[last - STEPS // 20: last]]
            means.append(sum(losses) / len(losses))
            value, error = map(float, cell.split(" ± "))
            assert abs(value - means[-1]) < 1e-4
            # Independent values of deviation 0.05; at the first point the falling loss bends within the window.
            assert error < 0.03 if share == 1 else 0.3 < error / (0.05 / math.sqrt(len(losses))) < 2
        assert abs(float(row[3]) - (means[1] - means[0])) < 2e-4
        assert row[4] == ("" if abs(means[1] - means[0]) > 0.02 else "noise")


def test_equal_runs_differ_by_noise_only(athanor, tmp_path):
    a, b = write_run(tmp_path / "a", 800, seed=3), write_run(tmp_path / "b", 800, seed=4)
    athanor.run("report", a, b, "--out", tmp_path / "page.html")
    assert [row[4] for row in table_after(tmp_path / "page.html", "Training loss")[1:]][1:] == ["noise"] * 3
    assert "The configurations are the same." in (tmp_path / "page.html").read_text()


def test_times_sources_loads_events_and_settings_are_those_of_the_run(runs, page):
    times = dict(zip(*table_after(page, "Time of the first rank")[:2]))
    assert times["forward: compute"].startswith("6:00 (29.") and times["between steps"].startswith(("0:29", "0:30"))
    drawn = data_of(page, "run0-sources")["series"]
    assert [(each["name"], each["points"]["y"][-1]) for each in drawn] == [("books", pytest.approx(4096 * STEPS, rel=1e-4)), ("web", pytest.approx(2 * 4096 * STEPS, rel=1e-4))]
    loads = data_of(page, "run0-loads")
    first = [line["expert_load_max_over_mean"][2] for line in metrics(runs[0])][: STEPS // 60]
    assert len(loads["rows"]) == 4 and math.isclose(loads["rows"][2][0], sum(first) / len(first), rel_tol=1e-4)
    text = html.unescape(page.read_text())
    assert "the loss is not finite" in text and f"step 2000: spike, {EVIL}" in text
    differing = table_after(page, "Settings that differ")
    assert [row[0] for row in differing[1:]] == ["optimizer.lr", "data.path"] and differing[1][1:] == ["0.001", "0.002"]


def test_settings_that_differ_have_the_value_of_each_attempt(athanor, tmp_path):
    run = write_run(tmp_path / "one", 400, settings={"train.steps": 4000})
    (run / "configs").mkdir()
    for attempt, lr, steps in [(1, 0.002, 2000), (3, 0.001, 2000)]:
        (run / "configs" / f"config-{attempt:03}.toml").write_text(f"[model]\nfamily = \"olmoe\"\n[optimizer]\nlr = {lr}\n[train]\nsteps = {steps}\n")
    other = write_run(tmp_path / "other", 400, settings={"train.steps": 4000})
    for runs, more in [([run], []), ([run, other], ["4000"])]:
        athanor.run("report", *runs, "--out", tmp_path / "page.html")
        differing = {row[0]: row[1:] for row in table_after(tmp_path / "page.html", "Settings that differ")[1:]}
        assert differing["train.steps"] == ["2000 (up to attempt 3), 4000 (since)", *more]
        assert differing["optimizer.lr"] == ["0.002 (up to attempt 1), 0.001 (since)", *(["0.001"] if more else [])]
        assert "model.family" not in differing


def test_the_time_of_every_rank_is_shown(athanor, tmp_path):
    run = write_run(tmp_path / "ranks", 400)
    add_rank_times(run, 4)
    athanor.run("report", run, "--out", tmp_path / "page.html")
    rows = table_after(tmp_path / "page.html", "Milliseconds a step, by rank")
    assert rows[0][:3] == ["rank", "waiting for data", "forward: compute"] and rows[0][-2:] == ["all compute", "all communication"] and [row[2] for row in rows[1:]] == ["100.0", "100.0", "150.0", "100.0"] and [row[-1] for row in rows[1:]] == ["70.0", "70.0", "20.0", "70.0"]
    compute, waits = (data_of(tmp_path / "page.html", f"run0-rank-{what}")["rows"] for what in ("compute", "waits"))
    assert len(compute) == len(waits) == 4 and len(compute[0]) == 20
    assert set(compute[2]) == {0.17} and set(compute[0]) == {0.12} and set(waits[2]) == {0.02} and set(waits[1]) == {0.07}


def test_of_many_ranks_the_extremes_are_shown(athanor, tmp_path):
    run = write_run(tmp_path / "many", 400)
    add_rank_times(run, 100, slow=77)
    athanor.run("report", run, "--out", tmp_path / "page.html")
    series = {each["name"]: each["points"]["y"][-1] for each in data_of(tmp_path / "page.html", "run0-ranks-compute")["series"]}
    assert series == pytest.approx({"least": 0.12, "mean": 0.1205, "most": 0.17}, rel=1e-4)
    text = (tmp_path / "page.html").read_text()
    assert "rank 77 the most" in text and "Milliseconds a step, by rank" not in text


def test_files_of_attempts_that_never_end_are_left_out(athanor, tmp_path):
    run = write_run(tmp_path / "run", 20)
    add_attempts(run, [(["n1"], None), (["n1"], None)])
    os.mkfifo(run / "attempts" / "001" / "verdict.json")
    (run / "attempts" / "002" / "verdict.json").symlink_to("/dev/zero")
    athanor.run("report", run, "--out", tmp_path / "page.html", timeout=300)


def test_attempts_and_swaps_of_a_launch_are_on_the_time_line(athanor, tmp_path):
    run = write_run(tmp_path / "launched", 400)
    verdict = {"started": 1_700_000_000, "ended": 1_700_000_050, "exit_code": 75, "cause": "soft_failure", "hosts": ["n2"], "last_step": 120}
    add_attempts(run, [(["n1", "n2"], verdict), (["n1", EVIL], None), (["n1", EVIL], {"exit_code": "x", "hosts": 7, "ended": []})])
    athanor.run("report", run, "--out", tmp_path / "page.html")
    section = (tmp_path / "page.html").read_text().split('<section id="events"')[1].split("</section>")[0]
    events = [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in section.split("<tr>")[1:]]
    shown = [row[2:] for row in events if row[3:4] in (["launch"], ["swap"])]
    assert ["120", "launch", "attempt 001 of the launch ended with code 75: soft_failure, hosts at fault: n2"] in shown
    assert ["120", "swap", f"{EVIL} for n2"] in shown
    text = html.unescape((tmp_path / "page.html").read_text())
    assert "step 120: swap" in text, "it has a mark"


# ---- In a browser -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_can_be_read_at_every_width_in_light_and_dark(browser, page, width, dark):
    browser.open(page.as_uri(), WIDTHS[width], dark)
    assert browser.errors() == []
    assert browser.js("return document.documentElement.scrollWidth") <= WIDTHS[width], "the page is wider than the screen"
    shown = browser.js("return [...document.querySelectorAll('figure')].map(f => [...f.querySelectorAll('svg.chart')].filter(s => s.getBoundingClientRect().width > 200).length)")
    assert len(shown) >= 12 and set(shown) == {1}, "each figure shows one picture"
    sizes = browser.js("return [...document.querySelectorAll('svg.chart text')].map(t => t.getBoundingClientRect().height).filter(h => h > 0)")
    assert min(sizes) >= 9, "letters are large enough to read"
    browser.js("for (const each of document.querySelectorAll('details')) each.open = true")
    low = [found for found in browser.contrasts() if found[0] < 4.5]
    assert not low, low[:5]
    if os.environ.get("ATHANOR_SCREENSHOTS"):
        browser.js("for (const each of document.querySelectorAll('details')) each.open = false")
        browser.screenshot(page.parent / f"{width}-{'dark' if dark else 'light'}.png")
        print(page.parent)


def test_on_paper_it_is_dark_on_white_without_controls(browser, page):
    browser.open(page.as_uri(), 800, dark=True, media="print")
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.js("return getComputedStyle(document.querySelector('.choice')).display") == "none"
    assert [found for found in browser.contrasts() if found[0] < 4.5] == []
    assert browser.pdf().startswith(b"%PDF")


def test_nothing_in_the_files_of_a_run_is_executed(browser, page):
    browser.open(page.as_uri())
    assert browser.js("return window.broken") is None and browser.js("return document.querySelectorAll('img, b, iframe, object, [onclick]').length") == 0
    assert browser.js("return [...document.querySelectorAll('td')].some(cell => cell.textContent.includes('onerror'))"), "it is shown as text"
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#)', re.sub(r"&[a-z]+;", "", page.read_text()).replace(EVIL, "")), "it loads nothing"
    assert browser.errors() == []


def test_the_pointer_and_the_arrow_keys_show_values(browser, runs, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.open(page.as_uri())
    pictures = browser.driver.find_element(By.CSS_SELECTOR, "#loss .pictures")
    ActionChains(browser.driver).move_to_element(pictures).perform()
    told = browser.js("return document.getElementById('pointer').textContent").splitlines()
    step = int(re.match(r"step ([\d,]+), ([\d,]+) tokens, [\d:]+$", told[0])[1].replace(",", ""))
    assert STEPS * 0.4 < step < STEPS * 0.6 and len(told) == 7
    line = data_of(page, "loss")["series"][0]["points"]
    assert told[1] == f"{runs[0].name}: {line['y'][line['steps'].index(step)]}"
    pictures.send_keys(Keys.END)
    assert browser.js("return document.getElementById('pointer').textContent").startswith(f"step {STEPS:,}")
    pictures.send_keys(Keys.ARROW_LEFT)
    assert browser.js("return document.getElementById('pointer').textContent").startswith(f"step {line['steps'][-2]:,}")
    loads = browser.driver.find_element(By.CSS_SELECTOR, "#run0-loads .pictures")
    ActionChains(browser.driver).scroll_to_element(loads).move_to_element(loads).perform()
    assert re.match(r"mean up to step [\d,]+.*\nsparse layer [12]: 1\.\d+$", browser.js("return document.getElementById('pointer').textContent"))


def test_another_axis_shows_other_pictures(browser, page):
    browser.open(page.as_uri())
    for name in ("steps", "time", "tokens"):
        browser.js("document.querySelector(`input[value=${arguments[0]}]`).click()", name)
        shown = browser.js("return [...document.querySelectorAll('svg.chart')].filter(s => s.getClientRects().length > 0).map(s => s.dataset.axis)")
        assert set(shown) == {name}


def test_a_long_run_gives_a_small_page(athanor, tmp_path):
    run = write_run(tmp_path / "long", 40_000, sources=("a", "b"))
    athanor.run("report", run, "--out", tmp_path / "long.html")
    assert (tmp_path / "long.html").stat().st_size < 2_000_000
    assert max(data_of(tmp_path / "long.html", "loss")["series"][1]["points"]["y"]) > 6, "its spike of one step is there"


# ---- Files --------------------------------------------------------------------------------------------------------------


def test_single_figures_are_pictures_with_title_and_legend(athanor, runs, tmp_path):
    athanor.run("report", *runs, "--svg", tmp_path / "figures")
    files = sorted((tmp_path / "figures").iterdir())
    assert {"loss.svg", "lr.svg", "task-0.svg", "run0-time.svg", "run1-loads.svg"} <= {file.name for file in files}
    for file in files:
        root = xml.etree.ElementTree.parse(file).getroot()
        assert root.tag.endswith("svg") and not any(name.lower().startswith("on") for element in root.iter() for name in element.attrib)
    before = {file.name for file in files}
    athanor.run("report", *runs, "--svg", tmp_path / "figures")  # pictures are replaced
    assert {file.name for file in (tmp_path / "figures").iterdir()} == before


def refused(athanor, *words, **options):
    done = athanor.run("report", *words, check=False, **options)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def test_wrong_input_is_refused_in_one_line_and_nothing_is_overwritten(athanor, runs, tmp_path):
    run = runs[0]
    assert "name the page to write with --out" in refused(athanor, run)
    assert "does not exist; name the folder of a run" in refused(athanor, tmp_path / "nowhere", "--out", tmp_path / "a.html")
    assert "has no metrics.jsonl" in refused(athanor, tmp_path, "--out", tmp_path / "a.html")
    assert "give it a name that ends with .html" in refused(athanor, run, "--out", tmp_path / "a.txt")
    (tmp_path / "mine.html").write_text("my own notes")
    assert "is there and is no page of HTML" in refused(athanor, run, "--out", tmp_path / "mine.html")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "thesis.tex").write_text("x")
    assert "it has thesis.tex, which is no picture" in refused(athanor, run, "--svg", tmp_path / "figures")
    assert (tmp_path / "mine.html").read_text() == "my own notes" and sorted(os.listdir(tmp_path)) == ["figures", "mine.html"]


def test_hundreds_of_runs_are_refused_before_any_is_read(athanor, tmp_path):
    for i in range(300):
        (tmp_path / f"run{i}").mkdir()
    said = refused(athanor, *sorted(tmp_path.glob("run*")), "--out", tmp_path / "page.html")
    assert "300 runs are more than a page can show (at most 16)" in said


def test_files_of_other_versions_and_damaged_ones_show_what_they_have(athanor, tmp_path):
    run = tmp_path / "old"
    run.mkdir()
    lines = [{"step": i, "loss": None if i == 3 else 5.0 - i, "unknown": {"a": [1]}} for i in range(1, 5)]
    (run / "metrics.jsonl").write_text("no JSON\n" + "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 5, "lo')
    (run / "events.jsonl").write_text('broken\n{"event": 7}\n[]\n{"event": "end", "step": "x"}\n')
    (run / "config.toml").write_text("= broken")
    done = athanor.run("report", run, "--out", tmp_path / "page.html")
    assert "1 lines of" in done.stderr
    points = data_of(tmp_path / "page.html", "loss")["series"][0]["points"]
    assert points["steps"] == [1, 2, 4] and points["y"] == [4, 3, 1] and points["tokens"] == [None] * 3
    (run / "metrics.jsonl").write_text('{"step": 1, "lo')
    assert "has no whole line yet" in refused(athanor, run, "--out", tmp_path / "page2.html")


def test_a_run_that_is_named_twice_is_shown_once(athanor, runs, tmp_path):
    done = athanor.run("report", runs[0], f"{runs[0]}/", "--out", tmp_path / "page.html")
    assert "is the same run as" in done.stderr and "Compared at the same tokens" not in (tmp_path / "page.html").read_text()


def test_status_watch_shows_the_progress_of_a_run(athanor, runs):
    """Below what its ranks do; of a run that has ended, once."""
    said = athanor.run("status", runs[0], "--watch").stdout
    assert f"step {STEPS:,}   loss " in said and "tokens/s   MFU 40.0%" in said
    assert re.search(r"busiest expert over the mean, by layer: \d{4} \(0 is 1, 9 is 4 or more\)   at most 1\.\d+", said)
    assert "step 1000: skip, the loss is not finite\n" in said and f"step {STEPS}: end, exit code 0, complete\n" in said
    assert "training loss" in said and "validation loss" in said and "+---" in said.replace("-+", "--")
    plain = athanor.run("status", runs[0]).stdout
    assert said.startswith(plain) and "loss" not in plain.replace("the loss is not finite", "")
