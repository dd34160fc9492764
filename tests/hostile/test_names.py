"""A host chooses the names in its answers; none of them leads out of the place it is meant for."""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path

import pytest

from deploy.core import names
from deploy.core.errors import BadAnswer, DeployError, UsageError
from deploy.core.names import NodeName, RunId
from deploy.engine.engine import Container as Seen
from deploy.host import facts, gpus, logs, status
from deploy.host.files.folder_copy import allowed_path
from deploy.hosts.mirror import Mirror
from deploy.run.files import folders, record
from tests.hostile.engine import described

HOME = Path(__file__).resolve().parents[2]
EVIL = (
    "",
    ".",
    "..",
    "/home/x/.ssh",
    "../../.ssh",
    "a/b",
    "a\\b",
    "a..b",
    "-rf",
    "~root",
    "a b",
    "a\nb",
    "a\x00b",
    "a\x1b[2J",
    "$(id)",
    "`id`",
    "a;b",
    "*",
    "é",
    "a\u202eb",
    "²",
    "x" * 101,
    "latest",
    "\ud800",
)


def container(run="r1", node="a", name="/muster-r1"):
    labels = {"muster.run": run, "muster.node": node, "muster.place": "0", "muster.nodes": "1"}
    return json.dumps(described(name, labels, {"Status": "running", "ExitCode": 0, "StartedAt": ""}))


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.holds("names-from-hosts")
@pytest.mark.parametrize("name", EVIL, ids=ascii)
def test_a_name_that_could_lead_elsewhere_is_refused_as_a_run_id(name) -> None:
    with pytest.raises(BadAnswer):
        names.run_id(name)
    with pytest.raises(BadAnswer) as fault:
        facts.container_of(facts.parse_container(container(run=name)))
    assert fault.value.message.isprintable(), "a terminal would obey the message"
    assert "muster.run" in fault.value.message
    with pytest.raises(UsageError):
        names.check_typed("--run", name, names.run_id)


@pytest.mark.parametrize("value", [None, True, 7, 1.5, [], {}, ["a"], 10**6000], ids=lambda value: type(value).__name__)
def test_a_value_that_is_not_text_is_refused_as_a_name(value) -> None:
    for check in (names.run_id, names.node_name, names.container_name, names.container_id, names.file_name):
        with pytest.raises(BadAnswer):
            check(value)


def test_usual_names_are_accepted() -> None:
    for name in ("2026-11-21-0214-digits", "a", "9", "my.run_2-b", "x" * 100):
        assert names.run_id(name) == name
    for host in ("gpu-a", "10.0.0.4", "fe80::1%eth0", "user@a:22", "_x", "..", "a..b", "é", "h" * 300):
        assert names.node_name(names.node_of(host)) == names.node_of(host)
    assert names.file_name("Ein Blatt (2).txt")
    for name in (".", "..", "a/b", "a\nb", "", "é" * 200):
        with pytest.raises(BadAnswer):
            names.file_name(name)


def test_every_parser_refuses_a_label_with_an_invalid_name() -> None:
    own = {"/muster/run": "/home/u/.muster/runs/r1"}
    for labels, name in (({"muster.run": "/home/x/.ssh"}, "muster-r1"), ({"muster.run": "r1"}, "--help")):
        with pytest.raises(BadAnswer):
            facts.containers([Seen("0", name, labels, own, "running")], "/home/u")
    for labels in ({"muster.run": "/home/x/.ssh"}, {"muster.run": "r1", "muster.node": "/etc/x"}):
        for read in (status.parse, status.parse_runs):
            with pytest.raises(BadAnswer):
                read("time 1", [Seen("0", "muster-r1", labels, own, "running")], "/home/u")
    for read, answer in (
        (lambda answer: gpus.parse(answer.split("\n")), f"container {'a' * 64} --rm r1"),
        (lambda answer: gpus.parse(answer.split("\n")), f"container {'a' * 64} box ../r1"),
    ):
        with pytest.raises(BadAnswer):
            read(answer)
    for node in ("/etc/passwd", "../a", "a b"):
        with pytest.raises(BadAnswer):
            facts.container_of(facts.parse_container(container(node=node)))


def test_folders_that_are_not_runs_are_skipped() -> None:
    assert names.run_ids(["r1", "my backup", "-rf", "..", "latest", ".trash"]) == {"r1"}
    assert logs.parse((), "../../.ssh/logs/rank-0.log\nr1/logs/rank-3.log").rank_logs == {("r1", 3)}
    runs = status.parse_runs("folder .. 1700000000 4 \nfolder r1 1700000000 4 00000010\nfolder a b 1 1 1")
    assert [node.run for node in runs] == ["r1"]


def test_files_from_a_host_stay_in_the_run_folder(tmp_path) -> None:
    run_dir = tmp_path / "runs" / "r1"
    run_dir.mkdir(parents=True)
    mirror = Mirror(run_dir, "a", NodeName("a"), lambda _: None)
    before = files(tmp_path)
    text = base64.b64encode(b"{}").decode()
    for path in (
        "../../x.json", "/tmp/x.json",
        "nodes/../../x.json", "nodes/.x.json", "nodes/-x.json", f"nodes/{'x' * 300}.json",
        "record.json", "outcome.json", "timeline.jsonl", "report.html", "ranks/rank-x.jsonl", "ranks/../x.jsonl",
        "ranks/rank-\u0663.jsonl", "logs/a.log", "checkpoints/step-1/state.pt", "", ".", "nodes", "outcome/a.json",
        "telemetry/../x.jsonl", "telemetry/.x.jsonl", "telemetry/a.json", "telemetry/a b.jsonl", "telemetry/a/b.jsonl",
        "scalars/../x.jsonl",
    ):  # fmt: skip
        assert allowed_path(path) is None, path
        mirror.take(f"{mirror.mark} doc {path} {text} .")
        mirror.take(f"{mirror.mark} add {path} 0 {text} .")
    assert files(tmp_path) == before
    mirror.take(f"{mirror.mark} doc nodes/a.json {text} .")
    assert files(tmp_path) == sorted([*before, "runs/r1/nodes", "runs/r1/nodes/a.json"])


def test_a_host_cannot_refer_to_a_local_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "mine").mkdir()
    record.write_json(tmp_path / "mine" / "record.json", {"backend": "processes"})
    (tmp_path / "theirs").mkdir()
    record.write_json(tmp_path / "theirs" / "record.json", {"backend": record.HOSTS})
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "file").write_text("")
    for name in ("mine", "link", "file"):
        with pytest.raises(DeployError):
            record.folder_of(RunId(name))
    for name in ("theirs", "new"):
        assert record.folder_of(RunId(name)) == tmp_path / name


def test_a_user_may_type_a_run_id_or_a_path(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "r1").mkdir()
    assert record.find("r1") == record.find(str(tmp_path / "r1")) == (tmp_path / "r1").resolve()
    for typed in ("", "-x", "a b", "nowhere", "../nowhere", "a\nb"):
        with pytest.raises(UsageError):
            record.find(typed)


def test_only_one_function_makes_a_local_path_of_a_runs_name() -> None:
    joined = {}
    for path in sorted((HOME / "deploy").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                left = ast.unparse(node.left)
                if left in ("folders.RUNS", "RUNS", "runs", "record.RUNS"):
                    joined.setdefault(path.name, []).append(ast.unparse(node))
    assert set(joined) == {"record.py"}, joined
