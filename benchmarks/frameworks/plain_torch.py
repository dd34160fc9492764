"""torch.save, as tutorials have it: a checkpoint beside the script."""

import torch
from shared import hold, model, train

net = model()
train(net)
torch.save({"model": net.state_dict()}, "checkpoint.pt")
hold("checkpoint.pt")
