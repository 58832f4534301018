"""The meters and tables of a node, each read by itself: files of the kernel, and NVML.

In: the root of the host, the path of a library.
Out: what was read, and what was not available with the reason; never an exception for hardware
that is absent, and never 0 for a value that is unknown.
Not here: what readings mean together (`measure`), when they are read (`sampler`).
"""
