"""A small reinforcement learning loop on Ray: an actor on each host plays a bandit, and the driver updates the policy.

muster ray -H gpu-a,gpu-b,gpu-c train_rl.py --rounds 40
"""

import argparse
import json
import math
import random

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# The average reward of each arm of the bandit.
PAYS = (0.2, 0.5, 0.9, 0.4)


# A lost worker is restarted where there is room, and its unfinished calls are repeated.
@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
class Rollouts:
    """Plays with a given policy."""

    def play(self, policy: list[float], plays: int) -> list[tuple[int, float]]:
        arms = random.choices(range(len(PAYS)), policy, k=plays)
        return [(arm, random.gauss(PAYS[arm], 0.1)) for arm in arms]

    def where(self) -> str:
        return ray.util.get_node_ip_address()


def softmax(logits: list[float]) -> list[float]:
    powers = [math.exp(logit - max(logits)) for logit in logits]
    return [power / sum(powers) for power in powers]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    ray.init()  # the cluster of this run
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    # Each worker starts on its own host; `soft`: a lost worker may restart on another host.
    placed = [NodeAffinitySchedulingStrategy(node, soft=True) for node in nodes]
    workers = [Rollouts.options(scheduling_strategy=each).remote() for each in placed]
    print("workers on", *sorted(ray.get([worker.where.remote() for worker in workers])), flush=True)
    logits = [0.0] * len(PAYS)
    for number in range(rounds):
        policy = softmax(logits)
        answers = ray.get([worker.play.remote(policy, 32) for worker in workers])
        samples = [sample for answer in answers for sample in answer]
        mean = sum(pay for _, pay in samples) / len(samples)
        for arm, pay in samples:  # REINFORCE, with the mean as its baseline
            for other, chance in enumerate(policy):
                logits[other] += 2.0 * (pay - mean) * ((arm == other) - chance) / len(samples)
        print(f"round {number}: reward {mean:.3f}", flush=True)
    with open("policy.json", "w") as file:
        json.dump(softmax(logits), file)
    print("done: policy.json", flush=True)


if __name__ == "__main__":
    main()
