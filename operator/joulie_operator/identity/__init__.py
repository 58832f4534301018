"""Who an agent is: the node of its pod, as the API server says.

In: the questions of the broker about clients that show the token of a service account.
Out: users with the rights of one node.
Not here: what a node may publish (`joulie_bus.streams.roles`).
"""
