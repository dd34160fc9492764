"""A host that joins a live run is a spare: the others learn of it from questions that prove the run's key."""

import dataclasses
import json

from deploy.local import machine
from deploy.run.environment import GROUP, NODE
from lab.waiting import events, until
from tests.dist.conftest import waits_for
from tests.dist.test_spares import SLOWLY, STEPS, epochs, kill, trains


def newcomer(run, name, place, key="key"):
    """Start a node that is not in the plan of the others."""
    template = run.spec.nodes[-1]
    plan = json.loads(template.environment[GROUP])
    address, register, port = machine.free_ports(1)[0]
    plan |= {"key": key, "nodes": plan["nodes"] | {name: [address, register, port]}}
    plan |= {"spares": [*plan.get("spares", []), name], "joined": {name: [address, port, place]}}
    environment = template.environment | {GROUP: json.dumps(plan), NODE: name}
    run.nodes.start(dataclasses.replace(template, name=name, environment=environment), run.run_dir / f"logs/{name}.log")


def with_newcomer(run):
    """The node in the place next to the two that stay; empty while the place is free."""
    last = (epochs(run) or [[]])[-1]
    return last[2] if last[:2] == ["master", "worker-2"] and len(last) == 3 else ""


def test_newcomers_take_the_places_of_lost_nodes_and_those_without_the_key_take_none(nodes, recipe_file):
    options = ("--recipe", recipe_file(SLOWLY), "--batch", 24, "--steps", STEPS, "--checkpoint-every", 10)
    run = nodes(2, *options, "--eval-every", 0)
    run.spec = run.spec.grouped(2, machine.free_ports(3), "key")
    run.start()
    trains(run)
    newcomer(run, "stranger", 3, key="another")
    newcomer(run, "late-4", 4)
    newcomer(run, "late-5", 5)
    for name in ("late-4", "late-5"):
        until(lambda name=name: waits_for(run.run_dir / "nodes" / f".{name}") == 0, f"{name} to wait")
    trains(run)
    assert epochs(run) == []
    kill(run, "worker-1")
    until(lambda: with_newcomer(run), "a newcomer to take the place", 120)
    trains(run)
    first = with_newcomer(run)
    (other,) = {"late-4", "late-5"} - {first}  # on a busy machine the second may be the one that answers in time
    kill(run, first)
    until(lambda: with_newcomer(run) == other, "the other newcomer to take it", 120)
    trains(run)
    assert set(events(run.run_dir, 0, "members")[-1]["spares"]) == {"late-4", "late-5"}
    until(lambda: run.codes()["stranger"] == 1, "the one without the key to end itself", 60)
    assert "has seen only 0 of 3 nodes" in (run.run_dir / "logs/stranger.log").read_text()
