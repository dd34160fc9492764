"""What rehearsal.py and burn.py share: a question from the control side, and an end with their parent.

Python 3.8 can read this file: it goes to hosts as text, in the place of its first import.
"""

import ctypes
import json
import os
import signal

PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def read_line():
    """The next line of the input; ends this process when there is none."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(9)
        line += piece
    return json.loads(line.decode())
