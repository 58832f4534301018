"""What is right and what is wrong with an installation, and what to do.

No I/O, no clock.
Not here: how it is observed (`observed_cluster`, `observed_here`).
In: observed values. Out: findings.
"""
