"""Signs of faults of the network, SSH, the container engine, the scheduler and the host. Pure."""

from dataclasses import replace

from .killed import KILLED
from .kinds import ALONE, KERNEL, NCCL_DEBUG, PREFLIGHT, general, hint, several, sign

_NCCL_TO = r"Connect(?: to)? ([\w.:%-]+)<\d+>"
_NCCL_REACHES = rf"(?:{_NCCL_TO} (?:failed|returned).{{0,40}}?|WARN (?:Net : )?Call to connect failed : )"

# Not in the tables: these words mean a program only if Python's subprocess raised them; otherwise they mean a file.
NO_PROGRAM = sign(
    "command-missing", r"FileNotFoundError: \[Errno 2\] No such file or directory: '([^/'\s]{1,80})'",
    "the program {0} does not exist there", "which PROGRAM",
)  # fmt: skip
# The kernel refuses calls that have nothing to do with files in the same words; for a file, a path follows.
_CALLS = (
    r"(?<![/\w.-])(?:bpf\w*|cgroups?\d?|device rules|unshare|clone\d?|setns|pivot_root|namespaces?|seccomp|ptrace|"
    r"process_vm_\w+|perf_event\w*|sched_set\w+|set_mempolicy|mbind|mlock\w*|setrlimit|setpriority|bind|listen|socket|"
    r"sendto|sendmsg|ioctl|pidfd_\w+|io_uring\w*)\b(?![/.])"
)
_REFUSED = r"(?:[Oo]peration not permitted|[Pp]ermission denied)"
DENIED = several(
    rf"({_CALLS}).{{0,160}}{_REFUSED}|"
    r"/(cgroup)/.{0,300}[Nn]o space left on device|"
    rf"(?:\[Errno 13?\]|RuntimeError:) {_REFUSED}[\s\",]*$",
    "the kernel denies a system call ({0}): the container's rights, a rule of the host or a limit forbids it",
    "grep -E 'Cap|Seccomp|NoNewPrivs' /proc/self/status; ulimit -a", "docker-refused", "port-forbidden",
    "process-limits", "file-permission",
)  # fmt: skip
NETWORK = (
    sign("interface-missing",
         r"Unable to find address for: (\S+)|no socket interface found|No usable listening interface found",
         "the host has no such interface ({0}), or it has no address: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME or "
         "NCCL_COMM_ID is wrong there", "ip -br addr", "interface-no-address", "interface-down", "other-network"),
    sign("few-ports", r"gloo/transport/tcp/socket\.cc:\d+\].{0,80} bind: Address already in use",
         "gloo found no free port in the system's range", "sysctl net.ipv4.ip_local_port_range"),
    sign("family-mixed", r"ss1?\.ss_family == ss2\.ss_family",
         "some nodes use IPv4 for the gradients and others IPv6", PREFLIGHT, "interface-no-address", "link-local",
         "name-loopback"),
    sign("settings-differ", r"makeDeviceForInterface\(\): unsupported gloo device",
         "a variable asks gloo for a transport that this torch lacks", "env | grep GLOO_DEVICE_TRANSPORT"),
    several(r"unsupported gloo device|interface or hostname can't be empty",
            "gloo has no device to use: this torch lacks gloo's transport, as on Windows, or the host has no name",
            "env | grep GLOO; getent hosts $(hostname)", "library-mismatch", "settings-differ", "name-unresolvable"),
    # First the forms with the port's number.
    sign("port-busy", r"\bport: (\d+), .{0,80}EADDRINUSE|"
         r"listen on any local network address\. .{0,40}?port: (\d+).{0,200}EADDRINUSE|"
         r"listen on any local network address.{0,90}?:(\d+) \(errno: 98|"
         r"\('[\w.:]{1,80}', (\d{1,5})\): \[?(?:errno 98\] )?address already in use|"
         r"[Tt]ried to launch distributed communication on port `(\d+)`, but another process is utilizing|"
         r"[Ee]rror.{0,200}(?:EADDRINUSE|[Aa]ddress already in use)\D{0,10}?(?:[\w.*:\]]{0,60}?:|\bport )(\d{2,5})\b",
         "port {0} is in use on the host that should listen on it", "ss -ltnp"),
    hint("port-busy", r"failed to (?:bind|listen).{0,40}?:(\d+) \(errno: (?:98|48)",
         "port {0} is in use on the host that should listen on it", "ss -ltnp"),
    sign("name-loopback", r"(?:remote=\[|connect \[)(127\.(?!0\.0\.1\b)[\d.]+)\]|"
         r"Connect to (127\.(?!0\.0\.1\b)[\d.]+)<",
         "a node gave its peers its loopback address, {0}, because its own name resolves to it", "getent hosts "
         "$(hostname)",
         "interface-loopback", "name-unresolvable"),
    # Ranks on the same host may talk over 127.0.0.1.
    several(r"(?:remote=\[|connect \[)(127\.0\.0\.1|::1)\]|Connect to (127\.0\.0\.1|::1)<",
            "a peer at {0} does not answer: it ended, or it is on another host and gave its loopback address",
            "getent hosts $(hostname)", "name-loopback", "interface-loopback"),
    sign("container-bridge",
         r"(?:remote=\[|connect \[|Connect(?: to)? )(172\.1[78]\.[\d.]+|10\.88\.[\d.]+)(?:\]|<).{0,300}"
         r"(?:failed|refused|timed out|returned|No route)",
         "a node gave its peers the address of a container bridge, {0}", PREFLIGHT, "bridge-network",
         "other-network", "data-ports-dropped"),
    sign("link-local", r"Connect(?: to)? (fe80:[\w:%.-]+)<\d+> (?:failed|returned)",
         "NCCL chose a link-local address, {0}, which no other host can reach", "NCCL_SOCKET_IFNAME=DEV torchrun ...",
         "interface-no-address", "container-bridge"),
    sign("name-unresolvable", r"Unable to resolve hostname to a \(local\) address",
         "a host cannot resolve its own name", "getent hosts $(hostname)", "name-loopback"),
    sign("peer-name-unresolvable", r"host not found: (?:Name or service|Temporary failure|No address)",
         "a node cannot resolve the name of the first one", "getent hosts $MASTER_ADDR", "endpoint-unresolvable"),
    # A failed download prints the same first, and its address later.
    several(r"gaierror: \[Errno -[235]\]", "a host cannot resolve a name: its own or another one",
            "getent hosts $(hostname)", "name-unresolvable", "endpoint-unresolvable", "peer-name-unresolvable",
            "download"),
    # "No route to host" may also come from a firewall that rejects.
    sign("host-unreachable",
         rf"(?:failed to connect.{{0,200}} remote=\[([^]]+)\].{{0,200}}|{_NCCL_TO} (?:failed|returned).{{0,40}}|"
         r"tcp/socket\.cc:\d+\].{0,80} connect: )(?:Network is unreachable|No route to host)",
         "the address that a node gave ({0}) cannot be reached: there is no route to it, or a firewall rejects "
         "connections", PREFLIGHT,
         "data-ports-rejected", "other-network", "no-route", "link-local"),
    # A peer that has ended refuses connections too.
    several(rf"{_NCCL_REACHES}Connection refused", "a peer ({0}) refuses NCCL's connections", PREFLIGHT,
            "data-ports-rejected", "container-bridge", "other-network"),
    sign("data-ports-dropped", rf"{_NCCL_REACHES}(?:(?:Connection )?timed out|connection abort|in progress)",
         "a peer ({0}) does not answer NCCL's connections: a firewall drops them, or it is on another network",
         PREFLIGHT, "data-ports-rejected", "other-network", "host-unreachable"),
    hint("data-ports-dropped", r"NCCL INFO Call to connect returned Connection timed out, retrying",
         "a peer does not answer NCCL's connections", NCCL_DEBUG, "other-network", "host-unreachable"),
    # Not for loopback addresses: there a host refuses itself, because a peer gave its loopback address or ended.
    sign("data-ports-rejected", r"tcp/pair\.cc:\d+\] connect \[((?!127\.|::1\b)[^]]+)\]:\d+: Connection refused|"
         r"(?:failed to connect|connectFullMesh).{0,300}Connection refused.{0,300}remote=\[([^]]+)\]",
         "{0} joined the rendezvous but refuses the connections for the gradients", PREFLIGHT, "name-loopback"),
    sign("data-ports-dropped", r"tcp/pair\.cc:\d+\] [Cc]onnect timeout \[([^]]+)\]",
         "{0} joined the rendezvous but does not answer the connections for the gradients", PREFLIGHT,
         "data-ports-rejected", "other-network", "host-unreachable"),
    general("data-ports-dropped", r"Gloo connectFullMesh failed with .{0,200}no error",
            "the nodes met, but gloo could not connect them", PREFLIGHT, "data-ports-rejected",
            "other-network", "name-loopback", "open-files"),
    sign("clock-skew", r"the world has (\d+) ranks, planned were",
         "only {0} ranks came together: torch took living nodes for dead, for example because clocks "
         "differ", "timedatectl"),
    several(r"connect\(\) timed out\. Original timeout",
            "a node did not reach the address of the first node, or the first node was not started", PREFLIGHT,
            "rendezvous-dropped", "node-missing", "data-ports-dropped"),
    several(r"(?<!connection: \[)Errno 99\]|[Bb]ind(?: failed)? ?: Cannot assign requested address",
            "this host does not have that address, or has no free port on it", "ip -br addr; getent hosts $MASTER_ADDR",
            "endpoint-foreign", "link-local", "few-ports"),
    general("node-missing", r"store based barrier on rank.{0,160}(?:worker_count|num_workers_joined)=(\d+)",
            "only {0} of the ranks met in time: the others never started, or died before that", PREFLIGHT),
    general("node-missing",
            r"Timed out after \d+ seconds waiting for clients\. (\d+/\d+) clients joined|RendezvousTimeoutError",
            "not all nodes joined the rendezvous in time ({0}): the others never started, or cannot reach it",
            PREFLIGHT, "rendezvous-dropped", "data-ports-dropped", "data-ports-rejected"),
    sign("nccl-differs", r"Mismatched NCCL version detected", "the nodes have different NCCL versions"),
    sign("python-differs", r"Version mismatch: The cluster was started with",
         "this process and the head of the Ray cluster have different versions of Python, Ray or pickle",
         "python --version; pip show ray"),
    sign("memlock", r"\b(?:ibv|mlx5dv)_\w+(?:\(.{0,80}\))?.{0,20} failed.{0,60}Cannot allocate memory|"
         r"set max locked memory", "locked memory is limited", "ulimit -l"),
    general("nccl-cuda", r"[Cc]uda failure (?:\d+ )?'(?!out of memory|(?:an )?(?:illegal memory|uncorrectable|"
            r"unspecified launch)|device-side|CUDA driver version|system not yet)([^']{1,80})'",
            "a CUDA call of NCCL failed: {0}", NCCL_DEBUG, "gpu-faulty"),
    replace(
        general("", r"unhandled (?:system|cuda) error|ncclSystemError|ncclUnhandledCudaError|ncclInternalError",
                "NCCL failed", NCCL_DEBUG),
        absent=", and nothing here says why: with NCCL_DEBUG, NCCL prints the reason",
    ),
    # Only a hint: NCCL may work without RDMA.
    hint("rdma-hidden", r"NET/OFI.{0,20}fi_getinfo\(\) call failed|Couldn't find any optimal provider|"
         r"ibv_open_device failed|NET/IB : Unable to open device",
         "NCCL cannot open an RDMA card: the container has no /dev/infiniband, or its libfabric does not know the card",
         "ls /dev/infiniband; fi_info", "rdma", "library-mismatch"),
    sign("rdma", r"ibv_modify_qp failed|[Ff]ailed to modify QP|ibv_\w+ failed",
         "an RDMA call failed: wrong settings (the GID index), wrong cabling, or hosts on different rails",
         "ibv_devinfo -v", "memlock", "rdma-gid"),
    # Status 12: the other end did not answer any of the retries.
    general("rdma", r"wc error 12\b|vendor err 129\b|Got completion from peer .{0,80} with (?:status=|error )12\b",
            "an RDMA transfer got no answer: wrong settings, wrong cabling, or the peer died",
            "ibv_devinfo -v", "killed", "node-lost"),
    # The words of oneCCL, MPICH and Intel's MPI. A crash after them is due to the missing network.
    sign("library-mismatch", r"atl_ofi.{0,120}(?:fi_getinfo error|find suitable provider|open network "
         r"providers)|OFI fi_getinfo\(\) failed",
         "libfabric has no network for oneCCL or MPI: FI_PROVIDER asks for another provider, FI_PROVIDER_PATH "
         "lacks it, or the run may not use the card", "env | grep -E '^(FI_|CCL_|I_MPI)'; fi_info", "rdma", "memlock"),
    sign("rdma-down", r"NET/IB.{0,20} (?:Got async event ?: (?:port error|local catastrophic)|async fatal event)",
         "an RDMA port, or its card, went down", "ibstat"),
    several(r"NET/OFI.{0,120}(?:failed|[Ee]rror|ERROR|Unable)", "the RDMA plugin failed, but NCCL may work without it",
            NCCL_DEBUG, "rdma", "rdma-hidden"),
    several(r"Got completion from peer .{0,80} with (?:status=|error )\d+|got completion with error",
            "an RDMA transfer failed: the peer died, or the network lost the data", "ibv_devinfo -v", "rdma",
            "node-lost", "killed"),
    sign("ssh-host-key-changed", r"REMOTE HOST IDENTIFICATION HAS CHANGED", "a host's SSH key has changed",
         "ssh-keygen -F HOST"),
    sign("ssh-host-key-unknown", r"Host key verification failed", "this machine does not know a host's SSH key",
         "muster trust --hosts HOST", "ssh-host-key-changed"),
    # The last two messages come from paramiko.
    sign("ssh-key", r"Permission denied \((?:publickey|password|gssapi|keyboard)|Too many authentication failures|"
         r"No authentication methods available|not a valid \w+ private key file",
         "a host refuses your SSH keys, or the launcher has none that it can use", "ssh -v HOST true"),
    sign("ssh", r"(Unable to negotiate with .{1,200}|channel 0: open failed: .{1,80}|stdio forwarding failed)",
         "SSH could not connect to a host: {0}", "ssh -v HOST true"),
    # ssh itself ends with 255 for any reason of its own.
    general("ssh", r"'ssh .{0,120}' returned non-zero exit status 255|was not reachable via ssh",
            "the launcher cannot start a command on a host over SSH", "ssh -o BatchMode=yes -v HOST true", "ssh-key",
            "ssh-refused", "ssh-name", "ssh-timeout", "ssh-host-key-unknown"),
    general("ssh-silent", r"(?:ssh|kex)_exchange_identification: (?:read: )?Connection (?:closed|reset)",
            "a host's SSH server closed the connection before it identified itself", "nc -w 3 HOST 22", "ssh"),
    sign("arguments", r"(?:mpirun|mpiexec|prterun) has detected an attempt to run as root",
         "Open MPI starts nothing as root unless it is allowed to", "mpirun --allow-run-as-root ..."),
    several(r"(?:mpirun|prterun|ORTE|PRTE) was unable to reliably start one or more daemons",
            "the launcher's daemons did not start on a host: look at SSH, a library or a folder there", "ssh HOST true",
            "ssh", "ssh-key", "command-missing", "library-mismatch"),
    sign("ssh-name", r"ssh: Could not resolve hostname (\S+?):", "SSH cannot resolve the name of a host",
         "ssh -G HOST"),
    sign("ssh-refused", r"ssh: connect to host (\S{1,80}) port (\d+): Connection refused",
         "no SSH server listens on {0}, port {1}", "nc -vz HOST PORT"),
    sign("ssh-timeout", r"ssh: connect to host (\S{1,80}) port (\d+): (?:Connection timed out|No route to host)",
         "{0} does not answer SSH on port {1}", "nc -vz HOST PORT"),
    several(r"(RepositoryNotFoundError|is not a local folder and is not a valid model identifier)",
            "no model has that name, or it is not public: {0}", ALONE, "script-error", "access-denied", "download"),
    sign("download", r"(?:huggingface\.co|hf-mirror\.com|s3[\w.-]{0,40}\.amazonaws|github(?:usercontent)?\.com|"
         r"modelscope\.\w\w)\b\S{0,80}.{0,200}"
         r"(?:Max retries exceeded|timed out|Name or service not known|name resolution|Connection (?:refused|reset))|"
         r"We could(?:n't| not) connect to ' ?https://|cannot find the requested files in the|"
         r"LocalEntryNotFoundError|OfflineModeIsEnabled|thrown while requesting [A-Z]+ https://|"
         # Only hosts on the internet: the run's own servers have an IP address, or a name without a domain.
         r"host='[\w.-]{1,200}\.[a-z]{2,20}(?<!local)', port=\d+\): Max retries exceeded with url|"
         r"(?<!\): )Max retries exceeded with url|Could not resolve host: (\S+)|SSLCertVerificationError|"
         r"<urlopen error (?!\[Errno 111\])|Cannot connect to host [\w-]+\.[\w.-]+:443|"
         r"Couldn't reach https?://|"
         r"requests\.exceptions\.(?:SSL|Proxy)Error|"
         r"wandb: (?:Network error \(\w+\)|ERROR Run initialization has timed)|"
         r"wandb\.errors\S{0,40}: Run initialization has timed",
         "the run could not reach a service on the internet: for a model, a data set or a tracker",
         "curl -sSI https://huggingface.co"),
    several(r"'Connection aborted\.', (?:Connection|RemoteDis|BrokenPipe)",
            "a server broke off an HTTP request: a server on the internet, or one that the run itself started",
            "curl -sSI URL", "download", "exception"),
)  # fmt: skip

HOST = (
    # libuv's loop needs three file descriptors; if it cannot get them, torch prints no more than this.
    sign("open-files", r"Too many open files|received 0 items of ancdata|Failed to init uv loop",
         "the limit on open files is too low", "ulimit -n"),
    # torch before 1.13 prints no reason; in two of five public threads it was the limit of open files.
    general("open-files", r"unable to open shared memory object <\S{1,80}> in read-write mode$",
            "a process could not open the memory that it shares: the limit on open files is too low, or /dev/shm is "
            "not usable", "ulimit -n", "shm-small"),
    sign("disk-quota", r"(?i:disk quota (?:\w+ )?exceeded|errno 122\b)", "the user's disk quota is used up",
         "quota -s", "disk-full"),
    sign("disk-full", r"No space left on device|low on resource: ephemeral-storage|DiskPressure|StorageFull",
         "a disk is full", "df -h; df -i",
         "inodes-full"),
    several(r"No usable temporary directory", "no folder for temporary files is writable",
            "df -h /tmp; ls -ld /tmp", "disk-full", "folder-readonly", "file-permission"),
    # In all five public threads with these words a full disk is named, in two of them along with a quota or a fault.
    general("disk-full", r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+",
            "the run could not write a whole checkpoint: there is no space left for it, or the file system failed",
            "df -h; df -i; quota -s", "disk-quota", "disk-faulty"),
    sign("folder-readonly", r"(?i:read-only file ?system)", "the run writes to a folder that is mounted read-only",
         "findmnt -T FOLDER", "disk-faulty"),
    sign("disk-faulty", r"(?i:stale (?:nfs )?file handle)",
         "a network file system no longer knows a file: another host removed or replaced it, or the server now "
         "exports another file system", "findmnt -T FOLDER"),
    sign("disk-faulty", r"No locks available",
         "a network file system grants no locks: its lock server is not running, or it is mounted without locks",
         "findmnt -T FOLDER"),
    sign("disk-faulty", r"(?i:input/output error)|Transport endpoint is not connected: '|"
         r"/\S{1,200}: Transport endpoint is not connected$",
         "a disk or a network file system failed", KERNEL, "disk-full"),
    general("download", r"Temporary failure resolving '([\w.-]+)'",
            "{0} cannot be resolved there: the containers of an image build, or the host, have no name server",
            "docker run --rm busybox nslookup NAME; cat /etc/resolv.conf", "name-unresolvable"),
    sign("port-busy", r"port is already allocated", "another container uses that port", "docker ps"),
    sign("command-missing", r"slurmstepd: error: execve\(\): (?!\S{0,200}/slurm_script:)(\S{1,80}): No such file|"
         r"\bexec (\S{1,80}) failed: No such file|"
         r"\w+ was unable to (?:find the specified executable|launch the specified application as it could not access)|"
         r"(\S{1,80}): command not found$|[Cc]ommand not found: ([\w.+-]{1,80})|"
         r"(?:line |: )\d+: (\S{1,80}): not found$|"
         r"\b(?:ba)?sh: (?:line \d+: )?(/\S{1,200}/bin/\S{1,80}): No such file|"
         r"exec: \\?\"(\S{1,80}?)\\?\": executable file not found|"
         r"No such file or directory: '(numactl|nvidia-smi|pdsh|mpirun|mpiexec|srun|scontrol|ssh|"
         r"nvcc|ninja|gcc|g\+\+|cc|c\+\+|git|ffmpeg|ldconfig|ibstat|lscpu)'",
         "the program {0} does not exist there", "which PROGRAM"),
    sign("command-missing", r"Run 'conda init' before 'conda|not been properly configured to use 'conda",
         "the shell does not know `conda activate`, so the next commands run in another environment",
         "source $(conda info --base)/etc/profile.d/conda.sh"),
    DENIED,
    sign("file-permission", r"\[Errno 13?\] [\w ]{1,40}: ['\"/]|: Permission denied$",
         "the run's user may not read or write a file", "ls -ld FOLDER; id"),
    sign("container-missing", r"manifest unknown|manifest for \S+ not found|repository does not exist(?! or)|"
         r"could not open image /\S{1,200}: failed to retrieve path|"
         r"/manifests/\S{1,200} returned error code: 404", "the image is not there", "muster push --hosts ..."),
    several(r"database (?:table )?is locked",
            "several processes write to one SQLite file, or it is on a network file system",
            "fuser -v FILE.db; findmnt -T FILE.db", "exception", "disk-faulty"),
    # A registry gives the same answer for an image that does not exist and for one that needs a login.
    several(r"pull access denied|ImagePullBackOff|ErrImagePull|trying and failing to pull image",
            "the image cannot be fetched: it does not exist, or it needs a login", "docker pull IMAGE",
            "container-missing", "access-denied", "download"),
    sign("access-denied", r"/v2/\S{1,300} returned error code: 40[13]\b", "the registry wants a login for that image",
         "docker login; docker pull IMAGE", "container-missing"),
    several(r"pyxis: failed to import docker image",
            "the image could not be fetched or unpacked; the lines after this one say why", "enroot import "
            "docker://IMAGE",
            "container-missing", "access-denied", "file-permission", "disk-full", "download"),
    sign("node-lost", r"DUE TO NODE FAIL\w*|Node failure on ([\w.-]{1,80})",
         "the scheduler says that a node of the job failed ({0})", "sacct -X -j JOB"),
    sign("preempted", r"CANCELLED AT \S+ DUE TO (?:PREEMPTION|JOB REQUEUE)|"
         r"this job is preempted|DUE TO PREEMPTION|"
         r"TaintManagerEviction|Preempted (?:by|in order)",
         "the scheduler took the job's hosts away", "sacct -X -j JOB"),
    sign("time-limit", r"DUE TO TIME LIMIT|exceeded (?:its |the )?(?:time|walltime) limit|"
         r"active longer than specified deadline",
         "the scheduler's time limit ended the job", "sacct -X -j JOB --format JobID,Timelimit,Elapsed"),
    general("cancelled", r"(?:slurmstepd|srun): error: \*\*\* JOB \S+ ON \S+ CANCELLED AT [\w:-]+ \*\*\*",
            "somebody cancelled the job", "sacct -X -j JOB"),
    sign("scheduler", r"sbatch: error: Batch job submission failed|Insufficient nvidia|Unschedulable|FailedScheduling|"
         r"number of devices unavailable for |"
         r"srun: error: Unable to (?:create|allocate|confirm)|"
         r"Requested node configuration is not available|Invalid (?:account|qos|partition)",
         "the scheduler refused the job", "scontrol show job JOB"),
    several(r"srun: error: (?:Task launch|task \S+ launch failed)|"
            r"slurmstepd: error: (?:container_[pg]_join|execve\(\): \S{0,200}/slurm_script:)",
            "Slurm could not start a task on a host",
            "scontrol show node HOST",
            "scheduler", "node-lost", "clock-skew", "disk-faulty"),
    # The words of runc, crun and Apptainer. Their more specific messages are in rows above.
    several(r"OCI runtime (?:create failed|error: )|container creation failed: ",
            "the container was not started; the end of that line says why", "docker info", "docker-refused",
            "mount-missing", "gpu-runtime"),
    *KILLED,
    general("node-lost", r"(?:ORTE|PRTE) has lost communication with a remote daemon|NodeNotReady|node is not ready|"
            r"Node \S{1,80} (?:is|became) not ready|marked dead because the (?:detector|monitor)|"
            r"actor is dead because its node has died|"
            r"node\.kubernetes\.io/(?:not-ready|unreachable)",
            "a node of the run is lost: its host, its network or its daemon failed", PREFLIGHT, "host-unreachable"),
)  # fmt: skip
