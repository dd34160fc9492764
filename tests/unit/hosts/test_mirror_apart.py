"""Hosts' reports about a run are copied into its local folder; files of the same name from two hosts do not mix."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.core.names import NodeName
from deploy.host.files import incoming
from deploy.host.files.unpack import LeftOut
from deploy.hosts.mirror import AllFiles, Mirror
from deploy.report.page import data
from deploy.run.files import host_copies
from deploy.run.follower import Follower
from deploy.run.progress import State

LOG = "ranks/rank-0.jsonl"


def lines(node: str, t: float, steps: range, rank: int = 0, world: int = 2) -> str:
    """A rank's events from time `t` on, with one step a second."""
    began = {"t": t, "kind": "began", "attempt": 0, "world": world}
    started = {"t": t + 0.1, "kind": "started", "attempt": 0, "world": world}
    rows = [{"t": t + 1 + n, "kind": "step", "step": s, "data_ms": 1, "compute_ms": 1} for n, s in enumerate(steps)]
    return "".join(json.dumps({**row, "rank": rank, "node": node}) + "\n" for row in (began, started, *rows))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    return folder


def mirror(run_dir: Path, node: str) -> Mirror:
    return Mirror(run_dir, node, NodeName(node), pytest.fail)


def send(made: Mirror, files: dict[str, str]) -> None:
    """Send these files of a host: from each one the part after what the mirror already has of this host's file."""
    _, known = made.resume_point()
    for path, text in files.items():
        size, _, time = known.get(path, "0 ").partition(" ")
        at = int(size) if time == host_copies.time_in(text.encode()) else 0
        if text[at:]:
            piece = base64.b64encode(text[at:].encode()).decode()
            made.take(f"{made.mark} add {path} {at} {piece} .")


def test_one_look_at_the_folder_serves_all_hosts_that_begin_together(run_dir: Path, monkeypatch: Any) -> None:
    """Once, each of 256 hosts read the beginnings of 2,304 files: an attach took 20 s of CPU to show anything."""
    send(mirror(run_dir, "a"), {f"ranks/rank-{rank}.jsonl": lines("a", 1000.0, range(1, 3)) for rank in range(8)})
    files, read = AllFiles(run_dir), list[str]()
    head = host_copies.head
    monkeypatch.setattr(host_copies, "head", lambda run_dir, name: read.append(name) or head(run_dir, name))
    known = [Mirror(run_dir, node, NodeName(node), pytest.fail, all_files=files).resume_point()[1] for node in "abcd"]
    assert known == known[:1] * 4
    assert sorted(known[0]) == sorted(read) == [f"ranks/rank-{rank}.jsonl" for rank in range(8)]


def steps_of(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["node"], event["step"]) for event in events if event["kind"] == "step"]


def test_a_rank_on_another_host_than_before_is_followed_from_its_first_event(run_dir: Path) -> None:
    send(mirror(run_dir, "a"), {LOG: lines("a", 1000.0, range(1, 80))})
    follower = Follower(run_dir)
    resumed = mirror(run_dir, "b")
    send(resumed, {LOG: lines("b", 2000.0, range(80, 83))})
    assert steps_of(follower.read()) == [("b", 80), ("b", 81), ("b", 82)]
    send(resumed, {LOG: lines("b", 2000.0, range(80, 85))})
    send(mirror(run_dir, "b"), {LOG: lines("b", 2000.0, range(80, 86))})  # as if another follower continues
    assert steps_of(follower.read()) == [("b", 83), ("b", 84), ("b", 85)]
    assert "".join(path.read_text() for path in (run_dir / LOG, run_dir / "hosts/b" / LOG)) == (
        lines("a", 1000.0, range(1, 80)) + lines("b", 2000.0, range(80, 86))
    ), "nothing of either part is lost"


def test_the_page_shows_the_steps_and_losses_of_all_hosts_that_had_a_rank(run_dir: Path) -> None:
    for node, t, steps in (("a", 1000.0, range(1, 80)), ("b", 2000.0, range(80, 90))):
        losses = "".join(json.dumps({"t": t + step, "step": step, "loss": 1 / step}) + "\n" for step in steps)
        send(mirror(run_dir, node), {LOG: lines(node, t, steps), "metrics.jsonl": losses})
    run = data.load(run_dir)
    assert [time.step for time in run.times[0]] == [*range(1, 90)]
    assert [row["step"] for row in run.metrics] == [*range(1, 90)]
    assert run.nodes == {0: "b"}


def test_a_file_sent_by_hosts_that_share_a_home_is_stored_once(run_dir: Path) -> None:
    both = (mirror(run_dir, "a"), mirror(run_dir, "b"))
    for length in (3, 5):
        for made in both:
            send(made, {LOG: lines("a", 1000.0, range(1, length))})
    assert (run_dir / LOG).read_text() == lines("a", 1000.0, range(1, 5))
    assert not (run_dir / "hosts").exists()


def test_the_events_of_a_host_with_a_new_disk_are_stored_next_to_the_earlier_ones(run_dir: Path) -> None:
    send(mirror(run_dir, "a"), {LOG: lines("a", 1000.0, range(1, 80))})
    send(mirror(run_dir, "a"), {LOG: lines("a", 2000.0, range(80, 85))})
    assert (run_dir / LOG).read_text() == lines("a", 1000.0, range(1, 80))
    assert (run_dir / "hosts/a" / LOG).read_text() == lines("a", 2000.0, range(80, 85))
    send(mirror(run_dir, "a"), {LOG: lines("a", 3000.0, range(85, 90))})
    assert (run_dir / "hosts/a" / LOG).read_text() == lines("a", 3000.0, range(85, 90))


def test_a_node_came_up_when_its_host_says_and_not_when_a_follower_reads_it(run_dir: Path) -> None:
    made, now = mirror(run_dir, "a"), time.time()
    for written, shown in ((now - 400.0, now - 400.0), (now + 3600.0, now)):  # the second host's clock is ahead
        node_file = json.dumps({"node": "a", "pid": 7, "host": "a", "t": written})
        made.take(f"{made.mark} doc nodes/a.json {base64.b64encode(node_file.encode()).decode()} .")
        (event,) = Follower(run_dir).read()
        assert event["t"] == pytest.approx(shown, abs=5.0)


def test_a_fetch_does_not_overwrite_the_events_of_a_lost_host(run_dir: Path) -> None:
    send(mirror(run_dir, "a"), {LOG: lines("a", 1000.0, range(1, 80))})
    send(mirror(run_dir, "b"), {LOG: lines("b", 2000.0, range(80, 82))})
    staged = run_dir / ".fetch-b"
    (staged / "ranks").mkdir(parents=True)
    (staged / LOG).write_text(lines("b", 2000.0, range(80, 90)))
    incoming.Merge(run_dir, incoming.Fetched(run_dir)).take("b", staged, LeftOut())
    assert (run_dir / LOG).read_text() == lines("a", 1000.0, range(1, 80))
    assert (run_dir / "hosts/b" / LOG).read_text() == lines("b", 2000.0, range(80, 90))


def test_ranks_that_a_smaller_start_lacks_do_not_count_for_its_step(run_dir: Path) -> None:
    for rank, node in enumerate("abc"):
        send(mirror(run_dir, node), {f"ranks/rank-{rank}.jsonl": lines(node, 1000.0, range(1, 83), rank, world=3)})
    for rank, node in enumerate("bc"):
        send(mirror(run_dir, node), {f"ranks/rank-{rank}.jsonl": lines(node, 2000.0, range(80, 256), rank)})
    state = State(("b", "c"))
    for event in Follower(run_dir, from_start=True).read():
        state.apply(event)
    state.apply({"kind": "step", "t": 1090.0, "rank": 2, "node": "c", "step": 82})  # this event arrives late
    assert (state.step, state.ranks.began, state.living) == (255, {0: "b", 1: "c"}, {0: "b", 1: "c"})


def test_the_loss_keeps_updating_while_the_first_host_is_away(run_dir: Path) -> None:
    """In that time rank 0 of the script is on another host, which writes a metrics.jsonl of its own."""

    def losses(*steps: int) -> dict[str, str]:
        return {"metrics.jsonl": "".join(json.dumps({"t": 1e9 + s, "step": s, "loss": 1 / s}) + "\n" for s in steps)}

    first, second, state = mirror(run_dir, "a"), mirror(run_dir, "b"), State(("a", "b", "c"))
    follower = Follower(run_dir)
    for made, files, newest in (
        (first, losses(1, 464), 464),
        (second, losses(490), 490),
        (second, losses(490, 643), 643),
        (first, losses(1, 464, 660), 660),
    ):
        send(made, files)
        for event in follower.read():
            state.apply(event)
        assert state.training.losses[-1] == (newest, 1 / newest)
    assert state.story.unread == 0
    assert [row["step"] for row in data.load(run_dir).metrics] == [1, 464, 490, 643, 660]
