"""Run commands on this machine in the way that a session runs them on a host."""

from __future__ import annotations

import atexit
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

from ...core.errors import DeployError
from ...core.text import in_seconds
from ...door.session import Done
from ...door.settings import kill_group
from ..background import BackgroundTask

_LONGEST_LINE, _LONGEST_WORDS = 1 << 20, 4000


class LocalRunner:
    """Runs commands on this machine, as a session does on a host."""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | Iterable[bytes] | None = None,
        timeout_s: float | None = 60,
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
        folder: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
    ) -> Done:
        """Run a command to its end. A process that it leaves running on purpose keeps running.

        The command is killed with its session when its time is over, after a fault, and when this program ends. Raises
        DeployError after `timeout_s`, even if only a process of another session keeps the output open; and, with
        `check`, if the command fails.
        """
        # The current folder may be somebody else's, so the command does not run in it.
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=both, start_new_session=True
        )
        chunks = (input,) if isinstance(input, bytes) else input or ()
        Thread(target=_feed, args=(process, chunks), daemon=True).start()
        lines, name = deque[str](maxlen=1000), argv[3] if "-c" in argv[1:2] and argv[3:] else argv[0]

        def hear() -> int:
            assert process.stdout is not None
            while data := process.stdout.readline(_LONGEST_LINE):
                line = data.decode(errors="replace").rstrip("\n")
                if on_line:
                    on_line(line)
                if not on_line or not line.startswith("{"):
                    lines.append(line[:_LONGEST_WORDS] if on_line else line)
            return process.wait()

        end = partial(kill_group, process.pid)
        atexit.register(end)
        try:
            code = BackgroundTask(hear).result(timeout_s)
        except TimeoutError:
            raise DeployError(f"this machine: `{name}` has not ended after {in_seconds(timeout_s or 0)}") from None
        finally:
            if process.returncode is None:
                end()
            atexit.unregister(end)
        out = "\n".join(lines)
        if check and code:
            raise DeployError(f"this machine: `{name}` ended with code {code}: {out[-300:]}")
        return Done(code, out, out if code else "")


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        for chunk in chunks:
            process.stdin.write(chunk)
            process.stdin.flush()
    with suppress(OSError):
        process.stdin.close()
