"""The arguments and messages of `muster port`."""

import socket

import pytest

from deploy.commands import main
from deploy.core.errors import UsageError
from deploy.hosts.look import port
from deploy.run.files import folders


@pytest.mark.parametrize(("asked", "here", "there"), [("6006", 6006, 6006), ("7000:6006", 7000, 6006)])
def test_a_port_is_parsed_into_the_local_and_the_remote_one(asked, here, there):
    assert port.numbers(asked) == (here, there)


@pytest.mark.parametrize("asked", ["", "0", "65536", "a", "1:2:3", "6006:", "-1"])
def test_anything_else_is_not_a_port(asked):
    with pytest.raises(UsageError, match="not a port"):
        port.numbers(asked)


@pytest.mark.parametrize("there", ["muster port {}:6006", "muster tensorboard --port {}"])
def test_a_taken_local_port_is_reported_with_a_command_that_uses_another_one(there):
    """Once, it named port 70000, and for TensorBoard a port that had closed with the command."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        here = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {here} of this machine: Address already in use") as refused:
            port.listen(here, there)
    words = refused.value.hint.removeprefix("another one here: ")
    told, _ = port.numbers(words.split()[-1])
    assert told != here
    assert words == there.format(told)


@pytest.mark.parametrize(
    ("backend", "hint"),
    [("processes", "open 127.0.0.1:6006"), ("docker", "`muster exec --run r1 -- hostname -i` prints its address")],
)
def test_for_a_local_run_it_says_where_the_port_already_is(backend, hint, tmp_path, monkeypatch, capsys):
    """A container's port is not a port of this machine; once, `7000:6006` was shown as an address."""
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1/record.json").write_text(f'{{"format": 1, "backend": "{backend}"}}')
    assert main.run(["port", "7000:6006", "--run", "r1"]) == 2
    assert hint in capsys.readouterr().err


def test_a_taken_local_port_is_reported_before_tensorboard_starts(monkeypatch):
    monkeypatch.setattr(port.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(port.subprocess, "run", lambda *_, **__: pytest.fail("it was started"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        here = str(other.getsockname()[1])
        with pytest.raises(UsageError, match=f"port {here} of this machine: Address already in use") as refused:
            port.tensorboard_here("runs/r1", here)
    assert refused.value.hint.startswith("another one here: muster tensorboard --port ")
