"""A command on hundreds of hosts opens thousands of files: a connection for each, and the streams of its commands."""

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, sys
from deploy.door.connection import opener_to
from deploy.job.inventory import Host
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
with opener_to([Host(f"h{number}", f"h{number}") for number in range(int(sys.argv[1]))]):
    print(len([os.dup(0) for _ in range(int(sys.argv[2]))]), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("hosts", "files", "limit"), [(64, 1100, 1280), (2, 100, 288)])
def test_a_command_may_open_as_many_files_as_its_hosts_need(hosts: int, files: int, limit: int) -> None:
    """A process starts with a limit of 1,024 files, on macOS 256: earlier, that ended with "Too many open files"."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < limit:
        pytest.skip("this user may not open so many files")
    line = [sys.executable, "-c", PROGRAM, str(hosts), str(files)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(files), str(limit)], done.stderr
