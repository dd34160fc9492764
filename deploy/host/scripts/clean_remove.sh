#!/bin/sh
# clean-remove KIND NAME...: removes these of ours, and answers `removed NAME`, `used NAME` if a container has it, or `failed NAME`.
# It looks again at each: something may have started since it was listed.
. ./reading.sh
. ./ours.sh
kind=$1 user=$(id -un); shift
running() {
    containers=$(ours "$1") || return 0
    # shellcheck disable=SC2086  # one word for each container
    [ -n "$containers" ] && docker inspect --format '{{.State.Running}}' $containers 2>/dev/null | grep -q true
}
folder() {
    plain "$1" || return
    running "$1" && return 3
    # shellcheck disable=SC2046  # one word for each container
    [ -z "$(ours "$1")" ] || docker rm --volumes $(ours "$1") >/dev/null || return
    [ ! -L "$runs/$1" ] && enter "$1" && cd -- "$runs" && rm -rf -- "./$1"
}
cached() {
    uid=${1%%/*} place=${1#*/}
    [ "$(docker volume inspect --format '{{index .Labels "muster.user"}}' "$1" 2>/dev/null)" != "$user" ] || { volume "$1"; return; }
    plain "$uid" && plain "$place" || return
    running "" && return 3
    cd -P -- "$HOME/.muster/cache" && [ ! -L "$uid" ] && cd -- "./$uid" && [ ! -L "$place" ] && rm -rf -- "./$place"
}
volume() {
    [ "$(docker volume inspect --format '{{index .Labels "muster.user"}}' "$1" 2>/dev/null)" = "$user" ] || return
    [ -z "$(docker ps --all --quiet --filter "volume=$1")" ] || return 3
    docker volume rm "$1" >/dev/null
}
sent() {
    plain "$1" || return
    have=$(docker ps --all --format '{{.Label "muster.folder"}} {{.Label "muster.code"}}') || return
    case $have in *"${1#coming.}"*) return 3 ;; esac
    cd -P -- "$HOME/.muster/folders/$(uname -n)" || return
    case $1 in coming.*) set -- ".$1" ;; esac
    [ ! -L "$1" ] && rm -rf -- "./$1"
}
image() {
    [ -n "$(docker image inspect --format '{{index .Config.Labels "muster.image"}}' "$1" 2>/dev/null)" ] || return
    [ -z "$(docker ps --all --quiet --filter "ancestor=$1")" ] || return 3
    docker image rm "$1" >/dev/null
}
for name; do
    case $kind in
    runs) folder "$name" ;;
    caches) cached "$name" ;;
    folders) (sent "$name") ;;
    packages) volume "$name" ;;
    images) image "$name" ;;
    *) false ;;
    esac
    case $? in 0) echo "removed $name" ;; 3) echo "used $name" ;; *) echo "failed $name" ;; esac
done
