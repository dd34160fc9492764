"""From a look at the hosts to a run that has started: facts, preflight, plan, push, launch."""
