"""`python -m tests.dist.warm FD`: a process that has imported torch and the trainer, and forks torchruns on request.

torchrun forks its ranks, so that they need not import torch; this process does the same for each torchrun.
"""

import importlib
import json
import os
import socket
import subprocess
import sys
import time

from trainer.node.launch import forks

OURS = "muster.trainer.node.launch.torchrun"
# The modules that torchrun and the server of its ranks import.
_MODULES = (OURS, "muster.trainer.train.run", "torch._dynamo")


class Started:
    """A forked torchrun, with the interface of Popen."""

    returncode = None

    def __init__(self, warm, pid):
        self.pid, self._warm = pid, warm

    def poll(self):
        """Return the exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = self._warm.code(self.pid)
        return self.returncode

    def wait(self, timeout=float("inf")):
        """Return the exit code. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"torchrun {self.pid}", timeout)
            time.sleep(0.02)
        return code


class Warm:
    """The tests' side of the process that forks."""

    def __init__(self, folder, environment):
        self._channel, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.dist.warm", str(far.fileno())]
        self._process = subprocess.Popen(command, cwd=folder, env=environment, pass_fds=[far.fileno()])
        far.close()

    def start(self, arguments, folder, environment, output):
        """Fork a torchrun with these arguments; it prints to the file `output`."""
        place = {"folder": str(folder), "environment": environment, "output": str(output)}
        return Started(self, self._ask(do="fork", arguments=["-m", OURS, *arguments], **place)["pid"])

    def code(self, pid):
        """The exit code of a torchrun, None while it runs."""
        return self._ask(do="poll", pid=pid)["code"]

    def stop(self):
        """End the process; what it forked ends with it."""
        self._process.kill()
        self._process.wait()
        self._channel.close()

    def _ask(self, **question):
        self._channel.send(json.dumps(question).encode())
        return json.loads(self._channel.recv(1 << 20))


def serve(channel):
    """Answer requests until the tests end. Raises forks.Forked in each forked torchrun."""
    started = {}
    while data := channel.recv(1 << 20):
        asked = json.loads(data)
        if asked["do"] == "fork":
            os.chdir(asked["folder"])
            command = [sys.executable, "-u", *asked["arguments"]]
            try:
                with open(asked["output"], "wb") as output:
                    torchrun = forks.start(command, asked["environment"], output.fileno(), ())
            except forks.Forked:
                channel.close()
                raise
            started[torchrun.pid] = torchrun
            asked["pid"] = torchrun.pid
        answer = {"pid": asked["pid"], "code": started[asked["pid"]].poll()}
        channel.send(json.dumps(answer).encode())


if __name__ == "__main__":
    for module in _MODULES:
        importlib.import_module(module)
    try:
        serve(socket.socket(fileno=int(sys.argv[1])))
    except forks.Forked as torchrun:
        words = torchrun.words
    else:
        os._exit(0)
    forks.run(words)
