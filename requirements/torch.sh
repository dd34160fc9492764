#!/bin/sh
# Installs the build of the pinned torch for this machine into an environment: requirements/torch.sh PYTHON [auto|cpu]
#
# For x86-64 Linux, pip's default is the CUDA build, which has several GB. uv knows PyTorch's own indexes and looks for
# a GPU (`auto`). A wheel on this machine, or the index in TORCH_INDEX, is used first; plain pip is the last resort.
set -eu
python=$1
backend=${2:-auto}
here=$(cd "$(dirname "$0")" && pwd)
lock=$here/torch.txt
scratch=

say() { echo "$*" >&2; }

pip() { "$python" -m pip --disable-pip-version-check "$@"; }

# setting VARIABLE NAME: the user's setting for pip, from a variable or from pip's configuration
setting() { eval "printf %s \"\${$1:-}\"" | grep . || pip config get "global.$2" 2>/dev/null || true; }

# Finds a uv on this machine, or downloads the locked version for this call only.
find_uv() {
    if [ -x "${python%/*}/uv" ]; then
        uv=${python%/*}/uv
    elif command -v uv >/dev/null && uv pip install --help 2>&1 | grep -q -e --torch-backend; then
        uv=uv
    else
        say "fetching uv, which finds the build of torch for this machine (20 MB)"
        scratch=$(mktemp -d)
        trap 'rm -rf "$scratch"' EXIT
        pip install --quiet --require-hashes --no-deps --target "$scratch" -r "$here/uv.txt" >/dev/null 2>&1 || return 1
        uv=$scratch/bin/uv
    fi
}

uv_pip() { "$uv" pip install --python "$python" --torch-backend "$backend" -r "$lock" "$@"; }

if pip install --quiet --dry-run --no-index --no-deps --find-links "$here/wheels" -r "$lock" >/dev/null 2>&1; then
    "$python" -c 'import sys; from importlib.util import find_spec; sys.exit(bool(find_spec("torch")))' &&
        say "installing torch from a wheel on this machine (20 s, once)"
    pip install --quiet --find-links "$here/wheels" -r "$lock"
    exit
fi
if [ -n "${TORCH_INDEX:-}" ]; then
    say "installing torch, with TORCH_INDEX"
    pip install --quiet --extra-index-url "$TORCH_INDEX" -r "$lock"
    exit
fi

# uv does not read pip's settings, but behind a company's proxy it needs them too.
SSL_CERT_FILE=${SSL_CERT_FILE:-$(setting PIP_CERT cert)}
UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$(setting PIP_INDEX_URL index-url)}
[ -z "$SSL_CERT_FILE" ] || export SSL_CERT_FILE
[ -z "$UV_DEFAULT_INDEX" ] || export UV_DEFAULT_INDEX

if ! find_uv; then
    why="uv cannot be installed here"
elif plan=$(uv_pip --dry-run 2>&1); then
    build=$(printf '%s\n' "$plan" | sed -n 's/^ *+ torch==//p')
    # Times at 30 Mbit/s. The sizes are those of torch 2.13 for x86-64 Linux; other machines download less.
    case $build in
    '') ;;
    *+cu* | *+rocm* | *+xpu*) say "installing torch $build for this machine's GPU (several GB: 15 minutes or more, once)" ;;
    *) say "installing torch $build without CUDA (200 MB: about a minute, once)" ;;
    esac
    uv_pip
    exit
else
    why=$(printf '%s\n' "$plan" | grep . | tail -n 1)
    why="uv cannot reach PyTorch's index: ${why#*cause: }"
fi
say "$why"
say "installing torch's default build with pip: on x86-64 Linux it has CUDA (several GB: 15 minutes or more, once)"
say "hint: Ctrl-C, then set TORCH_INDEX to an index with CPU builds, or put a wheel of torch into requirements/wheels/"
pip install -r "$lock"
