"""torchrun with short pauses, forked ranks and a rendezvous at one address; by torchrun's public doors."""
