"""torch and transformers, imported with Python's garbage collector at rest.

They make millions of objects and no garbage, and looking through these again and again takes up to two seconds. So the rooms that stand
on them (inputs, models, tasks, trace, and what is above) import this first.
"""

import gc
import importlib

_collecting = gc.isenabled()
gc.disable()
try:
    for _name in ("torch", "transformers.modeling_utils", "transformers.masking_utils"):
        importlib.import_module(_name)
finally:
    if _collecting:
        gc.freeze()  # what was imported stays: no need to look through it again
        gc.enable()
