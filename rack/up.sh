#!/bin/bash
# `make rack`: starts containers on a network of their own, each with a real sshd and a real Docker engine. `fab` treats
# them as hosts. Everything that is made has the label muster.rack; docs/develop/rack.md has the options.
set -euo pipefail
cd "$(dirname "$0")"
nodes=${NODES:-3}
store=${STORE:-classic}
jump=${JUMP:-}
name=${RACK:-rack}
state=$PWD/.state
[ "$name" = rack ] || state=$PWD/.state-$name
config=$state/ssh_config
labels=(--label "muster.rack=$name" --label "muster.rack.state=$state")
started=$SECONDS

say() { echo "rack  $*" >&2; }

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit "${3:-1}"
}

check_options() {
    [[ $nodes =~ ^[1-9][0-9]?$ ]] || fail "NODES=$nodes: not a number from 1 to 99" "make rack NODES=3" 2
    [[ ${DEBIAN:-trixie} =~ ^[a-z][a-z-]*$ ]] || fail "DEBIAN=$DEBIAN: no release of Debian" "make rack DEBIAN=forky" 2
    [[ $name =~ ^[a-z0-9][a-z0-9-]*$ ]] || fail "RACK=$name: not a name of a-z, 0-9 and -" "make rack" 2
    case $store in
    classic | containerd | mixed) ;;
    *) fail "STORE=$store: neither classic, containerd nor mixed" "make rack STORE=mixed" 2 ;;
    esac
    [ -z "$jump" ] || [ "$nodes" -gt 1 ] || fail "JUMP=1 with one node: nothing to jump from" "make rack NODES=2 JUMP=1" 2
}

check_machine() {
    local there tool
    for tool in docker ssh ssh-keygen; do
        command -v "$tool" >/dev/null || fail "$tool is missing" "install Docker and the OpenSSH client"
    done
    docker version >/dev/null 2>&1 || fail "no Docker engine answers" "start Docker; 'docker version' shows what it says"
    # A rack whose containers were ended by a restart of this machine cannot be used: remove it.
    [ -n "$(docker ps -q --filter "label=muster.rack=$name")" ] || RACK=$name ./down.sh >/dev/null
    there=$(docker ps -aq --filter "label=muster.rack=$name" | wc -l)
    [ "$there" -eq 0 ] || fail "a rack of $((there)) nodes is up" \
        "use it (export MUSTER_SSH_CONFIG='$(state_of_rack)/ssh_config'), or remove it: make rack-down$(rack_option)"
}

state_of_rack() {
    docker ps -a --filter "label=muster.rack=$name" --format '{{.Label "muster.rack.state"}}' | head -n 1
}

rack_option() { [ "$name" = rack ] || echo " RACK=$name"; }

# Finds the narrowest rights that this engine grants and that an engine in a container can work with. On some virtual
# machines without CAP_SYS_RESOURCE, no container can have it, and --privileged fails as well.
choose_rights() {
    local unconfined words="" said
    unconfined=$(printf -- '--security-opt %s ' seccomp=unconfined apparmor=unconfined systempaths=unconfined label=disable)
    for words in "--cap-add ALL $unconfined" "--cap-add ALL --cap-drop SYS_RESOURCE $unconfined" "--privileged"; do
        read -ra rights <<<"$words"
        ! said=$(docker run --rm --network none "${rights[@]}" "$image" mount -o remount,rw /sys 2>&1) || return 0
    done
    fail "this engine lets no container run an engine of its own: ${said%%$'\n'*}" \
        "neither all capabilities nor --privileged work; a rootful Docker engine on Linux is needed"
}

# Docker chooses a free subnet. The network is then made again with that subnet, because nodes keep their addresses
# through a reboot only on a subnet that was asked for. A network that exists already belongs to another rack, so `undo`
# is only set up after the network was made; signals are ignored in between.
make_network() {
    trap '' INT TERM HUP
    docker network create "${labels[@]}" "muster-$name" >/dev/null ||
        fail "no network for the rack, see above" "a rack just started, or one left over: make rack-down$(rack_option)"
    trap undo EXIT
    subnet=$(docker network inspect --format '{{(index .IPAM.Config 0).Subnet}}' "muster-$name")
    docker network rm "muster-$name" >/dev/null
    docker network create "${labels[@]}" --subnet "$subnet" "muster-$name" >/dev/null
    gateway=$(docker network inspect --format '{{(index .IPAM.Config 0).Gateway}}' "muster-$name")
    [ -n "$gateway" ] || gateway=$(address 0)
    trap 'exit 130' INT TERM HUP
}

# The address of node $1; the gateway has the first address of the subnet.
address() {
    local base=${subnet%/*}
    echo "${base%.*}.$((${base##*.} + 1 + $1))"
}

is_behind() { [ -n "$jump" ] && [ "$1" -eq "$nodes" ]; }

# In a mixed rack, every third node has containerd's store; with two nodes, the second one.
store_of() {
    local third=$((nodes < 3 ? nodes : 3))
    if [ "$store" != mixed ]; then echo "$store"; elif [ $(($1 % third)) -eq 0 ]; then echo containerd; else echo classic; fi
}

start_node() {
    local container=muster-$name-$1 closed=""
    ! is_behind "$1" || closed=$gateway
    docker create --name "$container" --hostname "rack-$1" --network-alias "rack-$1" "${labels[@]}" \
        --network "muster-$name" --ip "$(address "$1")" "${rights[@]}" --shm-size 2g --tmpfs /run:exec \
        --mount "type=volume,source=$container,target=/var/lib/docker,volume-label=muster.rack=$name" \
        --env "STORE=$(store_of "$1")" --env "CORES=$cores" --env "CLOSED_TO=$closed" --env "AUTHORIZED_KEY=$(cat "$state/id_ed25519.pub")" \
        --stop-timeout 30 --log-opt max-size=10m "$image"
    docker cp node.sh "$container:/usr/local/sbin/rack-node"
    docker start "$container"
}

wait_for_node() {
    local container=muster-$name-$1
    for _ in $(seq 150); do
        ! docker exec --user muster "$container" sh -c 'docker version && nc -z 127.0.0.1 22' >/dev/null 2>&1 || return 0
        [ "$(docker inspect --format '{{.State.Running}}' "$container")" = true ] || break
        sleep 0.4
    done
    docker logs --tail 10 "$container" >&2
    fail "rack-$1 did not come up" "the lines above are its last words"
}

# The keys come through the engine, which is trusted already, so ssh need not trust a key on first use.
write_known_hosts() {
    local node key
    for node in $(seq "$nodes"); do
        docker exec "muster-$name-$node" sh -c 'cat /etc/ssh/ssh_host_*_key.pub' | while read -r key; do
            echo "rack-$node,$(address "$node") ${key% *}"
        done
    done >"$state/known_hosts"
}

write_config() {
    local node
    echo "# A rack of Muster's: \`make rack\` wrote this, \`make rack-down$(rack_option)\` removes it."
    for node in $(seq "$nodes"); do
        printf 'Host rack-%s\n    HostName %s\n' "$node" "$(address "$node")"
        ! is_behind "$node" || echo "    ProxyJump rack-1"
        printf '    User muster\n    IdentityFile "%s"\n    IdentitiesOnly yes\n' "$state/id_ed25519"
        printf '    UserKnownHostsFile "%s"\n    StrictHostKeyChecking yes\n' "$state/known_hosts"
    done
}

# After a failure or Ctrl-C: wait for nodes that are being created, because only then can they be removed.
undo() {
    trap '' INT TERM HUP
    wait
    RACK=$name ./down.sh >/dev/null 2>&1
}

trap 'exit 130' INT TERM HUP
check_options
check_machine
# Nodes share this machine's cores. If each used all of them, their threads would mostly wait for each other.
cores=$(($(nproc) / nodes))
[ "$cores" -gt 0 ] || cores=1
image=$(./image.sh)
choose_rights
make_network
mkdir -p "$state"
chmod 700 "$state"
rm -f "$state"/*
ssh-keygen -q -t ed25519 -N '' -C "muster $name" -f "$state/id_ed25519"
starting=()
for node in $(seq "$nodes"); do
    start_node "$node" >"$state/start-$node.log" 2>&1 &
    starting+=($!)
done
for node in $(seq "$nodes"); do
    wait "${starting[node - 1]}" || { cat "$state/start-$node.log" >&2 && fail "rack-$node could not be started" "see above"; }
    wait_for_node "$node"
done
rm "$state"/start-*.log
write_known_hosts
write_config >"$config"
ssh -F "$config" -o BatchMode=yes -o ConnectTimeout=10 "rack-$nodes" true || fail "the nodes run, but this machine does not reach them" \
    "Docker Desktop hides containers' addresses: use an engine on this machine itself (Linux)"
trap - EXIT

hosts=$(seq -f 'rack-%g' -s , "$nodes")
say "$nodes nodes in $((SECONDS - started)) s: rack-1 $(address 1)$([ "$nodes" -eq 1 ] || echo " ... rack-$nodes $(address "$nodes")")$(
    ! is_behind "$nodes" || echo ", rack-$nodes only through rack-1")"
cat <<USE
export MUSTER_SSH_CONFIG='$config'
.venv/bin/muster preflight ${hosts%,}
.venv/bin/muster deploy --hosts ${hosts%,} --args="--recipe digits"
ssh -F '$config' rack-1
make rack-down$(rack_option)
USE
