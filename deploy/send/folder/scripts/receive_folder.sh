#!/bin/sh
# receive-folder NAME LISTING BELOW OLD...: make the folder NAME, DIGEST or data/DIGEST, from a tar stream. In the stream, `files/`
# has the new files; `gone` lists the paths to remove first, each followed by a NUL; and `whole` is the last entry, so a stream
# without it was cut. BELOW: the DIGEST of the folder that the changes apply to; if empty, the stream has all files, and their
# listing must be LISTING. OLD: DIGESTs of folders that this one replaces.
# The caller holds the host's lock: nothing else works here. A folder gets the name DIGEST only when it is complete. First everything
# arrives over the network; the steps after that take almost no time, and continue even if the client ends.
. ./folders_function.sh
. ./listing_function.sh
case $1 in data/*) place data ;; *) place folders ;; esac
digest=${1#data/} want=$2 below=$3 coming=.coming.${1#data/}; shift 3
# shellcheck disable=SC2317,SC2329  # the trap calls it
end() { code=$?; cd -- "$folders" && rm -rf -- .coming.*; exit "$code"; }
trap end EXIT; trap 'exit 1' HUP INT TERM PIPE
rm -rf -- .coming.* && mkdir -- "$coming" || exit
# Containers run by another user read these files; only this user can reach them by this path.
(umask 022 && mkdir -- "$coming/files") || exit
# Docker takes longer to answer than a small change takes to arrive.
asking=''; [ -z "$below" ] || { in_use "$below" & asking=$!; }
# With this variable GNU's tar writes most files in one piece, otherwise in steps of 10 KB. Other tars do not read it.
TAR_OPTIONS="${TAR_OPTIONS-} --blocking-factor=128"; export TAR_OPTIONS
# `head` stops reading after a few errors, and so tar ends: on a full disk it would read the rest and print each file's name.
words=$(umask 022; { tar -C "$coming" -xof - 2>&1 || echo "tar ended with $?"; } | head -n 5)
case $words in *"tar ended with "*) whole='' ;; *) whole=$coming/whole ;; esac
[ -e "$whole" ] || { printf '%s\n' "$words" "not all of the folder arrived" >&2; exit 1; }
trap '' HUP INT TERM PIPE
if [ -z "$below" ]; then
    [ "$(listing "$coming/files")" = "$want" ] || { echo "what arrived is not what was sent" >&2; exit 1; }
    mv -- "$coming/files" "$coming/new" || exit
else
    # A folder that a container uses is never changed, because its run may start from it again.
    if wait "$asking"; then cp -al -- "$below" "$coming/new"; else mv -- "$below" "$coming/new"; fi || exit
    (cd -- "$coming/new" && xargs -0 rm -rf -- <../gone) && cp -al -- "$coming/files/." "$coming/new/" || exit
fi
rm -rf -- "./$digest" && mv -- "$coming/new" "$digest" && touch -- "./$digest" || exit
for old; do [ ! -d "$old" ] || in_use "$old" || rm -rf -- "./$old"; done
