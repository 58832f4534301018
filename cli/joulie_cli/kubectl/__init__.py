"""`kubectl joulie`: a plugin of kubectl, with the rights that the user has in the cluster.

Not here: commands that need the broker or the database (`commands`).
In: a kubeconfig. Out: tables, explanations, JSON.
"""
