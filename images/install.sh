#!/bin/sh
# Runs inside the build, as root: installs the init process, the virtual environment, the user and the folders.
#   install.sh [--torch-from-base]     /build/requirements holds trainer.txt, torch.txt, torch.sh, uv.txt and, for air-gapped builds, wheels/
# Optional secrets: `ca` (a company's certificate authorities), `pip_conf` (its package index). Neither stays in the image.
set -eu
lock=/build/requirements/trainer.txt
wheels=/build/requirements/wheels

if [ -s /run/secrets/ca ]; then
    export PIP_CERT=/run/secrets/ca SSL_CERT_FILE=/run/secrets/ca
fi
if [ -s /run/secrets/pip_conf ]; then
    export PIP_CONFIG_FILE=/run/secrets/pip_conf
fi
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# An init process reaps orphaned processes of torchrun's children and passes SIGTERM on. With it in the image, a plain
# `docker run` needs no --init.
if ! command -v tini >/dev/null; then
    apt="apt-get -qq ${SSL_CERT_FILE:+-o Acquire::https::CAInfo=$SSL_CERT_FILE}"
    $apt update
    $apt install -y --no-install-recommends tini
    rm -rf /var/lib/apt/lists/*
fi

# A separate virtual environment: the base's packages are visible in it, but never replaced.
if [ "${1:-}" = --torch-from-base ]; then
    python3 -c 'import importlib.metadata as m; print("torch of the base image:", m.version("torch"))'
    python3 -m venv --system-site-packages --without-pip /venv
    python3 -m pip --python /venv/bin/python install --no-deps --require-hashes --find-links "$wheels" -r "$lock"
else
    python3 -m venv /venv
    /venv/bin/pip install --require-hashes --find-links "$wheels" -r "$lock"
    sh /build/requirements/torch.sh /venv/bin/python cpu
    # Remove torch's own compiled tests, which are a tenth of the image.
    rm -rf /venv/lib/python3*/site-packages/torch/test
fi

# Slim images have the standard library without bytecode, and the user below cannot write it: compile it here, once.
/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))' |
    xargs /venv/bin/python -m compileall -q -x 'site-packages|dist-packages|/test' || true

# Any uid may run this image (compose passes the caller's), so what must be writable is open to all, like /tmp.
# Ubuntu's own image has a user with uid 1000. Mounted folders most often belong to that uid, so that user is removed.
taken=$(getent passwd 1000 | cut -d: -f1)
[ -z "$taken" ] || userdel "$taken"
useradd --uid 1000 --user-group --home-dir /home/muster --create-home muster
mkdir -p /muster/runs
chmod 1777 /home/muster /muster/runs
