"""Install a project's packages on the machines of a run: one locked resolution, installed by uv on each of them."""
