"""The trainer of a small reinforcement learning loop: it asks rollout workers for samples, and learns from them.

Among its own ranks it is an ordinary DDP script. It reads the rollout workers' addresses from MUSTER_ROLLOUT_ADDRESSES.
"""

import json
import os
import sys
import time
import urllib.request

import torch
import torch.distributed as dist

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20


def ask(address: str, weights: list[float]) -> dict[str, list[float]]:
    """Get samples from one worker; a restarting worker is asked again until it is back."""
    request = urllib.request.Request(f"http://{address}/rollout", json.dumps(weights).encode())
    for attempt in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                samples: dict[str, list[float]] = json.load(answer)
                return samples
        except OSError:
            time.sleep(0.1 * (attempt < 99))
    raise SystemExit(f"no rollout from {address}")


dist.init_process_group("gloo")
workers = os.environ["MUSTER_ROLLOUT_ADDRESSES"].split(",")
policy = torch.nn.Linear(1, 1)
model = torch.nn.parallel.DistributedDataParallel(policy)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for number in range(ROUNDS):
    weights = [policy.weight.item(), policy.bias.item()]
    samples = ask(workers[(number + dist.get_rank()) % len(workers)], weights)
    states, rewards = torch.tensor(samples["states"])[:, None], torch.tensor(samples["rewards"])
    loss = (model(states)[:, 0] - rewards).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"round {number}: loss {loss.item():.4f}", flush=True)
if dist.get_rank() == 0:
    torch.save(policy.state_dict(), "policy.pt")
    print("done: policy.pt", flush=True)
dist.destroy_process_group()
