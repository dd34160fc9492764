"""Faults in which a rank ends: by a signal, or with an exit code."""

from benchmarks.breaks import break_rank, break_script

break_rank("kill -9", "killed", "os.kill(os.getpid(), 9)")
break_rank("segmentation fault", "killed", "ctypes.string_at(0)")
break_rank("abort", "killed", "os.abort()")
break_rank("sys.exit(0) early", "left", "sys.exit(0)")
break_rank("os._exit(0) early", "left", "os._exit(0)")
break_rank("os._exit(3)", "left", "os._exit(3)")
break_rank("SIGTERM to one rank", "killed", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)")
break_rank("SIGUSR1", "killed", "os.kill(os.getpid(), signal.SIGUSR1)")
break_rank("SIGHUP", "killed", "os.kill(os.getpid(), signal.SIGHUP)")
break_rank("limit of CPU seconds", "killed", "resource.setrlimit(resource.RLIMIT_CPU, (1, 999)); spin()")
break_rank(
    "SIGBUS in a mapped file",
    "killed",
    """
f = tempfile.TemporaryFile()
f.truncate(9999)
m = mmap.mmap(f.fileno(), 9999)
f.truncate(0)
m[5000]
""",
)
break_rank("free() of a wrong address", "killed", "ctypes.CDLL(None).free(ctypes.c_void_p(12345))")
break_rank("kills its own process group", "killed", "os.killpg(0, 9)")
break_rank("kills its parent", "killed, node lost, left", "os.kill(os.getppid(), 9); time.sleep(600)")
break_rank("SIGINT to one rank", "interrupt", "os.kill(os.getpid(), signal.SIGINT); time.sleep(600)")
break_rank("replaced by true", "left", "os.execv('/bin/true', ['true'])")
break_rank("makes itself a daemon", "left", "os.fork() and os._exit(0)")
break_rank("a thread leaves with 0", "left", "threading.Thread(target=lambda: os._exit(0)).start(); time.sleep(600)")
break_script("data ends early", "left", "break")
break_rank(
    "returns from an exception with 0",
    "left, exception",
    """
try: open('/data/gone')
except OSError as fault: print('could not read', fault); sys.exit()
""",
)
break_rank("SIGALRM from an own timer", "killed", "signal.alarm(1); time.sleep(600)")
break_rank("SIGQUIT from outside", "killed", "subprocess.run(['kill', '-QUIT', str(os.getpid())]); time.sleep(600)")
break_rank("SIGFPE", "killed", "signal.raise_signal(signal.SIGFPE)")
break_rank(
    "stack of C code runs over",
    "killed",
    (
        "ctypes.CDLL(None).qsort(ctypes.create_string_buffer(8), 1 << 40, 8, "
        "ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda a, b: 1))"
    ),
)
break_script("sys.exit with a message", "its-words", "sys.exit('ERROR: no licence for this host')")
break_rank("a signal without a name", "unnamed signal", "os.kill(os.getpid(), 40); time.sleep(600)")
break_rank(
    "an instruction that the processor lacks",
    "killed",
    """
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes([0x0F, 0x0B]))
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
""",
)
break_rank(
    "SIGPIPE",
    "killed",
    """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
r, w = os.pipe()
os.close(r)
os.write(w, b'x')
""",
)
break_rank(
    "its own watchdog ends it",
    "left, watchdog",
    """
import faulthandler
faulthandler.dump_traceback_later(2, exit=True); time.sleep(600)
""",
)
break_script(
    "starts itself again",
    "left, locked, other program, reset, exception, again",
    "os.execv(sys.executable, sys.orig_argv)",
)
break_rank("its main thread ends, its process stays", "left, locked, half gone", "ctypes.CDLL(None).syscall(60, 0)")
break_rank("a library calls Python without the GIL", "killed, fatal", "ctypes.CDLL(None).PyThreadState_Get()")
break_rank(
    "arguments that a parser does not know",
    "left, arguments",
    """
import argparse
argparse.ArgumentParser('evaluate').parse_args(['--lr-decay', '0.1'])
""",
)
break_rank(
    "a thread interrupts the main thread",
    "interrupt",
    """
import _thread
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
threading.Timer(0.3, _thread.interrupt_main).start()
while True: time.sleep(0.1)
""",
)
break_rank("sys.exit(-1)", "left, code 255", "sys.exit(-1)")
break_rank("sys.exit of a list", "left, code one, its words on the shard", "sys.exit(['shard 3', 'is bad'])")
break_rank(
    "leaves in order at SIGTERM",
    "left, ended",
    """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(9)
""",
)
break_script(
    "its loop ends, a thread keeps it alive",
    "left, locked, half gone",
    "threading.Thread(target=time.sleep, args=[10_000]).start(); break",
)
break_rank("C++ terminates it", "killed", "ctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()")
break_rank("a profiler's timer without its handler", "killed", "signal.setitimer(signal.ITIMER_PROF, 0.3); spin()")
