"""Signs of what ends processes: full memory, a host's limits, signals, crashes in compiled code."""

from .kinds import ended, general, hint, several, sign

# What a shell prints for a killed process, in glibc's languages, if the word has no other meaning.
_KILLED = (
    "Killed|Getötet|Processus arrêté|Terminado \\(killed\\)|Ucciso|Morto|Geëlimineerd|Unicestwiony|Dödad|Dræbt|Tapettu|"
    "Zabit \\(SIGKILL\\)|Süreç durduruldu|Убито|Вбито|強制終了|죽었음|已杀死|強制結束"
)
KILLED = (
    # Memory may be free although the process may not map more areas: vm.max_map_count, or a limit on address space.
    several(r"Cannot allocate memory",
            "the kernel refused memory: because of a limit (on mappings or address space), or because memory is full",
            "sysctl vm.max_map_count; ulimit -a; free -h", "host-memory", "process-limits", "memlock"),
    # Slurm watches the job's own limit. If the host itself has no memory, only the kernel's log says so.
    sign("host-memory", r"Detected \d+ oom[-_]kill event|srun: error: .{0,80}Out Of Memory|"
         r"slurmstepd: error: .{0,200}(?i:oom[-_ ]kill)|[Ee]xceeded (?:job|step) memory limit",
         "a process of the job was killed because it reached the job's memory limit (--mem), or the host ran "
         "out of memory",
         "scontrol show job JOB | grep -i mem; sacct -j JOB --format JobID,ReqMem,MaxRSS,State", "killed"),
    sign("host-memory", r"oom[-_]kill|low on resource: memory|[Mm]emory cgroup out of memory|"
         r"[Oo]ut [Oo]f [Mm]emory: Killed process|OOMKill(?:ed)?\b|OOM-killed|OUT_OF_MEMORY|"
         r"std::bad_alloc|\bMemoryError\b|"
         r"DefaultCPUAllocator: (?:can't|not enough)|[Ee]xceeded memory limit|"
         r"ray\.exceptions\.OutOfMemoryError|\b[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure|"
         r"due to the node running low on memory|NODE_OUT_OF_MEMORY|on host: CUDA_ERROR_OUT_OF_MEMORY|"
         # Windows reserves memory for each library that a process loads; the error in English, Chinese, or by its
         # number.
         r"Unable to allocate [\d.]+ [GMT]iB for an array|WinError 1455\b|paging file is too small|页面文件太小",
         "a host's memory is full", "free -h; dmesg -T | grep -i oom", "killed"),
    sign("docker-refused", r"pthread_create failed.{0,60}Operation not permitted",
         "a rule of the engine (seccomp) forbids new threads, and no limit does: Docker before 20.10.10 has "
         "such a rule",
         "docker version", "process-limits"),
    sign("process-limits", r"can't start new thread|pthread_create failed(?!.{0,60}not permitted)|"
         r"(?:fork|[Tt]hread).{0,40}Resource temporarily unavailable|fork rejected by pids|File size limit exceeded|"
         r"Signal (?:25|24) \(SIGX|exitcode\s*: -2[45]\b",
         "a limit of the host or the container ended a process", "ulimit -a"),
    sign("ssh-hangup", r"got signal: 1\b|closing signal SIGHUP|Received 1 death signal|[Ss]ignal 1 \(SIGHUP\)",
         "the terminal or SSH session ended, and ended the run", "muster deploy --detach"),
    general("stopped", r"got signal: (?:2|15)\b|Received (?:2|15) death signal|closing signal SIGINT|"
            r"KeyboardInterrupt",
            "somebody, or a scheduler, asked the run to stop", "last -20; sacct"),
    general("crashed", ended("SIGSEGV", 11) + r"|[Ss]egmentation fault|signal SIGSEGV|Caught signal 11|"
            r"\bsegfault at [0-9a-f]+ ip |general protection fault ip:|"
            r"DataLoader worker \(pid \d+\) is killed by signal: Aborted|"
            r"exit status 3221225477|double free or corruption|free\(\): invalid|free invalid pointer|"
            r"corrupted (?:size|double)|malloc\(\): |\d bus error  \w|Fatal Python error(?!: Aborted)",
            "a process crashed in compiled code", "python -X faulthandler SCRIPT", "library-mismatch"),
    general("crashed", r"\.(?:cc?|cpp|cxx|h|hpp):\d+: .{0,1000}Assertion .{1,300} failed|"
            r"\.mm?:\d+: failed assertion|Assertion failure at \S{1,200}\.c:\d",
            "an assertion in compiled code failed, and the process ended itself", "python -X faulthandler SCRIPT",
            "exception"),
    general("architecture-differs", ended("SIGILL", 4) + r"|Illegal instruction|illegal hardware instruction",
            "a library was built for another kind of processor", "lscpu | grep Flags", "crashed"),
    general("crashed", ended("SIGFPE", 8) + r"|Floating point exception",
            "a process crashed: it divided a whole number by zero", "python -X faulthandler SCRIPT"),
    # Compiled code aborts for any uncaught error; NCCL's watchdog, for example, does so after a timeout.
    hint("", ended("SIGABRT", 6) + r"|Aborted +\(core dumped\)|terminate called after throwing|"
         r"Fatal Python error: Aborted", "a process aborted itself because of an error; the lines before this "
         "one say which",
         "python -X faulthandler SCRIPT", "crashed", "collective-timeout"),
    general("killed", ended("SIGKILL", 9) + rf"|killed by signal: Killed|^(?:{_KILLED})$|"
            rf"^\[\d+\] +\+? *\d+ killed\b|\b\d+ ?:\s+\d+ (?:{_KILLED})(?: |$)|task \S+: Killed$",
            "a process was killed, as happens when the memory of the host or the container is full", "dmesg -T "
            "| grep -i oom",
            "host-memory"),
    # Ray does not know the reason: it prints the same list of guesses, memory first, for every lost worker.
    hint("", r"A worker died or was killed while executing|its worker process has died",
         "a Ray worker is gone, and Ray only guesses why: see its own log or the kernel's",
         "dmesg -T | grep -iE 'oom|segfault'", "killed", "host-memory", "crashed"),
)  # fmt: skip
