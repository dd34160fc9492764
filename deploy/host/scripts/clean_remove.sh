#!/bin/sh
# clean-remove KIND NAME: removes a cache (UID/PLACE), a push's folder or data from the home, without following links.
. ./reading.sh
case $1 in
caches)
    uid=${2%%/*} place=${2#*/}
    plain "$uid" && plain "$place" && cd -P -- "$HOME/.muster/cache" && [ ! -L "$uid" ] && cd -- "./$uid" || exit ;;
folders | data)
    [ "$1 $2" != "folders road" ] || { cd -P -- "$HOME/.muster/road/$(uname -n)" && rm -rf -- ./pieces; exit; }
    place=$2
    plain "$place" && cd -P -- "$HOME/.muster/$1/$(uname -n)" || exit
    case $place in coming.*) place=.$place ;; esac ;;
*) exit 1 ;;
esac
[ ! -L "$place" ] && rm -rf -- "./$place"
