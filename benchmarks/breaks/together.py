"""Two faults of different ranks: either may be named. If one of them is a decoy, only the fault may be named."""

from benchmarks.breaks import SCRIPT, break_two, ends, harmless, raises, slow, stalls

_KNOWN = (ends, harmless, raises, slow, stalls)
LATE = {"limit_s": 75.0}
DECOY = {"cause": ("decoy",), "limit_s": 60.0}

break_two("kill -9", "exception", 0.0, **LATE)
break_two("SIGSTOP", "SIGSTOP", 0.0)
break_two("SIGSTOP", "kill -9", 1.0, **LATE)
break_two("deadlock", "exception", 3.0, **LATE)
break_two("slow in its own code", "deadlock", 4.0)
break_two("slow in its own code", "exception", 5.0, **LATE)
break_two("a slow step now and then", "kill -9", 3.0, **LATE)
break_two("makes itself a daemon", "broken library", 1.0, **LATE)
break_two("a debugger holds it", "kill -9", 1.0)
break_two("tries again without end", "its loader has a timeout, and its data hangs", 0.0)
break_two("a profiler that was left on", "a process of its pool dies", 4.0, kinds=SCRIPT)
break_two("waits in the kernel, as for a dead file server", "its own watchdog ends it", 0.0, kinds=SCRIPT)
break_two("its signal handler takes the lock that it holds", "a child takes longer than its timeout", 0.0)
break_two("a pool of one thread waits for itself", "a loader without a batch", 0.0)
break_two("C++ terminates it", "sys.exit(-1)", 0.0)
break_two("asks a program for the memory in each step", "its second store waits for a worker", 4.0)
break_two(
    "logs the traceback of an error that it handles", "polls for a file that another rank should write", 1.0, **DECOY
)
break_two("a log line that cannot be formatted", "a lock file that a build left behind", 1.0, **DECOY)
break_two("a notice of preemption that it handles", "a library calls Python without the GIL", 2.0, **DECOY)
break_two("a thread of its metrics client dies", "torch.save finds no space", 1.0, **DECOY)
break_two("copies its next shard for 12 s", "a last batch of one row", 1.0, **DECOY)
