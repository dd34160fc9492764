#!/bin/sh
# hangs SECONDS: shows which of the folders that each command needs do not answer. It prints a line `mount TYPE AT` for
# each network or FUSE file system; then `folder N PATH` for each folder, and `all` after the last one. Within SECONDS,
# each folder that answers adds, in any order, `answers N` and its line of `ls -ld` (if it exists). A folder in the PATH
# may hang, so this script sets its own PATH. Separate processes without children try each folder; those that still hang
# after SECONDS are killed.
path=$PATH PATH=/usr/bin:/bin
while read -r _ at type _; do
    case $type in nfs* | cifs | smb* | fuse* | autofs | 9p | ceph | lustre | gluster* | afs | beegfs | gpfs) echo "mount $type $at" ;; esac
done </proc/mounts
set -f; IFS=:; n=0 asking=
for folder in "$HOME" "$HOME/.muster" "$HOME/.muster/runs" $path; do
    case $folder in /*) ;; *) continue ;; esac
    echo "folder $n $folder"
    (exec ls -ld "$folder") </dev/null 2>/dev/null & asking="$asking$!:"
    (cd "$folder" && [ -e ./muster ]; echo "answers $n") </dev/null 2>/dev/null & asking="$asking$!:"
    n=$((n + 1))
done
echo all
sleep "$1"
for pid in $asking; do kill -9 "$pid"; done 2>/dev/null
