#!/bin/sh
# ask OPTION...: nvidia-smi, for $patience seconds: a driver that hangs takes it along. gpus: a line `gpu CELLS` for each,
# with the columns $columns.
# shellcheck disable=SC2154  # whoever includes this sets them
ask() { timeout "$patience" nvidia-smi "$@" --format=csv,noheader,nounits 2>&1; }
gpus() {
    if ! command -v nvidia-smi >/dev/null 2>&1; then
        ! grep -qs 0x10de /sys/bus/pci/devices/*/vendor || echo "gpu-said an NVIDIA device is there, nvidia-smi is not"
        return
    fi
    said=$(ask "--query-gpu=$columns"); code=$?
    printf '%s\n' "$said" | sed 's/^/gpu /'
    [ "$code" -eq 0 ] || echo "gpu-code $code"
}
