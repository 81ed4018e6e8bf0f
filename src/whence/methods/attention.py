"""Methods that read attention probabilities only: the same for every target.

None declares that its scores have no sign: a model may hand out maps of its own making, with entries below 0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whence.errors import InputError
from whence.inputs.numbers import whole
from whence.registry import method
from whence.trace import Trace
from whence.trace.attribution import Attribution

ABNAR = "Abnar & Zuidema 2020"


@method(
    "raw-attention",
    needs={"attention", "readout"},
    sums_to="1",
    layers_start=1,
    knows_target=False,
    family="attention",
    paper="—",
)
def raw_attention(trace: Trace) -> Attribution:
    """Attention of the last layer, mean over heads: mean_h A^L[h, r, j]."""
    layers = torch.stack([trace.at_readout(a) for a in trace.mean_attention], dim=1)  # (b, L, n)
    return Attribution(layers[:, -1], layers)


def with_residual(trace: Trace) -> list[Tensor]:
    """B^l = rownorm(mean_h A^l + I): attention with the skip connection. Each (b, n, n)."""
    return [row_normalised(a + trace.eye) for a in trace.mean_attention]


def row_normalised(matrix: Tensor) -> Tensor:
    """Rows divided by their sums."""
    return matrix / matrix.sum(-1, keepdim=True)


def rollout_rows(trace: Trace, matrices: list[Tensor]) -> Tensor:
    """Row r of M^l···M^1 for every l: (b, L, n).

    One row times a chain of matrices per l costs O(L² n²), against O(L n³) for the matrix products.
    """
    rows = []
    for top in range(len(matrices)):
        row = trace.at_readout(matrices[top])[:, None]  # (b, 1, n)
        for lower in reversed(matrices[:top]):
            row = row @ lower
        rows.append(row[:, 0])
    return torch.stack(rows, dim=1)


@method(
    "rollout",
    needs={"attention", "readout"},
    sums_to="1",
    layers_start=1,
    knows_target=False,
    family="attention",
    paper=ABNAR,
    first_choice=True,
)
def rollout(trace: Trace) -> Attribution:
    """Attention rolled out through the layers: row r of B^L···B^1, B^l = rownorm(mean_h A^l + I)."""
    layers = rollout_rows(trace, with_residual(trace))
    return Attribution(layers[:, -1], layers)


@method(
    "attention-flow",
    needs={"attention", "readout"},
    knows_target=False,
    family="attention",
    paper=ABNAR,
    on_request=True,
)
def attention_flow(trace: Trace, *, max_tokens: int = 128) -> Tensor:
    """Maximum flow from r at layer L down to j at layer 0, with capacities B^l = rownorm(mean_h A^l + I).

    One max-flow problem per token on a graph of L·n² edges: exact, and slow beyond short texts.

    Args:
        max_tokens: longer texts are refused.
    """
    longest = int(trace.lengths.max())
    if longest > whole("max_tokens", max_tokens):
        raise InputError(
            f"attention-flow solves one max-flow problem per token and this text has {longest} tokens; allow it with "
            f"max_tokens={longest}, or use rollout."
        )
    capacities = torch.stack(with_residual(trace), dim=1).double().cpu().numpy()  # (b, L, n, n)
    scores = np.zeros(trace.valid.shape)
    for row, (real, positions) in enumerate(zip(trace.batch.own_valid, trace.scalar.positions(), strict=True)):
        tokens = np.flatnonzero(real)
        between = capacities[row][:, tokens[:, None], tokens]
        for r in positions:
            scores[row, tokens] += layered_max_flow(between, int(np.searchsorted(tokens, r)))
    return torch.from_numpy(scores)


def layered_max_flow(capacities: np.ndarray, source: int) -> np.ndarray:
    """Max-flow from `source` above the last layer to each node below the first. capacities: (L, n, n) → (n,)."""
    depth, n, _ = capacities.shape
    queries, keys = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    heads = np.concatenate([(level * n + queries).ravel() for level in range(1, depth + 1)])  # node at the edge's top
    tails = np.concatenate([(level * n + keys).ravel() for level in range(depth)])
    graph = np.zeros(((depth + 1) * n, (depth + 1) * n))
    graph[heads, tails] = capacities.ravel()
    return np.array([float_max_flow(graph, depth * n + source, sink) for sink in range(n)])


def float_max_flow(capacity: np.ndarray, source: int, sink: int, rounds: int = 2) -> float:
    """SciPy's solver counts in 32-bit integers: solve, then solve what rounding left over at a finer scale."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    residual, total, largest = capacity.copy(), 0.0, 1.0
    for _ in range(rounds):
        scale = 2**29 / largest
        whole = np.minimum(residual * scale, 2**29).astype(np.int32)
        solved = maximum_flow(csr_array(whole), source, sink)
        flow = solved.flow.toarray() / scale  # antisymmetric: flow[u, v] = −flow[v, u]
        total += solved.flow_value / scale
        residual = np.maximum(residual - flow, 0.0)
        largest = min(1.0, np.count_nonzero(capacity) / scale)  # no more than one unit per edge can be left
    return total
