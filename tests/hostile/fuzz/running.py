"""Run an entry on mutated answers: a value or a DeployError, within a second of CPU and 200 MB, and nothing else.

What reaches new lines of deploy/ is kept as a sample to go on from. Findings are kept in corpus/<entry>/.
"""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from deploy.core.errors import DeployError
from tests.hostile.fuzz import mutate

CORPUS = Path(__file__).parent / "corpus"
DEPLOY = str(Path(__file__).resolve().parents[3] / "deploy")
SLOW_S, HANG_S, MOST_MB, MOST_SAMPLES = 1.0, 60, 200, 400
MOST_BYTES, SMALL = 12, 3000
TRACED = 50  # every so many inputs are traced: tracing takes its time


class Hang(BaseException):
    """An input that does not end."""


def _alarm(*_):
    raise Hang


def tried(entry, data):
    """What is wrong with how the entry takes `data`: its last lines as text, or nothing."""
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(HANG_S)
    began = time.process_time()
    try:
        entry.run(data)
    except DeployError:
        pass
    except BaseException as fault:
        if isinstance(fault, KeyboardInterrupt):
            raise
        where = [f for f in traceback.extract_tb(fault.__traceback__) if DEPLOY in f.filename] or [None]
        at = f"{Path(where[-1].filename).name}:{where[-1].lineno}" if where[-1] else "the harness"
        return f"{type(fault).__name__} at {at}: {str(fault)[:80]!a}"
    finally:
        signal.alarm(0)
    took = time.process_time() - began
    if took > SLOW_S:
        return f"slow: {took:.1f} s"
    return ""


def reached(entry, data):
    """Lines of deploy/ that the entry runs through."""
    lines = set()

    def lines_of(frame, event, _):
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return lines_of

    def called(frame, event, _):
        return lines_of if frame.f_code.co_filename.startswith(DEPLOY) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        entry.run(data)
    except DeployError:
        pass
    except Exception:  # told by tried()
        pass
    finally:
        sys.settrace(before)
    return lines


def memory_mb():
    """The most memory this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rounds(entry, seed, count, keep=True, until=None, grow=False):
    """Try `count` mutations; findings as a Counter of what was wrong, and how many inputs there were.

    keep: findings go into the corpus; grow: so do inputs that reach new lines, a few for each entry.
    """
    chance, samples, known = random.Random(f"{entry.name} {seed}"), list(entry.samples), set()
    findings, done = Counter(), 0
    while done < count and (until is None or time.monotonic() < until):
        data = mutate.mutated(chance.choice(samples), chance, samples)
        wrong, done = tried(entry, data), done + 1
        if wrong:
            if keep and not findings[wrong]:
                keep_finding(entry, data)
            findings[wrong] += 1
        elif keep and done % TRACED == 0 and len(samples) < MOST_SAMPLES and len(data) < 100_000:
            new = reached(entry, data) - known
            if new:
                known |= new
                samples.append(data)
                if grow and len(data) < SMALL and len(list((CORPUS / entry.name).glob("*"))) < MOST_BYTES:
                    keep_finding(entry, data)
    return findings, done


def keep_finding(entry, data):
    """Put a finding into the corpus, for `make test` to try again."""
    path = CORPUS / entry.name / hashlib.sha1(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def corpus(entry):
    """What was found before."""
    return [path.read_bytes() for path in sorted((CORPUS / entry.name).glob("*"))]
