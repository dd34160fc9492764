"""`make gpu-check`: try what of Muster works on this machine's GPUs, through real agents. docs/how-to/check-gpus.md"""
