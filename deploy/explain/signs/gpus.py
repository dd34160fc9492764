"""Signs of faults of GPUs, their driver and their libraries. Pure."""

from .. import libraries
from .kinds import ALONE, BLOCKING, GPUS, KERNEL, NCCL_DEBUG, ended, general, hint, script, several, sign

GPU = (
    sign("shm-small", r"unable to (?:allocate|write|mmap).{0,40}shared memory|failed to extend /dev/shm|"
         r"[Ee]rror while creating shared memory segment|unable to write to file </torch_|"
         r"posix_fallocate failed|killed by signal: Bus error|"
         r"out of shared memory|No space left on device.{0,60}(?:/dev/shm|torch_\d+_)|/torch_\d+_\S* .{0,60}No space",
         "/dev/shm is too small", "df -h /dev/shm"),
    # In all eight public threads with a bus error, /dev/shm was the cause.
    general("shm-small", ended("SIGBUS", 7) + r"|Bus error|SIGBUS",
            "a process died with a bus error: there was no space left in /dev/shm, or for a file that it "
            "maps", "df -h /dev/shm",
            "disk-full", "crashed"),
    sign("gpus-shared", r"Duplicate GPU detected", "two ranks use one GPU: choose the device by LOCAL_RANK", GPUS),
    several(r"ncclInvalidUsage|NCCL error in.{0,200}invalid (?:usage|argument)",
            "NCCL was called wrongly, often because two ranks use one GPU", NCCL_DEBUG, "gpus-shared", "nccl-differs"),
    script("gpu-count", r"invalid device ordinal|device >= 0 && device < num_gpus|"
           r"deserialize object on CUDA device \d+ but torch\.cuda\.device_count\(\) is|your machine only has: \[\d",
           "a rank wants a GPU that does not exist: there are more ranks than visible GPUs",
           "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L"),
    sign("gpu-driver", r"(?i:driver/library version mismatch)|NVRM: API mismatch|Error 803\b|"
         r"nvml error: driver not loaded|"
         r"unsupported display driver / cuda driver|"
         r"couldn't communicate with the NVIDIA driver",
         "the NVIDIA driver is not running, or was not reloaded after an update", "nvidia-smi"),
    sign("driver-old", r"CUDA driver version is insufficient|unsatisfied condition: cuda|Error 804\b|"
         r"[Ff]orward compatibility was attempted|The NVIDIA driver on your system is too old|"
         r"PTX was compiled with an unsupported toolchain|unsupported toolchain",
         "the driver is older than the image's CUDA", "nvidia-smi", "gpu-driver"),
    sign("fabric-manager", r"Error 802\b|[Ss]ystem not yet initialized|NV_WARN_NOTHING_TO_DO|"
         r"Job for nvidia-fabricmanager|Failed to bind NVLink SHARP(?!.{0,200}out of memory)|"
         r"configuration error in the Fabric Manager", "the fabric manager, or an NVSwitch, does not work",
         "systemctl status nvidia-fabricmanager", "gpu-faulty", "nccl-cuda"),
    sign("gpu-lost", r"fallen off the bus|GPU is lost|GPU requires (?:reset|restart)|Unable to determine the device "
    r"handle",
         "a GPU is no longer on its bus", KERNEL, "gpu-faulty", "gpu-xid"),
    sign("gpu-faulty", r"uncorrectable ECC|hardware exception on an? |NVLink error|"
         r"uncorrectable NVLink", "a GPU is broken: its memory has errors that cannot be corrected",
         "nvidia-smi -q -d ECC",
         "gpu-xid"),
    sign("gpu-xid", r"Xid \(?[^)]{0,40}\)?: (\d+)", "the driver reports Xid {0}", KERNEL, "gpu-faulty"),
    sign("gpu-runtime", r"nvidia-container-cli(?:\.real)?: .{0,60}(?:device rules|device filters|cgroup)",
         "the NVIDIA runtime may not set the container's device rules: the engine is rootless, or runs in a container",
         "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=true"),
    sign("gpu-runtime", r"nvidia-container-cli(?:\.real)?: (?:initialization|detection|requirement|mount|ldcache|"
         r"container) error|"
         r"lib(?:cuda|nvidia-ml)\.so\.1: cannot open shared object file|could not load NVML library",
         "the container did not get the driver's libraries from its host", "nvidia-smi && nvidia-container-cli info",
         "gpu-driver"),
    sign("gpu-hidden", r"nvidia-container-cli(?:\.real)?: device error: (\S{1,100}): unknown device",
         "the container asks for a GPU, or a part of one, that the host does not have: {0}", "nvidia-smi -L",
         "gpu-runtime"),
    sign("gpu-hidden", r"Failed to initialize NVML: Unknown Error",
         "the container may not use its GPUs: systemd changed its device rules while it ran, or the runtime set none "
         "(no-cgroups)", "docker restart CONTAINER; grep no-cgroups /etc/nvidia-container-runtime/config.toml",
         "gpu-lost"),
    sign("gpu-runtime", r"(?i:(?:initialize NVML|nvml error): insufficient permissions)",
         "a process may not open the GPU's device files: SELinux, the files' group or a user namespace forbids it",
         "ls -lZ /dev/nvidia*; getenforce; id", "file-permission"),
    sign("gpu-missing", r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected|"
         r"cudaGetDeviceCount.{0,200}Error 100\b|No GPUs? (?:found|detected)|No supported gpu backend found|"
         r"Torch is not able to use GPU|"
         r"ProcessGroupNCCL is only supported with GPUs|your machine only has: \[\]|"
         r"^No devices were found$|No devices found\. Waiting|hipErrorNoDevice|"
         r"NVIDIA Driver was not detected",
         "the process sees no GPU", "nvidia-smi -L", "gpu-runtime", "gpu-hidden"),
    sign("torch-without-cuda", r"Torch not compiled with CUDA enabled|Distributed package doesn't have NCCL built in|"
         r"module 'torch\._C' has no attribute '_cuda",
         "this torch was built without CUDA and NCCL", "python -c 'import torch; print(torch.version.cuda)'"),
    sign("gpu-arch", r"no kernel image is available for execution|invalid device function|hipErrorNoBinaryForGpu|"
         r"is not compatible with the current PyTorch install",
         "this build was not made for that GPU", "python -c 'import torch; print(torch.cuda.get_arch_list())'"),
    # LLVM continues with code for any GPU, which may work.
    hint("gpu-arch", r"'sm_\w+' is not a recognized processor", "the compiler of a library does not know that GPU",
         "pip list | grep -iE 'torch|triton'"),
    sign("gpu-memory", r"(?:CUDA|HIP|XPU|MPS backend) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|"
         r"(?<!on host: )CUDA_ERROR_OUT_OF_MEMORY|CUDA error: out of memory|[Cc]uda failure.{0,12}out of memory|"
         r"OutOfMemoryError: (?:CUDA|HIP)|Failed to bind NVLink SHARP.{0,200}out of memory|"
         r"out of memory at |RESOURCE_EXHAUSTED: Out of memory|OutOfMemoryError: Alloc|No available memory for the "
         r"cache blocks", "a GPU's memory is full", GPUS),
    script("device-assert", r"device-side assert triggered|Assertion `.{1,200}` failed",
           "an index is out of range on the GPU: most often, a label or a token id is too large for its "
           "table", BLOCKING),
    script("illegal-memory", r"an illegal memory access was encountered|unspecified launch failure|misaligned address|"
           r"CUDA_ERROR_ILLEGAL_ADDRESS|Memory access fault by GPU|\[gfxhub\d*\] .{0,20}page fault",
           "a GPU kernel wrote or read outside its memory: the kernel or its arguments are wrong",
           BLOCKING, "gpu-faulty"),
    # A failed assertion in a kernel also ends like this.
    several(r"HSA_STATUS_ERROR_EXCEPTION", "a kernel on an AMD GPU failed", "AMD_SERIALIZE_KERNEL=3 torchrun ...",
            "illegal-memory", "device-assert", "gpu-faulty"),
    script("cuda-fork", r"Cannot re-initialize CUDA in forked subprocess|"
           r"(?i:(?:fork\w*|new process\w*|subprocess\w*) .{0,60}\bcuda\b.{0,40}initiali[sz]ed)",
           "a forked process uses CUDA, which its parent had already started", ALONE),
    several(r"CUDA_ERROR_NOT_PERMITTED|\bcuMem\w+\b.{0,200}operation not permitted",
            "the GPUs may not share memory between hosts: there is no IMEX channel, or none for this user",
            "ls -l /dev/nvidia-caps-imex-channels", "fabric-manager", "gpu-runtime"),
    sign("gpu-peer", r"peer access is not supported|peer mapping resources exhausted|"
         r"P2P is disabled between connected GPUs", "the GPUs of a host cannot reach each other's memory",
         "NCCL_P2P_DISABLE=1 torchrun ..."),
    general("gpu-busy", r"CUDA-capable device(?:s are|\(s\) is/are) busy or unavailable",
            "another process holds the GPU, its compute mode takes only one process, or a virtual GPU has no licence",
            "nvidia-smi -q | grep -iE 'compute mode|licen|process id'", "gpu-prohibited", "gpu-driver", "gpu-faulty"),
    several(r"CUDA driver initialization failed|NVML Shared Library Not Found|Invalid CUDA '(?:--)?device|"
            r"deserialize object on a CUDA device but",
            "the process has no GPU that it can use, and the error does not say why", "nvidia-smi -L", "gpu-missing",
            "gpu-driver", "gpu-runtime", "torch-without-cuda"),
    several(r"(?i:CUDA(?: runtime)?(?: driver)? error).{0,24}(?:unknown|initialization) error|CUDA unknown error|"
            r"THCudaCheck FAIL .{0,120}(?:unknown|initialization) error|"
            r"Error 999\b|CUDA error: the launch timed out",
            "CUDA does not work there, and does not say why: it may be the driver, a GPU, or a forked process",
            "nvidia-smi; dmesg -T | tail -50", "gpu-driver", "gpu-faulty", "cuda-fork", "gpu-prohibited"),
    sign("python-old", r"TypeError: 'type' object is not subscriptable|unsupported operand type\(s\) for \|: 'type'",
         "the script was written for a newer Python", "python --version"),
    # The compiler's words come before these, or are missing: a rank that did not compile only lacks the result.
    several(r"Command '\['(?:ninja|[^']{0,200}(?:gcc|g\+\+|cc|nvcc))'|Error building extension|"
            r"torch_extensions/\S{1,200}\.so: cannot open shared",
            "the build of an extension failed; the compiler's output says why", "nvcc --version; gcc --version",
            "exception", "compiler-missing", "library-mismatch", "gpu-arch"),
    sign("library-missing", libraries.PATTERN, "the system or the image lacks the library {0}",
         "apt-get update && apt-get install -y PACKAGE", "library-mismatch"),
    sign("library-mismatch", r"undefined symbol: (\S{1,60})|version `(GLIBC\w*_[\d.]+)' not found|"
         r"cannot open shared object file|with link time reference|"
         r"detected that PyTorch and torch\w+ were compiled with different CUDA|operator \w+::\w+ does not exist|"
         r"Couldn't load custom C\+\+ ops|'_OpNamespace' '\w+' object has no attribute|"
         r"Detected that PyTorch and \w+ were compiled with different|The detected CUDA version .{0,60} mismatches|"
         r"numpy\.dtype size changed|Numpy is not available|CUDA Setup failed despite|"
         r"module compiled against A[BP]I version|GLIBCXX_\S+' not found|requires cuda extensions",
         "a compiled library is missing, or was built for another torch, CUDA or system",
         "pip list | grep -iE 'torch|cuda|nvidia|flash|numpy'"),
    sign("library-mismatch", r"OMP: Error #15|MKL_THREADING_LAYER=\w+ is incompatible with",
         "one process loaded two OpenMP libraries: numpy, torch or MKL bring different ones",
         "pip list | grep -iE 'mkl|numpy|openmp|torch'"),
    hint("library-mismatch", r"compiled using NumPy 1\.x cannot be run",
         "a compiled library was built for an older NumPy", "pip list | grep -i numpy"),
    several(r"(\b(?:CU|HIP)[A-Z]{2,9}_STATUS_\w+|\bCUFFT_\w*(?:ERROR|FAILED)|\bmiopenStatus\w+|"
            r"\brocBLAS error: .{1,60})",
            "a GPU library failed: {0}; GPU memory is full, an earlier kernel failed, or the library does not "
            "fit the GPU or its driver", BLOCKING, "gpu-memory", "device-assert", "library-mismatch", "gpu-driver"),
    several(r"Internal Triton PTX codegen error|PTXASError|device kernel image is invalid",
            "a compiled kernel does not fit this GPU: the driver is older than Triton's ptxas, or Triton does "
            "not know the GPU", "nvidia-smi; pip list | grep -iE 'torch|triton'", "driver-old", "library-mismatch",
            "gpu-arch"),
    # CUDA's errors 900 to 908, and HIP's: calls that a program may not make while it records a graph.
    script("exception", r"(?:CUDA|HIP) error: (.{0,80}\b(?:capture|capturing|uncaptured)\b.{0,60})",
           "a CUDA graph was captured wrongly: {0}", ALONE),
    several(r"(CUDA|HIP) error: (.{1,60})", "a {0} call failed: {1}", BLOCKING),
    sign("compiler-missing", r"Failed to find C compiler|No working C\+\+ compiler|"
         r"CUDA_HOME (?:does not exist|environment variable is not set)|"
         r"Ninja is required|Unable to find (?:the )?nvcc|"
         r"Command '\['which', '(?:[cg]\+\+|gcc|cc|clang\S*|nvcc|ninja)'|"
         r"/(?:nvcc|[cg]\+\+|gcc|cc|ninja)\b.{0,9}: (?:not found|No such file)|"
         r"fatal error: (?:cuda\w*|Python)\.h: No such|\bld: cannot find -l|libcuda\.so cannot found",
         "a library compiles kernels at first use, but the compiler, the CUDA toolkit, a header or a library is "
         "missing",
         "which gcc nvcc ninja"),
    sign("library-mismatch", r"(unsupported GNU version|too old version of GCC|Value 'c\+\+\d\d' is not defined|"
         r"current installed version of \S{1,80} \([\d.]+\) is (?:less|greater) than)",
         "the compiler is too old or too new for this torch or CUDA: {0}", "nvcc --version; g++ --version",
         "compiler-missing"),
    sign("gpu-arch", r"Unsupported gpu architecture|Value 'sm_\w+' is not defined for option",
         "CUDA's compiler does not support that GPU yet, or no longer supports it",
         "nvcc --version", "compiler-missing", "library-mismatch"),
)  # fmt: skip
