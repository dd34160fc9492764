"""Causes: images, versions and settings. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "Software and settings",
        (
            Row(
                "architecture-differs",
                "`exec format error` on one host.",
                by_hand="`uname -m` on each host",
                fix="Use hosts with the same architecture.",
                what="the image was built for another kind of processor",
                command="on {host}: uname -m (build the image for that processor)",
                symptom="`exec format error`",
                others=("an empty or damaged file in the image or the runtime",),
                ends=Cause.KILLED,
            ),
            Row(
                "image-without-python",
                "`no python in this image`, or no `sh`: nothing can train in this image.",
                by_hand="`docker run --rm --entrypoint sh IMAGE -c 'python --version || python3 --version'`",
                fix="Use an image that has a shell, Python and torch.",
                what="the image has no shell or no Python",
                command="use an image that has a shell, Python and torch",
            ),
            Row(
                "image-missing",
                (
                    "`No such image`: somebody has removed the image in the meantime. `failed to extract "
                    "layer`: the host has the image's name but not its layers, after an interrupted push or a "
                    "clean-up that removed too "
                    "much."
                ),
                by_hand="`docker image ls` and `docker create IMAGE` there",
                fix="`muster push --hosts HOST` sends what is missing. `muster deploy` does so by itself.",
                what="the image is missing",
                command="muster push{at}",
                here="build it: make image",
                others=("a damaged image store",),
            ),
            Row(
                "image-differs",
                (
                    "The hosts have different layers under the same tag: using them together causes odd errors. "
                    "`muster deploy` sends one image to all hosts, so this is only a warning. The text also "
                    "says in which image `import torch` fails, and with what message."
                ),
                by_hand="`docker image inspect -f '{{json .RootFS.Layers}}' IMAGE` on each host",
                fix="with `muster deploy`, nothing. For another launcher: `muster push --hosts ...`.",
                symptom="odd errors later",
            ),
            Row(
                "python-old",
                (
                    "`unknown option -P`, code 2 on every host: Muster's agent starts the ranks, and it needs "
                    "Python 3.11. Muster adds the agent to images that lack it."
                ),
                by_hand="`docker run --rm --entrypoint sh IMAGE -c 'python --version || python3 --version'`",
                fix="Use an image with Python 3.11 or newer.",
                command="an image with Python 3.11 or newer",
                symptom="`unknown option -P`",
            ),
            Row(
                "torch-differs",
                "Pickle or collectives fail; sometimes results differ silently.",
                by_hand="`python -c 'import torch; print(torch.__version__)'` in each container",
                fix="Use the same image on all hosts: `muster push`.",
                source="pytorch/pytorch issues",
                symptom="`Mismatched NCCL version detected`, errors of pickle, or silent differences",
                command="muster push gives all hosts the same image",
            ),
            Row(
                "nccl-differs",
                "`Mismatched NCCL version detected : rank 0 version 21805 rank 1 version 22005`.",
                by_hand="`python -c 'import torch; print(torch.cuda.nccl.version())'`",
                fix="Use the same image on all hosts: `muster push`.",
                source="NVIDIA/nccl #354, #1634",
                symptom="`Mismatched NCCL version detected`, errors of pickle, or silent differences",
                command="muster push gives all hosts the same image",
            ),
            Row(
                "cuda-differs",
                "The same message as for NCCL, or `no kernel image is available`.",
                by_hand="`python -c 'import torch; print(torch.version.cuda)'`",
                fix="Use the same image on all hosts: `muster push`.",
                symptom="`Mismatched NCCL version detected`, errors of pickle, or silent differences",
                command="muster push gives all hosts the same image",
            ),
            Row(
                "python-differs",
                "Usually nothing happens; pickles of code may fail.",
                by_hand="`python --version` in each container",
                fix="Use the same image on all hosts: `muster push`.",
                symptom="`Mismatched NCCL version detected`, errors of pickle, or silent differences",
                command="muster push gives all hosts the same image",
            ),
            Row(
                "settings-differ",
                (
                    "Hosts disagree on a variable such as `NCCL_ALGO` or `PET_NNODES`: the run hangs, or uses "
                    "another algorithm."
                ),
                by_hand="`env | grep -E 'NCCL|GLOO|TORCH|PET'` on each host",
                fix="Set the same value on all hosts (`[job.environment]` in cluster.toml), or unset it on all.",
                source="NVIDIA/nccl, environment variables",
                symptom="`Mismatched NCCL version detected`, errors of pickle, or silent differences",
            ),
        ),
        group="software",
    ),
)
