#!/bin/sh
# gpus PATIENCE COLUMNS: prints the GPUs, and who holds them.
patience=$1 columns=$2
. ./gpu_use_function.sh
gpu_use
exit 0
