"""torchrun with shorter pauses and a rendezvous at one address: the one place that patches private names of torch."""
