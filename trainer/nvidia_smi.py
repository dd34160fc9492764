"""What nvidia-smi reports about each GPU while it works. Python 3.8 can read this file: it goes to hosts as text."""

import re
import statistics
import subprocess

SMI_S = 10.0
# nvidia-smi's columns, by our names; those of FIXED do not change while the GPU works.
NOW = {
    "uuid": "uuid",
    "mhz": "clocks.sm",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "reasons": "clocks_throttle_reasons.active",
    "gen": "pcie.link.gen.current",
    "width": "pcie.link.width.current",
    "uncorrected": "ecc.errors.uncorrected.volatile.total",
    "corrected": "ecc.errors.corrected.volatile.total",
}
FIXED = {
    "uuid": "uuid",
    "most_mhz": "clocks.max.sm",
    "limit_watts": "power.limit",
    "usual_limit_watts": "power.default_limit",
    "most_gen": "pcie.link.gen.max",
    "most_width": "pcie.link.width.max",
}
# Bits of the column `reasons`, by nvml.h.
SLOWED = {"power cap": 0x4, "hardware": 0x8, "heat": 0x20 | 0x40, "power brake": 0x80}
LINK, HEAD = re.compile(r"\s+Link \d+: (\d[\d.]* GB/s)?"), re.compile(r"GPU \d+:.*UUID: (GPU-[0-9a-f-]+)")


def smi_text(*options):
    """What nvidia-smi prints; empty if there is none, or it does not answer."""
    try:
        argv = ["nvidia-smi", *options]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SMI_S, check=False)
        return done.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def smi(columns):
    """nvidia-smi's values of each GPU, by UUID and our names; without the columns that this driver does not know."""
    asked = dict(columns)
    while True:
        output = smi_text("--query-gpu=" + ",".join(asked.values()), "--format=csv,noheader,nounits")
        strange = re.match(r'Field "([^"]+)" is not a valid field', output)
        unknown = [name for name in asked if strange and asked[name] == strange[1]]
        if not unknown:
            rows = [dict(zip(asked, (cell.strip() for cell in line.split(",")))) for line in output.splitlines()]
            return {row["uuid"]: row for row in rows if len(row) == len(asked) and row["uuid"].startswith("GPU-")}
        del asked[unknown[0]]


def nvlinks():
    """How many NVLinks of each GPU are up, by UUID."""
    up, uuid = {}, ""
    for line in smi_text("nvlink", "--status").splitlines():
        head, link = HEAD.match(line), LINK.match(line)
        uuid = head[1] if head else uuid
        if uuid and link:
            up[uuid] = up.get(uuid, 0) + bool(link[1])
    return up


def number(row, name):
    """A number of nvidia-smi's; -1 if it says none."""
    try:
        return float(row[name])
    except (KeyError, ValueError):
        return -1.0


def watched(looks):
    """What the looks at one GPU show; the first and the last one are from before and after the load."""
    loaded = looks[1:-1] or looks
    if not loaded:
        return {}
    masks = [int(look.get("reasons", ""), 16) for look in loaded if look.get("reasons", "").startswith("0x")]
    return {
        "looks": len(loaded),
        "celsius": max(number(look, "celsius") for look in loaded),
        "mhz": statistics.median(number(look, "mhz") for look in loaded),
        "watts": statistics.median(number(look, "watts") for look in loaded),
        "slowed": {
            why: round(sum(bool(mask & bits) for mask in masks) / len(masks), 3)
            for why, bits in SLOWED.items()
            if masks
        },
        "uncorrected": max(0.0, number(looks[-1], "uncorrected") - max(0.0, number(looks[0], "uncorrected"))),
        "corrected": max(0.0, number(looks[-1], "corrected") - max(0.0, number(looks[0], "corrected"))),
    }
