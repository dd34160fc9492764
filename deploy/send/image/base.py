"""Find the base image of a push, on this machine or on hosts, and check that its trainer fits this Muster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...causes import docker_faults
from ...core.errors import DeployError
from ...core.results import Results
from ...core.text import last_line
from ...door.session import Session, among, on_all
from ...engine import images
from ..road.routes import HERE
from . import push_plan
from .model import Base, base_of, make_image, parse_base, refuse_other_trainer
from .pull import Pull
from .registry import is_refusal, registry_of

_LOOK_S = 60.0
# A function that lets these hosts pull an image by one of these references.
Pulls = Callable[[Sequence[Session], Sequence[str]], list[Pull]]


def is_anywhere(sessions: Sequence[Session], name: str) -> bool:
    """Whether this machine or a host has an image of that name."""
    return bool(find_base(sessions, name, None).values)


def find_base(sessions: Sequence[Session], name: str, pulls: Pulls | None) -> Results[Base]:
    """The base image: under `HERE` if the local engine has it, otherwise under the name of each host that has it.

    If no machine has it and `pulls` is given, some hosts pull it. If they cannot reach a registry, this machine pulls
    it.
    """
    if inspected := images.inspect(name):
        return Results({HERE: base_of(name, inspected)})

    def ask(session: Session) -> Base | None:
        done = session.run(("docker", "image", "inspect", name), timeout_s=_LOOK_S, check=False)
        if done.code and not docker_faults.lacks_image(done.err):
            raise docker_faults.fault(done.err)
        return None if done.code else parse_base(name, done.out)

    bases = on_all(sessions, ask)
    lacking = among(sessions, bases.values)
    if pulls and lacking and not any(bases.values.values()):
        pulled = pulls(lacking, [name])
        if not any(pull.worked for pull in pulled):
            if images.pull(name, _platform(sessions)):
                return Results({HERE: base_of(name, images.inspect(name))})
            return Results({pull.session.name: _cannot_pull(name, pull) for pull in pulled})
        bases = on_all(sessions, ask)
    outcomes: dict[str, Base | DeployError] = {host: base for host, base in bases.values.items() if base}
    return Results({**outcomes, **bases.faults})


def _cannot_pull(name: str, pull: Pull) -> DeployError:
    host = pull.session.name
    text = f"{name} is not on this machine, and not on {host}, which cannot pull it: {last_line(pull.fault)}"
    if is_refusal(pull.fault):
        registry = registry_of(name)
        return DeployError(
            text, f"here: docker login {registry}, then docker pull {name}; the hosts then get it from here"
        )
    return DeployError(text, _where_from(name))


def _platform(sessions: Sequence[Session]) -> str:
    """The hosts' platform, in the engine's spelling; empty if unknown."""
    done = on_all(sessions[:1], lambda session: session.run(("uname", "-m"), check=False).out.strip()).values
    machine = next(iter(done.values()), "")
    return push_plan.platform(machine) if machine else ""


def _where_from(name: str) -> str:
    if name.startswith("muster-trainer:"):
        return f"build it in Muster's checkout: {make_image(name)}; or choose another"
    return f"build it here, or pull it: docker pull {name}"


def agreed_base(bases: Results[Base]) -> Base:
    """The base image: the first one found. Raises if none was, or if its trainer belongs to another Muster."""
    for base in bases.values.values():
        refuse_other_trainer(base)
        return base
    bases.all()
    raise DeployError("no host to push to")
