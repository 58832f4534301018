"""Measures a tick of the operator. The code is in `kit/ticks.py`.

    make bench, or: .venv/bin/python benchmarks/operator.py

Python puts the directory of a script first on its path, so this file would hide the standard
library's `operator` from all benchmarks. When it is imported, it loads the standard module instead.
"""

import sys

folder = sys.path.pop(0)
if __name__ == "operator":
    del sys.modules["operator"]
    import operator as operator

    sys.path.insert(0, folder)
else:
    import runpy

    runpy.run_path(f"{folder}/kit/ticks.py", run_name="__main__")
