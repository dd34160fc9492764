"""The board shows a run on three hosts from another folder, while a rank is killed and the run continues."""

from __future__ import annotations

import pytest

from lab.waiting import until
from tests.browser import board_of, chromium, needed
from tests.cluster.control import Control

pytestmark = needed
RUN = "torchrun -- train.p[y]"
SCRIPT = """
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while True:
    loss = (model(torch.ones(4, 8)) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item(), flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def control(rack, tmp_path):
    """A run of the script on all hosts, deployed from another folder and followed by no command."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text(SCRIPT)
    made = Control(rack)
    made.hosts = rack.hosts
    done = made.deploy("--detach", "--restarts", "2", "--folder", str(tmp_path / "project"), "--", "train.py")
    assert done.returncode == 0, done.stderr
    yield made
    made.clean()


@pytest.mark.holds("board-is-ones-own")
def test_the_board_follows_a_run_through_a_killed_rank_and_the_report_says_the_same(control, tmp_path):
    """The board only looks: the run that it follows keeps its containers, and continues when the board ends."""
    hosts = ("--hosts", ",".join(control.hosts))
    with chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        with board_of(tmp_path, *hosts, MUSTER_SSH_CONFIG=str(control.rack.ssh_config)) as url:
            page.goto(url)
            page.get_by_role("link", name=control.run).click()
            page.locator(".verdict.running").wait_for()
            until(lambda: steps(page) > 20, "steps on the page", 180)
            control.rack.root(control.hosts[1], "sh", "-c", f"pgrep -f '{RUN}' | tail -n 1 | xargs kill -9")
            page.locator("#story").get_by_text("the script starts again").wait_for()
            assert "SIGKILL" in page.locator("#story").inner_text()
            before = steps(page)
            until(lambda: steps(page) > before + 20, "steps behind the restart", 180)
            assert len(control.containers()) == 3
            assert control.fab("stop", "--run", control.run).returncode == 0
            page.locator(".verdict:not(.running)").wait_for()
            report = tmp_path / "runs" / control.run / "report.html"
            until(report.is_file, "the frozen page", 60)
            until(lambda: told(page) == frozen(browser, report), "the same words on both pages", 60)


def steps(page):
    """How many steps the page shows; 0 if it shows no number."""
    numbers = page.locator(".figures div", has=page.locator("dt", has_text="steps")).locator("dd").all_inner_texts()
    return int(numbers[0].replace(",", "")) if numbers else 0


def told(page):
    """What a page shows about a run: how it ended, its numbers, its story."""
    return [page.locator(place).inner_text() for place in (".verdict", ".figures", "#story", "#steps")]


def frozen(browser, report):
    """What the page in a run's folder shows without a network."""
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto(report.as_uri())
        return told(page)
