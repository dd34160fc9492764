"""Commands as argument lists: built here, run by the doors, quoted nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from ..run.folders import TRAINER


def agent(python: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """One node: the trainer's agent, which starts torchrun. -P: a user's trainer.py or muster.py is not ours."""
    return (python, "-P", "-m", f"{TRAINER}.node.agent", *arguments)


def build_image(script: str) -> tuple[str, ...]:
    """The image of the compose backend."""
    return (script,)


_IMAGE_LINE = (
    '{"id":{{json .Id}},"tags":{{json .RepoTags}},"labels":{{json .Config.Labels}},"layers":{{json .RootFS.Layers}}}'
)
_ENGINE_LINES = (
    '{"version":{{json .ServerVersion}},"machine":{{json .Architecture}},"system":{{json .OSType}},'
    '"status":{{json .DriverStatus}},"root":{{json .DockerRootDir}}}{{"\\n"}}{{.DockerRootDir}}'
)
# Every start of `docker` takes its time on a host, so: as few as will do, in one command. Of the answer those lines
# count that are a JSON object.
_LOOK_AT_IMAGES = f""": look at the images here
info=$(docker info --format '{_ENGINE_LINES}') || exit
printf '%s\\n' "$info"
df -Pk "${{info##*
}}" 2>/dev/null | awk 'NR == 2 {{print "{{\\"free\\":\\"" $4 "\\"}}"}}'
docker image inspect --format '{_IMAGE_LINE}' $(docker image ls --quiet --no-trunc | sort -u) "$@" 2>/dev/null
exit 0
"""
# A connection that is cut between the two leaves no container: they are one command.
_TRY = f"""
docker image inspect --format '{_IMAGE_LINE}' "$image" || exit
container=$(docker create --pull never --network none --label muster.run=push "$image" true) || exit
docker rm --volumes "$container" >&2 || exit
[ $# -eq 0 ] || docker image rm "$@" >&2 || true
"""
_TRY_IMAGE = f": try the image\nimage=$1; shift{_TRY}"
_RECEIVE_IMAGE = f": receive the image\nimage=$1; shift\ndocker load --quiet >&2 || exit{_TRY}"


def look_at_images(names: Sequence[str]) -> tuple[str, ...]:
    """What a host's engine is, its free disk space, and the layers of every image it has.

    The containerd store leaves some images out of its list though they can be used; those of `names` are shown anyhow.
    """
    return ("sh", "-c", _LOOK_AT_IMAGES, "sh", *names)


def try_image(tag: str, replaced: Sequence[str]) -> tuple[str, ...]:
    """Show an image as `look_at_images` does, create a container from it, and remove that again.

    Then remove the images `replaced`, by id; those in use stay.
    """
    return ("sh", "-c", _TRY_IMAGE, "sh", tag, *replaced)


def receive_image(tag: str, replaced: Sequence[str]) -> tuple[str, ...]:
    """Load an archive from standard input, then as `try_image`. Nothing is shown when the engine refuses it."""
    return ("sh", "-c", _RECEIVE_IMAGE, "sh", tag, *replaced)


def show_image(name: str) -> tuple[str, ...]:
    """Show an image as `look_at_images` does."""
    return ("docker", "image", "inspect", "--format", _IMAGE_LINE, name)


def pull_image(reference: str) -> tuple[str, ...]:
    """Fetch an image from its registry."""
    return ("docker", "pull", "--quiet", reference)


def inspect_image(name: str) -> tuple[str, ...]:
    """All an engine says of an image, as JSON."""
    return ("docker", "image", "inspect", name)


def remove_images(names: Sequence[str]) -> tuple[str, ...]:
    """Remove names and images; one that is in use stays."""
    return ("docker", "image", "rm", *names)
