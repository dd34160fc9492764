#!/bin/sh
# rehearse FOLDER OWNER KEEP COMMAND...: makes FOLDER as start.sh makes a run's folder, with a file `here` in it, runs COMMAND,
# and removes FOLDER. KEEP: the paths, one on each line, that COMMAND mounts from below FOLDER/keep. The first line of standard
# input goes to COMMAND's descriptor 3; the rest is its standard input, whose end ends it, so nothing stays once the caller is
# gone. COMMAND also mounts $claim, as a run mounts its claim: an engine may see another /var/tmp.
folder=$1 owner=$2 keep=$3 claim=/var/tmp/muster-claims.${1##*/.}; shift 3
IFS= read -r variables || exit
umask 077
(set -C; : >"$claim") || exit
trap 'rm -rf -- "$folder" "$claim"' EXIT; trap 'exit 1' HUP INT TERM PIPE
mkdir -p -- "${folder%/*}" && mkdir -- "$folder" && : >"$folder/here" || exit
# Remove what was left if the host went down in the middle of a rehearsal.
find "${folder%/*}" /var/tmp/ -maxdepth 1 \( -name '.rehearsal-*' -o -name 'muster-claims.rehearsal-*' \) -mmin +60 -exec rm -rf -- {} + 2>/dev/null
printf '%s\n' "$keep" | while read -r path; do
    [ -z "$path" ] || mkdir -p -- "$folder/keep$path" || exit
done || exit
[ -z "$owner" ] || chown -hR -- "$owner" "$folder" || exit
exec 4<&0
echo "$variables" | base64 -d | "$@" 3<&0 <&4
