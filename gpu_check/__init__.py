"""`make gpu-check`: try Muster on this machine's GPUs, through real agents. docs/how-to/check-gpus.md describes it."""
