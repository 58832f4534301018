"""What the cluster should hold: objects, pod patches, events, and which of them are to be written.

No I/O, no clock.
Not here: the writes (`apply`, `admission`).
In: the view, the objects of the cluster. Out: objects and differences.
"""
