#!/bin/sh
# routes PEER...: a line of `ip -j route get` for each peer, in their order; without a route, what `ip` says instead.
for peer; do
    printf '%s\n' "$({ ip -j route get "$peer" 2>/dev/null || ip -j route get "$peer" 2>&1; } | tr '\n' ' ')"
done
