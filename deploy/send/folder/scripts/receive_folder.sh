#!/bin/sh
# receive-folder NAME LISTING BELOW OLD...: makes the folder NAME, DIGEST or data/DIGEST, from a tar stream: `files/` has what is
# new, `gone` the paths that must go first, each with a NUL behind it, and `whole` is its last entry, so a cut stream is no whole
# one. BELOW: the DIGEST of the folder that the changes stand on; empty: the stream has everything, and gives LISTING. OLD: DIGESTs
# that this one replaces.
# The caller holds the host's lock: nothing else works here. Nothing has the name DIGEST before it is whole. All that comes
# over the network comes first; what then happens takes no time to speak of, and no end of the client ends it.
. ./folders_function.sh
. ./listing_function.sh
case $1 in data/*) place data ;; *) place folders ;; esac
digest=${1#data/} want=$2 below=$3 coming=.coming.${1#data/}; shift 3
# shellcheck disable=SC2317,SC2329  # the trap calls it
end() { code=$?; cd -- "$folders" && rm -rf -- .coming.*; exit "$code"; }
trap end EXIT; trap 'exit 1' HUP INT TERM PIPE
rm -rf -- .coming.* && mkdir -- "$coming" || exit
# Containers of another user read it; only we come here.
(umask 022 && mkdir -- "$coming/files") || exit
# Docker takes longer to answer than a small change to arrive.
asking=''; [ -z "$below" ] || { in_use "$below" & asking=$!; }
# GNU's tar then writes most files in one piece; it takes 10 KB otherwise. Others do not read this variable.
TAR_OPTIONS="${TAR_OPTIONS-} --blocking-factor=128"; export TAR_OPTIONS
# After a few faults nobody reads on, and tar ends: on a full disk it would read all that still comes, and name each file.
words=$(umask 022; { tar -C "$coming" -xof - 2>&1 || echo "tar ended with $?"; } | head -n 5)
case $words in *"tar ended with "*) whole='' ;; *) whole=$coming/whole ;; esac
[ -e "$whole" ] || { printf '%s\n' "$words" "not all of the folder arrived" >&2; exit 1; }
trap '' HUP INT TERM PIPE
if [ -z "$below" ]; then
    [ "$(listing "$coming/files")" = "$want" ] || { echo "what arrived is not what was sent" >&2; exit 1; }
    mv -- "$coming/files" "$coming/new" || exit
else
    # A folder that a container has never changes: its run may start again from it.
    if wait "$asking"; then cp -al -- "$below" "$coming/new"; else mv -- "$below" "$coming/new"; fi || exit
    (cd -- "$coming/new" && xargs -0 rm -rf -- <../gone) && cp -al -- "$coming/files/." "$coming/new/" || exit
fi
rm -rf -- "./$digest" && mv -- "$coming/new" "$digest" && touch -- "./$digest" || exit
for old; do [ ! -d "$old" ] || in_use "$old" || rm -rf -- "./$old"; done
