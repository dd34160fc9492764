"""`make gpu-check`: try what of Muster works on this machine's GPUs, through real agents. See docs/gpu-check.md."""
