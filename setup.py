"""The packages in the wheel; everything else is in pyproject.toml.

`deploy` and `trainer` are common names, so in site-packages they are `muster.deploy` and `muster.trainer`.
"""

from setuptools import find_packages, setup

HALVES = find_packages(include=["deploy", "deploy.*", "trainer", "trainer.*"])
# The pages that `muster docs` prints. They are below `deploy`, because everything else in `muster` is sent to hosts.
PAGES = {"muster.deploy.pages": "docs/how-to", "muster.deploy.tutorial": "docs/tutorial"}
setup(
    packages=[*find_packages(include=["muster", "muster.*"]), *(f"muster.{name}" for name in HALVES), *PAGES],
    package_dir={"muster": "muster", "muster.deploy": "deploy", "muster.trainer": "trainer", **PAGES},
)
