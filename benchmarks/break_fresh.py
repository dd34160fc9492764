"""Run-time faults and combinations of kinds that no other list has (`benchmarks.breaks --list fresh`).

The list, the culprits and the words that count as right were written before any of them was tried. Where a fault is no
fault, right is silence. Of two faults of different ranks or hosts either is right, by its own culprit and cause.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.break_faults import HERE, SCRIPT, TRAINER, Act, Fault, Hosts, node_act, power

CAUSES = {
    "unnamed signal": r"killed by (?:SIG\w+|signal 40)|terminated by signal",
    "warning": r"UserWarning: `lr_scheduler",
    "frozen": r"is stopped|is paused|is frozen|stands still",
    "engine hangs": r"engine there does not answer|out of sight|is lost",
}
_CODE = "page = mmap.mmap(-1, 4096, prot=7); page.write(bytes([0x0F, 0x0B])); "
_FREEZER = (
    "group = pathlib.Path(f'/sys/fs/cgroup/freezer/breaks-{os.getpid()}'); group.mkdir()\n"
    "(group / 'cgroup.procs').write_text(str(os.getpid()))\n"
    "subprocess.Popen(['sh', '-c', f'echo $$ > {group.parent}/cgroup.procs; "
    "echo FROZEN > {group}/freezer.state; sleep 70; echo THAWED > {group}/freezer.state; sleep 9; rmdir {group}'], "
    "start_new_session=True)\ntime.sleep(3)"
)
_TRICKLE = (
    "server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())\n"
    "def send(to):\n    for _ in range(60):\n        to.send(b'x'); time.sleep(0.4)\n    to.close()\n"
    "threading.Thread(target=send, args=[server.accept()[0]], daemon=True).start()\n"
    "while client.recv(1): pass"
)
FRESH = [
    Fault("a signal without a name", "rank", ("unnamed signal",), "os.kill(os.getpid(), 40); time.sleep(600)"),
    Fault("an instruction that the processor lacks", "rank", ("killed",), _CODE + "ctypes.CFUNCTYPE(None)("
          "ctypes.addressof(ctypes.c_char.from_buffer(page)))()"),
    Fault("SIGPIPE", "rank", ("killed",), "signal.signal(signal.SIGPIPE, signal.SIG_DFL); r, w = os.pipe(); "
          "os.close(r); os.write(w, b'x')"),
    Fault("a warning that is an error", "rank", ("warning",), "import warnings\nwarnings.simplefilter('error')\n"
          "warnings.warn('`lr_scheduler.step()` before `optimizer.step()`')"),
    Fault("its working folder is deleted", "rank", ("exception", "gone"), "import shutil\n"
          "assert '/runs/' in os.getcwd() or os.getcwd().startswith('/muster')\n"
          "shutil.rmtree(os.getcwd(), ignore_errors=True); open('notes.txt', 'w')", kinds=SCRIPT),
    Fault("its cgroup is frozen", "rank", ("frozen",), _FREEZER),
    Fault("a timer interrupts it all the time", "rank", ("slow",), "signal.signal(signal.SIGALRM, lambda *_: "
          "hashlib.pbkdf2_hmac('sha256', b'x', b'y', 60_000)); signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)",
          kinds=SCRIPT),
    Fault("evaluates for 25 s while the others wait", "rank", ("harmless",), "end = time.monotonic() + 25\n"
          "while time.monotonic() < end: torch.randn(300, 300) @ torch.randn(300, 300)", limit_s=35),
    Fault("a download that trickles", "rank", ("harmless",), _TRICKLE, limit_s=35),
    Fault("time.time is patched", "rank", ("harmless",), "time.time = lambda: 1.0e9", limit_s=35),
]  # fmt: skip
_ALL = {fault.name: fault for fault in (*HERE, *FRESH)}
_DEBUGGER = (
    "ctypes.CDLL(None).prctl(0x59616d61, -1); subprocess.Popen([sys.executable, '-c', f'import ctypes, time; "
    "ctypes.CDLL(None).ptrace(16, {os.getpid()}, 0, 0); time.sleep(600)'])"
)
FRESH += [
    replace(_ALL["SIGSTOP"], name="two ranks are stopped at once", then=_ALL["SIGSTOP"], gap_s=0.0),
    Fault("a debugger holds it, then kill -9 of another", "rank", ("stopped", "locked"), _DEBUGGER,
          then=_ALL["kill -9"], gap_s=1.0),
    replace(_ALL["slow in its own code"], name="slow, then a deadlock of another", then=_ALL["deadlock"], gap_s=4.0),
]  # fmt: skip


def _engine(signal: str) -> Act:
    return lambda hosts, run, host: hosts.root(host, f"kill -{signal} $(pidof dockerd)")


def _few_inodes(hosts: Hosts, run: str, host: str) -> None:
    user = hosts.root(host, "ls /home").split()[0]
    folder, own = f"/home/{user}/.muster/runs", f"uid=$(id -u {user}),gid=$(id -g {user})"
    hosts.root(host, f"install -d -o {user} -g {user} -m 700 {folder.removesuffix('/runs')} {folder}")
    hosts.root(host, f"mount -t tmpfs -o size=200m,nr_inodes=2000,mode=700,{own} tmpfs {folder}")


def _no_inodes(hosts: Hosts, run: str, host: str) -> None:
    fill = "for n in $(seq 2000); do touch filler-$n || break; done; true"
    hosts.root(host, f"cd $(ls -d /home/*/.muster/runs)/{run} && {fill}")


_PAUSED, _CUT = node_act("pause"), power("kill")
FRESH_ON_HOSTS = [
    Fault("the host freezes", "host", ("node lost", "out of reach", "stopped"), outside=power("pause"),
          mend=power("unpause")),
    Fault("its engine hangs", "host", ("engine hangs",), outside=_engine("STOP"), mend=_engine("CONT")),
    Fault("no inodes are left on the first host", "host", ("disk",), outside=_no_inodes, before=_few_inodes,
          mend=lambda hosts, run, host: hosts.root(host, "umount -l $(ls -d /home/*/.muster/runs); true"),
          first=True, kinds=TRAINER),
    Fault("a paused node, then kill -9 of another rank", "host", ("stopped",), outside=_PAUSED,
          mend=node_act("unpause"), then=_ALL["kill -9"], gap_s=0.0),
    Fault("a power cut, then SIGSTOP of another rank", "host", ("node lost",), outside=_CUT, mend=power("start"),
          then=_ALL["SIGSTOP"], gap_s=1.0),
]  # fmt: skip
