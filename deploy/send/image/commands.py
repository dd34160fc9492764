"""Commands as argument lists. The modules that run them do the quoting; this one does not."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.names import NODE_PROGRAMS, TRAINER
from ...core.scripts import Argv, Scripts


def agent(python: str, arguments: Sequence[str]) -> Argv:
    """The command for one node: the trainer's agent around torchrun. -P: a user's muster.py must not shadow ours."""
    return (python, "-P", "-m", NODE_PROGRAMS, "agent", *arguments)


def options(arguments: Sequence[str]) -> Argv:
    """The arguments that check the options of Muster's own trainer, without torch."""
    return ("-P", "-m", f"{TRAINER}.config", *arguments)


def witness(python: str) -> Argv:
    """The command for the witness of a run's end, which runs next to its nodes."""
    return (python, "-P", "-m", NODE_PROGRAMS, "on_end")


_IMAGE_LINE = (
    '{"id":{{json .Id}},"tags":{{json .RepoTags}},"labels":{{json .Config.Labels}},"layers":{{json .RootFS.Layers}}}'
)
_SCRIPT = Scripts(__file__)


def look_at_images(names: Sequence[str]) -> Argv:
    """Show a host's engine, its free disk space, and the layers of all its images.

    The containerd store leaves some usable images out of its list; those among `names` are shown anyway.
    """
    return _SCRIPT("images", _IMAGE_LINE, *names)


def try_image(tag: str, replaced: Sequence[str]) -> Argv:
    """Show an image as `look_at_images` does, create a container from it, and remove the container again.

    Then remove the images in `replaced`, by id, except those in use.
    """
    return _SCRIPT("try-image", _IMAGE_LINE, tag, *replaced)


def receive_image(tag: str, replaced: Sequence[str]) -> Argv:
    """Load an archive from standard input, then do the same as `try_image`. Prints nothing if the engine refuses it."""
    return _SCRIPT("receive-image", _IMAGE_LINE, tag, *replaced)


def show_image(name: str) -> Argv:
    """Show an image as `look_at_images` does."""
    return ("docker", "image", "inspect", "--format", _IMAGE_LINE, name)


def first_image(names: Sequence[str]) -> Argv:
    """Show the first of these images that a host has, and what its engine reports about those before it."""
    return _SCRIPT("first-image", _IMAGE_LINE, *names)
