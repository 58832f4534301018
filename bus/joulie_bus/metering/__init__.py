"""What senders of readings publish, and when: pace, counters of energy, the spread of the power.

No I/O, no clock.
Not here: how a meter is read, and which meters add up to a node (agent, operator, simulator).
In: power and counters with the time at which they were read. Out: readings to publish.
"""
