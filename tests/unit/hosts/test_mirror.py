"""What a follower keeps of a host's reports about its node."""

import gc
import json
import time

import pytest

from deploy.core.names import NodeName
from deploy.hosts.mirror import Mirror
from tests.hostile.engine import described


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "r").mkdir()
    return Mirror(tmp_path / "r", "a", NodeName("a"), print)


def state(mirror, started, status="running"):
    inside = {"Status": status, "ExitCode": 0, "StartedAt": started}
    labels = {"muster.run": "r", "muster.node": "a"}
    mirror.take(f"{mirror.mark} state {json.dumps(described('/c', labels, inside))}")


def test_a_node_restarted_between_two_looks_has_the_exit_code_of_its_previous_start(mirror):
    state(mirror, "1")
    mirror.take(f"{mirror.mark} died 137")
    state(mirror, "2")
    assert (mirror.state.restarts, mirror.state.code) == (1, 137)
    state(mirror, "3")
    assert (mirror.state.restarts, mirror.state.code) == (2, None), "this engine does not know it"


def test_only_the_nodes_own_files_show_that_it_runs_without_its_engine(mirror, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for seconds, path in ((0, ""), (30, "ranks/rank-1.jsonl"), (31, "ranks/rank-0.jsonl")):
        now += seconds
        mirror.take(f"{mirror.mark} state away")
        if path:
            mirror.take(f"{mirror.mark} add {path} 0 e30K .")
    assert mirror.signs([0]).lives_on
    assert mirror.signs([2]).trouble == "lifeless", "hosts may share a home"
    now += 10
    assert mirror.signs([0]).trouble == "unseen"


def test_a_host_that_was_silent_itself_is_not_reported_with_a_dead_engine(mirror, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    state(mirror, "1")
    now += 25
    mirror.take(f"{mirror.mark} state away")
    assert (mirror.engine_s(), mirror.away_s()) == (25, 0)
    now += 5
    assert mirror.away_s() == 5
    state(mirror, "1")
    assert mirror.away_s() == 0


def test_an_error_of_dockers_client_about_a_dead_engine_is_not_the_nodes_output(tmp_path):
    heard = []
    (tmp_path / "r").mkdir()
    mirror = Mirror(tmp_path / "r", "a", NodeName("a"), print, lambda words, _: heard.append(words))
    mirror.take("unexpected EOF")
    mirror.take("2026-11-26T02:38:26.1Z unexpected EOF")
    assert heard == ["unexpected EOF"], "a script may print it"


@pytest.mark.long
def test_two_commands_that_follow_a_run_from_one_folder_store_each_line_once(tmp_path):
    """As with `muster attach` twice, or next to a board. When the first one ends, the other continues."""
    (tmp_path / "r").mkdir()
    first, second = (Mirror(tmp_path / "r", "a", NodeName("a"), print) for _ in range(2))
    for line in ("2026-11-26T02:38:26.1Z one", "2026-11-26T02:38:26.2Z two"):
        for mirror in (first, second):
            mirror.take(line)
            mirror.take(f"{mirror.mark} add ranks/rank-0.jsonl 0 e30K .")
    assert (tmp_path / "r/logs/a.log").read_text() == "one\ntwo\n"
    assert (tmp_path / "r/ranks/rank-0.jsonl").read_text() == "{}\n"
    del first
    gc.collect()
    second.take("2026-11-26T02:38:26.3Z three")
    assert (tmp_path / "r/logs/a.log").read_text() == "one\ntwo\nthree\n"
