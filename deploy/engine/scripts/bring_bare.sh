#!/bin/sh
# bring-bare DIGEST OWN SAME: installs Muster's engine, whose containers are processes of the login, on this host. Standard
# input has its modules by their names (JSON), with the digest DIGEST. They go below ~/.muster/bin, with the program
# `docker`; that folder is the last one in the PATH of Muster's commands. The engine runs with the Python OWN in
# ~/.muster/python if that was installed (bring-python), else, if SAME is empty, with the first suitable Python in PATH, newest
# first.
# Prints `ready`; `noexec` if no program in the home can start; or `machine` and `old`: the processor, and a Python that
# is too old.
umask 077
place=$HOME/.muster/bin found= old= names='python3.14 python3.13 python3.12 python3.11 python3'
[ -z "$3" ] || names=
for name in "$HOME/.muster/python/$2/bin/python3" $names; do
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
# If another start has installed a folder of this name meanwhile, it has the same content.
printf '#!/bin/sh\nexec "%s" -I -S -c "import sys; sys.path.insert(0, sys.argv.pop(1)); from bare.main import main; sys.exit(main())" "%s" "$@"\n' \
    "$found" "$place/$1" >"$place/.docker.$$" && chmod 700 "$place/.docker.$$" || exit
# A new engine that cannot make an image does not replace the old one: that would end a run that is at work.
"$place/.docker.$$" image add muster-bare:python "" && mv -f -- "$place/.docker.$$" "$place/docker" && echo ready; code=$?
rm -f -- "$place/.docker.$$"
# Keep other versions for a week: one of their commands may still run, and start itself again from its own folder.
find "$place" -mindepth 1 -maxdepth 1 ! -name docker ! -name "$1" -mtime +7 -exec rm -rf -- {} +
[ "$code" -ne 126 ] || { echo noexec; exit; }
exit "$code"
