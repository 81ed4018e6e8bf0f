"""serve: one page and a JSON interface over models that are named when the server starts (`whence serve`).

A request goes  gate (hosts, token, sizes) → app (routes) → schema (what may be asked) → worker (one thread per model, which
packs what waits into one call) → jobs (predict, explain, the hiding game) → Explainer.
"""

import whence.fast.imports  # noqa: F401  (first: it imports torch at rest)
from whence.apps.serve.app import create_app
from whence.apps.serve.settings import Settings

__all__ = ["Settings", "create_app"]
