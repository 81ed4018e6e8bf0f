"""Speed and memory, measured against the floor and beside other libraries: `python -m bench`.

`bench.results`, `bench.agreement` and `bench.relevance_precision` are programs of their own: they measure explanations, not speed.
"""
