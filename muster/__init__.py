"""What a training script may import, and the Python API of the control side.

For a script (docs/how-to/survive-a-kill.md); each module works alone, without the trainer and the control side:

`muster.Training`    a plain loop that neither repeats nor misses a sample: all of the following, in a few lines
`muster.data`        data exactly once: a stream of samples whose position is one number
`muster.checkpoint`  verified checkpoints that survive a kill at any moment
`muster.metrics`     metrics.jsonl and TensorBoard events
`muster.stop`        SIGTERM and Ctrl-C as a request that the training loop reads
`muster.files`       files that survive a kill and a full disk
`muster.errors`      faults with a hint and an exit code

For a program that starts runs: `from muster import Cluster` (docs/how-to/use-it-from-python.md). It loads the control
side at that moment, where that is installed; `import muster` alone loads nothing.
"""

_LIBRARY = {"Training": ".training"}
_API = ("Cluster", "DeployError", "Outcome", "Refused", "Run", "RunFailed", "UsageError")


def __getattr__(name: str) -> object:
    """A name of the library or the API. Raises ImportError where the control side, or torch, is missing."""
    if name not in (*_LIBRARY, *_API):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported here, as below: the control side has no torch, and a training script no control side.
    from importlib import import_module

    if name in _LIBRARY:
        return getattr(import_module(_LIBRARY[name], __name__), name)
    return getattr(import_module(_control_side()), name)


def _control_side() -> str:
    """`muster.deploy` in a wheel; in a checkout `deploy`, which must be the one beside this package."""
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec(f"{__name__}.deploy"):
        return f"{__name__}.deploy.api"
    beside = Path(__file__).resolve().parents[1] / "deploy"
    spec = find_spec("deploy")
    if spec is None or str(beside) not in [
        str(Path(place).resolve()) for place in spec.submodule_search_locations or ()
    ]:
        raise ImportError("the control side of Muster is not installed here: pip install muster-train's checkout")
    return "deploy.api"
