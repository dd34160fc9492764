"""The rehearsal: what preflight makes the containers of a run try before the run."""
