"""The watcher of a process: once the process computes a gradient, it counts as its rank, and its steps are reported.

A separate thread writes what torch_hooks.py sees into the run folder. The script's own thread only counts and copies,
and writes no file, so that a slow disk delays no step. If two processes train as one rank, the first one is reported. A
forked process begins with a new watcher.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time
from contextlib import suppress
from time import perf_counter
from typing import Any

from .. import hooks
from ..failure import masked
from ..looks import SECONDS as LOOK_SECONDS
from ..looks import Looks
from ..place import Before, Place, append, in_run, note
from ..raised import UncaughtErrors
from . import backward_wait
from .losses import Losses
from .position import Position
from .recorder import Recorder
from .steps import FIRST_STEPS, Done, Steps, between

_CLOSER_SECONDS = 0.25
_NO_WAIT: float | None = 0.0
# A thread of gloo's needs Python to free a message's tensors; once Python ends, that aborts the rank (decision 0142).
_GLOO_ENDS_S = 0.05
# The most calls of `backward` in one step: something of each call is kept until an optimizer steps.
_MOST_PARTS = 4096
_PATIENCE_BACKWARDS, _PATIENCE_FAILURES, _PATIENCE_SECONDS = 20, 3, 10.0


class Watcher:
    """The watcher of one process. `trains`: its script has called `backward`, or an optimizer has stepped."""

    def __init__(self, place: Place, first: bool, raised: UncaughtErrors) -> None:
        self._place, self.steps = place, Steps()
        self._raised, raised.notify = raised, self._raises
        self._fresh()
        self._first = first
        before, parent = hooks.quiet(self._forks), hooks.quiet(self._has_forked)
        child = hooks.quiet(self._forked, self.fails)
        os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)
        atexit.register(hooks.quiet(self._end))
        if first:
            self._look(f"{place.local}.stacks")

    def _fresh(self) -> None:
        self.steps.__init__()  # type: ignore[misc]  # not a new object, since torch_hooks.py has references to this one
        self.steps.off = not self._place.run
        self.losses = Losses()
        self.trains = self._armed = self._ends = False
        self._looks: Looks | None = None
        self._recorder, self._began = Recorder(), perf_counter()
        self._last_report: Done | None = None
        self._before, self._earlier = 0, Before()
        self.position, self._placed = Position(), False
        self.handles_states = 0  # how many of the script's calls are now reading or setting an optimizer's state
        self._told_at, self._usual_wait = 0.0, _NO_WAIT
        self._started: dict[str, Any] | None = None
        self._wait: backward_wait.Wait | None = None
        self._waits: list[backward_wait.Wait] = []
        self._unseen: dict[str, str] = {}
        self._unseen_told: set[str] = set()
        self._metrics_bytes = -1
        self._wake, self._over = _thread.allocate_lock(), _thread.allocate_lock()
        self._wake.acquire()

    def _forks(self) -> None:
        if self._looks:
            self._looks.pause()

    def _has_forked(self) -> None:
        if self._looks:
            self._looks.resume()

    def _forked(self) -> None:
        """Reset the watcher in a forked child, which writes nothing unless it trains itself, as a rank of its own."""
        self._raised.clear()
        self._first = False
        self._fresh()
        self._place = Place()

    def fails(self, fault: Exception) -> None:
        """An error in the watcher ends the watching, not the script."""
        self.steps.off = True
        self.unseen("all", f"the watcher failed: {type(fault).__name__}: {fault}")

    # torch_hooks.py calls these methods on the script's thread.

    def backward_begins(self, tensors: Any, plain: bool, now: float) -> None:
        """`backward` begins from `tensors`. `plain`: without gradients or inputs as arguments."""
        steps, torch = self.steps, sys.modules["torch"]
        if not self.trains:
            self._begin(tensors)
        if steps.backwards == steps.at_step:  # the first since the last step
            self._armed = now >= steps.closer_at or steps.count < FIRST_STEPS
            if self._armed:
                steps.closer_at = now + _CLOSER_SECONDS
            self._wait = backward_wait.new_wait(torch)
            steps.attended = self._armed or self._wait is not None
        elif steps.backwards - steps.at_step > _MOST_PARTS:  # no optimizer of torch steps: stop keeping things
            self.losses.unscaled(True)
            self._wait, self._armed, steps.attended = None, False, False
        if self._wait:
            self._wait.begin(tensors)
        if self._armed and self._place.rank == 0:
            self.losses.root(torch, tensors, plain)
        elif self.losses.is_pending:
            self.losses.settle(torch)
        steps.due = 0.0 if steps.attended else float("inf")

    def backward_ends(self) -> None:
        """`backward` has returned or failed."""
        if self._wait:
            self._wait.end()

    def loads(self, source: Any = None, *_: Any, **__: Any) -> bool | None:
        """Whether to watch this load: before the first step, and not of a file that is older than the run."""
        return True if not self.steps.count and self._place.may_be_of_run(source) else None

    def loaded(self, mark: bool, result: Any, fault: BaseException | None) -> None:
        """The script has loaded something that `loads` lets through."""
        self.position.loaded(result)

    def first_step(self, optimizer: Any) -> None:
        """An optimizer is about to make the first step of this process."""
        self.position.empty = not optimizer.state

    def stepped(self, optimizer: Any) -> None:
        """An optimizer of torch has made a step that is looked at closely."""
        steps = self.steps
        if steps.off:
            return
        if not self.trains:
            self._begin(None)
        if self._wait or self._waits:
            self._take_waits()
        first = steps.stepped(optimizer)
        self.position.observe(sys.modules["torch"], optimizer, steps.count)
        if self._armed and self._place.rank == 0:
            self.losses.stepped(sys.modules["torch"], optimizer, steps.count, first)
        self._close(first)

    def _close(self, first: bool) -> None:
        """Close this step: the next `backward` belongs to another one."""
        self._armed = self.steps.attended = False
        self.steps.at_step = self.steps.backwards
        if self.losses.is_pending or not first:
            self.steps.due = 0.0

    def _take_waits(self) -> None:
        if self._wait and self._wait.known:
            self._waits = [*self._waits[-FIRST_STEPS:], self._wait]
        self._wait = None
        while self._waits and self._waits[0].is_readable():
            self.steps.waits += 1
            self.steps.wait += self._waits.pop(0).seconds()

    def scaled(self, scaler: Any, outputs: Any) -> None:
        """A GradScaler has scaled one or more losses."""
        self.losses.scaled(scaler, outputs)

    def scaler_stepped(self, optimizer: Any, passed_over: bool) -> None:
        """A GradScaler has stepped an optimizer, or skipped the step (`passed_over`)."""
        if any(group.get("fused") for group in optimizer.param_groups):
            self.unseen("skipped", "a fused optimizer skips steps by itself: Muster counts skipped steps as steps")
        self.steps.skipped += passed_over
        self.losses.unscaled(passed_over)
        if passed_over:
            self._wait = None
            self._close(False)

    def unseen(self, what: str, message: str) -> None:
        """Note what (`what`) cannot be observed in this script, and why."""
        self._unseen.setdefault(what, masked(message)[:200])

    def _begin(self, tensors: Any) -> None:
        """At the first gradient or step: this process trains."""
        if not self.steps.begun:
            self.steps.begin()
        self.trains, place = True, self._place
        world, backend = place.world()
        if not place.claim(f"watch-{place.rank}"):
            self.steps.off = True
            return
        device = str(getattr(getattr(tensors, "device", None), "type", ""))
        self._usual_wait = None if world > 1 else _NO_WAIT
        if self._looks is None:
            self._look(f"{place.local}.{os.getpid()}.stacks")
        started = {"attempt": place.attempt, "pid": os.getpid(), "host": os.uname().nodename, "world": world}
        self._started = {**started, "device": device, "backend": backend}
        with suppress(RuntimeError):
            self._wake.release()

    # These methods run on the watcher's own thread.

    def _look(self, name: str) -> None:
        with suppress(OSError):
            self._looks = Looks(os.path.join(self._place.outcome, name))
        self._over.acquire()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        next_look = 0.0
        over = self._over
        try:
            while not self._ends:
                now = perf_counter()
                if self._looks and now >= next_look:
                    next_look = now + LOOK_SECONDS
                    with suppress(OSError):
                        self._looks.take(self._about())
                        self._looks.arm()
                if self._started:
                    self._tell(now)
                self._wake.acquire(timeout=_CLOSER_SECONDS if self._started else LOOK_SECONDS)
        except Exception as fault:
            self.fails(fault)
        finally:
            over.release()

    def _about(self) -> dict[str, Any]:
        step, clock = self.steps.done[:2] if self.steps.done else (0, 0.0)
        now = perf_counter()
        about: dict[str, Any] = {"t": round(time.time(), 3), "pid": os.getpid(), "step": step}
        about |= {"doing": self.steps.doing, "since_s": round(now - clock, 3) if clock else None}
        about |= {"before": self._before} if self._before else {}
        about |= {"rank": in_run(self._place.rank)} if self.trains else {}
        about |= self._raised.about()
        rows = self._recorder.look(step, now - (clock or self._began))
        return {**about, "collectives": rows} if rows else about

    def _tell(self, now: float, last: bool = False) -> None:
        """Write what is new: at most four times a second, and less often in a long run."""
        self._patience()
        with suppress(OSError):
            if self._started and not self._last_report:
                self._earlier = self._place.steps_before()
                before = {"step": self._earlier.step} if self._earlier.step else {}
                self._place.event("started", **self._started, **before)
                self._last_report = self.steps.begun
            for what, message in list(self._unseen.items()):
                if what not in self._unseen_told:
                    self._place.event("unseen", what=what, message=message)
                    self._unseen_told.add(what)
            begun = self.steps.begun
            if last or now - self._told_at >= _pause(now - begun.clock if begun else 0.0):
                self._told_at = now
                if self._placed or self._find_place(last):
                    self._tell_step()
                    self._tell_losses()

    def _find_place(self, last: bool) -> bool:
        """Find out at which step this start begins, once its optimizer has shown it. Returns whether that is known."""
        begins = self.position.begins(self._earlier, self.steps, last)
        if not begins:
            return False
        (self._before, event), self._placed = begins, True
        if event:
            self._place.event("continues", **event)
        if "anew" in event:
            note(self._place.outcome, anew=True)
        return True

    def _tell_step(self) -> None:
        last = self._last_report
        done = Done(*self.steps.done) if self.steps.done else last
        if not done or not last or done.step <= last.step:
            return
        times = between(last, done, self._usual_wait)
        agrees = self.position.is_known and not self.steps.several and self.position.offset == self._before
        more = {**({"own": True} if agrees else {}), **({"skipped": self.steps.skipped} if self.steps.skipped else {})}
        self._place.event("step", step=self._before + done.step, count=done.step - last.step, **times, **more)
        self._last_report, self._usual_wait = done, times.get("wait_ms")

    def _tell_losses(self) -> None:
        points, self.losses.points = self.losses.points, []
        path = os.path.join(self._place.run, "metrics.jsonl")
        for point in points:
            # An append that fails may have cut a line; then the file's size is unknown (-1).
            size, self._metrics_bytes = self._metrics_bytes, -1
            if 0 <= size < os.path.getsize(path) or _writes_itself(path):
                self._metrics_bytes = 0
                self.unseen("loss", "the script writes metrics.jsonl itself")
                return
            line = {"t": round(time.time(), 3), **point, "step": self._before + point["step"]}
            self._metrics_bytes = append(path, line)

    def _patience(self) -> None:
        """Report as unseen what has not been observed for long enough."""
        steps, losses = self.steps, self.losses
        if not losses.seen and losses.failures >= _PATIENCE_FAILURES:
            self.unseen("loss", losses.why_not)
        if steps.foreign:
            self.unseen(
                "data", "a thread of the script fetches batches: Muster cannot see how long a step waits for them"
            )
        elif steps.count >= _PATIENCE_BACKWARDS and not steps.fetches:
            of_memory = "muster.training" in sys.modules  # it needs no DataLoader for tensors in memory
            why = (
                "`muster.Training` took the samples from memory"
                if of_memory
                else "no torch DataLoader delivered a batch"
            )
            self.unseen("data", f"{why}: the time spent waiting for data counts as other time")
        late = steps.begun and perf_counter() - steps.begun.clock > _PATIENCE_SECONDS
        if late and not steps.all and steps.backwards >= _PATIENCE_BACKWARDS:
            self.unseen("steps", "no torch optimizer has stepped")

    def _end(self) -> None:
        """When Python ends: stop the watcher's thread, and report the rest."""
        self._ends = True
        with suppress(RuntimeError):
            self._wake.release()
        self._over.acquire(timeout=1.0)
        if self._looks:
            self._looks.pause()
            self._tell_failure(self._looks)
        if self._started:
            self.losses.settle(sys.modules["torch"])
            self._tell(perf_counter(), last=True)
        elif self._first and not self.trains and not self.steps.off:
            self._tell_none()
        if "torch.distributed" in sys.modules:
            time.sleep(_GLOO_ENDS_S)

    def _tell_none(self) -> None:
        """Report once that no process of this rank has trained so far; not if one has."""
        # If a command starts its ranks itself, these have other numbers than the command.
        if os.environ.get("MUSTER_LAUNCHER_RANKS") and self._place.any_was_claimed("watch-"):
            return
        mine = f"watch-{self._place.rank}"
        if not self._place.any_was_claimed(f"{mine}.{self._place.life}"):
            self._place.claim(mine)
            why = "called backward or stepped an optimizer" if "torch" in sys.modules else "imported torch"
            self._place.event("unseen", what="steps", message=f"no process of this rank {why}")

    def _tell_failure(self, looks: Looks) -> None:
        """If an error ends the script, record its last collectives, so that the ranks can be compared."""
        if getattr(sys, "last_type", None) and (rows := self._recorder.now()):
            about = {"t": round(time.time(), 3), "pid": os.getpid(), **self._raised.about()}
            looks.take({**about, "collectives": rows})

    def _raises(self) -> None:
        """The main thread has failed; Python may now wait for other threads.

        A rank's output may be cut off or closed, or show the error in another form (an ExceptionGroup has no plain
        traceback). The agent then uses this note (trainer/node/agent/diary.py).
        """
        if self._first:
            with suppress(OSError):
                note(self._place.outcome, pid=os.getpid(), **self._raised.about())
        if self._looks and not self._ends:
            self._looks.take(self._about())


def _writes_itself(path: str) -> bool:
    """Whether this process has opened `path` with muster.metrics, as Muster's own trainer does; not muster.Training."""
    opened = getattr(sys.modules.get("muster.metrics"), "OPENED", None)
    # If the user has a module of that name, OPENED may be anything.
    return isinstance(opened, set) and os.path.realpath(path) in opened


def _pause(age: float) -> float:
    """How many seconds are between two reports in a run that has trained for `age` seconds."""
    return _CLOSER_SECONDS if age < 60 else 1.0 if age < 3600 else 2.0
