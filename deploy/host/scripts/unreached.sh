#!/bin/sh
# unreached PORT PEER...: prints a line `PEER why` for each peer whose port does not answer. Nothing needs to listen there: a host
# that refuses is reachable, a host whose firewall drops packets is silent. Without bash it prints nothing.
port=$1; shift
command -v bash >/dev/null && command -v timeout >/dev/null || exit 0
for peer; do (
    # shellcheck disable=SC2016  # bash expands it
    reply=$(LC_ALL=C timeout 3 bash -c ': </dev/tcp/$0/$1' "$peer" "$port" 2>&1); code=$?
    case $code,$reply in
    0,*|*refused*) ;;
    124,*) echo "$peer packets are dropped (3 s)" ;;
    *) echo "$peer $(echo "$reply" | sed -n '$s/.*: //p')" ;;
    esac
) & done
wait
