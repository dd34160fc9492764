"""`make gpu-check`: what of Muster works on this machine's GPUs, tried through real agents. See docs/gpu-check.md."""
