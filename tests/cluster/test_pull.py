"""An image in a registry: which hosts pull it, which get it from another host, and with which credentials."""

import base64
import hashlib
import json
import signal
import subprocess
import time
import uuid

import pytest

from deploy.send.image.archive import archive
from deploy.send.image.compression import PLAIN, CompressedLayer
from deploy.send.image.model import Base, run_image
from deploy.send.road.cargo import of_bytes
from lab.waiting import until
from tests.cluster.control import QUIET, Control
from tests.registry import PASSWORD, USER, Registry, layer_of

SIZE = 12_000_000
LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Puller(Control):
    """A user, three hosts that lack the image, and a registry that has it."""

    def __init__(self, rack, registry, home):
        super().__init__(rack)
        self.hosts, self.registry, self.home = rack.hosts, registry, home
        self.tag = f"muster-test-{uuid.uuid4().hex[:8]}"
        look = ("docker", "network", "inspect", f"muster-{rack.name}", "--format", "{{json .Containers}}")
        about = json.loads(subprocess.run(look, capture_output=True, text=True, check=True).stdout).values()
        self.addresses = {each["Name"]: each["IPv4Address"].partition("/")[0] for each in about}
        self.environment |= {
            "DOCKER_CONFIG": str(home), "SSL_CERT_FILE": str(registry.certificate),
            "XDG_CACHE_HOME": str(home / "cache"),
        }  # fmt: skip

    def push(self, *words, hosts=None):
        return self.fab("push", "--json", "--image", self.registry.image, *words, hosts=hosts or self.hosts)

    def given(self):
        """How much each host got from the registry, as a fraction of the image."""
        counted = {host: self.registry.given[self.addresses[self.rack.container(host)]] for host in self.hosts}
        return {host: count / SIZE for host, count in counted.items()}

    def log_in(self):
        (self.home / "config.json").write_text(json.dumps({"auths": {self.registry.name: {"auth": LOGIN}}}))

    def has_image(self, host):
        """Whether the host has an image with the registry's layer, named or not."""
        layer = next(digest for digest, data in self.registry.blobs.items() if len(data) > SIZE)
        ids = self.rack.on(host, "docker image ls --all --quiet --no-trunc | sort -u").split()
        return layer in self.rack.on(host, "docker", "image", "inspect", "--format", "'{{.RootFS.Layers}}'", *ids)

    def clear(self):
        """Remove from all hosts the image and everything that a push of it made."""
        for host in self.hosts:
            layer = next(digest for digest, data in self.registry.blobs.items() if len(data) > SIZE)
            for image in self.rack.on(host, "docker image ls --all --quiet --no-trunc | sort -u").split():
                about = self.rack.on(
                    host, "docker", "image", "inspect", "--format", "'{{.RootFS.Layers}} {{.RepoTags}}'", image
                )
                if layer in about:
                    tags = about.partition("] [")[2].strip("]").split()
                    self.rack.on(host, "docker", "image", "rm", "--force", image, *tags, ">/dev/null 2>&1; true")


@pytest.fixture
def puller(rack, tmp_path):
    address = rack.root("rack-1", "ip", "-4", "route", "show", "default").split()[2]
    with Registry(address, tmp_path, SIZE) as registry:
        made = Puller(rack, registry, tmp_path)
        trusted = f"/etc/docker/certs.d/{registry.name}"
        for host in rack.hosts:
            rack.root(host, "mkdir", "-p", trusted)
            copy = ("docker", "cp", str(registry.certificate), f"{rack.container(host)}:{trusted}/ca.crt")
            subprocess.run(copy, check=True, capture_output=True)
        yield made
        made.clear()
        for host in rack.hosts:
            rack.root(host, "rm", "-rf", trusted)


def rows(done):
    assert done.returncode == 0, done.stderr
    return {row["host"]: row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "pushed"}


def by_others(row):
    """Bytes that a host got from other hosts. In any push this may be Muster's own small layer; the base has SIZE."""
    return sum(count for source, count in row["sources"].items() if source.startswith("rack-"))


def test_hosts_behind_a_shared_slow_link_get_the_image_from_the_first_that_pulled(puller):
    puller.registry.rate = SIZE // 20
    done = puller.push()
    pushed = rows(done)
    assert "share the way" in done.stderr
    assert sum(puller.given().values()) < 2
    assert all(map(puller.has_image, puller.hosts))
    assert "rack-1" in {*pushed["rack-2"]["sources"], *pushed["rack-3"]["sources"]}
    assert by_others(pushed["rack-1"]) < SIZE


def test_each_host_pulls_from_a_fast_registry(puller):
    pushed = rows(puller.push())
    assert all(0.99 < part < 1.05 for part in puller.given().values())
    assert all(puller.registry.name in row["sources"] and by_others(row) < SIZE for row in pushed.values())


def test_layers_that_one_host_has_are_neither_pulled_nor_sent_again(puller):
    rows(puller.push(hosts=puller.hosts[-1:]))
    puller.registry.only = {"nobody"}
    pushed = rows(puller.push())
    assert puller.given()["rack-1"] == puller.given()["rack-2"] == 0
    assert pushed["rack-1"]["sources"].keys() | pushed["rack-2"]["sources"].keys() >= {"rack-3"}
    assert all(map(puller.has_image, puller.hosts))


def test_a_host_that_cannot_reach_the_registry_gets_the_image_from_one_that_can(puller):
    puller.registry.only = {puller.addresses[puller.rack.container("rack-2")]}
    rows(puller.push())
    assert puller.given()["rack-1"] == puller.given()["rack-3"] == 0
    assert all(map(puller.has_image, puller.hosts))


@pytest.mark.holds("login-stays")
def test_a_private_image_is_pulled_with_a_token_and_no_host_gets_the_login(puller):
    puller.registry.is_private = True
    puller.log_in()
    done = puller.push()
    rows(done)
    assert all(map(puller.has_image, puller.hosts))
    assert "which can only pull this image" in done.stderr
    of_hosts = [
        words
        for host in puller.hosts
        for words in puller.registry.authorized[puller.addresses[puller.rack.container(host)]]
    ]
    assert not [words for words in of_hosts if LOGIN in words]
    for host in puller.hosts:
        planted = f"grep -rlE '{PASSWORD}|{LOGIN}|token-[0-9a-f]{{16}}' ~/.docker ~/.muster /dev/shm 2>/dev/null; true"
        assert not puller.rack.on(host, planted)


def test_a_push_without_a_login_says_where_to_log_in(puller):
    puller.registry.is_private = True
    done = puller.push()
    assert done.returncode == 1
    assert f"docker login {puller.registry.name}" in done.stderr + done.stdout


@pytest.mark.parametrize("realm", ["http://{name}/token", "https://127.0.0.1:1/token", "file:///etc/passwd", ""])
def test_a_registry_that_sends_the_login_elsewhere_gets_none(puller, realm):
    puller.registry.is_private, puller.registry.realm = True, realm.format(name=puller.registry.name)
    puller.log_in()
    done = puller.push(hosts=puller.hosts[:1])
    assert done.returncode == 1
    assert not [words for seen in puller.registry.authorized.values() for words in seen if LOGIN in words]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_after_a_push_is_ended_no_host_keeps_pulling_and_nothing_stays(puller, how):
    puller.registry.rate = SIZE // 60
    pushing = puller.background(puller.line("push", "--image", puller.registry.image), **QUIET)
    until(lambda: sum(puller.given().values()) > 0.1, "the first bytes of a pull", 30)
    pushing.send_signal(how)
    pushing.wait(30)

    def is_still():
        before = sum(puller.given().values())
        time.sleep(3)
        return sum(puller.given().values()) == before

    until(is_still, "the end of all pulls", 60)
    for host in puller.hosts:
        left = "ls ~/.muster/road/*/pieces /dev/shm 2>/dev/null | grep -c muster-road; true"
        assert puller.rack.on(host, left) == "0"


@pytest.mark.holds("road-closed")
@pytest.mark.parametrize("store", ["classic", "containerd"])
def test_an_engine_accepts_no_layer_that_does_not_match_its_digest(rack, store):
    host = next(host for host in rack.hosts if rack.store(host) == store)
    layer, other = layer_of(20_000), layer_of(20_000)
    named = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    image = run_image(Base("base", "amd64", "linux", "2026-01-01T00:00:00Z", {}, (named,), 0, ()), "muster-test-lies")
    for data, loads in ((other, False), (layer, True)):
        stream = archive(image, [CompressedLayer(named, len(data), of_bytes(data))], {}, PLAIN)
        line = ["docker", "exec", "-i", rack.container(host), "docker", "load"]
        done = subprocess.run(line, input=b"".join(stream.chunks()), capture_output=True, timeout=60)
        assert (done.returncode == 0) is loads, done.stderr
        # A name may stay in containerd's store, but no container can be made from it.
        runs = "docker create --pull never --name lies muster-test-lies true >/dev/null 2>&1; echo $?; docker rm lies"
        assert rack.on(host, f"{runs} >/dev/null 2>&1; true").startswith("0") is loads
    rack.on(host, "docker", "image", "rm", "muster-test-lies")
