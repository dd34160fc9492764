"""The base of a push: where it is, and whether all who have it mean the same."""

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
# Let these hosts pull an image that has these names.
Pulls = Callable[[Sequence[Session], Sequence[str]], list[Pull]]


def is_anywhere(sessions: Sequence[Session], name: str) -> bool:
    """Whether this machine or a host has an image of that name."""
    return bool(find_base(sessions, name, None).values)


def find_base(sessions: Sequence[Session], name: str, pulls: Pulls | None) -> Results[Base]:
    """The base, by `HERE` if the local engine has it; otherwise by the hosts that have it.

    If none does and `pulls` is given, some hosts pull it; without a way from there to a registry, this machine does.
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
    """The hosts' platform as an engine names it."""
    done = on_all(sessions[:1], lambda session: session.run(("uname", "-m"), check=False).out.strip()).values
    machine = next(iter(done.values()), "")
    return push_plan.platform(machine) if machine else ""


def _where_from(name: str) -> str:
    if name.startswith("muster-trainer:"):
        return f"build it in Muster's checkout: {make_image(name)}; or choose another"
    return f"build it here, or pull it: docker pull {name}"


def agreed_base(bases: Results[Base]) -> Base:
    """The base image: the first name that exists. Raises if none does, or if its trainer is of another Muster."""
    for base in bases.values.values():
        refuse_other_trainer(base)
        return base
    bases.all()
    raise DeployError("no host to push to")
