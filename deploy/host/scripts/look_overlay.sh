#!/bin/sh
# look-overlay: prints, for host/networks.py, whether the host has /dev/net/tun, which networks it knows, which UDP ports are in
# use, and how long a packet may be.
[ ! -c /dev/net/tun ] || echo tun
sed '1d; s/^/route /' /proc/net/route
cat /proc/net/udp /proc/net/udp6 2>/dev/null | sed 's/^/udp /'
for file in /sys/class/net/*/mtu; do
    name=${file%/mtu}; echo "mtu ${name##*/} $(cat "$file" 2>/dev/null)"
done
