"""A script that touches the GPU before anything else, as libraries with module-level tensors do."""

import sys

FORKED = "torch" in sys.modules

import json  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402

BEFORE = torch.cuda.is_initialized()
DEVICE = torch.device("cuda" if sys.argv[1] == "nccl" else "cpu")
TABLE = torch.arange(10.0, device=DEVICE)

if __name__ == "__main__":
    assert float((TABLE @ TABLE).sum()) == 285.0
    seen = {"forked": FORKED, "cuda_before": BEFORE, "device": str(TABLE.device)}
    Path(os.environ["MUSTER_RUN_DIR"], f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))
