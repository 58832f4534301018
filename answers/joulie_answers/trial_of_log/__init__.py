"""`joulie try` over a log: a period of it again under other settings, beside what its meters say.

Not here: the simulation and the calibration (`joulie_simulator`), the words of the answer.
In: the ledger, facts and decisions up to a position; settings to try. Out: rows, calibrated.
"""
