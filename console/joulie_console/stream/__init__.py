"""Server-sent events: the tail of the decision log and of the plans, and the polled cluster view.

Not here: how a decision reads (`views`).
In: new entries. Out: events, each client at its own pace.
"""
