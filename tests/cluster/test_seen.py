"""Recorded output of commands on hosts: plans of `deploy --dry-run`, `--json` of each command, a run's event lines.

What differs from day to day has a placeholder, such as <time>. tests/golden/held.py compares.
"""

import difflib
import json
import re

import pytest

from tests.cluster.control import BASE, HOME, SLOW, Control
from tests.golden.held import hold

# What differs from day to day, and the placeholder that replaces it.
_KINDS = (
    (r"\btest-[0-9a-f]{6,8}\b|\b20\d\d-\d\d-\d\d-\d{4,6}(?:-[a-z]+)*(?:-[0-9a-f]{4})?\b", "<run>"),
    (r"sha256:[0-9a-f]{12,64}|\b[0-9a-f]{12,64}\b", "<id>"),
    (r'"control": "[^"]*"', '"control": "<machine>"'),
    (r"\b(?:10|172|192)\.\d+\.\d+\.\d+\b(?:/\d+)?", "<address>"),
    (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<date>"),
    (r"\b\d+(?:\.\d+)? (?:s|ms|min|h)\b(?: \d+ (?:s|min)\b)?", "<time>"),
    (r"\b\d+(?:\.\d+)? samples/s", "<rate>"),
    # Without a terminal, only some of the steps are shown, each with its loss.
    (r"\bstep \d/4   loss \d\.\d+", "step <which>/4   loss <loss>"),
    (r"\b\d+(?:\.\d+)? ?(?:[kKMGT]i?B|bytes)\b", "<size>"),
)
CODE, STEPS = ("--folder", "examples"), (*SLOW, "--args", "--recipe slow.py --steps 4")
_PLANS = (
    ("the trainer", ("--args", "--steps 5")),
    ("a script", (*CODE, "--", "ddp.py", "--steps", "5")),
    ("two ranks a host", ("--nproc", "2", *CODE, "--", "ddp.py")),
    ("a module", (*CODE, "--", "python", "-m", "ddp")),
    ("torchrun typed", (*CODE, "--", "torchrun", "--nproc-per-node=2", "ddp.py")),
    ("a shell command", (*CODE, "--", "bash", "-c", "torchrun ddp.py 2>&1 | tee out.log")),
    ("each for itself", ("--each", "python ddp.py {node_rank} {nodes} {master}", *CODE)),
    ("fewer may train on", ("--min-nodes", "1", "--args", "--steps 5")),
    ("a mount and a variable", ("--env", "A=1", "--mount", "/tmp:/data:ro", "--args", "--steps 5")),
    ("in the background", ("--detach", "--restarts", "2", "--max-hours", "3", *CODE, "--", "ddp.py")),
    ("kept, and a command at the end", ("--keep", "/tmp/out", "--on-end", "echo $MUSTER_CODE", *CODE, "--", "ddp.py")),
    ("packages", ("--requirements", "requirements.txt", *CODE, "--", "accelerate_train.py")),
    ("no script", CODE),
    ("no such script", (*CODE, "--", "dpp.py")),
)  # fmt: skip


def by_kind(text):
    """`text` with placeholders for what differs from rack to rack."""
    text = text.replace(str(HOME), ".")
    for pattern, instead in _KINDS:
        text = re.sub(pattern, instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def shape(value):
    """The shape of a JSON value: each value is replaced by the name of its type."""
    if isinstance(value, dict):
        # Which hosts a push names, if any, depends on what they have already.
        return {key: "bytes by host" if key == "sources" else shape(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [json.loads(each) for each in sorted({json.dumps(shape(each), sort_keys=True) for each in value})]
    return type(value).__name__


@pytest.fixture
def control(rack):
    """The control side; its hosts have the image, as after a first run."""
    made = Control(rack)
    assert made.fab("push", "--image", BASE).returncode == 0
    yield made
    made.clean()


def test_json_of_each_command_has_the_fields_that_were_recorded(control):
    done = control.deploy("--json", *STEPS)
    assert done.returncode == 0, done.stderr
    run = ("--run", control.run)
    commands = (
        ("preflight", "--image", BASE), ("status",), ("status", *run), ("gpus",), ("runs",), ("why", *run),
        ("logs", *run), ("attach", *run), ("fetch", *run), ("clean",), ("push", "--image", BASE), ("down", *run),
    )  # fmt: skip
    blocks = ["== deploy", *kinds(done.stdout)]
    for words in commands:
        done = control.fab(words[0], "--json", *words[1:])
        blocks += [f"== {' '.join(words[: 2 if run[0] in words else 1])}: {done.returncode}", *kinds(done.stdout)]
        blocks += [by_kind(done.stderr)] if done.returncode else []
    hold("json.txt", "\n".join(blocks))


def kinds(text):
    """The different shapes of JSON lines, each once, without the kinds that come at random times."""
    found = dict[str, None]()
    for line in text.splitlines():
        value = json.loads(line)
        if value.get("kind") not in ("telemetry", "output"):
            found[f"{value.get('kind', '')} {json.dumps(shape(value), sort_keys=True)}".strip()] = None
    return sorted(found)


def test_the_plan_of_a_deploy_is_what_was_recorded(control):
    before, blocks = list[str](), list[str]()
    for name, words in _PLANS:
        done = control.deploy("--dry-run", *words)
        lines = [*of_first_host(by_kind(done.stdout)), "-- and beside it", *by_kind(done.stderr).splitlines()]
        # After the first plan, only its difference from the plan before.
        differs = list(difflib.unified_diff(before, lines, lineterm="", n=0))[2:] if done.returncode == 0 else lines
        blocks += [f"== {name}: {done.returncode}", *(line for line in differs if not line.startswith("@@"))]
        before = lines if done.returncode == 0 else before
    hold("plans.txt", "\n".join(blocks))
    assert not control.traces()


def of_first_host(plan):
    """The lines of a plan for one host, one option per line. What is sent is left out: it depends on the host."""
    own, lines = True, list[str]()
    for line in plan.splitlines():
        own = not re.match(r"rack-2:|\S+: (push|send) ", line) if not line.startswith(" ") else own
        lines += re.sub(r" (?=--)", "\n        ", line).splitlines() if own else []
    return lines


def test_a_run_prints_the_lines_that_were_recorded(control):
    done = control.deploy(*STEPS)
    # What is sent depends on what was sent before, and only a long wait gets a line.
    told = [
        line for line in done.stderr.splitlines() if not re.search(r" sent \(|^preflight |^rehearsed|loading", line)
    ]
    hold(
        "run.txt", "\n".join([str(done.returncode), by_kind(done.stdout), "-- and beside it", by_kind("\n".join(told))])
    )
