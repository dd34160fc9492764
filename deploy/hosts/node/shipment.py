"""What a push and a deploy send, and to which hosts: the image, the folder, data and packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...host.reached import ReachedHosts
from ...send.folder.credentials import SendChoice
from ...send.folder.folder_look import FolderLook
from ...send.packages.requirements import Requirements


@dataclass(frozen=True)
class Shipment(ReachedHosts):
    """The hosts, and what they get: `tag` is the image of the folder, built on the image `base`."""

    base: str
    tag: str
    folder: Path | None
    choice: SendChoice
    requirements: Requirements | None = None
    data: Sequence[FolderLook] = ()

    @property
    def image(self) -> str:
        """The run's image in words: its name on the hosts, as in `docker ps`, and the image that it is made of."""
        return self.tag + f", made of {self.base}" * (self.tag != self.base)

    def code(self) -> FolderLook | None:
        """Look at the folder again: somebody may have changed it since the last look."""
        return FolderLook(self.folder, self.choice) if self.folder else None
