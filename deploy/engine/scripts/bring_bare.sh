#!/bin/sh
# bring-bare DIGEST OWN: makes this host's own engine, whose containers are processes of the login: puts its modules, which are on
# standard input by their names (JSON) and have the digest DIGEST, below ~/.muster/bin, and writes the program `docker` there, which
# the PATH of our commands ends with. It runs by the Python OWN of ~/.muster/python where that was brought (bring-python), else by the
# newest one of the PATH.
# Says `ready`; `noexec` where no program of the home starts; or `machine` and `old`: its processor, a Python that is too old.
umask 077
place=$HOME/.muster/bin found= old=
for name in "$HOME/.muster/python/$2/bin/python3" python3.14 python3.13 python3.12 python3.11 python3; do
    # shellcheck disable=SC2016  # Python reads it
    found=$(command -v "$name") && "$found" -I -S -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    [ -z "$found" ] || old=$("$found" -V 2>&1)
    found=
done
[ -n "$found" ] || { echo "machine $(uname -m)"; echo "old $old"; exit; }
mkdir -p -- "$place" || exit
[ -d "$place/$1" ] || {
    part=$(mktemp -d "$place/.coming.XXXXXX") || exit
    mkdir -- "$part/bare" && (cd -- "$part/bare" && "$found" -I -S -c \
        'import json, sys; [open(name, "w").write(text) for name, text in json.load(sys.stdin).items()]') &&
        mv -- "$part" "$place/$1" || { rm -rf -- "$part"; exit 1; }
}
# Beside it nothing may stand: a folder of this name that another start brought is the same.
printf '#!/bin/sh\nexec "%s" -I -S -c "import sys; sys.path.insert(0, sys.argv.pop(1)); from bare.main import main; sys.exit(main())" "%s" "$@"\n' \
    "$found" "$place/$1" >"$place/.docker.$$" && chmod 700 "$place/.docker.$$" || exit
# One that makes no image takes no other's place: a run may be at work, which is ended by that.
"$place/.docker.$$" image add muster-bare:python "" && mv -f -- "$place/.docker.$$" "$place/docker" && echo ready; code=$?
rm -f -- "$place/.docker.$$"
# A command of another version may be at work, and starts itself from its own.
find "$place" -mindepth 1 -maxdepth 1 ! -name docker ! -name "$1" -mtime +7 -exec rm -rf -- {} +
[ "$code" -ne 126 ] || { echo noexec; exit; }
exit "$code"
