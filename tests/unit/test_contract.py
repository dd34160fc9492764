"""The contract page, the control side and the trainer agree on names, events, files and exit codes."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import yaml

from deploy.core import errors as control_errors
from deploy.host import gpus as host_gpus
from deploy.run import environment, outcome
from muster import errors as trainer_errors
from muster.training import Training
from tests.sources import nodes
from trainer.config import Config
from trainer.node.queue import reservation

HOME = Path(__file__).resolve().parents[2]
PAGES = ("develop/contract.md", "reference/variables.md", "reference/run-folder.md")
CONTRACT = "\n".join((HOME / "docs" / page).read_text() for page in PAGES)


def section(title):
    """The text below a heading of the contract pages."""
    return CONTRACT.split(f"## {title}", 1)[1].split("\n## ", 1)[0]


def first_cells(text):
    """The words in back quotes in the first column of a table."""
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return {name.split("=")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}


def sources(folder):
    """The Python sources of one half, by path."""
    return {path: path.read_text() for path in sorted((HOME / folder).rglob("*.py"))}


def muster_names(text):
    """The MUSTER_* environment names in a text."""
    return set(re.findall(r"\bMUSTER_[A-Z_]+\b", text)) - {"MUSTER_NAMES"}


def test_the_code_and_the_contract_have_the_same_environment_names():
    promised = {name for name in first_cells(section("Environment a node gets")) if name.startswith("MUSTER_")}
    trainer = set().union(*(muster_names(text) for half in ("trainer", "muster") for text in sources(half).values()))
    assert trainer <= promised
    assert set(environment.MUSTER_NAMES) <= promised
    assert promised == trainer | set(environment.MUSTER_NAMES)


def resolved(text):
    """A value of docker-compose.yml for the run r1, with `${A:-x}`, `${A:+x}` and `${A}` resolved as compose would."""
    given = {"MUSTER_RUN_ID": "r1", "MUSTER_RDZV_ID": "r1-1", "COMPOSE_PROJECT_NAME": "muster"}
    inner = re.compile(r"\$\{(\w+)(?::([-+])([^${}]*))?\}")

    def value(match):
        name, sign, other = match.groups()
        return (other if given.get(name) else "") if sign == "+" else given.get(name) or other or ""

    while inner.search(text):
        text = inner.sub(value, text)
    return text


def promised_to(name, rank):
    """The environment that the control side builds for one node of that run."""
    node = environment.Placement(name, rank, 3, 1, "eth0", 1)
    return environment.node_environment(node, environment.Rendezvous("master:29500", "r1-1"), "r1", "/muster/runs/r1")


@pytest.mark.parametrize(("service", "rank"), [("master", 0), ("worker", 1)])
def test_compose_sets_the_same_node_environment_as_every_other_backend(service, rank):
    services = yaml.safe_load((HOME / "docker-compose.yml").read_text())["services"]
    given = {name: resolved(value) for name, value in services[service]["environment"].items()}
    by_script = {"PET_NNODES"} | ({"MUSTER_NODE", "PET_NODE_RANK"} if service == "worker" else set())
    wanted = {name: value for name, value in promised_to(service, rank).items() if name not in by_script}
    names = (
        "PLAIN_TORCHRUN",
        "SENT",
        "OBSERVE",
        "LAUNCHER_RANKS",
        "GRACE",
        "MAX_HOURS",
        "STYLE",
        "RESTART_WITH",
    )
    switches = {f"MUSTER_{name}": "" for name in (*names, "SEPARATE", "BARE_RANK", "SECRET_NAMES", "SECRET_FILES")}
    of_compose_alone = {"WORKERS": "2", "MUSTER_WORKER": "muster-worker-", **switches}
    assert given == {**wanted, **of_compose_alone}
    script = (HOME / "images/node.sh").read_text()
    assert all(f"{name}=" in script for name in by_script - {"PET_NODE_RANK"})


def test_the_node_environment_has_only_names_of_the_contract():
    assert set(promised_to("master", 0)) <= first_cells(section("Environment a node gets"))


def test_ranks_write_exactly_the_events_of_the_contract():
    promised = first_cells(section("Events"))
    written = set()
    for path in sources("trainer"):
        for call in nodes(path):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "event":
                written |= {call.args[0].value} if isinstance(call.args[0], ast.Constant) else set()  # passed on
    assert written == promised


def test_exit_codes_are_the_same_in_both_halves():
    rows = re.findall(r"\| `(\w+)` \| (\d+) \|", section("Verdict and exit codes"))
    promised = {verdict: int(code) for verdict, code in rows}
    assert promised == outcome.CODES
    trainer = {
        "done": trainer_errors.DONE,
        "failed": trainer_errors.FAILED,
        "refused": trainer_errors.REFUSED,
        "stopped": trainer_errors.STOPPED,
    }
    assert promised == trainer
    assert control_errors.USAGE == trainer_errors.REFUSED


def test_both_halves_agree_on_idle_gpu_memory_and_on_how_many_checkpoints_to_keep():
    """The control side and a waiting node judge the same GPU; a user of `muster.Training` may know the trainer."""
    assert host_gpus.UNSEEN_MIB << 20 == reservation._IDLE_BYTES
    assert inspect.signature(Training).parameters["keep"].default == Config().keep


def test_the_trainer_reads_the_value_of_variables_that_compose_may_leave_empty():
    """Compose sets each of these variables, maybe to the empty text.

    So in a container on this machine each of them exists, and a program that only tests whether the variable exists
    would take it for set.
    """
    names = set(
        re.findall(r"^ +(MUSTER_[A-Z_]+): \$\{\1:-\}$", (HOME / "docker-compose.yml").read_text(), re.MULTILINE)
    )
    assert "MUSTER_LAUNCHER_RANKS" in names
    asked = re.compile(rf'"(?:{"|".join(sorted(names))})" (?:not )?in\b')
    found = [f"{path.name}: {match[0]}" for half in ("trainer", "muster") for path, text in sources(half).items()
             for match in asked.finditer(text)]  # fmt: skip
    assert not found
