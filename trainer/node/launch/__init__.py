"""torchrun with short pauses, forked ranks and a rendezvous at one address; it patches private names of torch."""
