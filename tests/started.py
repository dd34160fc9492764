"""Programs that a test starts and talks with: each is killed when the test fails, or after a time.

A failed check would otherwise leave a program that waits forever for what the test sends next, and `subprocess.Popen`
waits for the program. A line that never comes would block the test in the same way.
"""

import subprocess
import threading
from contextlib import contextmanager


@contextmanager
def started(argv, seconds=120.0, **more):
    """Start a program as `with subprocess.Popen` does. It is killed if the block fails, or if it runs for `seconds`.

    Raises AssertionError in the second case: the block then reads the end of the program's output.
    """
    late = []
    process = subprocess.Popen(argv, **more)
    limit = threading.Timer(seconds, lambda: (late.append(argv), process.kill()))
    limit.start()
    try:
        with process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise
    finally:
        limit.cancel()
        assert not late, f"killed after {seconds:g} s, in which it did not end: {argv}"
