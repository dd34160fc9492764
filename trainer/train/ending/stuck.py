"""Ends a rank when a call in torch blocks the main thread, so that it cannot handle its SIGTERM.

Python runs a signal handler between two steps of the main thread. After a rank was killed, torch may leave a call of
another rank waiting in C++: with gloo in 1 of about 80 kills (torch 2.13), with NCCL until its timeout. torchrun sends
SIGTERM, and SIGKILL only 30 s later. A file descriptor shows the signal immediately (signal.set_wakeup_fd).
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from muster.stop import Stop

# A main thread that is not blocked handles a signal within milliseconds.
_GRACE_S = 0.15
# A process forked from this one, for example a data loader's, must not report its own signals here.
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


@contextmanager
def ended_when_stuck(stop: Stop, end: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call `end` in a thread if torchrun restarts this rank and the main thread is blocked.

    Only the main thread may call this; in another thread it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_wait, args=(reader, stop, end), daemon=True, name="muster-stuck")
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        # close() alone is not enough: data-loader processes have copies of the descriptor.
        writer.shutdown(socket.SHUT_WR)
        writer.close()
        thread.join()
        reader.close()


def _wait(reader: socket.socket, stop: Stop, end: Callable[[], None]) -> None:
    heard = stop.heard
    while numbers := reader.recv(64):
        ends_at = time.monotonic() + _GRACE_S
        while signal.SIGTERM in numbers and stop.heard == heard and time.monotonic() < ends_at:
            time.sleep(_GRACE_S / 30)
        if signal.SIGTERM in numbers and stop.heard == heard and stop.is_listening and stop.is_restarted():
            end()
        heard = stop.heard
