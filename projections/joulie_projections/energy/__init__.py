"""The ledger: readings, pods and plans as energy, in whole microjoules.

No I/O, no clock.
Not here: its rows (`store.energy_table`), the loop that follows the log (`joulie_audit.ledger`),
what a twin expects a pod to draw.
In: records of the log by position. Out: intervals of energy per node, pod and group; reports.
"""
