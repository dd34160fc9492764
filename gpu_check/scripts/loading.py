"""A script that loads data in separate processes, into pinned memory, while its model is on the GPU."""

import sys

FORKED = "torch" in sys.modules

import json  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


def main() -> None:
    """Train for two epochs."""
    before, on_gpu = torch.cuda.is_initialized(), sys.argv[1] == "nccl"
    device = torch.device("cuda" if on_gpu else "cpu")
    model = torch.nn.Linear(8, 1).to(device)
    data = TensorDataset(torch.rand(256, 8))
    loader = DataLoader(data, batch_size=32, num_workers=2, pin_memory=on_gpu)
    samples = 0
    for _ in range(2):
        for (batch,) in loader:
            model(batch.to(device, non_blocking=True)).mean().backward()
            samples += len(batch)
    assert samples == 512
    seen = {"forked": FORKED, "cuda_before": before, "device": str(next(model.parameters()).device)}
    Path(os.environ["MUSTER_RUN_DIR"], f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
