"""The rehearsal: what preflight lets the containers of a run try before the run."""
