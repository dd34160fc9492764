"""Python runs this file when it starts, in each process below a rank; it starts the watcher (trainer/node/rank/).

No module of Muster may be imported by its name here, because a script may have a module named `trainer`. So the watcher
is loaded by its path, under another name. A script may start a Python of any version: an old one is not watched, and
this file has no syntax that it does not understand.
"""

import os
import sys

_WATCHER = "_muster_watch"
_OLDEST = (3, 10)


def watch():  # type: () -> None
    """Watch this process and the processes that it forks, unless the user has switched that off."""
    if sys.version_info < _OLDEST or os.environ.get("MUSTER_OBSERVE") == "0":
        return
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    place = os.path.dirname(here)
    try:
        spec = importlib.util.spec_from_file_location(
            _WATCHER, os.path.join(place, "__init__.py"), submodule_search_locations=[place]
        )
        if spec and spec.loader:
            sys.modules[_WATCHER] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            importlib.import_module(_WATCHER + ".begin").watch()
    except Exception:  # a full disk or a damaged folder: then the process is not watched
        pass


def _run_others():  # type: () -> None
    """Run the next sitecustomize on the path, which this one hides: a system may have its own."""
    import importlib.machinery
    import importlib.util

    mine = os.path.dirname(os.path.abspath(__file__))
    places = [place for place in sys.path if os.path.abspath(place) != mine]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec and spec.loader:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    # A run's only rank may have none of torchrun's variables, but it has MUSTER_LIFE.
    if "MUSTER_OUTCOME_DIR" in os.environ and ("RANK" in os.environ or "MUSTER_LIFE" in os.environ):
        watch()
    if sys.version_info >= (3, 5):
        _run_others()
