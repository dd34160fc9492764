#!/bin/sh
# hold STEP ROOM COMMAND...: keeps what COMMAND prints as pieces of STEP bytes, each a file by its digest, where `road` looks for
# them; of each it says `DIGEST SIZE`. If COMMAND fails, ROOM bytes are not free or nobody hears it, nothing of it stays.
umask 077
step=$1 room=$2; shift 2
store=$HOME/.muster/road/$(uname -n)
mkdir -p -- "$store/pieces" && cd -P -- "$store/pieces" || exit
[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt $((room / 1024)) ] || { echo "$room bytes are not free in $store" >&2; exit 1; }
part=.$$.held.coming names=.$$.names.coming
: >"$names"
trap 'xargs rm -f -- "$part" "$names" <"$names"' EXIT; trap 'exit 1' HUP INT TERM PIPE
{ "$@" || echo failed >>"$names"; } | while dd "bs=$step" count=1 iflag=fullblock 2>/dev/null >"$part" && [ -s "$part" ]; do
    digest=$(sha256sum <"$part") && digest=${digest%% *} && echo "$digest" >>"$names" || exit
    size=$(wc -c <"$part") && mv -f -- "$part" "$digest" && echo "$digest $((size))" || exit
done && ! grep -qx failed "$names" && : >"$names"
