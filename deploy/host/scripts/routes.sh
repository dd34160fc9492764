#!/bin/sh
# routes PEER...: a line of `ip -j route get` for each peer, in their order; an empty line if there is no route.
for peer; do printf '%s\n' "$(ip -j route get "$peer" 2>/dev/null | tr '\n' ' ')"; done
