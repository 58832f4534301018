"""Events and their transport: subjects, codec, log, broker, settings, errors.

No package above this one uses NATS, environment variables or subject strings directly.
"""
