"""torch and transformers, imported with Python's garbage collector at rest.

They make millions of objects and no garbage, and looking through these again and again takes up to two seconds. So the rooms that stand
on them (inputs, models, tasks, trace, and what is above) import this first.
"""

import gc
import importlib


def settle() -> None:
    """What was imported stays: the collector need not look through it again, and does not wait for a quarter as much again to look
    through the rest."""
    if gc.isenabled():
        gc.freeze()


_collecting = gc.isenabled()
gc.disable()
try:
    for _name in ("torch", "transformers.modeling_utils", "transformers.masking_utils"):
        importlib.import_module(_name)
finally:
    if _collecting:
        gc.enable()
        settle()
