"""A waiting node asks which of its host's GPUs are in use; a driver that hangs must not block it."""

import subprocess
import sys
import time

import pytest

from trainer.node.queue import reservation

# The test starts a program.
pytestmark = pytest.mark.long


def test_a_driver_query_that_hangs_and_ignores_signals_is_given_up(tmp_path, monkeypatch):
    hangs, began = tmp_path / "python", time.monotonic()
    hangs.write_text("#!/bin/sh\nexec sleep 6\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hangs))
    monkeypatch.setattr(reservation, "_NVML_S", 0.2)
    monkeypatch.setattr(
        subprocess.Popen, "kill", lambda _: None
    )  # as for a process in state D, which no signal reaches
    monkeypatch.setattr(reservation, "_hanging", [])
    assert reservation.in_use() == {}
    assert time.monotonic() - began < 3
    (hanging,) = reservation._hanging
    assert reservation.in_use() == {}
    assert reservation._hanging == [hanging], "a wait of days would fill the host with such processes"
