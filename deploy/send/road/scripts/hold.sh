#!/bin/sh
# hold STEP ROOM IMAGE LAYER...: keeps the layers that the engine saves of IMAGE, in pieces of STEP bytes, each a file by its
# digest, where `road` looks for them. Of each file of the archive it says its pieces in their order, `DIGEST SIZE`, then `layer
# DIGEST`; and at last `end`. Engines name their files differently, and may have compressed them: only the digest of what is in
# one tells which layer it is. If that fails, ROOM bytes are not free or nobody hears it, nothing of it stays.
umask 077
export step="$1"; room=$2 image=$3; shift 3
store=$HOME/.muster/road/$(uname -n)
mkdir -p -- "$store/pieces" && cd -P -- "$store/pieces" || exit
[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt $((room / 1024)) ] || { echo "$room bytes are not free in $store" >&2; exit 1; }
# Whatever of a push has this name, and no process any more, is swept by the next one. A reader may outlive a broken archive:
# without the folder it ends.
own=$PWD/.$$.held.coming
mkdir -- "$own" || exit
# Who hears it ends the input. SSH gives each command a process group of its own.
exec 3<&0
{ cat; kill 0; } <&3 >/dev/null 2>&1 &
hears=$!
# Who still writes there may be ending only now.
trap 'trap "" HUP INT TERM PIPE; kill $hears; for try in 1 2 3 4 5; do rm -rf -- "$own" && break; sleep 0.3; done' EXIT; trap 'exit 1' HUP INT TERM PIPE
export own wanted="$*"
# Each file of the archive is the input of this.
# shellcheck disable=SC2016  # for another shell
export keep='
cd "$own" && dd bs=4096 count=1 iflag=fullblock 2>/dev/null >head || exit
open=cat
case $(od -An -tx1 -N4 head | tr -d " ") in 1f8b*) open="gzip -dc" ;; 28b52ffd) open="zstd -dc" ;; esac
: >list
{ cat head; cat; } | $open | while dd "bs=$step" count=1 iflag=fullblock 2>/dev/null >piece && [ -s piece ]; do
    digest=$(sha256sum <piece) && digest=${digest%% *} && size=$(wc -c <piece) && mv -f piece "$digest" || exit
    echo "$digest $((size))" | tee -a list
done
whole=$(while read -r digest _; do cat "$digest"; done <list | sha256sum)
echo "layer ${whole%% *}"
case " $wanted " in *" ${whole%% *} "*) cat list >>layers ;; esac
'
# shellcheck disable=SC2016
docker save "$image" | tar -x --to-command='sh -c "$keep"' -f - && [ -s "$own/layers" ] || exit 1
while read -r digest _; do
    [ ! -e "$own/$digest" ] || mv -f -- "$own/$digest" . || exit
done <"$own/layers"
echo end
