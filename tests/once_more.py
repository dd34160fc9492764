"""`make test` and `make test-all`: run tests, then the failed ones once more, alone. `python -m tests.once_more`

Thousands of tests on real processes share two cores. A test that fails among them and passes alone has hit a race, of
its own or in Muster: the last lines name it as FAILED ONCE, its failure is shown above them, and somebody has to fix
it. It does not invalidate the results of the other tests. More than a few failures are no races, and nothing is
repeated.
"""

import json
import subprocess
import sys
from pathlib import Path

_MOST = 5
_FAILED = Path(__file__).resolve().parents[1] / ".pytest_cache/v/cache/lastfailed"  # pytest's own list
_TESTS_FAILED = 1  # pytest's exit code


def main(words: list[str]) -> int:
    """Return pytest's exit code: of the first run, or of the second if there is one."""
    _FAILED.unlink(missing_ok=True)
    code = _pytest(words)
    failed = sorted(json.loads(_FAILED.read_text())) if code == _TESTS_FAILED and _FAILED.exists() else []
    if not 0 < len(failed) <= _MOST:
        return code
    print(f"\nonce more, alone: {len(failed)} of the tests", flush=True)
    code = _pytest(failed)
    if code == 0:
        print("\n".join(f"FAILED ONCE {name}" for name in failed), flush=True)
    return code


def _pytest(words: list[str]) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
