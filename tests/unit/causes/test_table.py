"""The table of causes is complete: the page comes from it, its references exist, and each row is used."""

from __future__ import annotations

import ast
import json
import re
import threading
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

from deploy.causes import docker_faults, table
from deploy.causes.end_causes import Cause
from deploy.causes.finding import find
from deploy.causes.rehearsal_faults import SIGNS
from deploy.causes.row import Row
from deploy.causes.table import ROWS, SECTIONS, row_of
from deploy.commands.explain import tell
from deploy.core.errors import UsageError
from deploy.core.program import host_fields, remember_typed
from deploy.door import faults
from deploy.door.session import on_each
from deploy.job.option_words import command_of
from deploy.local import preflight
from deploy.preflight import confidence
from deploy.preflight.answers import WORDS
from deploy.preflight.verdict import GROUPS
from deploy.report.console import Console
from deploy.send.background import BackgroundTask
from tests.sources import nodes

HOME = Path(__file__).resolve().parents[3]
# Slugs that a check composes from parts, so that no file contains them whole.
COMPOSED = {"torch-differs", "cuda-differs", "all-ports-rejected"}


def test_each_slug_is_unique_and_each_row_has_a_meaning() -> None:
    slugs = [row.slug for section in SECTIONS for row in section.rows]
    assert len(slugs) == len(set(slugs)) == len(ROWS)
    assert not [row.slug for row in ROWS.values() if not row.meaning]


def test_everything_that_a_row_refers_to_exists() -> None:
    for row in ROWS.values():
        assert table.EXPLAINS[row.slug] <= ROWS.keys() - {row.slug}, row.slug
        assert row.group in ("", *GROUPS), row.slug
        assert row.fails is None or row.fails <= WORDS.keys(), row.slug
        assert row.settled_by in ("", *confidence.SETTLES), row.slug
    assert {row.settled_by for row in ROWS.values()} == {"", *confidence.SETTLES}


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.command], ids=lambda row: row.slug)
def test_a_command_has_no_placeholder_but_its_host(row: Row) -> None:
    assert "{" not in row.hint("gpu-b").replace("{print", "")
    assert "{" not in row.hint_here().replace("{print", "")


def test_explain_prints_a_row_without_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(["ssh-key"], Console(False)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cause     ssh-key: `Permission denied (publickey)`")
    assert any(line.startswith("may be    AllowUsers") for line in lines)
    assert lines[-1].startswith("source    sshd(8)")
    assert tell(["gpu-xid"], Console(True)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["cause"], told["group"]) == ("cause", "gpu-xid", "gpu-lost")
    assert told["meaning"].startswith("The driver has reported a serious error")


def test_a_file_named_like_a_cause_is_read_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("killed").write_text("KeyError: 'image'\n")
    tell(["killed"], Console(False))
    assert "KeyError" in capsys.readouterr().out
    Path("ssh-key").symlink_to("nowhere")
    with pytest.raises(UsageError):
        tell(["ssh-key"], Console(False))


def test_a_word_that_is_no_file_run_or_cause_is_refused() -> None:
    with pytest.raises(UsageError, match="no such file, folder, run or cause") as refused:
        tell(["ssh-keys"], Console(False))
    assert refused.value.hint.endswith(" explain ssh-key`?")


def test_each_kind_of_ssh_fault_has_a_row() -> None:
    assert {faults.SshFault(kind, "", "").slug for kind in get_args(faults.Kind)} <= ROWS.keys()


SIGNS_IN_CODE = {f"deploy/{name}.py" for name in ("door/faults", "explain/refine", "explain/unreached_store")}


def places() -> dict[str, set[str]]:
    """For each slug, the places other than its row that name it: a file, or all tables of signs as one place."""
    named = defaultdict(set)
    for path in (HOME / "deploy").rglob("*.py"):
        place = str(path.relative_to(HOME))
        if place.startswith("deploy/causes/"):
            continue
        signs = path.parent.name == "signs" or place in SIGNS_IN_CODE
        place = "signs" if signs else place
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ROWS:
                named[node.value].add(place)
    return named


# Besides its row, a cause is named in two places: the check that finds it, and the signs. These are named in more, and
# the list only shrinks: two checks look at a host and a container, a rehearsal finds again what checks look for, and a
# deploy continues despite some. Slugs of one word, and outcomes of links, are also words for other things.
MORE_PLACES = {
    "bridge-network": 3,
    "disk-full": 5,
    "docker-down": 3,
    "docker-refused": 7,
    "folder-readonly": 3,
    "gpu-busy": 4,
    "inodes-full": 3,
    "interface-down": 5,
    "interface-missing": 3,
    "interface-no-address": 3,
    "link-loss": 3,
    "link-slow": 5,
    "loss-nan": 3,
    "name-loopback": 3,
    "name-unresolvable": 4,
    "other-network": 4,
    "port-busy": 3,
    "probe-died": 3,
    "process-limits": 5,
    "proof-failed": 5,
    "script-error": 3,
}
OTHER_THINGS = {"no-route", "one-way", "link-local"}


def test_a_cause_is_named_in_few_places() -> None:
    many = {slug: len(names) for slug, names in places().items() if len(names) > 2 and "-" in slug}
    more = {slug: names for slug, names in many.items() if slug not in OTHER_THINGS}
    assert more == MORE_PLACES, "a row says it: let find() take it from there, or give the row a field"


def test_each_row_is_named_by_the_code_that_finds_it() -> None:
    of_ends, of_docker = {cause.entry for cause in Cause}, {cause.name for cause in docker_faults.CAUSES}
    assert ROWS.keys() - places().keys() - of_ends - of_docker == COMPOSED


def test_commands_to_type_name_hosts_as_the_user_typed_them():
    """Earlier, `deploy -H me@gpu-a:2222` ended with `muster bootstrap --hosts gpu-a`: another user, another port."""
    remember_typed({"gpu-a": "me@gpu-a:2222"})
    row = row_of("docker-missing")
    assert row.hint("gpu-a") == find("docker-missing", "gpu-a", "x").fix == "muster bootstrap --hosts me@gpu-a:2222"
    both = find("docker-missing", ("gpu-a", "gpu-b"), "x")
    assert both.fix == "muster bootstrap --hosts me@gpu-a:2222,gpu-b"
    assert row.hint() == "muster bootstrap --hosts ..."
    assert command_of("push", hosts="gpu-a,gpu-b") == "muster push --hosts me@gpu-a:2222,gpu-b"
    assert row_of("ssh-slow").hint("gpu-a").startswith("time ssh ssh://me@gpu-a:2222 true;")
    assert row_of("ssh-slow").hint("gpu-b").startswith("time ssh gpu-b true;")


@pytest.mark.parametrize(
    ("typed", "taken"),
    [("a", "a"), ("me@a", "me@a"), ("a:2", "ssh://a:2"), ("[::1]:2", "ssh://[::1]:2"), ("me@fe80::1", "me@fe80::1")],
)
def test_a_host_with_a_port_is_a_url_for_ssh(typed, taken):
    remember_typed({"a": typed})
    assert host_fields("a")["ssh"] == taken


def test_two_clusters_with_a_host_of_the_same_name_keep_their_own_typed_names():
    """Earlier, with two rented machines at one address, a hint about the one's run named the other."""
    both, commands = threading.Barrier(2), dict[int, list[str]]()

    def command(name):
        both.wait(30)
        return command_of("down", hosts=name)

    def work(port):
        remember_typed({"203.0.113.7": f"203.0.113.7:{port}"})
        of_thread = on_each({"203.0.113.7": "203.0.113.7"}, command).all()
        commands[port] = [*of_thread.values(), BackgroundTask(lambda: command("203.0.113.7")).result(30)]

    threads = [threading.Thread(target=work, args=(port,)) for port in (41, 42)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert commands == {port: [f"muster down --hosts 203.0.113.7:{port}"] * 2 for port in (41, 42)}


def test_a_fix_for_this_machine_names_no_host(monkeypatch):
    """Earlier, the fix for a run left over on this machine was `muster stop --hosts this-machine --run r`."""
    monkeypatch.setattr(preflight.up, "choose_backend", lambda backend: pytest.fail("the first step is done"))
    with pytest.raises(pytest.fail.Exception):
        preflight.preflight(1, "auto", None, False, lambda words: None)
    for hosts in (preflight.ONE_HOST, "master", "master,worker-1"):
        assert command_of("stop", hosts=hosts, run="r") == "muster stop --run r"
        assert find("gpu-busy", hosts.split(","), "x").fix == "muster gpus shows who uses its GPUs"
    assert row_of("disk-full").hint_here() == "df -h /var/lib/docker; docker system df"


def test_no_command_of_the_table_or_a_check_names_a_host_that_cannot_be_typed():
    commands = [row.command for row in ROWS.values()] + [sign.fix for sign in SIGNS]
    assert not [each for each in commands if re.search(r"(?:--hosts|\bssh) \{host\}", each)]
    folder = Path(__file__).resolve().parents[3] / "deploy"
    raw = re.compile(r"--hosts \{(?!hosts_as_typed|names|target|bracketed|alike|','.join\(explanation)[^}]*\}")
    assert not [(path.name, raw.findall(text)) for path in folder.rglob("*.py") if raw.search(text := path.read_text())]
