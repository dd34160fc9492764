"""Run by Python itself as it starts, in each process below a rank: has it watched from inside (trainer/node/rank/).

Nothing of ours may be imported by its name here: a script may have a module named `trainer`. What watches is therefore
loaded by its place, under another name. A script may start a Python of any age: an old one is not watched, and reads
nothing here that it does not understand.
"""

import os
import sys

_WATCHER = "_muster_watch"
_OLDEST = (3, 10)


def watch():  # type: () -> None
    """From now on, watch this process and those that it forks, unless the user has switched that off."""
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
    except Exception:  # a full disk, a damaged folder: then nothing is known of it
        pass


def _run_others():  # type: () -> None
    """Run the sitecustomize that this one stands before: a system may have its own."""
    import importlib.machinery
    import importlib.util

    mine = os.path.dirname(os.path.abspath(__file__))
    places = [place for place in sys.path if os.path.abspath(place) != mine]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec and spec.loader:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    # Its only rank may have none of torchrun's variables.
    if "MUSTER_OUTCOME_DIR" in os.environ and ("RANK" in os.environ or "MUSTER_LIFE" in os.environ):
        watch()
    if sys.version_info >= (3, 5):
        _run_others()
