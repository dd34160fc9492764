"""Commands of this machine, run as a session runs them on a host."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread, Timer

from ...core.errors import DeployError
from ...door.session import Done

_LONGEST_LINE, _LONGEST_WORDS = 1 << 20, 4000


class Here:
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
        """Run a command to its end, and kill it after `timeout_s`. Raises DeployError if it fails, and `check`."""
        # The folder that the user stands in may be somebody else's: nothing is looked up in it.
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=both)
        chunks = (input,) if isinstance(input, bytes) else input or ()
        Thread(target=_feed, args=(process, chunks), daemon=True).start()
        lines = deque[str](maxlen=1000)
        assert process.stdout is not None
        too_long = Timer(timeout_s or 0, process.kill)
        if timeout_s:
            too_long.start()
        try:
            while data := process.stdout.readline(_LONGEST_LINE):
                line = data.decode(errors="replace").rstrip("\n")
                if on_line:
                    on_line(line)
                if not on_line or not line.startswith("{"):
                    lines.append(line[:_LONGEST_WORDS] if on_line else line)
            code = process.wait()
        finally:
            too_long.cancel()
            process.kill()
        out = "\n".join(lines)
        if check and code:
            raise DeployError(f"this machine: `{argv[0]}` ended with code {code}: {out[-300:]}")
        return Done(code, out, out if code else "")


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        for chunk in chunks:
            process.stdin.write(chunk)
            process.stdin.flush()
    with suppress(OSError):
        process.stdin.close()
