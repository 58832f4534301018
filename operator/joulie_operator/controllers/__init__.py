"""The power controllers of nodes: BMCs, programs and autoscalers, as a file of the administrator
lists them, and the client of Redfish that reading and switching share.

Not here: when a node is read (`telemetry`) or switched (`power`).
In: the file, labels of nodes, files of secrets. Out: the controller of each node.
"""
