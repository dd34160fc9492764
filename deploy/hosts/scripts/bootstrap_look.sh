#!/bin/sh
# bootstrap-look: prints what the host has of what containers need, one word on each line, some with a value.
# The engine that Muster brought (engine/install_bare.py) does not count as the host's.
PATH=${PATH%":$HOME/.muster/bin"}:/usr/sbin:/sbin; export LC_ALL=C
# shellcheck disable=SC1091  # the host's own
[ ! -r /etc/os-release ] || ( . /etc/os-release; echo "os ${ID:-}"; echo "release ${VERSION_ID:-}" )
echo "uid $(id -u)"; echo "user $(id -un)"
sudo=; if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then echo sudo; sudo="sudo -n"; fi
id -nG | tr ' ' '\n' | grep -qx docker && echo member
[ ! -d /run/systemd/system ] || echo systemd
command -v dockerd >/dev/null && echo dockerd
if command -v docker >/dev/null; then
    echo client
    case "$(docker info --format '{{.SecurityOptions}}' 2>/dev/null)" in *name=rootless*) echo rootless;; esac
    if $sudo docker version >/dev/null 2>&1; then echo answers; echo "running $($sudo docker ps -q | wc -l)"; fi
fi
for device in /sys/bus/pci/devices/*; do
    case "$(cat "$device/vendor" "$device/class" 2>/dev/null | tr -d '\n')" in 0x10de0x03*) echo gpu;; esac
done | head -n 1
[ ! -e /proc/driver/nvidia/version ] || echo driver
command -v nvidia-container-runtime-hook >/dev/null && echo toolkit
apt-cache policy nvidia-container-toolkit 2>/dev/null | grep -q 'Candidate: [^(]' && echo toolkit-package
exit 0
