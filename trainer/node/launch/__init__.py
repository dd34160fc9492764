"""torchrun with short pauses, forked ranks and a rendezvous at one address; built on torch's public names."""
