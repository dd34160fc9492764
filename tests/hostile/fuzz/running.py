"""Run an entry on mutated answers: it must return or raise DeployError, within a second of CPU and 200 MB.

Inputs that reach new lines of deploy/ become samples for further mutation. Findings are kept in corpus/<entry>/.
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
TRACED = 50  # one input in this many is traced, because tracing is slow


class Hang(BaseException):
    """An input takes too long."""


def _alarm(*_):
    raise Hang


def tried(entry, data):
    """What is wrong with how the entry handles `data`, as text; empty if nothing is."""
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
    """The lines of deploy/ that the entry executes."""
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
    except Exception:  # tried() reports it
        pass
    finally:
        sys.settrace(before)
    return lines


def memory_mb():
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rounds(entry, seed, count, keep=True, until=None, grow=False):
    """Try `count` mutations; returns a Counter of what was wrong, and the number of inputs.

    keep: save findings in the corpus; grow: also save inputs that reach new lines, a few for each entry.
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
    """Save a finding in the corpus, so that `make test` tries it again."""
    path = CORPUS / entry.name / hashlib.sha1(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def corpus(entry):
    """The findings saved earlier."""
    return [path.read_bytes() for path in sorted((CORPUS / entry.name).glob("*"))]
