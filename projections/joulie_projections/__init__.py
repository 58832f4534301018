"""Projections of the log: the cluster state, the twins, and the projector that folds facts."""
