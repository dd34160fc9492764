"""`attach` copies everything a run has written, however much is new, and reports what it does not keep."""

import base64
import json

import pytest

from deploy.core.names import NodeName
from deploy.host.files import folder_copy
from deploy.hosts.mirror import Mirror
from tests.hostile.server import Answer, container, flood, look

STEP = {"kind": "step", "rank": 0, "node": "evil", "steps": 90000, "count": 1, "data_ms": 1.0, "compute_ms": 2.0}

VERDICT = {"verdict": "done", "code": 0, "rank": 0, "node": "evil", "step": 1, "message": "m", "hint": ""}


def events(count):
    """`count` steps, as rank 0 writes them: about 200 bytes each."""
    rows = ({"t": 1.7e9 + n, "step": n, "wait_ms": 1.0, "step_ms": 4.0, "pad": "x" * 80, **STEP} for n in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows)


def detached(server, lines):
    """A finished run on the host that nobody has followed yet: its rank's events, its verdict and a long console."""
    run = server.home / ".muster/runs/R"
    for folder in ("ranks", "nodes", "outcome", "logs"):
        (run / folder).mkdir(parents=True)
    (run / "ranks/rank-0.jsonl").write_text(lines)
    (run / "outcome/evil-0.json").write_text(json.dumps(VERDICT))
    server.runs(container("R", status="exited", home=server.home, command="--recipe digits"))
    (server.home / "engine/console").write_text(
        "".join(f"2026-11-21T00:00:00.{n:09d}Z line {n}\n" for n in range(9000))
    )


@pytest.mark.holds("nothing-dropped")
def test_an_hour_of_events_comes_home_whole(hostile):
    rig = hostile({})
    written = events(25_000)
    assert len(written) > 4 << 20
    detached(rig.servers["evil"], written)
    done = rig.task("attach", "--hosts", "evil", "--run", "R", within_s=60)
    assert done.code == 0, done.output
    assert "not all that it tells" not in done.output
    assert (rig.runs / "R/ranks/rank-0.jsonl").read_text() == written
    assert (rig.runs / "R/logs/evil.log").read_text().splitlines()[-1] == "line 8999"
    assert rig.harm("R") == []


@pytest.fixture
def mirror_and_warnings(tmp_path):
    """A mirror of host `a` in a separate folder, and the list of its warnings."""
    warnings = []
    (tmp_path / "R").mkdir()
    return Mirror(tmp_path / "R", "a", NodeName("a"), warnings.append), warnings


def line(made, what, path, data, *offset):
    made.take(" ".join([made.mark, what, path, *offset, base64.b64encode(data).decode(), "."]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "ranks/rank-0.jsonl", "0", "eyJ"), "sent an incomplete line"),
        (("add", "ranks/rank-0.jsonl", "0", "???=", "."), "cannot be read"),
        (("add", "ranks/rank-0.jsonl", "-5", "e30K", "."), "cannot be read"),
        (("add", "ranks/rank-0.jsonl", "9" * 5000, "e30K", "."), "cannot be read"),
        (("add", "ranks/rank-0.jsonl", "70", "e30K", "."), "leaves out 70 bytes"),
        (("big", "config.json", "123456789", "."), "of 123456789 bytes"),
    ],
)
def test_data_that_is_not_kept_is_reported_once(mirror_and_warnings, words, says):
    made, warnings = mirror_and_warnings
    for _ in range(3):
        made.take(" ".join([made.mark, *words]))
    assert len(warnings) == 1
    assert says in warnings[0]
    assert warnings[0].startswith("a: ")


def test_overlapping_pieces_are_written_once(mirror_and_warnings, tmp_path):
    made, warnings = mirror_and_warnings
    line(made, "add", "ranks/rank-0.jsonl", b"0123", "0")
    line(made, "add", "ranks/rank-0.jsonl", b"0123456", "0")
    line(made, "add", "ranks/rank-0.jsonl", b"345", "3")
    assert (tmp_path / "R/ranks/rank-0.jsonl").read_bytes() == b"0123456"
    assert not warnings


@pytest.mark.parametrize("limit", ["MOST_BYTES", "LEAST_FREE", "MOST_FILES"])
def test_a_host_that_sends_without_end_fills_no_disk(mirror_and_warnings, tmp_path, monkeypatch, limit):
    made, warnings = mirror_and_warnings
    monkeypatch.setattr(folder_copy, limit, {"MOST_BYTES": 100_000, "LEAST_FREE": 1 << 60, "MOST_FILES": 50}[limit])
    for number in range(500):
        line(made, "doc", "config.json", b"x" * 1000)
        line(made, "add", f"ranks/rank-{number}.jsonl", b"y" * 1000, "0")
        made.take(f"2026-11-21T00:00:00.{number:09d}Z {'z' * 1000}")
    here = [path for path in (tmp_path / "R").rglob("*") if path.is_file()]
    if limit == "MOST_FILES":
        assert len(here) <= 52
    else:
        assert sum(path.stat().st_size for path in here) <= 2.2 * 100_000
    assert len(warnings) == 1


def test_a_flooded_follower_reports_it_and_ends_with_the_run(hostile, monkeypatch):
    monkeypatch.setattr(folder_copy, "MOST_BYTES", 1 << 20)

    def follow(asked):
        mark = asked.argv[asked.argv.index("follow") + 3]

        def lines():
            yield from flood(b"x" * 999 + b"\n", 8 << 20)
            verdict = {
                "verdict": "stopped",
                "code": 75,
                "rank": 0,
                "node": "evil",
                "step": 1,
                "message": "m",
                "hint": "",
            }
            text = base64.b64encode(json.dumps(verdict).encode()).decode()
            yield f"{mark} doc outcome/evil-0.json {text} .\n".encode()
            yield f"{mark} state {container('R', status='exited', code=75).removeprefix('container ')}\n".encode()

        return Answer(lines())

    rig = hostile({})
    server = rig.servers["evil"]
    server.runs(container("R", home=server.home, command="--recipe digits"))
    server.answers = {"follow": follow, "forget": b"", "look": look()}
    done = rig.task("attach", "--hosts", "evil", "--run", "R", within_s=60)
    assert done.code == 75, done.output
    assert "evil: this machine does not keep everything that the host sends" in done.output
    assert (rig.runs / "R/logs/evil.log").stat().st_size <= 1 << 20
    assert rig.harm("R") == []
