"""paths: gradients at many points of many rows, flattened into full batches and summed as they come."""

from whence.paths.runner import run_paths

__all__ = ["run_paths"]
