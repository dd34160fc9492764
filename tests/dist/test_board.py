"""`muster board` in a browser: what a user sees, and that nothing from a run's folder is interpreted."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from deploy.run.files import locks
from lab.waiting import until
from tests.browser import board_of, chromium, needed
from tests.unit.report.test_page import HOSTILE, START, sample, write, write_lines
from tests.unit.report.test_script_page import RECORD, STEP, event, plain_run, watched_run

pytestmark = needed


@pytest.fixture(scope="module")
def browser():
    """One Chromium for these tests."""
    with chromium() as started:
        yield started


@pytest.fixture
def board(tmp_path):
    """The address of a board for tmp_path, which Ctrl-C ends with code 0 and without a message."""
    (tmp_path / "runs").mkdir()
    with board_of(tmp_path, str(tmp_path)) as url:
        yield url


@pytest.fixture
def page(browser, board):
    """A page that records its requests, dialogs and faults in its own lists."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    shown = context.new_page()
    shown.asked, shown.faults = [], []
    shown.on("request", lambda request: shown.asked.append(request.url))
    shown.on("pageerror", lambda fault: shown.faults.append(str(fault)))
    shown.on("dialog", lambda dialog: (shown.faults.append(dialog.message), dialog.dismiss()))
    shown.set_default_timeout(60_000)
    yield shown
    assert shown.faults == []
    assert [url for url in shown.asked if not url.startswith((board, "blob:"))] == []
    context.close()


def going_on(folder, steps=3):
    """Make the folder of a script that still runs: it has no outcome, and this process holds its lock until it ends."""
    watched_run(folder)
    locks.hold_run(folder)
    (folder / "outcome.json").unlink()
    write(folder / "record.json", {**RECORD, "started": time.time() - 60, "starts": [{"t": time.time() - 60}]})
    for rank in (0, 1):
        times = [event(rank, 2.0 + s, step=10 * s, **STEP) for s in range(1, steps)]
        write_lines(folder / f"ranks/rank-{rank}.jsonl", [event(rank, 1.0, kind="began", attempt=0, world=2), *times])
    return folder


def rows_of(page):
    return page.locator(".runs tbody tr")


def test_a_live_run_updates_in_the_list_and_on_its_page(page, board, tmp_path):
    """A print, a step and the end appear without any action on the page; a zoomed chart stays as its reader left it."""
    page.goto(board)
    page.get_by_text("There are no runs here yet").wait_for()
    run = going_on(tmp_path / "runs/first")
    page.get_by_text("running").wait_for()
    page.get_by_role("link", name="first").click()
    page.get_by_text("Running").wait_for()
    plot = page.locator(".plot").first
    plot.focus()
    plot.press("+")
    ticks = page.locator(".plot").first.locator(".x").all_inner_texts()
    with open(run / "logs/rank-0.log", "a") as log:
        log.write("the newest line\n")
    page.get_by_text("the newest line").wait_for()
    assert page.locator(".plot").first.locator(".x").all_inner_texts() == ticks
    write(
        run / "outcome.json", {"verdict": "failed", "message": "it broke\n    at line 3", "rank": 1, "node": "worker-1"}
    )
    page.locator(".verdict.failed").wait_for()
    assert "at line 3" in page.locator(".trouble pre").inner_text()
    page.get_by_role("link", name="All runs").click()
    page.locator(".runs .failed").wait_for()


def test_the_log_of_a_rank_is_searched_and_followed(page, board, tmp_path):
    run = going_on(tmp_path / "runs/first")
    page.goto(f"{board}run/first/")
    page.get_by_label("log", exact=True).select_option("logs/rank-1.log")
    log = page.locator("#logs pre")
    log.get_by_text("hello from 1").wait_for()
    with open(run / "logs/rank-1.log", "a") as file:
        file.write("<b>loss</b> 0.5\nloss 0.25\n")
    log.get_by_text("<b>loss</b> 0.5").wait_for()
    page.get_by_label("search this log").fill("0.25")
    assert log.inner_text() == "loss 0.25"


def test_late_lines_of_one_log_are_not_shown_in_another(page, board, tmp_path):
    """Once, a late answer was shown as the log that was chosen when it ended, until that log grew."""
    going_on(tmp_path / "runs/first")
    page.add_init_script(
        """const text = Response.prototype.text, wait = (done) => setTimeout(done, 3000);
        Response.prototype.text = async function () {
          if (this.url.includes("rank-0.log")) {
            document.documentElement.dataset.begun = 1;
            await new Promise(wait);
            document.documentElement.dataset.over = 1;
          }
          return text.call(this);
        };"""
    )
    page.goto(f"{board}run/first/")
    choice = page.get_by_label("log", exact=True)
    choice.select_option("logs/rank-0.log")
    page.locator("html[data-begun]").wait_for(state="attached")
    choice.select_option("logs/rank-1.log")
    page.get_by_label("follow").uncheck()  # what is shown then stays
    page.locator("html[data-over]").wait_for(state="attached")
    page.locator("#logs pre").get_by_text("hello from").wait_for()
    assert "hello from 1" in page.locator("#logs pre").inner_text()


def test_of_a_long_log_a_page_fetches_only_the_end(page, board, tmp_path):
    """It fetches the log each second while it grows; a link gives more of it."""
    run = going_on(tmp_path / "runs/first")
    (run / "logs/rank-0.log").write_text(f"{'x' * 99}\n" * 5000 + "the end\n")
    page.goto(f"{board}run/first/")
    page.get_by_label("log", exact=True).select_option("logs/rank-0.log")
    page.locator("#logs pre").get_by_text("the end").wait_for()
    assert len(page.locator("#logs pre").inner_text()) < 270_000


def test_a_log_that_is_chosen_again_at_once_is_shown(page, board, tmp_path):
    going_on(tmp_path / "runs/first")
    page.goto(f"{board}run/first/")
    choice, log = page.get_by_label("log", exact=True), page.locator("#logs pre")
    choice.select_option("logs/rank-0.log")
    log.get_by_text("hello from 0").wait_for()
    choice.evaluate(
        """(choice) => ["logs/rank-1.log", "logs/rank-0.log"].forEach((file) => {
          choice.value = file;
          choice.onchange();
        })"""
    )
    log.get_by_text("hello from 0").wait_for(timeout=10_000)


def test_a_truncated_answer_is_requested_again(page, board, tmp_path):
    """Once, the page kept the mark of a truncated answer: the list stayed stale until something else changed."""
    page.goto(board)
    page.get_by_text("There are no runs here yet").wait_for()
    cut = []

    def cut_one(route):
        answer = route.fetch()
        body = answer.body()
        cut.extend([route.request.url] * (not cut and answer.status == 200))
        route.fulfill(response=answer, body=body[:40] if len(cut) == 1 and answer.status == 200 else body)
        cut.extend([""] * (answer.status == 200))

    page.route("**/runs.json*", cut_one)
    plain_run(tmp_path / "runs/done", 1)
    page.get_by_role("link", name="done").wait_for()
    assert cut


def test_the_list_is_searched_and_sorted(page, board, tmp_path):
    sample(tmp_path / "runs/long", 900)
    plain_run(tmp_path / "runs/broken", 1)
    page.goto(board)
    rows_of(page).nth(1).wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    assert [row.split()[2] for row in rows_of(page).all_inner_texts()] == ["broken", "long"]
    page.get_by_role("button", name="Run", exact=True).click()
    assert [row.split()[2] for row in rows_of(page).all_inner_texts()] == ["long", "broken"]
    page.get_by_label("Search").fill("failed")
    assert rows_of(page).count() == 1
    assert page.locator("th[aria-sort]").inner_text() == "Run"


@pytest.mark.parametrize("verdict", ["constructor", "told", "__proto__"])
def test_an_unknown_verdict_is_shown_as_text_without_a_style(page, board, tmp_path, verdict):
    """A run's folder is untrusted: neither names of JavaScript nor names of a style may have a meaning in it."""
    write(plain_run(tmp_path / "runs/odd", 1) / "outcome.json", {"verdict": verdict})
    page.goto(board)
    state = rows_of(page).first.locator("b")
    assert state.inner_text() == f"\u2026 {verdict}"
    assert state.get_attribute("class") == "unknown"


def test_ticked_runs_are_compared_with_curves_over_each_other(page, board, tmp_path):
    for number in range(3):
        run = sample(tmp_path / f"runs/run-{number}", 300)
        write(run / "config.json", {"recipe": "digits", "lr": number / 10})
    page.goto(board)
    page.get_by_label("compare run-0").check()
    assert page.get_by_role("button", name="Compare").is_disabled()
    for number in (1, 2):
        page.get_by_label(f"compare run-{number}").check()
    page.get_by_text("3 selected").wait_for()
    shutil.rmtree(tmp_path / "runs/run-1")  # like `muster down --delete` in another terminal
    page.get_by_text("2 selected").wait_for()
    page.get_by_role("button", name="Compare").click()
    loss = page.locator("figure.chart", has_text="loss by step")
    loss.wait_for()
    assert page.locator("figure.chart", has_text="loss by time").count() == 1
    assert loss.locator(".letter").all_inner_texts() == ["A", "B"]
    assert page.get_by_role("row", name="lr 0.0 0.2").count() == 1
    loss.get_by_role("button", name="A run-0").click()
    assert loss.locator(".letter").all_inner_texts() == ["B"]


def test_a_chart_answers_the_keyboard(page, board, tmp_path):
    sample(tmp_path / "runs/first")
    page.goto(f"{board}run/first/")
    chart = page.locator("figure.chart").first
    plot, said = chart.locator(".plot"), chart.locator("output")
    whole = chart.locator(".x").all_inner_texts()
    plot.focus()
    plot.press("ArrowRight")
    assert said.inner_text().startswith("step 5 ")
    plot.press("ArrowRight")
    assert said.inner_text().startswith("step 10 ")
    plot.press("+")
    assert chart.locator(".x").all_inner_texts() != whole
    plot.press("Shift+ArrowRight")
    plot.press("l")
    plot.press("s")
    assert chart.get_by_role("button", name="log").get_attribute("aria-pressed") == "false"
    plot.press("0")
    assert chart.locator(".x").all_inner_texts() == whole
    plot.press("t")
    assert chart.locator("table tr").count() > 100
    with page.expect_download() as download:
        chart.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == '"step","training","held-out"'
    assert len(lines) > 100


def test_a_chart_answers_touch(browser, board, tmp_path):
    """One finger reads values, two zoom, a tap on `all` shows the whole chart; the buttons need no hovering pointer."""
    sample(tmp_path / "runs/first")
    with browser.new_context(has_touch=True, viewport={"width": 390, "height": 800}) as context:
        shown = context.new_page()
        shown.goto(f"{board}run/first/")
        chart = shown.locator("figure.chart").first
        chart.scroll_into_view_if_needed()
        box, whole = chart.locator(".plot").bounding_box(), chart.locator(".x").all_inner_texts()
        fingers = context.new_cdp_session(shown)

        def touch(kind, *shares):
            places = [
                {"x": box["x"] + box["width"] * share, "y": box["y"] + 40, "id": at} for at, share in enumerate(shares)
            ]
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

        touch("touchStart", 0.5)
        touch("touchMove", 0.6)
        until(lambda: chart.locator("output").inner_text().startswith("step "), "a value below the finger")
        touch("touchEnd")
        touch("touchStart", 0.4, 0.6)
        for share in (0.3, 0.2, 0.1):
            touch("touchMove", share, 1 - share)
        touch("touchEnd")
        assert chart.locator(".x").all_inner_texts() != whole
        chart.get_by_role("button", name="all", exact=True).tap()
        assert chart.locator(".x").all_inner_texts() == whole


def test_a_hosts_row_opens_and_stays_open_while_the_run_continues(page, board, tmp_path):
    run = going_on(tmp_path / "runs/first")
    lines = [{"node": "a", "t": START + t, "cpu_percent": 90.0, "cores": 4} for t in range(0, 50, 5)]
    for name in "abcd":
        write_lines(run / f"telemetry/{name}.jsonl", [{**line, "node": name} for line in lines])
    page.goto(f"{board}run/first/")
    hosts = page.locator("#machines details")
    hosts.nth(3).wait_for()
    assert not hosts.nth(1).locator("figure").first.is_visible()
    hosts.nth(1).locator("summary").click()
    hosts.nth(1).locator("figure").first.wait_for()
    before = hosts.nth(0).inner_text()
    write_lines(run / "telemetry/a.jsonl", [{**line, "node": "a", "cpu_percent": 10.0} for line in lines])
    until(lambda: hosts.nth(0).inner_text() != before, "the newer numbers")
    assert hosts.nth(1).locator("figure").first.is_visible()


def test_new_steps_do_not_disturb_the_reader_of_a_chart(page, board, tmp_path):
    """A button keeps its focus, a table its scroll position, and a range that the mouse is selecting stays."""
    run = going_on(tmp_path / "runs/first")
    losses = [{"t": START + step, "step": step, "loss": 2.9 - step / 1000} for step in range(1, 60)]
    write_lines(run / "metrics.jsonl", losses)

    def more(step):
        with open(run / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"t": START + step, "step": step, "loss": 2.3}) + "\n")

    page.goto(f"{board}run/first/")
    chart, last = page.locator("figure.chart").first, page.locator(".values td").nth(-2)
    chart.locator(".plot").press("t")
    page.locator(".values").evaluate("each => { each.scrollTop = 40 }")
    chart.get_by_role("button", name="log").focus()
    more(60)
    until(lambda: last.inner_text() == "60", "the newer step")
    assert page.evaluate("document.activeElement.textContent") == "log"
    assert page.locator(".values").evaluate("each => each.scrollTop") == 40
    page.keyboard.press("Enter")
    assert chart.locator(".y").count() > 1, "an axis of losses near each other has its numbers"
    whole, box = chart.locator(".x").all_inner_texts(), chart.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 50)
    more(61)
    page.wait_for_timeout(2_500)
    page.mouse.move(box["x"] + 250, box["y"] + 50)
    page.mouse.up()
    assert chart.locator(".x").all_inner_texts() != whole
    chart.locator(".plot").press("0")
    until(lambda: last.inner_text() == "61", "the step that came meanwhile")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(browser, board, tmp_path, scheme):
    """axe-core finds nothing serious in the list, on the pages of a run and a failed run, and in a comparison."""
    rules = pytest.importorskip("axe_playwright_python", reason="make installs it for tests")
    sample(tmp_path / "runs/first")
    sample(tmp_path / "runs/second", 300)
    broken = plain_run(tmp_path / "runs/broken", 1)
    for name in "abc":
        lines = [{"node": name, "t": START + t, "cpu_percent": 90.0} for t in (1, 9)]
        write_lines(broken / f"telemetry/{name}.jsonl", lines)
    with browser.new_context(color_scheme=scheme, bypass_csp=True) as context:
        shown = context.new_page()
        for path in ("run/first/", "run/broken/", ""):
            shown.goto(board + path)
            shown.locator("main a, .runs a").first.wait_for()
            assert serious(shown, rules) == []
        for name in ("first", "second"):
            shown.get_by_label(f"compare {name}").check()
        shown.get_by_role("button", name="Compare").click()
        shown.locator("figure.chart").first.wait_for()
        assert serious(shown, rules) == []


def serious(shown, rules):
    """The serious accessibility faults that axe-core finds on a page."""
    shown.evaluate((Path(rules.__file__).parent / "axe.min.js").read_text())
    found = shown.evaluate("axe.run()")["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")]


def test_an_axis_has_a_few_different_ticks_for_any_numbers(page, board, tmp_path):
    """The curves are flat, tiny, huge, or span many powers of ten."""
    ends = [(0, 600), (0.003, 0.004), (-3, 8e6), (5, 5), (0, 0), (1e-12, 3e-12), (1e15, 2e15), (-1e99, 1e99)]
    wide = [(0.02, 2.3), (1e-9, 1e9), (0.5, 40), (1e-3, 5e4), (1.1, 1.3)]
    tags = {f"plain {at}": [[1, low], [2, high]] for at, (low, high) in enumerate(ends)}
    tags |= {f"loss {at}": [[1, low], [2, high]] for at, (low, high) in enumerate(wide)}
    run = sample(tmp_path / "runs/first")
    write_lines(run / "scalars/a.jsonl", [{"t": START, "node": "a", "file": "work/log.csv", "tags": tags}])
    page.goto(f"{board}run/first/")
    charts = page.locator("#measured figure")
    assert charts.count() == len(tags)
    for chart in charts.all():
        shown = chart.locator(".plot .y").all_inner_texts()
        assert 2 <= len(set(shown)) == len(shown) <= 10, chart.inner_text()
        assert "NaN" not in chart.locator(".plot").inner_html()


def test_zooming_into_steps_of_fifteen_digits_does_not_freeze_the_page(page, board, tmp_path):
    """Once, the loop over its ticks had no end, because adding one gave the same number, and the page froze."""
    run, tags = sample(tmp_path / "runs/first"), {"far": [[10**15 - 1, 1], [10**15, 2]]}
    write_lines(run / "scalars/a.jsonl", [{"t": START, "node": "a", "file": "work/log.csv", "tags": tags}])
    page.goto(f"{board}run/first/")
    chart = page.locator("#measured figure")
    for _ in range(14):
        chart.locator(".plot").press("+")
    assert chart.locator(".plot .x").count() < 10


def test_a_chart_answers_the_mouse_and_a_double_click_resets_it(page, board, tmp_path):
    sample(tmp_path / "runs/first")
    page.goto(f"{board}run/first/")
    chart = page.locator("figure.chart").first
    whole, box = chart.locator(".plot svg").inner_html(), chart.locator(".plot").bounding_box()
    at = [box["x"] + box["width"] * share for share in (0.3, 0.6)]
    page.mouse.move(at[0], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(at[1], box["y"] + 50, steps=5)
    page.mouse.up()
    assert chart.locator(".plot svg").inner_html() != whole
    steps = [float(each.replace(",", "")) for each in chart.locator(".x").all_inner_texts()]
    places = [each.bounding_box()["x"] for each in (*chart.locator(".x").all(), chart.locator(".mark").first)]
    assert steps[0] < 300 < steps[-1]
    share = (300 - steps[0]) / (steps[-1] - steps[0])
    assert places[-1] == pytest.approx(places[0] + share * (places[-2] - places[0]), abs=15), "where it was resumed"
    page.mouse.dblclick(at[0], box["y"] + 50)
    assert chart.locator(".plot svg").inner_html() == whole
    chart.get_by_role("button", name="running mean").click()
    assert chart.locator("path.behind").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_board_fits_a_phone_and_dark_mode_and_prints_no_buttons(page, board, tmp_path, scheme):
    run = sample(tmp_path / "runs/first")
    name = "grad_norm/transformer.h.11." + "mlp_" * 15
    tags = [{"t": START, "node": "a", "file": "work/log.csv", "tags": {name: [[step, 1.0]]}} for step in (1, 2)]
    write_lines(run / "scalars/a.jsonl", tags)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 800})
    for path in ("", "run/first/"):
        page.goto(board + path)
        page.get_by_text("first" if not path else "Training", exact=True).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(252, 252, 250)"
        assert light == (scheme == "light")
    page.emulate_media(media="print")
    assert not page.locator(".tools").first.is_visible()


def test_the_command_that_fetches_a_run_of_hosts_is_shown_whole(page, board, tmp_path):
    """Once, the command was cut after a few words, like a long script."""
    sample(tmp_path / "runs/first")

    def of_hosts(route):
        answer = route.fetch()
        rows = [{**row, "command": "muster fetch --hosts gpu-a,gpu-b first"} for row in answer.json()["rows"]]
        route.fulfill(response=answer, json={**answer.json(), "rows": rows})

    page.route("**/runs.json*", of_hosts)
    page.goto(board)
    cell = page.locator("td.words:has(code)").first
    cell.wait_for()
    assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.holds("board-is-ones-own")
def test_a_run_with_scripts_in_every_field_runs_none(page, board, tmp_path):
    """None runs in the list, on the run's page or in a comparison: a dialog, request or fault fails the fixture."""
    nasty = HOSTILE.replace("\ud800", "")
    for name in ("first", "second"):
        run = going_on(tmp_path / f"runs/{name}")
        words = {"arguments": [nasty], "hosts": [nasty], "why": nasty, "started": time.time()}
        write(run / "record.json", {**RECORD, **words})
        write(run / "environment.json", {nasty: nasty + name, "packages": {nasty: name}, "variables": {nasty: name}})
        write(run / "outcome.json", {"verdict": nasty, "message": f"{nasty}\n{nasty}", "hint": nasty, "node": nasty})
        write_lines(run / "scalars/master.jsonl", [
            {"node": "master", "t": 1.0, "file": nasty, "tags": {nasty: [[1, 0.5], [2, 0.25]]}}
        ])  # fmt: skip
        (run / "logs/rank-0.log").write_text(f"{nasty}\n")
    page.goto(board)
    rows_of(page).nth(1).wait_for()
    assert "<script>" in rows_of(page).first.inner_text()
    for name in ("first", "second"):
        page.get_by_label(f"compare {name}").check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("What differs").wait_for()
    page.get_by_role("link", name="second").first.click()
    page.get_by_text("Last lines", exact=True).first.wait_for()
    assert page.locator("img, iframe, object").count() == 0
    assert page.locator("script").count() == 1


def test_another_site_in_the_same_browser_gets_nothing(page, board):
    """Requests from the other site get no content from the board."""
    here = board.split("/")[2]
    page.route("http://evil.test/", lambda route: route.fulfill(body="<h1>evil</h1>", content_type="text/html"))
    page.goto("http://evil.test/")
    got = page.evaluate(
        """async (address) => {
            const answers = [];
            for (const mode of ["cors", "no-cors"])
                try {
                    const answer = await fetch(address, { mode });
                    answers.push(answer.type === "opaque" ? "" : await answer.text());
                } catch { answers.push(""); }
            return answers;
        }""",
        f"{board}runs.json",
    )
    assert got == ["", ""]
    page.asked[:] = [url for url in page.asked if "evil.test" not in url]
    assert all(here in url for url in page.asked)


def test_a_page_is_complete_without_javascript(browser, board, tmp_path):
    sample(tmp_path / "runs/first")
    with browser.new_context(java_script_enabled=False) as context:
        shown = context.new_page()
        shown.goto(f"{board}run/first/")
        assert shown.locator(".plot svg path.line").first.is_visible()
        assert shown.locator(".plot").first.locator(".x").all_inner_texts() == ["5", "600"]
        assert shown.get_by_text("98.9 %").first.is_visible()


def test_when_the_board_ends_the_page_says_so(browser, tmp_path):
    run = going_on(tmp_path / "runs/first")
    with board_of(tmp_path, "--json", str(run.parent)) as line:
        shown = browser.new_page()
        shown.goto(json.loads(line)["url"])
    until(lambda: "has ended" in shown.locator(".told").inner_text(), "the word that the board has ended")
    shown.close()
