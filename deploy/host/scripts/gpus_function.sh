#!/bin/sh
# gpus: a line `gpu CELLS` for each GPU, with the columns $columns; without nvidia-smi none, or a fault where NVIDIA's device is.
# ask OPTION...: runs nvidia-smi for at most $patience seconds: a driver that hangs makes it hang too.
# shellcheck disable=SC2154  # the script that includes this sets them
ask() { timeout "$patience" nvidia-smi "$@" --format=csv,noheader,nounits 2>&1; }
gpus() {
    if ! command -v nvidia-smi >/dev/null 2>&1; then
        ! grep -qs 0x10de /sys/bus/pci/devices/*/vendor || echo "gpu-error an NVIDIA device is there, nvidia-smi is not"
        return
    fi
    answer=$(ask "--query-gpu=$columns"); code=$?
    printf '%s\n' "$answer" | sed 's/^/gpu /'
    [ "$code" -eq 0 ] || echo "gpu-code $code"
}
