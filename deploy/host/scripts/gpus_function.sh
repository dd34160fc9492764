#!/bin/sh
# gpus: prints a line `gpu CELLS` for each GPU, with the columns $columns; without nvidia-smi nothing, or a fault if the host has
# an NVIDIA device. ask OPTION...: sets $answer and $code to nvidia-smi's output and exit code; 124 after $patience seconds. If
# the driver hangs, so does nvidia-smi, often so that no signal ends it: the script therefore waits for its output, not for its
# end.
# shellcheck disable=SC2154,SC2016  # the script that includes this sets them; the inner shell expands it
ask() {
    answer=$(timeout "$patience" sh -c 'nvidia-smi "$@" --format=csv,noheader,nounits 2>&1; echo "code $?"' - "$@" |
        timeout "$patience" cat)
    case $answer in *"code "*) ;; *) answer="${answer}code 124" ;; esac
    code=${answer##*code } answer=${answer%code *}
}
gpus() {
    code=
    if ! command -v nvidia-smi >/dev/null 2>&1; then
        # Only display controllers (class 03) count: NVIDIA also makes the bridges of Grace and Jetson.
        ! grep -qs 'v000010DE.*bc03' /sys/bus/pci/devices/*/modalias || echo "gpu-error an NVIDIA device is there, nvidia-smi is not"
        return
    fi
    ask "--query-gpu=$columns"
    printf '%s\n' "$answer" | sed 's/^/gpu /'
    [ "$code" -eq 0 ] || echo "gpu-code $code"
}
