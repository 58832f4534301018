"""The ledger: readings, pods and plans as energy, in whole microjoules.

Not here: the loop that follows the log (`joulie_audit.ledger`), what a twin expects a pod to draw.
In: records of the log by position. Out: intervals of energy per node, pod and group; reports.
"""
