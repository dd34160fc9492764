"""What a user sees of a command in this terminal, and of a host that refuses it."""

import errno
import os
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.door import command, mux, terminal
from deploy.door.faults import FaultPlace, fault


def reader(text):
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    return mux.Reader(reading)


def test_an_error_right_after_the_marker_is_shown_but_not_the_logins_greeting(capfd):
    out, err = reader(b"welcome\nMARK\n$ "), reader(b"welcome\nMARK\nOCI runtime exec failed\n")
    resized, _ = os.pipe()
    terminal._pump(SimpleNamespace(out=out, err=err, input=SimpleNamespace(write_all=bytes)), b"MARK\n", resized)
    assert capfd.readouterr() == ("$ ", "OCI runtime exec failed\r\n")


def test_the_hint_asks_for_a_port_in_the_syntax_of_hosts():
    assert "--hosts [::1]:PORT" in fault("refused", FaultPlace("a", "::1", 22, "me", "a")).hint
    assert "--hosts a.lab:PORT" in fault("refused", FaultPlace("a", "a.lab", 22, "me", "a")).hint


def test_too_many_open_files_are_blamed_on_this_machine_not_on_a_host():
    def start(line):
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(DeployError, match="this machine: Too many open files"):
        command.begin(SimpleNamespace(start=start), FaultPlace("a", "a", 22, "me", "a"), "true")
