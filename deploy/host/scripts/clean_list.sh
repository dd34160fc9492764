#!/bin/sh
# clean-list: what of ours lies on the host. `now SECONDS`, then a line `KIND NAME SECONDS KILOBYTES USED` for each thing: SECONDS
# is the time of its last change (0: unknown), USED says `used` if a container has it. host/leftovers.py reads it.
. ./reading.sh
. ./ours.sh
limit=$(command -v timeout) && limit="$limit 60"
size() { $limit du -sk -- "$1" 2>/dev/null | cut -f 1; }
containers=$(ours "") || exit
# shellcheck disable=SC2086  # one word for each container
folders=$([ -z "$containers" ] || docker inspect --format "{{.State.Running}} $source_folder" $containers 2>/dev/null)
case $folders in *'true "'*) busy=used ;; *) busy=free ;; esac
echo "now $(date +%s)"
[ -z "$runs" ] || for run in "$runs"/*; do
    run=${run##*/}
    plain "$run" && enter "$run" || continue
    case $folders in *"true \"$home/$run\""*) used=used ;; *) used=free ;; esac
    echo "runs $run $(stat -c %Y .) $(size .) $used"
done
if cache=$(cd -P -- "$HOME/.muster/cache" 2>/dev/null && env pwd -P); then
    for uid in "$cache"/*; do
        for place in "$uid"/*; do
            name=${uid##*/}/${place##*/}
            plain "${uid##*/}" && plain "${place##*/}" && [ ! -L "$uid" ] && [ ! -L "$place" ] && [ -d "$place" ] || continue
            echo "caches $name $(stat -c %Y -- "$place") $(size "$place") $busy"
        done
    done
fi
# The folders of pushes, as receive-folder has them. One with a dot was left by a push that was cut.
if place=$(cd -P -- "$HOME/.muster/folders/$(uname -n)" 2>/dev/null && env pwd -P); then
    for folder in "$place"/* "$place"/.coming.*; do
        [ ! -L "$folder" ] && [ -d "$folder" ] || continue
        name=${folder##*/} digest=${folder##*.coming.}
        [ -z "$(docker ps --all --quiet --filter "label=muster.folder=${digest##*/}")" ] && used=free || used=used
        echo "folders ${name#.} $(stat -c %Z -- "$folder") $(size "$folder") $used"
    done
fi
user=$(id -un)
volumes() {
    docker volume ls --quiet --filter "label=$2" --filter "label=muster.user=$user" | while read -r name; do
        [ -z "$(docker ps --all --quiet --filter "volume=$name")" ] && used=free || used=used
        # The engine counts bytes only for all volumes at once, which takes minutes: their size stays unknown.
        made=$(date -d "$(docker volume inspect --format '{{.CreatedAt}}' "$name" 2>/dev/null)" +%s 2>/dev/null)
        echo "$1 $name ${made:-0} 0 $used"
    done
}
volumes packages muster.packages
volumes caches muster.cache
# An engine does not know whose an image is, nor since when it has it: ours are those that our own pushes brought.
sed -nE 's/^([^ ]+) [^ ]+ from [^ ]*: pushed ([a-z0-9][A-Za-z0-9._/:-]*): .*/\2 \1/p' "$HOME/.muster/audit.log" 2>/dev/null |
    awk '{ at[$1] = $2 } END { for (tag in at) print tag, at[tag] }' | while read -r tag time; do
        id=$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null) || continue
        [ -z "$(docker ps --all --quiet --filter "ancestor=$id")" ] && used=free || used=used
        made=$(date -d "$time" +%s 2>/dev/null)
        echo "images $tag ${made:-0} $(($(docker image inspect --format '{{.Size}}' "$tag") / 1024)) $used"
    done
