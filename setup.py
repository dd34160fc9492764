"""The packages of the wheel; all else is in pyproject.toml.

`deploy` and `trainer` are common names: in site-packages they are `muster.deploy` and `muster.trainer`.
"""

from setuptools import find_packages, setup

HALVES = find_packages(include=["deploy", "deploy.*", "trainer", "trainer.*"])
# What `muster docs` prints. Below `deploy`, because all else of `muster` goes to hosts.
PAGES = {"muster.deploy.pages": "docs/how-to", "muster.deploy.tutorial": "docs/tutorial"}
setup(
    packages=[*find_packages(include=["muster", "muster.*"]), *(f"muster.{name}" for name in HALVES), *PAGES],
    package_dir={"muster": "muster", "muster.deploy": "deploy", "muster.trainer": "trainer", **PAGES},
)
