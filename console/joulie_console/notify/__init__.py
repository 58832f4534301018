"""Notifications: what a person must know, posted to a webhook as it begins and ends.

Not here: what counts as such a condition (`views.conditions`).
In: the newest snapshot, the decision log. Out: HTTP requests with CloudEvents.
"""
