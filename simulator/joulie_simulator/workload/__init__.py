"""Workloads: kinds, sizes and durations of pods, from a seed or a public trace.

Not here: scheduling.
In: a seed. Out: pods.
"""
