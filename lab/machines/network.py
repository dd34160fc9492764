"""Rows about cards, routes, firewalls, names and devices on the path. Faults first, then oddities."""

from lab.machines.row import (
    AT,
    GIVE,
    HUNG_UP,
    KEEP,
    OWN,
    QUIET,
    REJECTED,
    SILENT,
    STOP,
    firewall,
    kernel,
    loop,
    row,
    runtime,
    server,
)

row(
    "a network of containers is a /8, and the hosts' network lies in it",
    "at=$(ip -4 -o address show eth0 | sed "
    "'s/.*inet //; s/[.].*//'); ip link add br-8 type bridge; ip link set br-8 up; ip address add "
    "$at.250.250.1/8 dev br-8",
    "ip link del br-8",
    "address-overlap",
    "other-network",
)
row(
    "a VPN has all private networks, and the host's own is more special",
    "set -e; ip tuntap add dev tun0 mode tun; ip "
    "address add 10.8.0.6/24 dev tun0; ip link set tun0 up; for at in 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16; do ip "
    "route add $at dev tun0; done",
    "ip link del tun0",
    "address-overlap",
    "other-network",
)
row(
    "fail2ban has banned the peer, by a route",
    "ip route add unreachable $PEER/32",
    "ip route del unreachable $PEER/32",
    *SILENT,
    pair=True,
    says=r"unreachable|no route|\broute\b|banned|fail2ban",
)
row(
    "somebody flushed the rules of routing, and with them the one that reads the table",
    "ip rule flush",
    "ip rule add pref 32766 lookup main; ip rule add pref 32767 lookup default",
    *SILENT,
    "ssh-timeout",
    "ssh-silent",
    says=r"timed out|unreach|not reach|no answer|not answer|no route|\brout",
)
row(
    "outgoing calls are led to a proxy on the host",
    "iptables -t nat -I OUTPUT -o eth0 -p tcp -m owner --uid-owner 1000 -j REDIRECT --to-ports 3128",
    "iptables -t nat -D OUTPUT 1",
    "all-ports-rejected",
    "rendezvous-rejected",
    "endpoint-foreign",
    "endpoint-nobody",
    says="refused|redirect|proxy",
    pair=True,
)
kernel(
    "what listens on :: takes no IPv4",
    "net.ipv6.bindv6only=1",
    *REJECTED,
    "family-mixed",
    "endpoint-nobody",
    on=0,
    pair=True,
    says=r"bindv6only|v6.?only|IPv6.only|only (by|on|over)? ?IPv6",
)
row(
    "a guard against leaks of data cuts each connection of SSH after 15 kB",
    "iptables -I INPUT -i eth0 -p tcp --dport "
    "22 -m connbytes --connbytes 15000: --connbytes-dir both --connbytes-mode bytes -j REJECT --reject-with tcp-reset",
    "iptables -D INPUT 1",
    "connection-cut",
    *HUNG_UP,
    says=r"\bcut\b|reset|closed|lost|broken|hung up|\d ?kB",
)
row(
    "parental control ends each connection with the peer every second",
    "export PEER; setsid sh -c 'while sleep 1; do "
    "ss -K -t state established dst $PEER and not \\( sport = :22 or dport = :22 \\); done' </dev/null >/dev/null 2>&1 "
    f"& echo $! >{AT}.pid",
    f"pkill -KILL -s $(cat {AT}.pid)",
    "connection-cut",
    pair=True,
    says=r"\breset\b|\bcut\b|abort|broken pipe|connection\b.{0,40}\b(ended|ends|closed|lost)",
)
row(
    "kube-proxy is gone, and its card still has the host's own address",
    f"at={OWN}; ip link add kube-ipvs0 type bridge; ip address add ${{at%/*}}/32 dev kube-ipvs0",
    "ip link del kube-ipvs0",
    "duplicate-address",
    says=r"kube-ipvs0",
)
row(
    "the router's portal answers each call to the peer in its place",
    f"""cat >/opt/portal.py <<'END'
import socketserver
class Portal(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 302 Found\\r\\nLocation: http://login.router/\\r\\n\\r\\n")
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("", 8081), Portal).serve_forever()
END
setsid python3 /opt/portal.py </dev/null >/dev/null 2>&1 & echo $! >{AT}.pid; sleep 1; kill -0 $(cat {AT}.pid) && """
    "iptables -t nat -I OUTPUT -o eth0 -p tcp -d $PEER ! --dport 22 -j REDIRECT --to-ports 8081",
    f"iptables -t nat -D OUTPUT 1; kill $(cat {AT}.pid); rm /opt/portal.py",
    "endpoint-foreign",
    "connection-cut",
    *SILENT,
    *REJECTED,
    pair=True,
    says=r"portal|HTTP|\b302\b|proxy|redirect|(somebody|something|someone) else|not the (peer|host)|"
    r"(wrong|foreign|unexpected|another) (answer|greeting|host|machine)",
)
server(
    "a login is put into a jail without a network, as firejail does, and has the engine's socket there",
    'ForceCommand exec unshare -c -n bash -c "$SSH_ORIGINAL_COMMAND"',
    causes=("interface-missing", "interface-no-address", "ssh-shell"),
    says=r"network namespace|no (network|card|interface)|only (has )?lo\b|"
    r"ForceCommand|unshare",
)
runtime(
    "the site's runtime hides the cards' folder and the cores from containers, and takes all capabilities",
    'spec["linux"]["maskedPaths"] += ["/sys/class/net", "/proc/cpuinfo", "/sys/devices/system/cpu"]; '
    'spec["process"]["capabilities"] = {}; spec["process"]["noNewPrivileges"] = True',
    "interface-missing",
    "proof-failed",
    says=r"/sys/class/net|cpuinfo|capabilit",
)
row(
    "the address is on an alias of the card, as ifconfig made them",
    f"{KEEP}; ip address flush dev eth0; ip address "
    "add $at brd + dev eth0 label eth0:0; ip route add default via $via dev eth0",
    GIVE,
    "interface-no-address",
    "interface-missing",
    says=r"eth0:0|alias|label",
)
loop(
    "nothing passes for a second of each six, as where Wi-Fi looks for other channels",
    5,
    "iptables -I INPUT -i eth0 -j DROP; iptables -I OUTPUT -o eth0 -j DROP; sleep 1; iptables -D INPUT 1; iptables -D "
    "OUTPUT 1",
    "link-loss",
    "link-delay",
    more_mends="iptables -D INPUT -i eth0 -j DROP; iptables -D OUTPUT -o eth0 -j DROP",
    pair=True,
)
firewall(
    "a guard against floods loses every second first packet of a call: who calls again is let in",
    "filter INPUT -i eth0 -s $PEER -p tcp --syn ! --dport 22 -m statistic --mode nth --every 2 --packet 0 -j DROP",
    causes=("link-loss", "link-delay"),
    on=0,
    says=r"\bhalf\b|\b[0-9]+ of [0-9]+|some (of|calls|connections)",
)
row(
    "the route to the peer allows a window of 20 bytes",
    "ip route add $PEER/32 dev eth0 window 20",
    "ip route del $PEER/32",
    "link-slow",
    "link-delay",
    says=r"window|slow|[kM]i?B/s|[kM]bit",
    pair=True,
)
row(
    "the line of the house: 300 Mbit/s, and 20 ms of what waits",
    "tc qdisc add dev eth0 root tbf rate 300mbit burst 64kb latency 20ms",
    "tc qdisc del dev eth0 root; ip link set eth0 txqueuelen 0",
    "link-slow",
    "link-loss",
    says=r"slow|[kM]i?B/s|[kM]bit",
    pair=True,
)
row(
    "127.0.0.1 was taken from the loopback",
    "ip address del 127.0.0.1/8 dev lo; ip address add 127.0.0.2/32 dev lo",
    "ip address del 127.0.0.2/32 dev lo; ip address add 127.0.0.1/8 dev lo",
    "loopback-silent",
    "name-loopback",
    says=r"127\.0\.0\.1|loopback|\blocalhost\b",
    on=0,
)
row(
    "hardened against small segments: none may be smaller than a packet of 1500 bytes",
    "sysctl -q -w net.ipv4.tcp_min_snd_mss=1500",
    "sysctl -q -w net.ipv4.tcp_min_snd_mss=48",
    "mtu-blackhole",
    "ssh-silent",
    "ssh-timeout",
    "ssh-lost",
    says=r"min_snd_mss|\bMTU\b|\bMSS\b|(large|big) packets",
    pair=True,
)
row(
    "a shaper of packets to the peer whose burst is smaller than a packet",
    "set -e; tc qdisc add dev eth0 root handle 1: htb; tc class add dev eth0 parent 1: classid 1:10 htb rate "
    "1gbit; tc filter add dev eth0 parent 1: protocol ip u32 match ip dst $PEER flowid 1:10; "
    "tc qdisc add dev eth0 parent 1:10 tbf rate 100mbit burst 1000 limit 200000",
    "tc qdisc del dev eth0 root; ip link set eth0 txqueuelen 0",
    "mtu-blackhole",
    says=r"(large|big) packets|\bMTU\b|packets of (more than )?[0-9]+|burst",
    pair=True,
)
row(
    "the card is set to large packets, the switch and the peer are not",
    "ip link set eth0 mtu 9000",
    "ip link set eth0 mtu 1500",
    "mtu-differs",
    pair=True,
)
row(
    "the hosts are joined by a tunnel: the card is called wg0 and has packets of 1280 bytes",
    f"{KEEP}; ip link set "
    "eth0 down; ip link set eth0 name wg0; ip link set wg0 mtu 1280; ip link set wg0 up; ip route add default via $via "
    f"dev wg0",
    f"read -r at via <{AT}.card; ip link set wg0 down; ip link set wg0 name eth0; ip link set eth0 mtu "
    "1500; ip link set eth0 up; ip route add default via $via dev eth0",
    "mtu-differs",
    "interface-missing",
    pair=True,
    says=r"\bMTU\b|1280",
)
row(
    "the host is called by its place in the row, 0017, which is also a way to write an address",
    "uname -n >/run/lab.name; echo 0017 >/proc/sys/kernel/hostname",
    "cat /run/lab.name >/proc/sys/kernel/hostname",
    "name-foreign",
    "name-unresolvable",
    says=r"0\.0\.0\.1[57]|\b0017\b",
)
row(
    "the name server has an answer to every name, always the same",
    "cp /etc/resolv.conf /run/lab.resolv; setsid "
    'python3 -c \'import socket\nat = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nat.bind(("127.0.0.1", 53))\n'
    'while True:\n    asked, caller = at.recvfrom(999)\n    name = asked[12:asked.index(b"\\0", 12) + 5]\n'
    "    four = name[-4:] == bytes((0, 1, 0, 1))\n"
    '    told = bytes((192, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 198, 51, 100, 9)) if four else b""\n'
    "    at.sendto(asked[:2] + bytes((129, 128, 0, 1, 0, four, 0, 0, 0, 0)) + name + told, caller)' "
    f"{QUIET}; echo nameserver 127.0.0.1 >/etc/resolv.conf",
    f"{STOP}; cat /run/lab.resolv >/etc/resolv.conf",
    "name-foreign",
    "peer-name-wrong",
    says=r"198\.51\.100\.9",
)
row(
    "the host is called localhost, and localhost is ::1, and IPv6 is off",
    "uname -n >/run/lab.name; cp /etc/hosts "
    "/run/lab.hosts; echo localhost >/proc/sys/kernel/hostname; echo '::1 localhost' >/etc/hosts",
    "cat /run/lab.name >/proc/sys/kernel/hostname; cat /run/lab.hosts >/etc/hosts",
    "name-loopback",
    "name-unresolvable",
    "family-mixed",
    "loopback-silent",
    says=r"\blocalhost\b|::1",
    on=0,
)
row(
    "the host's name has a space and an umlaut",
    "uname -n >/run/name; printf 'GPU_\\303\\274ber 1' >/proc/sys/kernel/hostname",
    "cat /run/name >/proc/sys/kernel/hostname",
    "name-unresolvable",
)
row(
    "the host's name is a tag of the inventory: 64 letters, as many as there can be",
    "uname -n >/run/lab.name; printf 'gpu-%060d' 7 >/proc/sys/kernel/hostname",
    "cat /run/lab.name >/proc/sys/kernel/hostname",
    "name-unresolvable",
)
row(
    "somebody listens on the port, on the loopback only",
    "setsid nc -lk 127.0.0.1 29500 >/dev/null 2>&1 & sleep 1",
    "pkill -x nc",
    "port-busy",
    on=0,
)
row(
    "a client's connection has the rendezvous's port as its own",
    "ss -K state time-wait sport = :29500; setsid "
    'python3 -c \'import socket, sys, time; kept = socket.create_connection((sys.argv[1], 22), source_address=("", '
    f"29500)); time.sleep(9999)' $PEER {QUIET}; sleep 1; kill -0 $(cat /run/lab.pid)",
    STOP,
    "port-busy",
    says=r"\b29500\b.*(in use|taken|busy|holds?|used)|(in use|taken|busy|holds?|used).*\b29500\b",
    on=0,
)
row(
    "an inspector of packets drops the store's greeting",
    "iptables -I INPUT -i eth0 -p tcp -m string --algo bm --hex-string '|cef7853c|' -j DROP",
    "iptables -D INPUT 1",
    "rendezvous-dropped",
    "connection-cut",
    says=r"TCPStore|the store\b|greeting|inspect",
    on=0,
    pair=True,
)
