#!/bin/sh
# clean-list: lists what Muster keeps in the home, for host/leftovers.py: `now SECONDS`, `user NAME`, and a line `KIND NAME
# SECONDS KILOBYTES` for each run, cache, folder and data. SECONDS is the time of its last change; for data, of its last use. Also
# a line `pushed TAG TIME` for each image that we pushed: an engine knows neither whose an image is, nor since when it has it.
. ./reading.sh
limit=$(command -v timeout) && limit="$limit 60"
size() { $limit du -sk -- "$1" 2>/dev/null | cut -f 1; }
echo "now $(date +%s)"; echo "user $(id -un)"
[ -z "$runs" ] || for run in "$runs"/*; do
    run=${run##*/}
    plain "$run" && enter "$run" || continue
    # A folder's own time does not change when something deeper in it is written.
    changed=$($limit find -P . -maxdepth 2 -exec stat -c %Y -- {} + 2>/dev/null | sort -n | tail -n 1)
    echo "runs $run ${changed:-0} $(size .)"
done
if cache=$(cd -P -- "$HOME/.muster/cache" 2>/dev/null && env pwd -P); then
    for place in "$cache"/*/*; do
        uid=${place%/*} name=${place##*/}; uid=${uid##*/}
        plain "$uid" && plain "$name" && [ ! -L "$cache/$uid" ] && [ ! -L "$place" ] && [ -d "$place" ] || continue
        echo "caches $uid/$name $(stat -c %Y -- "$place") $(size "$place")"
    done
fi
# The folders of pushes and data, as receive-folder names them. A name with a dot was left by a push that was cut off.
for kind in folders data; do
    place=$(cd -P -- "$HOME/.muster/$kind/$(uname -n)" 2>/dev/null && env pwd -P) || continue
    for folder in "$place"/* "$place"/.coming.*; do
        name=${folder##*/}; name=${name#.}
        plain "$name" && [ ! -L "$folder" ] && [ -d "$folder" ] || continue
        echo "$kind $name $(stat -c %Z -- "$folder") $(size "$folder")"
    done
done
# The files of a host with another name: this host under its earlier name, or a host that shares the home.
for kind in bare folders data; do
    for place in "$HOME/.muster/$kind"/*; do
        name=${place##*/}
        plain "$name" && [ "$name" != "$(uname -n)" ] && [ ! -L "$place" ] && [ -d "$place" ] || continue
        echo "elsewhere $kind/$name $(stat -c %Y -- "$place" "$place"/* 2>/dev/null | sort -n | tail -n 1) $(size "$place")"
    done
done
# The pieces of a push that was cut off; the next push uses them.
road=$HOME/.muster/road/$(uname -n)/pieces
if [ ! -L "$road" ] && [ -n "$(ls -A -- "$road" 2>/dev/null)" ]; then
    echo "folders road $(stat -c %Z -- "$road") $(size "$road")"
fi
sed -nE 's/^([^ ]+) [^ ]+ from [^ ]*: pushed ([a-z0-9][A-Za-z0-9._:/-]*): .*/pushed \2 \1/p' "$HOME/.muster/audit.log" 2>/dev/null |
    tail -n 2000
