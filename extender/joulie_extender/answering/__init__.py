"""One request from its bytes to its recorded answer: read, decide, record, reply, or fall back.

Not here: connections and routes (`http`), what each verb decides (`verbs`, `decide`), bindings
(`binding`).
In: a request and the newest snapshot. Out: a reply, and the entry of the decision log behind it.
"""
