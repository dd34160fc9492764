"""docs/contract.md, the control side and the trainer say the same: names, events, files, exit codes."""

import ast
import re
from pathlib import Path

import yaml

from deploy.core import errors as control_errors
from deploy.run import environment, outcome
from muster import errors as trainer_errors

HOME = Path(__file__).resolve().parents[2]
CONTRACT = (HOME / "docs/contract.md").read_text()


def section(title):
    """The text below a heading of the contract."""
    return CONTRACT.split(f"## {title}", 1)[1].split("\n## ", 1)[0]


def first_cells(text):
    """What stands in back quotes in the first column of a table's rows."""
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return {name.split("=")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}


def sources(folder):
    """All the code of one half."""
    return {path: path.read_text() for path in sorted((HOME / folder).rglob("*.py"))}


def muster_names(text):
    """The environment names of ours in a text."""
    return set(re.findall(r"\bMUSTER_[A-Z_]+\b", text)) - {"MUSTER_NAMES"}


def test_every_name_of_ours_in_the_code_is_in_the_contract_and_the_other_way_round():
    promised = {name for name in first_cells(section("Environment a node gets")) if name.startswith("MUSTER_")}
    trainer = set().union(*(muster_names(text) for half in ("trainer", "muster") for text in sources(half).values()))
    assert trainer <= promised
    assert set(environment.MUSTER_NAMES) <= promised
    assert promised == trainer | set(environment.MUSTER_NAMES)


def test_processes_and_compose_give_a_node_what_the_contract_promises():
    promised = first_cells(section("Environment a node gets"))
    node = environment.local_spec(Path("/runs/x"), 1, 2, [], 29500, 2, "Linux").nodes[0]
    assert {name for name in node.environment if name.startswith(("PET_", "MUSTER_"))} <= promised
    services = yaml.safe_load((HOME / "docker-compose.yml").read_text())["services"]
    containers = services["master"]["environment"]
    for name in ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS"):
        assert name in promised
        assert name in node.environment
        assert name in containers
    for conf in (node.environment["PET_RDZV_CONF"], containers["PET_RDZV_CONF"]):
        assert set(environment.RDZV_CONF.split(",")) < set(conf.split(","))
    assert str(containers["PET_MAX_RESTARTS"]) == node.environment["PET_MAX_RESTARTS"]
    assert str(containers["PET_SHUTDOWN_TIMEOUT"]) == node.environment["PET_SHUTDOWN_TIMEOUT"]


def test_the_events_ranks_write_are_those_of_the_contract():
    promised = first_cells(section("Events"))
    written = set()
    for text in sources("trainer").values():
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "event":
                written.add(call.args[0].value)
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
