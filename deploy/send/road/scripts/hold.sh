#!/bin/sh
# hold STEP ROOM IMAGE LAYER...: gets the layers of IMAGE from the engine (`docker save`), and stores them as pieces of STEP bytes,
# each in a file named by its digest, in the folder where `road` looks for pieces. For each file of the archive it prints the pieces
# in order, `DIGEST SIZE`, and then `layer DIGEST`; at the very end it prints `end`. Engines name the files of the archive
# differently, and may compress them: only the digest of the uncompressed content tells which layer a file is. If the script fails,
# ROOM bytes are not free, or nobody reads its output any more, it leaves nothing behind.
umask 077
export step="$1"; room=$2 image=$3; shift 3
store=$HOME/.muster/road/$(uname -n)
mkdir -p -- "$store/pieces" && cd -P -- "$store/pieces" || exit
[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt $((room / 1024)) ] || { echo "$room bytes are not free in $store" >&2; exit 1; }
# The next push deletes files with this kind of name whose process no longer exists. If the archive breaks off, a reader may still
# run: it ends when this folder is gone.
own=$PWD/.$$.held.coming
mkdir -- "$own" || exit
# The control side ends the input of this script when it stops reading. SSH gives each command its own process group.
exec 3<&0
{ cat; kill 0; } <&3 >/dev/null 2>&1 &
hears=$!
# A process that still writes there may be just about to end, so the removal is repeated.
trap 'trap "" HUP INT TERM PIPE; kill $hears; for try in 1 2 3 4 5; do rm -rf -- "$own" && break; sleep 0.3; done' EXIT; trap 'exit 1' HUP INT TERM PIPE
export own wanted="$*"
# tar runs this text once for each file of the archive, with that file as input.
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
