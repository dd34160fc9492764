"""Two optimizers in turns, as in torch's DCGAN tutorial; what it prints as its step's loss is the discriminator's."""

import torch
import torch.distributed as dist
from own import STEPS, Slow, net, own
from torch.nn.functional import binary_cross_entropy_with_logits as entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
generator, critic = DistributedDataParallel(net(16)), DistributedDataParallel(net(), broadcast_buffers=False)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step, (real, _) in enumerate(DataLoader(Slow(STEPS * 4), batch_size=4), 1):
    critic.zero_grad()
    yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    on_real = entropy(critic(real), yes)
    on_real.backward()
    fake = generator(torch.randn(len(real), 16))
    on_fake = entropy(critic(fake.detach()), no)
    on_fake.backward()
    of_critic.step()
    generator.zero_grad()
    entropy(critic(fake), yes).backward()
    of_generator.step()
    own.stepped(step, on_real.item() + on_fake.item())
dist.destroy_process_group()
