#!/bin/sh
# rehearse FOLDER OWNER KEEP COMMAND...: makes FOLDER as start.sh makes a run's, with a file `here` in it, runs COMMAND, and
# removes FOLDER. KEEP: paths, one a line, that COMMAND mounts from below FOLDER/keep. The first line of standard input goes to COMMAND's descriptor 3; the
# rest is its standard input, whose end ends it: so nothing stays when nobody waits any more.
folder=$1 owner=$2 keep=$3; shift 3
. ./claims_function.sh
IFS= read -r variables || exit
# COMMAND mounts it, as a run's does; and Docker follows a link that another user has put there.
# shellcheck disable=SC2154  # claims_function.sh sets it
share_claims || { echo "error: $claims is not a folder that all users share: look at it: ls -ld $claims" >&2; exit 1; }
umask 077
trap 'rm -rf -- "$folder"' EXIT; trap 'exit 1' HUP INT TERM PIPE
mkdir -p -- "${folder%/*}" && mkdir -- "$folder" && : >"$folder/here" || exit
# What a host left that went down in the middle of a rehearsal.
find "${folder%/*}" -maxdepth 1 -name '.rehearsal-*' -mmin +60 -exec rm -rf -- {} + 2>/dev/null
printf '%s\n' "$keep" | while read -r path; do
    [ -z "$path" ] || mkdir -p -- "$folder/keep$path" || exit
done || exit
[ -z "$owner" ] || chown -hR -- "$owner" "$folder" || exit
exec 4<&0
echo "$variables" | base64 -d | "$@" 3<&0 <&4
