"""A Ray cluster as roles: the head with the driver on the first host, and a worker on each other one. Pure.

What they run is the user's own to write as well (docs/how-to/ray.md): nothing of Ray is known to the rest of `deploy`.
"""

from .role import ANY_PORT, Role

# A worker that is lost joins again: as often as a node of Muster's own trainer.
_RESTARTS = 100


def roles_of(driver: str, hosts: int) -> tuple[str, ...]:
    """The roles of a cluster on so many hosts, as --role has them; without a driver it stays until it is stopped."""
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
