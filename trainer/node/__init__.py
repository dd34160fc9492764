"""The code around torchrun on one node. It starts without torch, in a tenth of a second."""
