"""Causes: GPUs, their driver and CUDA. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "GPUs",
        (
            Row(
                "gpu-driver",
                "`Failed to initialize NVML: Driver/library version mismatch`.",
                by_hand="`nvidia-smi`",
                fix="Reboot. After a driver update, it is enough to reload the driver's module.",
                source="NVIDIA driver notes",
                what="the GPU driver does not answer containers",
                command="on {host}: nvidia-smi; reboot, or reload the driver's module",
                symptom="torch.cuda.is_available() is False",
                others=(
                    "an image whose requirements the driver does not meet",
                    "permissions on the devices",
                ),
                explains="gpu-missing gpu-xid",
            ),
            Row(
                "gpu-runtime",
                (
                    '`could not select device driver "" with capabilities: [[gpu]]`, or '
                    "`torch.cuda.is_available()` is False. `libcuda.so.1: cannot open shared object file`: the "
                    "container was started without the driver."
                ),
                by_hand="`docker run --rm --gpus all IMAGE nvidia-smi`",
                fix=(
                    "Run `nvidia-ctk runtime configure --runtime=docker` and restart Docker; "
                    "`muster bootstrap` does both."
                ),
                source="NVIDIA container toolkit, installation",
                what="Docker cannot give GPUs to containers there",
                command="muster bootstrap{at} (installs nvidia-container-toolkit and configures Docker for it)",
                explains="gpu-missing",
                symptom="torch.cuda.is_available() is False",
            ),
            Row(
                "gpu-missing",
                "Only one host reports `no CUDA-capable device is detected`.",
                by_hand="`nvidia-smi -L`, `lspci | grep -i nvidia`",
                fix="Leave the host out, or repair it.",
                command="on {host}: nvidia-smi; lspci | grep -i nvidia",
                symptom="`no CUDA-capable device is detected`",
            ),
            Row(
                "gpu-busy",
                "CUDA out of memory at the start.",
                by_hand="`nvidia-smi`, `muster gpus --hosts HOST`",
                fix="End the other process, or use other GPUs.",
                command="muster gpus{at} shows who uses its GPUs",
                symptom="`CUDA out of memory`",
            ),
            Row(
                "gpu-faulty",
                (
                    "`uncorrectable ECC error`, `unspecified launch failure`, hangs, or a loss that jumps. "
                    "`dcgmi diag -r 3` and gpu-burn put load on the GPU: they find faulty memory and wrong results."
                ),
                by_hand="`nvidia-smi -q -d ECC,ROW_REMAPPER`, `dmesg | grep Xid`",
                fix="Reset the GPU (`nvidia-smi -r`). If the errors return, take it out of use and replace it.",
                source="NVIDIA Xid catalogue",
                symptom="a rank that dies in the middle of a run",
                explains="gpu-xid",
                ends=Cause.GPU_LOST,
            ),
            Row(
                "gpus-differ",
                "The slowest GPU sets the pace; the smallest runs out of memory.",
                by_hand="`nvidia-smi -L` on each host",
                fix="Choose the GPUs of each host in cluster.toml.",
                command="choose the GPUs of each host in cluster.toml",
                symptom="the slowest one sets the pace",
            ),
            Row(
                "gpu-silent",
                (
                    "nvidia-smi or the driver does not answer within 20 s: the first CUDA call of the training would "
                    "hang too. Preflight reports this as *could not tell*."
                ),
                by_hand="`time nvidia-smi`, `dmesg | grep NVRM`",
                fix=(
                    "If the driver is only slow to wake up, turn on persistence mode (`sudo nvidia-smi -pm 1`). "
                    "Otherwise reboot."
                ),
                source="docs.nvidia.com/deploy/driver-persistence",
                explains="gpu-missing gpu-xid",
                symptom="torch.cuda.is_available() is False",
                command="on {host}: nvidia-smi; dmesg | grep NVRM; sudo nvidia-smi -pm 1",
            ),
            Row(
                "gpu-lost",
                (
                    "`Unable to determine the device handle for GPU...: Unknown Error`, `GPU is lost`; Xid 79 in "
                    "the kernel log: the GPU has fallen off the bus."
                ),
                by_hand="`nvidia-smi`, `dmesg | grep -i xid`, `lspci | grep -i nvidia`",
                fix="Reboot. If it happens again, check the power, the cooling and whether the card sits "
                "firmly, or replace it.",
                source="docs.nvidia.com/deploy/xid-errors",
                explains="gpu-missing gpu-xid",
                ends=Cause.GPU_LOST,
                symptom="torch.cuda.is_available() is False",
                command="on {host}: sudo reboot; if it happens again: reseat or replace the GPU",
            ),
            Row(
                "gpu-persistence",
                "The first CUDA call of every process takes seconds, so ranks arrive late at the rendezvous.",
                by_hand="`nvidia-smi --query-gpu=persistence_mode --format=csv`",
                fix="`sudo systemctl enable --now nvidia-persistenced`",
                source="docs.nvidia.com/deploy/driver-persistence",
                command="on {host}: sudo systemctl enable --now nvidia-persistenced, or sudo nvidia-smi -pm 1",
                symptom="a slow first CUDA call",
            ),
            Row(
                "gpu-slow",
                (
                    "All ranks wait for one whose GPU throttles itself (heat, power) or has few PCIe lanes. "
                    "`dcgmi diag -r 3` or gpu-burn shows it under load."
                ),
                by_hand=(
                    "`nvidia-smi -q -d PERFORMANCE`, `nvidia-smi "
                    "--query-gpu=pcie.link.width.current,pcie.link.width.max --format=csv`"
                ),
                fix="Check the cooling, the power supply and whether the card sits firmly.",
                source="docs.nvidia.com/deploy/nvml-api (clocks event reasons)",
                symptom="the slowest one sets the pace",
            ),
            Row(
                "gpu-hidden",
                (
                    "nvidia-smi lists GPUs, but CUDA sees none: `no CUDA-capable device is detected`. "
                    "`nvidia-container-cli: device error: ...: unknown device`: the container asks for a GPU, or a "
                    "part of one, by a name that the host does not have."
                ),
                by_hand="`env | grep CUDA_VISIBLE_DEVICES`, `nvidia-smi -L` (MIG)",
                fix=(
                    "Unset or correct the variable. If the GPUs are split (MIG), give the container some of the "
                    "MIG instances."
                ),
                source="docs.nvidia.com/cuda/cuda-c-programming-guide (CUDA environment variables)",
                command="unset CUDA_VISIBLE_DEVICES, or correct it",
                symptom="`no CUDA-capable device is detected`",
                ends=Cause.GPU_LOST,
            ),
            Row(
                "gpu-prohibited",
                "`all CUDA-capable devices are busy or unavailable`: the GPU's compute mode is Prohibited.",
                by_hand="`nvidia-smi --query-gpu=compute_mode --format=csv`",
                fix="`sudo nvidia-smi -i INDEX -c 0`",
                source="nvidia-smi(1), compute mode",
                symptom="`all CUDA-capable devices are busy or unavailable`",
            ),
            Row(
                "gpu-xid",
                (
                    "The driver has reported a serious error (Xid) since it was loaded; runs hang, or fail with "
                    "`CUDA error`. Preflight warns; a memory error is a fault if the GPU's own counters still "
                    "show it. Preflight finds nothing if you may not read the kernel log."
                ),
                by_hand="`sudo dmesg | grep -i xid`",
                fix=(
                    "Look up the number in NVIDIA's catalogue. Usually a reset (`sudo nvidia-smi -r`) or a reboot "
                    "helps."
                ),
                source="docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
                command="on {host}: sudo nvidia-smi -r, or reboot; look up the number in NVIDIA's Xid catalogue",
                symptom="a rank that dies, or a hang",
                ends=Cause.GPU_LOST,
            ),
            Row(
                "driver-old",
                (
                    "`The NVIDIA driver on your system is too old`, `CUDA driver version is insufficient for CUDA "
                    "runtime version`. Within one major version of CUDA (12.2 and 12.8) any driver works. `Error "
                    "804`: the image has a compatibility package that this GPU does not support."
                ),
                by_hand=(
                    "`nvidia-smi` (top right: the CUDA it supports), `python -c 'import torch; "
                    "print(torch.version.cuda)'`"
                ),
                fix=(
                    "Install a driver for that CUDA (12: 525.60.13, 13: 580.65.06 or newer), or use an image with "
                    "an older CUDA."
                ),
                source="docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
                symptom="`The NVIDIA driver on your system is too old`",
            ),
            Row(
                "fabric-manager",
                "`Error 802: system not yet initialized`, on machines with NVSwitch.",
                by_hand="`systemctl status nvidia-fabricmanager`, `nvidia-smi -q | grep -A 3 Fabric`",
                fix=(
                    "Install the fabric manager in exactly the driver's version, and start it: `sudo systemctl "
                    "enable --now nvidia-fabricmanager`"
                ),
                source="docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide; pytorch/pytorch #35710",
                command=(
                    "on {host}: sudo systemctl enable --now nvidia-fabricmanager (it must have exactly the "
                    "driver's version)"
                ),
                symptom="`Error 802: system not yet initialized`",
            ),
            Row(
                "torch-without-cuda",
                (
                    "The image's torch is built for the CPU: `ProcessGroupNCCL is only supported with GPUs, no "
                    "GPUs found!`, or training is slow. Muster also refuses a torch for ROCm, because it does "
                    "not support AMD GPUs."
                ),
                by_hand="`python -c 'import torch; print(torch.version.cuda)'` in the image",
                fix="Use an image whose torch has CUDA.",
                source="pytorch.org/get-started/locally",
                command="an image whose torch has CUDA (torch.version.cuda is not None)",
                symptom="training on the CPU",
                group="software",
                explains="cuda-differs gpu-missing torch-differs",
            ),
            Row(
                "gpu-memory",
                "`torch.OutOfMemoryError: CUDA out of memory`.",
                by_hand="`muster gpus --hosts HOST` shows who else uses the GPU",
                fix="Use a smaller batch, or another GPU.",
                ends=Cause.GPU_MEMORY,
            ),
            Row(
                "gpus-shared",
                "`Duplicate GPU detected`: two ranks use one GPU.",
                fix=('Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`, and start no more ranks than GPUs.'),
                symptom="`Duplicate GPU detected`, `invalid device ordinal`",
            ),
            Row(
                "gpu-arch",
                "`no kernel image is available for execution on the device`.",
                by_hand="`python -c 'import torch; print(torch.cuda.get_arch_list())'`",
                fix="Use an image whose torch was built for that GPU.",
                command="an image whose CUDA knows the GPU",
                symptom="`no kernel image is available for execution on the device`",
            ),
        ),
        group="gpus",
    ),
)
