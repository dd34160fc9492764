"""Signs in the output of the network, SSH, the container engine, the scheduler and the host. Pure."""

from __future__ import annotations

from ..core.program import FAB
from .signs_kinds import KERNEL, NCCL_DEBUG, PREFLIGHT, ended, general, hint, sign

_NCCL_TO = r"Connect(?: to)? ([\w.:%-]+)<\d+>"

# Not in the tables: of these words only those of Python's subprocess mean a program; others mean a file.
NO_PROGRAM = sign(
    "command-missing", r"FileNotFoundError: \[Errno 2\] No such file or directory: '([^/'\s]{1,80})'",
    "the program {0} does not exist there", "which PROGRAM",
)  # fmt: skip
NETWORK = (
    sign("interface-missing", r"Unable to find address for: (\S+)", "the host has no interface {0} with an address",
         "ip -br addr", "interface-no-address", "interface-down"),
    sign("interface-missing", r"no socket interface found|No usable listening interface found",
         "NCCL found no interface of this host to use: NCCL_SOCKET_IFNAME or NCCL_COMM_ID names another",
         "ip -br addr", "interface-no-address", "other-network"),
    general("interface-missing", r"NCCL WARN Net : No interface found in the same subnet as remote address (\S+?)<",
            "no interface of this host is in the network of {0}", "ip -br addr", "bridge-network", "other-network"),
    sign("few-ports", r"gloo/transport/tcp/socket\.cc:\d+\].{0,80} bind: Address already in use",
         "gloo found no free port in the system's range", "sysctl net.ipv4.ip_local_port_range"),
    sign("few-ports", r"errno: 99 - Cannot assign requested address",
         "the host had no free address or port to connect from", "sysctl net.ipv4.ip_local_port_range", "family-mixed"),
    sign("family-mixed", r"ss1?\.ss_family == ss2\.ss_family",
         "some nodes use IPv4 for the gradients and others IPv6", PREFLIGHT, "interface-no-address", "link-local",
         "name-loopback"),
    sign("settings-differ", r"makeDeviceForInterface\(\): unsupported gloo device",
         "a variable asks gloo for a transport that this torch lacks", "env | grep GLOO_DEVICE_TRANSPORT"),
    sign("port-busy", r"\bport: (\d+), .{0,80}EADDRINUSE|"
         r"listen on any local network address\. .{0,40}?port: (\d+).{0,200}EADDRINUSE|"
         r"listen on any local network address.{0,90}?:(\d+) \(errno: 98|"
         r"(?:listen on any local network address|error|Error).{0,300}(?:EADDRINUSE|[Aa]ddress already in use)",
         "port {0} is in use on the host that should listen on it", "ss -ltnp"),
    sign("port-busy", r"[Tt]ried to launch distributed communication on port `(\d+)`, but another process is utilizing",
         "port {0} is in use on the host that should listen on it", "ss -ltnp"),
    hint("port-busy", r"failed to (?:bind|listen).{0,40}?:(\d+) \(errno: (?:98|48)",
         "port {0} is in use on the host that should listen on it", "ss -ltnp"),
    sign("name-loopback", r"(?:remote=\[|connect \[)(127\.[\d.]+|::1)\]|Connect to (127\.[\d.]+|::1)<",
         "a node gave its peers its loopback address, {0}, as its own name resolves", "getent hosts $(hostname)",
         "interface-loopback", "name-unresolvable"),
    sign("container-bridge",
         r"(?:remote=\[|connect \[|Connect(?: to)? )(172\.1[78]\.[\d.]+|10\.88\.[\d.]+)(?:\]|<).{0,300}"
         r"(?:failed|refused|timed out|returned|No route)",
         "a node gave its peers the address of a container bridge, {0}", PREFLIGHT, "bridge-network",
         "other-network", "data-ports-dropped"),
    sign("container-bridge", r"remote=\[(172\.1[78]\.[\d.]+|10\.88\.[\d.]+)\]",
         "a node gave its peers the address of a container bridge, {0}", PREFLIGHT, "bridge-network",
         "other-network"),
    sign("link-local", r"Connect(?: to)? (fe80:[\w:%.-]+)<\d+> (?:failed|returned)",
         "NCCL chose a link-local address, {0}, which no other host can reach", "NCCL_SOCKET_IFNAME=DEV torchrun ...",
         "interface-no-address", "container-bridge"),
    sign("name-unresolvable", r"Unable to resolve hostname to a \(local\) address",
         "a host cannot resolve its own name", "getent hosts $(hostname)", "name-loopback"),
    sign("peer-name-unresolvable", r"host not found: (?:Name or service|Temporary failure|No address)",
         "a node cannot resolve the name of the first one", "getent hosts $MASTER_ADDR", "endpoint-unresolvable"),
    sign("name-unresolvable", r"gaierror: \[Errno -[235]\]", "a host cannot resolve a name, probably its own",
         "getent hosts $(hostname)", "endpoint-unresolvable", "peer-name-unresolvable"),
    sign("other-network", r"failed to connect.{0,200} remote=\[([^]]+)\].{0,200}(?:Network is unreachable|No route "
         r"to host)",
         "a node gave an address that its peers cannot reach: {0}", PREFLIGHT, "no-route", "host-unreachable"),
    sign("host-unreachable", rf"{_NCCL_TO} (?:failed|returned).{{0,40}}(?:No route to host|Network is unreachable)",
         "NCCL cannot reach the address {0}: there is no route, or a firewall there rejects it", PREFLIGHT,
         "data-ports-rejected", "other-network", "no-route"),
    sign("data-ports-rejected", rf"{_NCCL_TO} (?:failed|returned).{{0,40}}Connection refused",
         "{0} refuses NCCL's connections", PREFLIGHT, "container-bridge", "other-network"),
    sign("data-ports-dropped", rf"{_NCCL_TO} (?:failed|returned).{{0,40}}(?:timed out|connection abort|in progress)",
         "{0} does not answer NCCL's connections: a firewall drops them, or the network is another one", PREFLIGHT,
         "data-ports-rejected", "other-network", "host-unreachable"),
    sign("data-ports-rejected", r"WARN (?:Net : )?Call to connect failed : Connection refused",
         "a peer refuses NCCL's connections", NCCL_DEBUG, "container-bridge", "other-network"),
    sign("data-ports-dropped", r"WARN (?:Net : )?Call to connect failed : Connection timed out",
         "a peer does not answer NCCL's connections", NCCL_DEBUG, "other-network", "host-unreachable"),
    sign("host-unreachable", r"WARN (?:Net : )?Call to connect failed : (?:No route to host|Network is unreachable)",
         "there is no route to the address that NCCL uses", NCCL_DEBUG, "data-ports-rejected", "other-network"),
    hint("data-ports-dropped", r"NCCL INFO Call to connect returned Connection timed out, retrying",
         "a peer does not answer NCCL's connections", NCCL_DEBUG, "other-network", "host-unreachable"),
    sign("data-ports-rejected",
         r"(?:failed to connect|connectFullMesh).{0,300}Connection refused.{0,300}remote=\[([^]]+)\]",
         "{0} joined the rendezvous but refuses the connections for the gradients"),
    sign("data-ports-rejected", r"failed to connect.{0,300} remote=\[([^]]+)\].{0,300}Connection refused",
         "{0} joined the rendezvous but refuses the connections for the gradients"),
    sign("data-ports-rejected", r"tcp/pair\.cc:\d+\] connect \[([^]]+)\]:\d+: Connection refused",
         "{0} joined the rendezvous but refuses the connections for the gradients", PREFLIGHT, "name-loopback"),
    sign("data-ports-dropped", r"failed to connect.{0,300} remote=\[([^]]+)\].{0,300}(?:[Tt]imed? ?out)",
         "{0} joined the rendezvous but does not answer the connections for the gradients", PREFLIGHT,
         "other-network", "host-unreachable"),
    sign("data-ports-dropped", r"tcp/pair\.cc:\d+\] connect \[([^]]+)\]:\d+: Connection timed out",
         "{0} does not answer the connections for the gradients", PREFLIGHT, "other-network", "host-unreachable"),
    sign("other-network", r"tcp/pair\.cc:\d+\] connect \[([^]]+)\]:\d+: (?:No route to host|Network is unreachable)",
         "there is no route to {0}, the address that a node gave", PREFLIGHT, "host-unreachable", "no-route"),
    sign("other-network", r"tcp/socket\.cc:\d+\].{0,80} connect: (?:Network is unreachable|No route to host)",
         "a node gave an address that its peers cannot reach", PREFLIGHT, "no-route", "link-local"),
    general("data-ports-dropped", r"Gloo connectFullMesh failed with .{0,200}no error",
            "the nodes met, but gloo could not connect them", PREFLIGHT, "data-ports-rejected",
            "other-network", "name-loopback", "open-files"),
    sign("clock-skew", r"the world has (\d+) ranks, planned were",
         "only {0} ranks came together: torch took living nodes for dead, as when clocks differ", "timedatectl"),
    general("rendezvous-dropped", r"connect\(\) timed out\. Original timeout",
            "a node did not reach the address of the first one", PREFLIGHT, "node-missing", "data-ports-dropped"),
    general("node-missing", r"RendezvousTimeoutError", "not enough nodes joined the rendezvous in time", PREFLIGHT,
            "rendezvous-dropped"),
    general("node-missing", r"store based barrier on rank.{0,160}worker_count=(\d+)",
            "only {0} of the ranks met in time: the others never started, or died before that", PREFLIGHT),
    general("node-missing", r"Timed out after \d+ seconds waiting for clients\. (\d+/\d+) clients joined",
         "only {0} of the processes joined the rendezvous: the others never started, or cannot reach it",
         PREFLIGHT, "rendezvous-dropped", "data-ports-dropped", "data-ports-rejected"),
    sign("nccl-differs", r"Mismatched NCCL version detected", "the nodes have different NCCL versions"),
    sign("memlock", r"ibv_reg_mr.{0,20} failed.{0,60}Cannot allocate memory|"
         r"ibv_create_\w+ failed.{0,60}Cannot allocate memory", "locked memory is limited", "ulimit -l"),
    general("nccl-cuda", r"[Cc]uda failure (?:\d+ )?'([^']{1,80})'", "a CUDA call of NCCL failed: {0}", NCCL_DEBUG,
            "gpu-faulty"),
    general("", r"unhandled (?:system|cuda) error|ncclSystemError|ncclUnhandledCudaError|ncclInternalError",
            "NCCL failed, and prints the reason only with NCCL_DEBUG", NCCL_DEBUG),
    sign("rdma", r"ibv_modify_qp failed|[Ff]ailed to modify QP|wc error 12|vendor err 129|ibv_\w+ failed",
         "the RDMA connection has wrong settings: the GID index, the cabling, or hosts on different rails",
         "ibv_devinfo -v"),
    sign("rdma-down", r"NET/IB.{0,20} Got async event ?: (?:port error|.{0,20}fatal)", "an RDMA port went down",
    "ibstat"),
    general("rdma", r"NET/OFI.{0,120}(?:failed|[Ee]rror|Unable)", "the RDMA plugin failed", NCCL_DEBUG),
    general("rdma", r"Got completion from peer .{0,80} with (?:status=|error )\d+|got completion with error",
            "an RDMA transfer failed: the peer died, or the network lost the data", "ibv_devinfo -v", "killed"),
    sign("ssh-host-key-changed", r"REMOTE HOST IDENTIFICATION HAS CHANGED", "a host's SSH key has changed",
         "ssh-keygen -F HOST"),
    sign("ssh-host-key-unknown", r"Host key verification failed", "this machine does not know a host's SSH key",
         f"{FAB} trust --hosts HOST", "ssh-host-key-changed"),
    sign("ssh-key", r"Permission denied \((?:publickey|password|gssapi|keyboard)", "a host refuses our SSH keys",
         "ssh -v HOST true"),
    sign("ssh-key", r"'ssh .{0,120}' returned non-zero exit status 255",
         "the launcher cannot log in to a host over SSH without a password", "ssh -o BatchMode=yes -v HOST true", "ssh",
         "ssh-host-key-unknown", "ssh-name"),
    sign("ssh-name", r"ssh: Could not resolve hostname (\S+?):", "SSH cannot resolve the name of a host",
         "ssh -G HOST"),
    sign("ssh-refused", r"ssh: connect to host \S+ port \d+: Connection refused", "no SSH server listens on a host",
         "nc -vz HOST 22"),
    sign("ssh-timeout", r"ssh: connect to host \S+ port \d+: (?:Connection timed out|No route to host)",
         "a host does not answer SSH", "nc -vz HOST 22"),
    sign("download", r"(?:huggingface|hf-mirror|s3\.amazonaws|github|modelscope)\S{0,80}.{0,200}"
         r"(?:Max retries exceeded|timed out|Name or service not known|Connection (?:refused|reset))|"
         r"We couldn't connect to 'https://|LocalEntryNotFoundError|OfflineModeIsEnabled|"
         r"Max retries exceeded with url|Could not resolve host: (\S+)|urlopen error|SSLCertVerificationError|"
         r"Couldn't reach https?://|"
         r"requests\.exceptions\.(?:SSL|Proxy)Error",
         "the run could not download a model or a data set", "curl -sSI https://huggingface.co"),
    sign("access-denied", r"Cannot access gated repo|GatedRepoError|RepositoryNotFoundError|"
         r"is not a local folder and is not a valid model identifier|401 Client Error|403 Client Error|api_key not "
         r"configured|Invalid user token",
         "an internet service refuses the login, or there is no token", "huggingface-cli whoami"),
)  # fmt: skip

HOST = (
    sign("open-files", r"Too many open files|received 0 items of ancdata", "the limit of open files is too low",
         "ulimit -n"),
    sign("disk-quota", r"Disk quota exceeded", "the user's disk quota is used up", "quota -s", "disk-full"),
    sign("disk-full", r"No space left on device|low on resource: ephemeral-storage|DiskPressure|StorageFull|"
         r"No usable temporary directory", "a disk is full", "df -h; df -i",
         "inodes-full"),
    general("disk-full", r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+|"
            r"failed finding central directory.{0,40}writ",
            "the run could not write a checkpoint, most often because the disk is full",
            "df -h; df -i", "disk-quota", "disk-faulty"),
    sign("disk-faulty", r"Input/output error|Stale file handle|Read-only file system|Transport endpoint is not "
         r"connected",
         "a disk or a network file system failed", KERNEL, "disk-full"),
    sign("port-busy", r"port is already allocated", "another container has that port", "docker ps"),
    sign("command-missing", r"slurmstepd: error: execve\(\): (\S{1,80}): No such file|"
         r"\bexec (\S{1,80}) failed: No such file|"
         r"\w+ was unable to (?:find the specified executable|launch the specified application as it could not access)|"
         r"(\S{1,80}): (?:command )?not found$|exec: \\?\"(\S{1,80}?)\\?\": executable file not "
    "found",
         "the program {0} does not exist there", "which PROGRAM"),
    sign("command-missing", r"No such file or directory: '(numactl|nvidia-smi|pdsh|mpirun|mpiexec|srun|scontrol|ssh|"
         r"nvcc|ninja|gcc|g\+\+|cc|c\+\+|git|ffmpeg|ldconfig|ibstat|lscpu)'",
         "the program {0} does not exist there", "which PROGRAM"),
    sign("file-permission", r"\[Errno 13\]|: Permission denied$|\[Errno 1\] Operation not permitted",
         "the run's user may not read or write a file", "ls -ld FOLDER; id"),
    sign("container-missing", r"pull access denied|manifest unknown|manifest for \S+ not found|"
         r"ImagePullBackOff|ErrImagePull", "the image is not there", f"{FAB} push --hosts ..."),
    sign("preempted", r"CANCELLED AT \S+ DUE TO (?:PREEMPTION|JOB REQUEUE|NODE FAIL\w*)|Node failure on|"
         r"this job is preempted|DUE TO PREEMPTION|"
         r"TaintManagerEviction|Preempted (?:by|in order)",
         "the scheduler took the job's hosts away", "sacct -X -j JOB"),
    sign("time-limit", r"DUE TO TIME LIMIT|exceeded (?:its |the )?(?:time|walltime) limit|DEADLINE_EXCEEDED.{0,20}job",
         "the scheduler's time limit ended the job", "sacct -X -j JOB --format JobID,Timelimit,Elapsed"),
    general("cancelled", r"(?:slurmstepd|srun): error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT [\w:-]+ \*\*\*",
            "somebody cancelled the job", "sacct -X -j JOB"),
    sign("scheduler", r"sbatch: error: |Insufficient nvidia\.com/gpu|FailedScheduling|srun: error: (?:Unable to "
    r"(?:create|allocate|confirm)|Task launch)|"
         r"Requested node configuration is not available|Invalid (?:account|qos|partition)",
         "the scheduler refused the job", "scontrol show job JOB"),
    # Memory is free, and no more areas of it may be mapped: vm.max_map_count, or a limit of address space.
    sign("process-limits", r"Memory mapping file failed: Cannot allocate memory|mmap.{0,40}Cannot allocate memory",
         "a file could not be mapped: a limit of mappings or of address space, most often, or memory is full",
         "sysctl vm.max_map_count; ulimit -v; free -h", "host-memory"),
    sign("host-memory", r"oom[-_]kill|low on resource: memory|[Mm]emory cgroup out of memory|"
         r"[Oo]ut [Oo]f [Mm]emory: Killed process|OOMKilled|OOM-killed|OUT_OF_MEMORY|"
         r"srun: error: .{0,80}Out Of Memory|std::bad_alloc|MemoryError\b|Cannot allocate memory|"
         r"DefaultCPUAllocator: (?:can't|not enough)|[Ee]xceeded (?:job )?memory limit|"
         r"ray\.exceptions\.OutOfMemoryError|"
         r"Unable to allocate [\d.]+ [GMT]iB for an array",
         "a host's memory is full", "free -h; dmesg -T | grep -i oom", "killed"),
    general("host-memory", r"killed by signal: Killed",
            "a data loader worker was killed, most often because the host's memory was full",
            "dmesg -T | grep -i oom", "killed"),
    sign("process-limits", r"can't start new thread|pthread_create failed|fork.{0,40}Resource temporarily unavailable|"
         r"File size limit exceeded|Signal (?:25|24) \(SIGX|exitcode\s*: -2[45]\b",
         "a limit of the host or the container ended a process", "ulimit -a"),
    sign("ssh-hangup", r"got signal: 1\b|closing signal SIGHUP|Received 1 death signal|[Ss]ignal 1 \(SIGHUP\)",
         "the terminal or SSH session ended, and the run with it", f"{FAB} deploy --detach"),
    general("stopped", r"got signal: (?:2|15)\b|Received (?:2|15) death signal|closing signal SIGINT|"
            r"KeyboardInterrupt",
            "somebody, or a scheduler, asked the run to stop", "last -20; sacct"),
    general("crashed", ended("SIGSEGV", 11) + r"|[Ss]egmentation fault|signal SIGSEGV|Caught signal 11|"
            r"exit status 3221225477|double free or corruption|free\(\): invalid|free invalid pointer|"
            r"corrupted (?:size|double)|malloc\(\): |Fatal Python error",
            "a process crashed in compiled code", "python -X faulthandler SCRIPT", "library-mismatch"),
    general("architecture-differs", ended("SIGILL", 4) + r"|Illegal instruction",
            "a library was built for another kind of processor", "lscpu | grep Flags", "crashed"),
    general("crashed", ended("SIGFPE", 8) + r"|Floating point exception",
            "a process crashed: it divided a whole number by zero", "python -X faulthandler SCRIPT"),
    hint("crashed", ended("SIGABRT", 6) + r"|Aborted +\(core dumped\)|terminate called after throwing",
         "a process aborted", "python -X faulthandler SCRIPT"),
    hint("stopped", r"\*\*\* SIG(?:TERM|INT) (?:received (?:at|by)\b|\(@0x)",
         "somebody, or a scheduler, asked the run to stop", "last -20; sacct"),
    general("killed", ended("SIGKILL", 9) + r"|^Killed$|"
            r"^\[\d+\] +\+? *\d+ killed\b|: line \d+: +\d+ Killed\b|task \S+: Killed$",
            "a process was killed, most often because memory was full", "dmesg -T | grep -i oom", "host-memory"),
    # Ray does not know: it has the same list of guesses for each worker that is gone, memory first.
    hint("killed", r"A worker died or was killed while executing|its worker process has died",
         "a Ray worker is gone, and Ray only guesses why: killed for its memory, most often, or crashed",
         "dmesg -T | grep -iE 'oom|segfault'", "host-memory", "crashed"),
    general("node-lost", r"(?:ORTE|PRTE) has lost communication with a remote daemon|NodeNotReady|node is not ready|"
            r"Node \S{1,80} (?:is|became) not ready|node\.kubernetes\.io/(?:not-ready|unreachable)",
            "a node of the run is gone: its host, its network or its daemon", PREFLIGHT, "host-unreachable"),
)  # fmt: skip
