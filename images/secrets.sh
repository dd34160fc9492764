#!/bin/bash
# Prints `docker build` options, one a line: this machine's certificates and pip settings as build secrets (a company's
# authority, its package index). They pass through the build and stay out of the image.
for file in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    [ -s "$file" ] && { echo "--secret=id=ca,src=$file"; break; }
done
for file in "${PIP_CONFIG_FILE:-}" "$HOME/Library/Application Support/pip/pip.conf" \
    "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf" /etc/pip.conf; do
    [ -s "$file" ] && { echo "--secret=id=pip_conf,src=$file"; break; }
done
exit 0
