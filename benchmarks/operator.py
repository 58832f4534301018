"""What a tick costs the operator: `kit/ticks.py` measures it, this file gives it its name.

    make bench, or: .venv/bin/python benchmarks/operator.py

Python puts a script's folder first on its path. There this file hides the standard library's
`operator` from all benchmarks: whoever imports it gets that one all the same.
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
