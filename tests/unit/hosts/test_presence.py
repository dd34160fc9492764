"""Parsing hosts' answers about the images that they have."""

from deploy.hosts.start.probes import held_images
from deploy.send.image.push_plan import HostImage

LAYER = f"sha256:{'1' * 64}"
SHOWN = f'{{"id":"sha256:{"a" * 64}","tags":["b:latest"],"labels":null,"layers":["{LAYER}"]}}'


def test_a_name_without_an_image_is_missing_and_not_an_error() -> None:
    held = held_images(f"name a\n\nError: No such image: a\nname b:latest\n{SHOWN}\n")
    assert held["a"] == ""
    assert isinstance(held["b:latest"], HostImage)
    assert held["b:latest"].layers == (LAYER,)


def test_the_reason_of_an_engine_that_cannot_read_its_image_is_kept() -> None:
    held = held_images(
        "name a\n\nError response from daemon: layer does not exist\nname b\n\nError: No such object: b\n"
    )
    assert held == {"a": "Error response from daemon: layer does not exist", "b": ""}


def test_a_warning_of_the_client_is_not_part_of_the_image() -> None:
    held = held_images(f"name b:latest\nWARNING: config.json is not readable\n{SHOWN}\n")
    assert isinstance(held["b:latest"], HostImage)
