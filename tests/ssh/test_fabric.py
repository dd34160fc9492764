"""`from muster.fabric import *` in a user's fabfile: Muster's commands, and hosts through Muster's own door."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fabric import Result
from fabric.exceptions import GroupException
from fabric.group import GroupResult
from fabric.transfer import Result as Transferred
from invoke.exceptions import CommandTimedOut, UnexpectedExit

from deploy import fabric as ours
from deploy.core.errors import DeployError, UsageError
from deploy.door import session
from deploy.fabric import Hosts

HOME = Path(__file__).resolve().parents[2]
FABFILE = """
from fabric import task
from muster.fabric import *

@task
def prepare(c, where):
    with Hosts(where) as hosts:
        done = hosts.run("echo ready in $HOME", env={"A": "1"})
        print("prepared", len(done.succeeded))

@task
def status(c, loud=False):
    print("a status of this fabfile's own", loud)
"""


@pytest.fixture
def hosts(server):
    """Two servers with different homes."""
    first, second = server(name="a"), server(name="b")
    with Hosts(f"127.0.0.1:{first.port},127.0.0.1:{second.port}") as both:
        both.homes = [first.home, second.home]
        yield both


def test_a_command_runs_on_all_hosts_and_returns_fabrics_results(hosts, capsys):
    done = hosts.run("echo out; echo err >&2; echo $A$HOME", env={"A": "x y"})
    assert isinstance(done, GroupResult)
    assert not done.failed
    assert [type(each) for each in done.values()] == [Result, Result]
    assert {each.stdout for each in done.values()} == {f"out\nx y{home}\n" for home in hosts.homes}
    assert {(each.stderr, each.exited, each.ok) for each in done.values()} == {("err\n", 0, True)}
    shown = capsys.readouterr().out.splitlines()
    assert {f"{each.host}  out" for each in hosts} <= set(shown)
    hosts.run("echo nothing", hide=True)
    with hosts[0].cd("/"), hosts[0].prefix("B=2"):
        assert hosts[0].run("echo $PWD$B", hide=True).stdout == "/2\n"
    assert "nothing" not in capsys.readouterr().out


def test_a_failing_host_is_an_exception_next_to_the_others_results(hosts):
    (hosts.homes[0] / "only-here").touch()
    with pytest.raises(GroupException) as caught:
        hosts.run("test -e $HOME/only-here", hide=True)
    assert [type(each) for each in caught.value.result.failed.values()] == [UnexpectedExit]
    assert [each.exited for each in caught.value.result.succeeded.values()] == [0]
    assert {each.exited for each in hosts.run("test -e $HOME/only-here", hide=True, warn=True).values()} == {0, 1}
    with pytest.raises(CommandTimedOut):
        hosts[0].run("sleep 20", timeout=1, hide=True)


def test_put_and_get_keep_content_and_mode(hosts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "a $(touch owned) b.bin"
    odd.write_bytes(bytes(range(256)) * 999)
    odd.chmod(0o750)
    sent = hosts.put(odd, "jobs/")
    assert {type(each) for each in sent.values()} == {Transferred}
    for home in hosts.homes:
        there = home / "jobs" / odd.name
        assert (there.read_bytes(), there.stat().st_mode & 0o777) == (odd.read_bytes(), 0o750)
    hosts.put(io.BytesIO(b"x"), "made.txt")
    for home in hosts.homes:
        (home / "made.txt").chmod(0o662)  # get drops write permission for group and others
    back = hosts.get("made.txt")
    assert sorted(Path(each.local).read_bytes() for each in back.values()) == [b"x", b"x"]
    assert {Path(each.local).stat().st_mode & 0o777 for each in back.values()} == {0o640}
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("127")) == sorted(
        each.host for each in hosts
    )
    with hosts[0].cd("jobs"):
        hosts[0].get(odd.name, "{host}-{basename}")
    assert Path(f"{hosts[0].host}-{odd.name}").read_bytes() == odd.read_bytes()
    assert not list(tmp_path.rglob("owned"))


def test_host_output_is_shown_without_control_characters(hosts, capsys):
    done = hosts[0].run(r"printf 'a\033]0;owned\007b\nc\n'")
    assert "\x1b" in done.stdout
    assert not [letter for letter in capsys.readouterr().out if letter != "\n" and not letter.isprintable()]


def test_an_endless_file_and_endless_output_are_refused(hosts, monkeypatch):
    monkeypatch.setattr(ours, "MOST", 1 << 20)
    with pytest.raises(DeployError, match="more than 1"):
        hosts[0].get("/dev/zero", io.BytesIO())
    with pytest.raises(DeployError):
        hosts[0].run("cat /dev/zero", hide=True)
    with pytest.raises(DeployError, match="more than 1"):
        hosts[0].put(io.BytesIO(bytes(2 << 20)), "large")


@pytest.mark.parametrize("name", ["A=1; id", "-S", "", "A B"])
def test_an_invalid_variable_name_reaches_no_host(hosts, name):
    with pytest.raises(UsageError, match="not the name of a variable"):
        hosts[0].run("true", env={name: "x"})


def test_fabric_never_logs_in_by_itself(hosts, client):
    for door in (lambda: hosts[0].sudo("id"), lambda: hosts[0].sftp(), lambda: hosts[0].create_session()):
        with pytest.raises(UsageError, match="no connection of its own"):
            door()


def test_an_unknown_host_key_is_refused_and_the_other_host_is_asked(server, client):
    first, second = server(name="a"), server(name="b")
    client.trusts(first)
    with Hosts(f"127.0.0.1:{first.port},127.0.0.1:{second.port}") as both, pytest.raises(GroupException) as caught:
        both.run("true", hide=True)
    assert [type(each) for each in caught.value.result.failed.values()] == [session.SshFault]
    assert len(caught.value.result.succeeded) == 1


def test_a_fabfile_has_musters_commands_and_its_own_and_leaves_no_connection(server, tmp_path):
    made = server(name="a")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "fabfile.py").write_text(FABFILE)
    where = f"127.0.0.1:{made.port}"

    def fab(*words):
        return subprocess.run(
            [Path(sys.executable).with_name("fab"), *words], cwd=tmp_path / "project", capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(HOME)}, timeout=60, check=False,
        )  # fmt: skip

    done = fab("prepare", "--where", where, "gpus", "--hosts", where, "--json")
    assert "prepared 1" in done.stdout, done.stderr
    assert f"ready in {made.home}" in done.stdout
    assert '"kind": "gpus"' in done.stdout or '"gpus"' in done.stdout, done.stdout + done.stderr
    assert fab("status", "--loud").stdout == "a status of this fabfile's own True\n"
    refused = fab("deploy", "--hosts", where, "--", "trian.py")
    assert (refused.returncode, "trian.py: no such file" in refused.stderr) == (2, True)
    assert {"prepare", "deploy", "exec"} <= set(fab("--list").stdout.split())
    assert not [line for line in made.children() if line]
