"""Workloads: kinds, sizes and durations of pods, from a seed.

No I/O, no clock.
Not here: files of traces (`trace_file`), scheduling.
In: a seed. Out: pods.
"""
