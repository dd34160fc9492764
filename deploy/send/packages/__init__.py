"""Install a project's packages on the machines of a run: one locked resolution, which uv installs on each of them."""
