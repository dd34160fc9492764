"""`python -m muster.checkpoint FOLDER [FILE]`: one file of a checkpoint whose parts the ranks have written."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from ..errors import Refused, TrainError
from . import store


def main() -> int:
    """Verify the newest usable checkpoint of a run, and write its whole state with torch.save."""
    command = argparse.ArgumentParser(prog="python -m muster.checkpoint", description=__doc__)
    command.add_argument("folder", type=Path, help="a run folder, its checkpoints, or one of them (after `fab fetch`)")
    command.add_argument("file", type=Path, nargs="?", default=Path("state.pt"), help="where to (default state.pt)")
    options = command.parse_args()
    try:
        path, damaged = store.locate(options.folder)
        for checkpoint in damaged:
            print(f"passed over: {checkpoint.reason}", file=sys.stderr)
        if options.file.exists():
            raise Refused(f"{options.file}: exists", "name another file")
        print(f"reads {path}", file=sys.stderr)
        state, manifest = store.load(path)
        torch.save(state, options.file)
    except OSError as error:
        print(f"error: {options.file}: {error.strerror or error}", file=sys.stderr)
        return 1
    except TrainError as fault:
        print(fault.report(), file=sys.stderr)
        return fault.code
    print(f"{options.file}: step {manifest.step}, {options.file.stat().st_size / 1e6:,.1f} MB; torch.load reads it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
