"""Programs next to the agent: telemetry, scalars from a script's files, health, a witness of the end, an overlay."""
