#!/bin/sh
# routes PEER...: prints a line of `ip -j route get` for each peer, in their order; without a route, the message of `ip` instead.
for peer; do
    printf '%s\n' "$({ ip -j route get "$peer" 2>/dev/null || ip -j route get "$peer" 2>&1; } | tr '\n' ' ')"
done
