"""A rank of torch's own distributed tests: what comes of each case, with its words, warnings and traceback.

    CASES=test_send_recv,... OWN=FOLDER torchrun --nproc-per-node 3 torchs_own.py

Each case forms a process group of its own, as torch's own runner does. `rank-N.json` has what came of them.
"""

import datetime
import json
import os
import re
import sys
import traceback
import types
import unittest
import warnings

# torch's tests import it for texts that they expect; none of the cases here has one.
sys.modules["expecttest"] = types.ModuleType("expecttest")
sys.modules["expecttest"].TestCase = unittest.TestCase

OWN, RANK, CASES = os.environ["OWN"], int(os.environ["RANK"]), os.environ["CASES"].split(",")
os.environ |= {"TEMP_DIR": OWN, "BACKEND": "gloo", "INIT_METHOD": ""}
for name in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(OWN, name), exist_ok=True)

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test as own

PATIENCE = datetime.timedelta(seconds=20)
CHANGES = re.compile(r"0x[0-9a-f]+|:\d{4,5}\b|\d+(\.\d+)? ?ms|tmp\w{8}|\[[^\]]*\.cc:\d+\]|\d+\.\d+\.\d+\.\d+")


class Case(own.TestDistBackend, own.DistributedTest._DistTestBase):
    """One of torch's cases, run in this process."""


def words(text):
    """A text without what differs from one run of it to the next."""
    return CHANGES.sub("*", text)


def outcome(name):
    """What comes of a case here: `passed`, `skipped`, or what it raised; and what it warned of, where."""
    case = Case(name)
    case.rank, case.file_name = RANK, os.path.join(OWN, name)
    torch.manual_seed(0)
    said = "passed"
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", f"file://{case.file_name}", PATIENCE, world, RANK)
        own.Barrier.init()
        try:
            getattr(case, name)()
        except (unittest.SkipTest, SystemExit) as fault:
            said = f"skipped: {fault}"
        except BaseException:
            said = words(traceback.format_exc())
        if dist.is_initialized():
            dist.destroy_process_group()
    return [said, sorted({words(f"{one.filename}:{one.lineno}: {one.message}") for one in noted})]


found = {}
for name in CASES:
    print(name, flush=True)
    found[name] = outcome(name)
    with open(os.path.join(OWN, f"rank-{RANK}.json"), "w") as file:
        json.dump(found, file, indent=1)
os._exit(0)  # a case that failed may have left a thread that waits
