"""What users write: options and their table, hosts, cluster.toml, scripts, roles and secrets, read and checked."""
