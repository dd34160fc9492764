#!/bin/bash
# Prints `docker build` options, one per line, that pass this machine's certificates and pip settings as build secrets
# (a company's authority, its package index). The build can use them, and they do not stay in the image.
for file in "${PIP_CONFIG_FILE:-}" "$HOME/Library/Application Support/pip/pip.conf" \
    "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf" /etc/pip.conf; do
    [ -s "$file" ] && { echo "--secret=id=pip_conf,src=$file"; break; }
    file=
done
# The same order as in deploy/send/packages/settings.py.
cert=${file:+$(sed -n 's/^[[:space:]]*cert[[:space:]]*[=:][[:space:]]*//p' "$file" | tail -n 1)}
for file in "${PIP_CERT:-}" "${cert/#\~/$HOME}" "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" \
    /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    [ -s "$file" ] && { echo "--secret=id=ca,src=$file"; break; }
done
exit 0
