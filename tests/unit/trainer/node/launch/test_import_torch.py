"""A torch that cannot be imported is reported in the verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[5]


def test_a_broken_torch_is_the_verdict_of_the_run_and_its_traceback_stays_in_the_log(tmp_path):
    """With a library missing from the image, or after a broken-off install, the end only said "ended with code 1"."""
    torch = tmp_path / "broken/torch/__init__.py"
    torch.parent.mkdir(parents=True)
    torch.write_text("raise OSError('libcudart.so.12: cannot open shared object file')\n")
    (tmp_path / "run/outcome").mkdir(parents=True)
    place = {
        "PYTHONPATH": f"{torch.parents[1]}:{HOME}",
        "MUSTER_RUN_DIR": str(tmp_path / "run"),
        "MUSTER_NODE": "gpu-b",
    }
    line = [sys.executable, "-m", "trainer.node.launch.torchrun", "train.py"]
    done = subprocess.run(line, env={**os.environ, **place}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("libcudart.so.12: cannot open shared object file")
    [verdict] = map(json.loads, (file.read_text() for file in (tmp_path / "run/outcome").iterdir()))
    assert verdict["node"] == "gpu-b"
    assert verdict["message"] == (
        "torch cannot be imported here: OSError: libcudart.so.12: cannot open shared object file"
    )
    assert sys.executable in verdict["hint"]
