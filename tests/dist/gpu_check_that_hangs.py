"""A check that starts a process in a session of its own, finds something, and then hangs."""

import os
import subprocess
import sys
import time

from gpu_check.finding import judge

TITLE, LIMIT_S = "a check that hangs", 4


def run(bench):
    """Never ends by itself."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield judge("started", True, str(child.pid), own=os.getpid())
    time.sleep(600)
