"""`python -m muster.checkpoint FOLDER [FILE]`: one file of a checkpoint whose parts the ranks have written."""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..errors import DONE, FAILED, CheckpointError, Refused, TrainError
from ..files import amount
from . import store


def main() -> int:
    """Verify the newest usable checkpoint of a run, and write its whole state into one file."""
    command = argparse.ArgumentParser(prog="python -m muster.checkpoint", description=__doc__)
    command.add_argument(
        "folder", type=Path, help="a run folder, its checkpoints, or one of them (after `muster fetch`)"
    )
    command.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=Path("state.pt"),
        help="the file to write (default state.pt); NAME.safetensors gets only the weights of the model",
    )
    options = command.parse_args()
    try:
        _write(options.folder, options.file)
    except TrainError as fault:
        print(fault.report(), file=sys.stderr)
        return fault.code
    except OSError as fault:  # a name that is too long, or a folder of another user
        print(f"error: {fault.filename}: {fault.strerror}", file=sys.stderr)
        return FAILED
    return DONE


def _write(folder: Path, file: Path) -> None:
    if file.exists():
        raise Refused(f"{file}: exists", "name another file")
    alone = file.suffix == ".safetensors"
    save = _safetensors() if alone else store.HashingFile().save
    path, damaged = store.locate(_checkpoints(folder))
    for checkpoint in damaged:
        print(f"skipped: {checkpoint.reason}", file=sys.stderr)
    print(f"reads {path}", file=sys.stderr, flush=True)
    try:
        state, manifest = store.load(path)
    except (RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: cannot be joined: {error}", "give the previous step") from error
    what = _weights(path, state) if alone else state
    beside = file.with_name(f".{file.name}.new")
    try:
        save(what, beside)
        os.replace(beside, file)
    except Exception as error:  # safetensors has its own error type for a full disk
        raise TrainError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()
    reader = "safetensors" if alone else "torch.load"
    print(f"{file}: step {manifest.step}, {amount(file.stat().st_size)}; {reader} reads it")


def _checkpoints(folder: Path) -> Path:
    """The folder that holds the checkpoints. A script that uses `muster.Training` keeps it below `work`."""
    if (folder / "checkpoints").is_dir() or not (folder / "work").is_dir():
        return folder
    folders = sorted({path.parents[1] for path in (folder / "work").glob("**/checkpoints/step-*/manifest.json")})
    if len(folders) > 1:
        raise Refused(f"{folder}: it has several folders of checkpoints", f"give one of {', '.join(map(str, folders))}")
    return folders[0] if folders else folder


def _safetensors() -> Any:
    try:
        save_file = importlib.import_module("safetensors.torch").save_file
    except ImportError:
        raise Refused("safetensors is not installed here", "pip install safetensors; or write to a .pt file") from None
    return save_file


def _weights(path: Path, state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of the part `model`.

    safetensors rejects two names that share memory, so each name gets its own copy.
    """
    model = state.get("model")
    if not isinstance(model, dict):
        raise Refused(f"{path}: has no part called model, but {', '.join(map(str, state))}", "name a file .pt")
    if other := [name for name, value in model.items() if not isinstance(value, torch.Tensor)]:
        print(f"left out, because they are not tensors: {', '.join(map(str, other))}", file=sys.stderr)
    return {name: value.contiguous().clone() for name, value in model.items() if isinstance(value, torch.Tensor)}


if __name__ == "__main__":
    sys.exit(main())
