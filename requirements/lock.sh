#!/bin/sh
# Locks requirements/*.in again, with the hashes of every file that an index offers: requirements/lock.sh  (needs uv)
#
# torch stands alone in torch.txt, without hashes: the CPU and CUDA builds of one version are different files, and which
# CUDA packages a build needs is for that build to say. So the lock of what stands beside it leaves those out.
set -eu
cd "$(dirname "$0")"
trap 'rm -f ./*.new' EXIT

# lock NAME [INPUT...]: NAME.txt from NAME.in and the others
lock() {
    name=$1
    shift
    command="uv pip compile --universal --fork-strategy fewest --python-version 3.11 --no-annotate --no-header"
    # Not through a pipe, which would hide that uv failed.
    $command --quiet --generate-hashes "$name.in" "$@" >"$name.all.new"
    {
        echo "# Locked from $name.in by requirements/lock.sh"
        awk '/^[a-z]/ { skip = /^(torch==|triton==|nvidia-(cu|nccl|nv)|cuda-)/ } !skip && !/^--/' "$name.all.new"
    } >"$name.txt.new"
    mv "$name.txt.new" "$name.txt"
}

lock control
lock trainer torch.in
lock dev
lock docs
lock uv
lock bench

# Hosts install packages with the same one, also for an installed Muster: deploy/send/packages/uv.py.
cp uv.txt ../deploy/send/packages/uv.txt
