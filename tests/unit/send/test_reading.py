"""The processes that read a large folder: what they answer arrives whole."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios

from deploy.send.folder import reading
from lab import waiting

PIPE_BYTES = 65536


def test_an_answer_is_whole_although_its_writer_was_stopped_in_the_middle(tmp_path):
    (tmp_path / "file").write_text("x")
    order = json.dumps([str(tmp_path), ["file"] * 1500, {}]).encode()
    command = [sys.executable, "-P", "-m", reading.__name__]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as reader:
        reader.stdin.write(order)
        reader.stdin.close()
        waiting.until(lambda: _waits_in(reader.stdout) >= PIPE_BYTES, "a full pipe")
        reader.send_signal(signal.SIGSTOP)  # as Ctrl-Z does
        waiting.until(lambda: _state(reader.pid) == "T", "the stop")
        reader.send_signal(signal.SIGCONT)
        assert len(json.loads(reader.stdout.read())) == 1500


def test_what_a_reader_does_not_answer_for_is_missing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    assert list(reading.read(tmp_path, ["file"], {})) == ["file"]
    cut = tmp_path / "python"
    cut.write_text("#!/bin/sh\necho '[[\"12'\n")
    cut.chmod(0o755)
    monkeypatch.setattr(reading.sys, "executable", str(cut))
    assert reading.read(tmp_path, ["file"], {}) == {}


def _waits_in(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0]


def _state(pid):
    with open(f"/proc/{pid}/stat") as status:
        return status.read().rpartition(")")[2].split()[0]
