"""A Ray cluster as roles: the head with the driver on the first host, and a worker on each other host. Pure.

A user can write the same roles in cluster.toml (docs/how-to/ray.md): the rest of `deploy` knows nothing about Ray.
"""

from .role import ANY_PORT, Role

# How often a lost worker joins again: as often as a node of Muster's own trainer.
_RESTARTS = 100


def roles_of(driver: str, hosts: int) -> tuple[str, ...]:
    """The roles of a cluster on `hosts` hosts, in the form of --role; without a driver it stays until it is stopped."""
    command = f"python -m muster.ray head {driver}".strip()
    head = Role("head", command, ends=True, port=ANY_PORT, ready="port", processes="1")
    worker = Role(
        "worker",
        "python -m muster.ray worker",
        nodes=0,
        restart=_RESTARTS,
        separate=True,
        after=(head.name,),
        processes="1",
    )
    return (head.text, worker.text)[:hosts]
