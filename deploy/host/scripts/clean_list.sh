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
    have=$(docker ps --all --format '{{.Label "muster.folder"}} {{.Label "muster.code"}}') || exit
    for folder in "$place"/* "$place"/.coming.*; do
        [ ! -L "$folder" ] && [ -d "$folder" ] || continue
        name=${folder##*/} digest=${folder##*.coming.}
        case $have in *"${digest##*/}"*) used=used ;; *) used=free ;; esac
        echo "folders ${name#.} $(stat -c %Z -- "$folder") $(size "$folder") $used"
    done
fi
user=$(id -un)
# An engine does not know whose an image is, nor since when it has it: ours are those that our own pushes brought.
images=$(sed -nE 's/^([^ ]+) [^ ]+ from [^ ]*: pushed ([a-z0-9][A-Za-z0-9._/:-]*): .*/\2 \1/p' "$HOME/.muster/audit.log" 2>/dev/null |
    awk '{ at[$1] = $2 } END { for (tag in at) print tag, at[tag] }' | while read -r tag time; do
        id=$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null) && echo "$tag $time $id"
    done)
owned() { docker volume inspect --format '{{index .Labels "muster.user"}}' "$1" 2>/dev/null; }
# measure NAME...: the lines `NAME KILOBYTES` of these volumes. The engine itself would count every volume that it has, for
# minutes; so a container of an image of ours counts, as the user whom the volumes belong to.
measure() {
    image=${images##* }
    [ -n "$image" ] || return
    # Tools, and wheels that were built, are root's: send/packages/commands.py.
    for uid in $(printf '%s\n' "$@" | sed -nE 's/^muster-cache-(tools|wheels)-.*/0/p
        s/^muster-(cache-)?packages-([0-9]+)(-[0-9a-f]+)?$/\2/p' | sort -u); do
        whose="(cache-)?packages-$uid"
        [ "$uid" -ne 0 ] || whose="($whose|cache-(tools|wheels)-[0-9]+)"
        mounts=$(printf '%s\n' "$@" | grep -E "^muster-$whose(-[0-9a-f]+)?$" | head -n 200 |
            sed 's|.*|--mount type=volume,source=&,target=/volumes/&,readonly,volume-nocopy|')
        # shellcheck disable=SC2086  # one word for each option
        $limit docker run --rm --network none --pull never --cap-drop ALL --security-opt no-new-privileges --log-driver none \
            --user "$uid:$uid" $mounts --entrypoint du "$image" -k -d 1 /volumes 2>/dev/null </dev/null |
            sed -nE 's|^([0-9]+)[^0-9/]/volumes/([a-z0-9-]+)$|\2 \1|p'
    done
    # A volume that went meanwhile was made again, by the container, and for nobody.
    for name; do [ "$(owned "$name")" = "$user" ] || docker volume rm "$name" >/dev/null 2>&1; done
}
own=$(for label in muster.packages muster.cache; do
    docker volume ls --quiet --filter "label=$label" --filter "label=muster.user=$user"
done)
# What a container has: before ours look into them.
used=$(for name in $own; do [ -z "$(docker ps --all --quiet --filter "volume=$name")" ] || echo " $name "; done)
# shellcheck disable=SC2086  # one word for each volume
sizes=$(measure $own)
for name in $own; do
    case $name in muster-cache-*) kind=caches ;; *) kind=packages ;; esac
    case $used in *" $name "*) state=used ;; *) state=free ;; esac
    made=$(date -d "$(docker volume inspect --format '{{.CreatedAt}}' "$name" 2>/dev/null)" +%s 2>/dev/null)
    echo "$kind $name ${made:-0} $(echo "$sizes" | sed -n "s/^$name //p") $state"
done
[ -z "$images" ] || echo "$images" | while read -r tag time id; do
    [ -z "$(docker ps --all --quiet --filter "ancestor=$id")" ] && used=free || used=used
    made=$(date -d "$time" +%s 2>/dev/null)
    echo "images $tag ${made:-0} $(($(docker image inspect --format '{{.Size}}' "$tag") / 1024)) $used"
done
