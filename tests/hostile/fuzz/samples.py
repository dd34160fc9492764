"""Answers as hosts really give them; the fuzzer starts from these."""

from __future__ import annotations

import base64
import json
from functools import cache

from lab.answers import facts as probe_facts
from lab.gpu_hosts import facts as gpu_facts_of
from lab.gpu_hosts import sections
from tests.hostile.engine import described, inspected, listed
from tests.unit.host.test_gpus import ANSWERS
from tests.unit.send.test_image import BASE, IMAGE, INSPECTED

HOSTS = ("gpu-a", "gpu-b", "gpu-c")
DAY = "2026-11-21T05:21:16.219120949Z"


def container(node="a", place=0, status="running", code=0):
    """What `docker inspect` reports about a node, as host/scripts/container_line.sh asks for it."""
    labels = {"muster.run": "r1", "muster.node": node, "muster.place": str(place), "muster.nodes": "3",
              "muster.port": "29500", "muster.command": "train.py --lr 3e-4"}  # fmt: skip
    state = {"Status": status, "ExitCode": code, "StartedAt": DAY}
    return json.dumps(described("/muster-r1", labels, state, "/home/ops/.muster/runs/r1"))


ADDRESSES = json.dumps([
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
    {"ifname": "eth0", "addr_info": [
        {"family": "inet", "local": "10.0.0.4", "prefixlen": 24, "scope": "global"},
        {"family": "inet6", "local": "fd00::4", "prefixlen": 64, "scope": "global", "deprecated": True},
        {"family": "inet6", "local": "fe80::fc:ff:fe00:1", "prefixlen": 64, "scope": "link"}]},
    {},
])  # fmt: skip
NETWORKS = """tun
route eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0
udp  1: 00000000:CA6C 00000000:0000 07 00000000:00000000
mtu eth0 1500
"""
LOOK = f"""time 1795238476.219120949
home /home/ops
ids 1000 1000
ssh 10.0.0.9 51000 10.0.0.4 22
arch x86_64
cores 32
memory 131072000
rdma
room 52428800
kernel [402.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=8123, name=python
gpu 0, GPU-5d5ba0d6, 412, 81920, 97, NVIDIA A100-SXM4-80GB
addresses {ADDRESSES}
socket   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0
engine {{"Client":{{"Version":"26.1.5"}},"Server":{{"Version":"26.1.5","Components":[]}}}}
files 1048576              1048576              files
run r1
run 2026-11-21-0214-digits
free 104857600
container {container()}
container {container("b", 1, "exited", 137)}"""
ROUTE = '[{"dst":"10.0.0.4","dev":"ib0","prefsrc":"10.0.0.9","flags":[],"uid":0,"cache":[]}]'


def event(**fields):
    """A line of ranks/rank-0.jsonl."""
    return json.dumps({"t": 1795238470.5, "rank": 0, "node": "a", **fields})


STEP = event(kind="step", step=240, steps=600, count=10, step_ms=80.5, data_ms=1.5, compute_ms=70.0, wait_ms=9.0)
RANK_LINES = "\n".join([
    event(kind="started", attempt=0, pid=4711, host="h", world=2, device="cpu", backend="gloo"),
    event(kind="plan", recipe="digits", steps=600, start_step=0, batch=96, samples=1437, precision="fp32"),
    event(kind="resumed", step=200, path="/muster/run/checkpoints/step-00000200", changes=["world 2 was 3"]),
    STEP,
    event(kind="checkpoint", step=240, pause_ms=3.5, write_ms=80.0, bytes=302000000, path="checkpoints/step-00000240"),
    event(kind="checkpoint_failed", step=250, message="no space left on device"),
    event(kind="checkpoint_damaged", path="checkpoints/step-00000200", message="a flipped bit"),
    event(kind="evaluated", step=600, samples=360, values={"loss": 0.06, "accuracy": 0.989}),
    event(kind="stopping", step=610, message="asked to stop"),
    event(kind="started", attempt=1, pid=4712, host="h", world=2, device="cpu", backend="gloo"),
])  # fmt: skip
METRICS = "\n".join([
    '{"t": 1795238470, "step": 10, "epoch": 0.5, "loss": 2.3, "lr": 0.1, "grad_norm": 1.0, "samples_per_s": 5410.0}',
    '{"t": 1795238471, "step": 20, "epoch": 0.9, "loss": NaN, "lr": 0.1, "grad_norm": 1.0, "samples_per_s": 5410.0}',
    '{"t": 1795238472, "step": 20, "eval": {"loss": 0.06, "accuracy": 0.989}, "samples": 360}',
])  # fmt: skip
VERDICT = json.dumps({"verdict": "failed", "code": 1, "rank": 0, "node": "a", "step": 241, "message": "loss is nan\nx",
                      "hint": "lower --lr; the run continues from here"})  # fmt: skip
NODE_UP = '{"node": "a", "pid": 1, "host": "h", "t": 1795238470.5}'
GPUS = [path.read_text() for path in sorted(ANSWERS.glob("*.txt"))]
STATUS = f"""time 1795238476
event r2 {STEP}
event r2 {event(kind="plan", batch=96, steps=600)}
verdict r1 {VERDICT}
""" + GPUS[0]
LISTED = json.dumps([listed(json.loads(container("a", 0, "exited", 137)), 0), listed(json.loads(container()), 1)])
LOOKED = json.dumps(inspected({**json.loads(container()), "variables": ["PET_NPROC_PER_NODE=8", "MUSTER_SENT=1"]}, 0))
SPOKEN = (
    "HTTP/1.1 200 OK\r\nContent-Type: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n\x01\0\0\0\0\0\0\x03ab\n\r\n0\r\n\r\n"
)
END_OF_CONSOLE = f"{DAY} loss 0.1\r 20%\n"
RUNS = f"folder r1 1795238476 20480 00003146\nverdict r1 {VERDICT}\nfolder r2 1795238476 4 "
RANK_LOGS = "r1/logs/rank-11.log\nr0/logs/rank-0.log"
CONSOLE = (
    f"{DAY} epoch 1\n{DAY} muster-said 123456\n{DAY} failed (exitcode: -9) local_rank: 0 (pid: 4711) of fn\nno time"
)
LOCK = '12\ntoken0123\n{"user": "alice", "control": "laptop", "pid": 42, "run": "r1", "since": 1795238476.5}\n'
CONFIG = '{"recipe": "digits", "steps": 600, "lr": 0.1, "compile": true, "resume": null, "batch_size": 32}'
KEPT = """now 1795238476
user ops
runs r1 1795230000 2048
caches 1000/huggingface 1795230000 100
folders coming.0123456789 1795230000 4
pushed muster-code:latest 2026-11-21T05:21:16+0000
"""
STORED = json.dumps({
    "Images": [{"RepoTags": ["muster-code:latest"], "Size": 4096, "Containers": 1, "Labels": {"muster.image": "m"}}],
    "Volumes": [{"Name": "muster-packages-1", "Labels": {"muster.packages": "x", "muster.user": "ops"},
                 "CreatedAt": "2026-11-21T05:21:16Z", "UsageData": {"RefCount": 0, "Size": 9}}],
})  # fmt: skip
INSPECT = json.dumps([INSPECTED])
HELD = json.dumps({"id": "sha256:" + "1" * 64, "tags": ["run:1"], "labels": {}, "layers": list(IMAGE.layers)})
STORE = "\n".join([
    json.dumps({"version": "26.1.5", "machine": "x86_64", "system": "linux", "root": "/var/lib/docker",
                "status": [["driver-type", "io.containerd.snapshotter.v1"]]}),
    "/var/lib/docker", '{"free":"104857600"}', HELD,
    json.dumps({"id": "sha256:2", "tags": None, "labels": None, "layers": list(BASE.layers)}),
])  # fmt: skip
SSH_WORDS = (
    "OpenSSH_9.2p1\ndebug1: Connecting to gpu-a [10.0.0.4] port 22.\ndebug1: Server host key: ssh-ed25519 SHA256:abc\n"
    "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nOffending RSA key in /home/u/.ssh/known_hosts:3\n",
    'debug1: Offering public key: /home/u/.ssh/id ED25519 SHA256:abc agent\nLoad key "/home/u/k": bad permissions\n'
    'Authenticated using "publickey" with partial success.\nu@10.0.0.4: Permission denied (publickey,password).\n',
    "debug1: channel 2: open failed: administratively prohibited: no\nStdio forwarding request failed: refused\n"
    "kex_exchange_identification: Connection closed by remote host\nUnable to negotiate: no matching cipher found.\n",
)
BOOTSTRAP = (
    "os debian\nrelease 12\nuid 1000\nuser ops\nsudo\nsystemd\nclient\nanswers\nrunning 2\ngpu\ntoolkit-package",
    "os ubuntu\nrelease 24.04\nuid 0\nuser root\nmember\nsystemd",
)
RECORD = json.dumps({"id": "r1", "started": 1795238000.0, "backend": "hosts", "why": "3 hosts", "nodes": ["a", "b"],
                     "workers": 1, "arguments": ["--steps", "3"], "hosts": ["ops@a", "b"], "script": False,
                     "again": "--folder x", "cluster": "", "starts": [{"t": 1795238000.0}]})  # fmt: skip
OUTCOME = json.dumps({"t": 1795238500.0, "verdict": "done", "code": 0, "node": "", "rank": None, "step": 600,
                      "message": "", "hint": "", "seconds": 30.5, "samples_per_s": 5400.0, "accuracy": 0.98,
                      "values": {"accuracy": 0.98}, "samples": 360, "restarts": 0})  # fmt: skip
TIMELINE = '{"t": 1795238001.0, "text": "training digits: 1,437 samples", "grave": false}\n'
TELEMETRY = "".join(json.dumps({"t": 1795238000.0 + t, "node": "a", "cores": 8, "cpu_percent": 45.0,
    "memory_bytes": 3 << 30, "memory_limit_bytes": 16 << 30, "disk_free_bytes": 1 << 40,
    "network": {"eth0": [2e6, 1e6]},
    "gpus": [{"index": 0, "name": "NVIDIA H100", "use_percent": 93, "memory_bytes": 61 << 30, "power_w": 654.3,
              "celsius": 70, "sm_mhz": 1980, "throttled": ["heat"]}]}) + "\n" for t in (0, 5))  # fmt: skip
SCALARS = json.dumps({"t": 1795238000.0, "node": "a", "file": "work/runs/x/events.out.tfevents.1.a.2.0",
                      "tags": {"train/loss": [[10, 0.5], [20, 0.25]], "lr": [[10, 1e-3]]}}) + "\n"  # fmt: skip
WORDS = (
    "a: the probe ended with code 125: docker: Error response from daemon: could not select device driver",
    "`docker run` ended with code 127: exec: sh: executable file not found in $PATH",
    "permission denied while trying to connect to the Docker daemon socket",
)


def mirrored(mark="MARK"):
    """What `host_commands.follow` prints."""
    return "\n".join([
        f"{mark} .",
        f"{mark} doc nodes/a.json {base64.b64encode(NODE_UP.encode()).decode()}",
        f"{mark} add ranks/rank-0.jsonl 0 {base64.b64encode((RANK_LINES + chr(10)).encode()).decode()}",
        f"{mark} add telemetry/a.jsonl 0 {base64.b64encode(TELEMETRY.encode()).decode()}",
        f"{mark} add scalars/a.jsonl 0 {base64.b64encode(SCALARS.encode()).decode()}",
        f"{mark} add metrics.jsonl 0 {base64.b64encode((METRICS + chr(10)).encode()).decode()}",
        CONSOLE,
        f"{mark} state {container()}",
        f"{mark} doc outcome/a-0.json {base64.b64encode(VERDICT.encode()).decode()}",
        f"{mark} state away",
        f"{mark} died 137",
        f"{mark} state {container(status='exited', code=137)}",
    ])  # fmt: skip


JOB = (
    "id 12\njob JobId=12 JobName=r1 UserId=u(1000) JobState=PENDING Reason=ReqNodeNotAvail, UnavailableNodes:n7 "
    "Dependency=(null) Requeue=1 Restarts=2 ExitCode=75:0 TimeLimit=01:00:00 NodeList=n[1-2] WorkDir=/home/u\n"
    "hosts n1 n2\nend\nsrun: error: n1: task 0: Exited with exit code 75\n"
)
RECORDED_JOB = "record CANCELLED by 1000|0:15\nend\nsrun: error\n"


def followed_job(mark="MARK"):
    """What follow-job prints."""
    said = [f"{mark} said {line}" for line in JOB.split("\n")[1:3]]
    log = base64.b64encode(b"step 1\n").decode()
    return "\n".join([f"{mark} .", f"{mark} add logs/rank-0.log 100 {log} .", *said, f"{mark} said ."])


@cache
def probe(place):
    """What a probe answers on one of HOSTS, by question; the test harness builds the answer to `connect`."""
    known = {**probe_facts(place), "hostname": HOSTS[place], "fqdn": HOSTS[place], "cuda": {}, "container": True}
    known["names"] = {host: [[f"10.0.0.{number + 1}", number == place, host]] for number, host in enumerate(HOSTS)}
    recorded = gpu_facts_of(sections("h100"))
    known |= {name: recorded[name] for name in ("gpus", "cuda", "rdma", "rdma_devices", "environment")}
    known["software"] = recorded["software"]
    known["leftovers"] = [[4711, 12.5, "python -m muster.trainer.node agent"]]
    return {
        "facts": known,
        "listen": {"ports": [29500], "sampled": [40000, 41000, 42000], "failed": {}, "routes": {}, "names": {}},
        "clock": {"time": 1795238476.5},
        "firewall": {"read": True, "rules": ["-A INPUT -j DROP"]},
    }


RESULT = {
    "id": 0, "ms": 3.75, "source": "10.0.0.1", "host": "b", "seen": "10.0.0.1", "send_s": 0.0033, "both_s": 0.005,
    "again": 0, "twice": 0, "sent": 7, "rate": 15872000000, "trip_ms": 0.003, "tries": 1, "outcome": "ok",
}  # fmt: skip

_PLAN = {"least": 2, "key": "0123abcd", "nodes": {"a": ["192.0.2.1", 29600, 29601]}, "apart": True, "spares": ["a"],
         "joined": {"d": ["192.0.2.4", 29600, 2]}}  # fmt: skip
NODE = json.dumps({
    "Env": ["PATH=/bin", "PET_NODE_RANK=0", "PET_RDZV_ID=r-1", "PET_NPROC_PER_NODE=2", "LD_PRELOAD=/x.so",
            f"MUSTER_GROUP={json.dumps(_PLAN)}"],
    "Cmd": ["-c", "text", "sh", "-P", "-m", "muster.trainer.node", "agent", "--steps", "9"],
    "Labels": {"muster.start": "7f3a-0"},
})  # fmt: skip
