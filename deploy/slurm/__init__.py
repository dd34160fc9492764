"""The backend of a Slurm cluster: a login node over SSH submits, watches and stops the job of a run."""
