"""A cluster that does not exist: nodes, pods, physics, and a scheduler that asks our extender."""
