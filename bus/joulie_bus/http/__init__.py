"""The HTTP server for kube-scheduler and the API server: connections, limits, certificates.

Not here: what is answered; the page and API of the console, which stream (`joulie_console`).
In: connections. Out: whole requests; replies, or refusals.
"""
