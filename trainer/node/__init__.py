"""One node, around torchrun. Starts without torch, in a tenth of a second."""
