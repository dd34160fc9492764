"""Several runs of the trainer in one start of ranks: importing torch takes longer than a short run.

    torchrun --nproc-per-node 4 -m lab.mesh_runs '[{"folder": "a", "arguments": ["--mesh", "dp_shard=4"]}]'

A run that raises leaves `refused-<rank>` in its folder, with the error; those after it run all the same.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run each of the given cases on this rank."""
    from trainer.config import parse
    from trainer.train.environment import discover
    from trainer.train.process_group import joined

    ranks = discover()
    with joined(parse(["--join-timeout", "60"]), ranks) as group:
        for case in json.loads(sys.argv[1]):
            _run(case, ranks, group)


def _run(case: dict[str, Any], ranks: Any, group: Any) -> None:
    from muster.checkpoint import randomness
    from muster.errors import TrainError
    from trainer import mesh, recipe
    from trainer.config import parse
    from trainer.run_dir import RankFolder
    from trainer.train.loop import Training

    # Ranks of one host may each have a disk of their own.
    folder = Path(case["folder"].replace("RANK", str(ranks.rank)))
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    os.environ["SEEN"] = str(folder)
    try:
        config = parse(["--join-timeout", "60", *case["arguments"]])
        mesh.parse(config.mesh, ranks.world)
        randomness.seed_all(config.seed)
        loaded = recipe.load(config.recipe)
        data = recipe.build_datasets(loaded, None)
        stop_at = iter([*[False] * case.get("stop_after", 10**9)]) if "stop_after" in case else None
        asked = (lambda: next(stop_at, True)) if stop_at else (lambda: False)
        training = Training(
            config, loaded, data, group, ranks, RankFolder(folder, ranks.rank, ranks.node), lambda line: None, asked
        )
        try:
            end = training.run()
        finally:
            training.close()
        (folder / f"end-{ranks.rank}").write_text(f"{end.verdict} {end.step}")
    except TrainError as fault:
        (folder / f"refused-{ranks.rank}").write_text(f"{fault.message}\n{fault.hint}")


if __name__ == "__main__":
    main()
