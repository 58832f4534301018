"""What every process needs: settings, logs, metrics, tasks, child processes, secret files.

Not here: anything that knows an event or a stream.
In: the environment and signals. Out: typed settings, log lines, metrics.
"""
