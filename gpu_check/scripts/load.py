"""Keep the GPU busy until this process is killed, or for at most a minute; print a line once it is busy."""

import time

import torch

MOST_S = 60.0

matrix = torch.rand(4096, 4096, device="cuda")
end = time.monotonic() + MOST_S
print("computes", flush=True)
while time.monotonic() < end:
    for _ in range(20):
        matrix = torch.nn.functional.normalize(matrix @ matrix)
    torch.cuda.synchronize()
