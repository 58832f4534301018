"""`joulie demo`: all components over a simulated cluster, on a live screen; two demos compared.

Not here: the simulator, the supervisor.
In: options. Out: a screen, and a summary at the end.
"""
