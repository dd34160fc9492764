"""Causes: clocks. Data."""

from ..end_causes import Cause
from ..row import Row, Section

SECTIONS = (
    Section(
        "Clocks",
        (
            Row(
                "clock-skew",
                (
                    "torch's rendezvous compares its clock with the times that other nodes wrote. It takes a node "
                    "that is 15 s behind for dead. One node may train alone and end with code 0. With `muster deploy` "
                    "the clocks may differ by any amount (tried: an hour), and preflight only warns: the times in "
                    "logs of different hosts do not fit together."
                ),
                by_hand="`date +%s.%N` on all hosts at once; `chronyc tracking`",
                fix="`sudo timedatectl set-ntp true`",
                source="pytorch/pytorch #76287",
                command="on {host}: sudo timedatectl set-ntp true (or: sudo chronyc makestep)",
                ends=Cause.CLOCK,
            ),
        ),
        group="clocks",
    ),
)
