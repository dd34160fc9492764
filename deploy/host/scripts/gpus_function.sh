#!/bin/sh
# gpus: a line `gpu CELLS` for each GPU, with the columns $columns; without nvidia-smi none, or a fault where NVIDIA's device is.
# ask OPTION...: sets $answer and $code to the words and the code of nvidia-smi; 124 after $patience seconds. A driver that hangs makes
# it hang too, often where no signal ends it: so its words are waited for, and not its end.
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
        # Of its devices with a screen or none (class 03): NVIDIA makes bridges of Grace and Jetson as well.
        ! grep -qs 'v000010DE.*bc03' /sys/bus/pci/devices/*/modalias || echo "gpu-error an NVIDIA device is there, nvidia-smi is not"
        return
    fi
    ask "--query-gpu=$columns"
    printf '%s\n' "$answer" | sed 's/^/gpu /'
    [ "$code" -eq 0 ] || echo "gpu-code $code"
}
