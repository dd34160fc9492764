"""Commands of this machine, run as a session runs them on a host."""

from __future__ import annotations

import atexit
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread, Timer

from ...core.errors import DeployError
from ...core.text import in_seconds
from ...door.session import Done
from ...door.settings import kill_group

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
        """Run a command to its end. With all that it started, it is killed at the end of this program at the latest.

        Raises DeployError after `timeout_s`; and if it fails, and `check`.
        """
        # The folder that the user stands in may be somebody else's: nothing is looked up in it.
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=both, start_new_session=True
        )
        chunks = (input,) if isinstance(input, bytes) else input or ()
        Thread(target=_feed, args=(process, chunks), daemon=True).start()
        lines = deque[str](maxlen=1000)
        assert process.stdout is not None
        with _bounded(process.pid, timeout_s) as is_late:
            while data := process.stdout.readline(_LONGEST_LINE):
                line = data.decode(errors="replace").rstrip("\n")
                if on_line:
                    on_line(line)
                if not on_line or not line.startswith("{"):
                    lines.append(line[:_LONGEST_WORDS] if on_line else line)
            code = process.wait()
        out, name = "\n".join(lines), argv[3] if "-c" in argv[1:2] and argv[3:] else argv[0]
        if is_late.is_set():
            raise DeployError(f"this machine: `{name}` has not ended after {in_seconds(timeout_s or 0)}")
        if check and code:
            raise DeployError(f"this machine: `{name}` ended with code {code}: {out[-300:]}")
        return Done(code, out, out if code else "")


@contextmanager
def _bounded(process: int, seconds: float | None) -> Iterator[Event]:
    """Kill a process that leads a session, with all that it started, after that time, after a fault, and at the end of
    this program. Gives whether its time was over."""
    end, is_late = partial(kill_group, process), Event()

    def expire() -> None:
        is_late.set()
        end()

    clock = Timer(seconds or 0, expire)
    clock.daemon = True
    atexit.register(end)
    if seconds:
        clock.start()
    try:
        yield is_late
    except BaseException:
        end()
        raise
    finally:
        clock.cancel()
        atexit.unregister(end)


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        for chunk in chunks:
            process.stdin.write(chunk)
            process.stdin.flush()
    with suppress(OSError):
        process.stdin.close()
