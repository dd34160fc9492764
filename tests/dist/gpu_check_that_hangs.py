"""A check that starts a process in its own session, yields one finding, and then hangs."""

import os
import subprocess
import sys
import time

from gpu_check.finding import judge

TITLE, LIMIT_S = "a check that hangs", 4


def run(bench):
    """Start a process, report it, and hang."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield judge("started", True, str(child.pid), own=os.getpid())
    time.sleep(600)
