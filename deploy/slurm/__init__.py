"""The backend for a Slurm cluster: over SSH, Muster uses a login node to submit, watch and stop a run's job."""
