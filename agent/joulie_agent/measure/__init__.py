"""What readings mean: sums, wraps and groups. No I/O, no clock.

In: readings with the time at which they were made.
Out: power and energy of the node and of its cards.
Not here: how a meter is read (`sources`), what is published and when (`joulie_bus.metering`).
"""
