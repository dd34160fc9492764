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

from os import path as _path

_API = ("Cluster", "DeployError", "Outcome", "Refused", "Run", "RunFailed", "UsageError")

# A wheel and an image hold deploy/ and trainer/ in this folder. In a checkout they are next to this folder, also when
# it is reached through a symbolic link.
_CHECKOUT = _path.dirname(_path.dirname(_path.realpath(__file__)))
if _path.isfile(_path.join(_CHECKOUT, "fabfile.py")):
    __path__.append(_CHECKOUT)


def __getattr__(name: str) -> object:
    """Return a name of the library or the API. Raises ImportError if the control side, or torch, is missing."""
    if name not in ("Training", *_API):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported here, not at the top: the control side has no torch, and a training script has no control side.
    from importlib import import_module

    if name == "Training":
        return getattr(import_module(".training", __name__), name)
    try:
        return getattr(import_module(".deploy.api", __name__), name)
    except ModuleNotFoundError as missing:
        if missing.name != f"{__name__}.deploy":
            raise
        raise ImportError(
            "the control side of Muster is not installed here: pip install muster-train's checkout"
        ) from missing
