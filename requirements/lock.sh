#!/bin/sh
# Locks requirements/*.in again, with the hashes of all files on the index: requirements/lock.sh  (needs uv)
#
# torch is in torch.txt alone, without hashes: the CPU and CUDA builds of a version are different files, and each build
# decides which CUDA packages it needs. So the other locks leave out torch, Triton and these packages.
set -eu
cd "$(dirname "$0")"
trap 'rm -f ./*.new' EXIT

# lock NAME [INPUT...]: write NAME.txt from NAME.in and the other inputs
lock() {
    name=$1
    shift
    command="uv pip compile --universal --fork-strategy fewest --python-version 3.11 --no-annotate --no-header"
    # Not through a pipe, which would hide a failure of uv.
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

# Hosts install packages with the same uv, also from an installed Muster: deploy/send/packages/uv.py.
cp uv.txt ../deploy/send/packages/uv.txt
