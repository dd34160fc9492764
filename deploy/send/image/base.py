"""The base of a push: where it is, and whether all who have it mean the same."""

from __future__ import annotations

from collections.abc import Sequence

from ...causes import docker_faults
from ...core.errors import DeployError
from ...core.results import Results
from ...core.text import last_line
from ...door.session import Session, on_all
from ...engine import images
from . import commands, push_plan
from .model import Base, base_of, make_image, parse_base, refuse_other_trainer

HERE = "this machine"
_LOOK_S = 60.0
# An engine prints nothing while it pulls; 10 GB at 2 MB/s take an hour and a half.
PULL_S = 4 * 3600.0


def is_anywhere(sessions: Sequence[Session], name: str) -> bool:
    """Whether this machine or a host has an image of that name."""
    if images.inspect(name):
        return True
    held = on_all(sessions, lambda session: session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False))
    return any(done.code == 0 for done in held.values.values())


def find_base(sessions: Sequence[Session], name: str, pull: bool) -> Results[Base]:
    """The base, by `HERE` if the local engine has it; otherwise by host, and with `pull` hosts pull it if needed."""
    if inspected := images.inspect(name):
        return Results({HERE: base_of(name, inspected)})

    def ask(session: Session) -> Base:
        done = session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False)
        if done.code and not docker_faults.lacks_image(done.err):
            raise docker_faults.fault(done.err)
        if done.code and pull:
            pulled = session.run(commands.pull_image(name), timeout_s=PULL_S, check=False)
            if pulled.code:
                raise DeployError(
                    f"{name} is neither on this machine nor on {session.host.name}, which cannot pull it: "
                    + last_line(pulled.err.encode()),
                    _where_from(name),
                )
            done = session.run(commands.inspect_image(name), timeout_s=_LOOK_S, check=False)
        if done.code:
            raise docker_faults.fault(done.err)
        return parse_base(name, done.out)

    bases = on_all(sessions, ask)
    if bases.faults and pull and images.pull(name, _platform(sessions)):
        return Results(
            {HERE: base_of(name, images.inspect(name))}
        )  # hosts without a way to a registry get it from here
    return bases


def _platform(sessions: Sequence[Session]) -> str:
    """The hosts' platform as an engine names it."""
    done = on_all(sessions[:1], lambda session: session.run(("uname", "-m"), check=False).out.strip()).values
    machine = next(iter(done.values()), "")
    return push_plan.platform(machine) if machine else ""


def _where_from(name: str) -> str:
    if name.startswith("muster-trainer:"):
        return f"build it in Muster's checkout: {make_image(name)}; or name another"
    return f"build it here, or pull it: docker pull {name}"


def agreed_base(bases: Results[Base]) -> Base:
    """The base image: the first name that exists. Raises if none does, or if its trainer is of another Muster."""
    for base in bases.values.values():
        refuse_other_trainer(base)
        return base
    bases.all()
    raise DeployError("no host to push to")
