"""The fused ALTI kernel: against the blocked path and against the time that its arithmetic and its memory traffic take at least.

One layer's ℓ1 distances ‖g_i − Σ_h A_h[i, j] U_h[j]‖₁ for b rows of n tokens (docs/speed.md derives the counts):

    as it is done   3·b·n²·d·H' multiply-adds of bfloat16 halves on tensor cores, H' = H rounded up to 16; and of float32 lanes, on each
                    of b·n²·d entries, 2 operations (absolute value, add; g is what the sums start from) and its share of halving the
                    operands, 3 operations on each of H'·(Q + F) numbers for Q·F entries of a block
    in float32      b·n²·d·H multiply-adds, then 3 operations, all of float32 lanes
    bytes           4·b·(H·n² + n·H·d + n·d + n²)       A, U and g read once, distances written once

divided by what this device does: matrix products in bfloat16 and float32 and a copy of a gigabyte, all timed here. The larger of the
first and the last is the floor. Without CUDA there is no fused kernel: its row says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import ModuleType
from unittest.mock import patch

import torch

from bench.measure import Run, Runs, against, failing, measure, seconds_of
from bench.ours import shape_for
from bench.peers import Company
from bench.settings import Settings, multiplying
from bench.shapes import Shape
from bench.table import Row, Table
from whence.fast.halves import storages
from whence.methods import attention_gradient, distances
from whence.models import lm_head
from whence.relevance import rules

SIZES = ((8, 128), (1, 512), (32, 512), (1, 2048))  # rows, tokens
TOLERANCE = 1e-4
BLOCK = (64, 128)  # queries × features of the fused kernel
FASTER, NEAR = 0.2, 3.0  # at most a fifth of the blocked time; at most three floors


def tables(settings: Settings, company: Company) -> Iterator[Table]:
    for rows, tokens in ((2, 16),) if settings.quick else SIZES:
        yield from distance_tables(settings, rows, tokens)
    yield norm_table(settings)
    yield rule_table(settings)
    yield method_table(settings)


def norm_table(settings: Settings) -> Table:
    """‖Σ_h A_h[i, j] U_h[j]‖² of one layer, as `norms`, `globenc` and ALTI in ℓ2 need it: fused against head pair by head pair."""
    shape = shape_for(settings)
    rows, tokens = (2, 16) if settings.quick else (256, 128)
    a, u, _ = layer(settings, shape, rows, tokens)
    runs: Runs = {"by head pairs": partial(distances.squares_by_pairs, a, u)}
    if settings.cuda:
        runs = {**runs, "fused": partial(distances.squared_norms, a, u)}
    with multiplying("float32"):
        found = measure(runs, settings, 5)
        if settings.cuda:
            with failing(found[1]):
                reference = distances.squares_by_pairs(a, u)
                gap = (distances.squared_norms(a, u) - reference).abs().max() / reference.max()
                found[1].difference = float(gap)
    title = f"Squared norms of one layer: {shape}, {rows} × {tokens}, {settings.where()}"
    return against(found, title, "by head pairs", {"fused": {"difference": TOLERANCE}} if settings.cuda else {})


def layer(settings: Settings, shape: Shape, rows: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random attention, vectors and outputs."""
    torch.manual_seed(0)
    a = torch.randn(rows, shape.heads, tokens, tokens, device=settings.device).mul_(2).softmax(-1)
    u = torch.randn(rows, shape.heads, tokens, shape.features, device=settings.device).transpose(1, 2)
    return a, u, torch.randn(rows, tokens, shape.features, device=settings.device)


def distance_tables(settings: Settings, rows: int, tokens: int) -> Iterator[Table]:
    """Both paths in full float32: the fused one against the blocked one, then against its floor."""
    shape = shape_for(settings)
    a, u, goal = layer(settings, shape, rows, tokens)
    runs: Runs = {"blocked": partial(distances.l1_blocked, a, u, goal)}
    if settings.cuda:
        runs = {**runs, "fused": partial(fused, a, u, goal)}
    title = f"ALTI distances of one layer, {{}}: {shape}, {rows} × {tokens}, {settings.where()}"
    with multiplying("float32"):
        found = measure(runs, settings, 5)
        kernel = found[1] if settings.cuda else Row("fused", note="runs on CUDA only")
        if settings.cuda:
            with failing(kernel):
                reference = distances.l1_blocked(a, u, goal)
                kernel.difference = float((fused(a, u, goal) - reference).abs().max() / reference.max())
        floors = floor_seconds(settings, shape, rows, tokens)
    wanted = {"fused": {"ratio": FASTER, "difference": TOLERANCE}} if settings.cuda else {}
    rows_found = [found[0], kernel]
    yield against(rows_found, title.format("fused against blocked"), "blocked", wanted)
    least = [Row(name, seconds) for name, seconds in floors.items()]
    highest = max((least[0], least[-1]), key=lambda row: row.seconds or 0.0).name
    wanted = {"fused": {"ratio": NEAR}} if settings.cuda else {}
    yield against([*least, *(replace(row) for row in rows_found)], title.format("against the floor"), highest, wanted)


def rule_table(settings: Settings) -> Table:
    """The linear rule of deep-taylor at a feed-forward layer, in float32 and in halves, its elementwise parts alone, a skip connection, the
    mask of attention, and an activation by AttnLRP: fused against torch's operations."""
    shape = shape_for(settings)
    rows, wide = (32, 4 * shape.features) if settings.quick else (256 * 128, 4 * shape.features)
    torch.manual_seed(0)
    x, r = (torch.randn(rows, n, device=settings.device) for n in (shape.features, wide))
    weight, bias = torch.randn(wide, shape.features, device=settings.device), torch.randn(wide, device=settings.device)
    weight = weight.bfloat16().float()  # so that it can be taken in halves
    z, weights = torch.nn.functional.linear(x, weight, bias), rules.Made()
    halved = rules.Made(exact=storages([weight]))
    # of one sign: sums over an example of both are noise, and so is what is divided by them
    a, b, positive = (t.abs().add_(1).view(rows // 16, 16, wide) for t in (z, z / 2 + 1, r))
    examples = (a, b, a + b, positive)
    cases: dict[str, Run] = {
        "linear rule": lambda: rules.linear_common(x, weight, z, bias, r, weights),
        "linear rule, in halves": lambda: rules.linear_common(x, weight, z, bias, r, halved),
        "its shares": lambda: rules.shares(r, z.abs(), z, bias, 1e-6),
        "stabilised division": lambda: rules.safe_divide(r, z),
        "skip connection": lambda: rules.addition_rescaled(*examples)[1],
        "mask of attention": lambda: rules.masked_softmax(z, z, r),
        "AttnLRP's activation rule": lambda: rules.identity_coefficient(z, z.relu(), r),
    }
    title = f"Relevance rules, {rows} × {shape.features} → {wide}, {settings.where()}"
    return fused_and_not(settings, title, cases, {rules: ("fusible", "pays")})


def method_table(settings: Settings) -> Table:
    """What methods read of maps and vocabularies: fused against torch's operations."""
    shape = shape_for(settings)
    rows, tokens, words = (2, 16, 1000) if settings.quick else (256, 128, shape.words)
    a, u, goal = layer(settings, shape, rows, tokens)
    u = u.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)  # head by head, as ALTI makes them
    g = torch.randn_like(a)
    features = torch.randn(rows * tokens, shape.features, device=settings.device)
    table, bias = (torch.randn(words, *n, device=settings.device) for n in ((shape.features,), ()))
    table.mul_(shape.features**-0.5)
    parts = distances.Parts(a, u[..., :1].transpose(1, 2), u[0, 0, :, None], torch.zeros_like(goal), goal[..., 0])
    cases: dict[str, Run] = {
        "mean over heads of max(0, G ⊙ A)": lambda: attention_gradient.positive_products(g, a),
        "ALTI's distances to own parts": lambda: distances.diagonal_distances(parts, u, goal, 1),
        f"log-sum-exp over {words:,} words": lambda: lm_head.log_sum_exp(features, table, bias),
    }
    title = f"Maps and vocabularies: {shape}, {rows} × {tokens}, {settings.where()}"
    places = {attention_gradient: ("fusible",), distances: ("fusible",), lm_head: ("on_triton",)}
    return fused_and_not(settings, title, cases, places)


def fused_and_not(
    settings: Settings, title: str, cases: dict[str, Run], places: dict[ModuleType, tuple[str, ...]]
) -> Table:
    """Every case by torch's operations, and fused. places: where it is asked whether a kernel may be used."""

    def without(run: Run) -> torch.Tensor:
        with ExitStack() as stack:
            for module, names in places.items():
                for name in names:
                    stack.enter_context(patch.object(module, name, lambda *_: False))
            return run()  # type: ignore[return-value]

    runs: dict[str, Run] = {}
    for name, run in cases.items():
        runs |= {f"{name}, torch": partial(without, run)} | ({f"{name}, fused": run} if settings.cuda else {})
    with multiplying("float32"):
        found = measure(runs, settings, 5)
        for row in found:
            if row.name.endswith("fused"):
                with failing(row):
                    run = cases[row.name.removesuffix(", fused")]
                    reference = without(run)
                    row.difference = float((run() - reference).abs().max() / reference.abs().max())
                    row.wanted = {"difference": TOLERANCE}
    return Table(title, found)


def fused(a: torch.Tensor, u: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    from whence.fast.mixing_triton import l1_fused

    return l1_fused(a, u, goal)


def floor_seconds(settings: Settings, shape: Shape, rows: int, tokens: int) -> dict[str, float]:
    """What arithmetic and memory traffic take at least, from rates timed on this device."""
    d, heads, pairs = shape.features, shape.heads, rows * tokens**2
    side = 256 if settings.quick else 8192 if settings.cuda else 1024

    def products(dtype: torch.dtype) -> float:  # operations a second, a multiply-add counted as two
        x = torch.randn(side, side, device=settings.device).to(dtype)
        return 2 * side**3 / min(seconds_of(partial(torch.mm, x, x)) for _ in range(5))

    lanes, cores = products(torch.float32), products(torch.bfloat16)
    y = torch.empty((1 << (20 if settings.quick else 28)), device=settings.device)  # a gigabyte
    z = torch.empty_like(y)
    copying_takes = min(seconds_of(partial(z.copy_, y)) for _ in range(5))
    bandwidth = 2 * y.numel() * 4 / copying_takes  # bytes a second, read and written
    moved = 4 * (heads * pairs + rows * tokens * heads * d + rows * tokens * d + pairs)
    padded = -(-heads // 16) * 16
    # a lane does one multiply-add or one other operation at a time, so these count as two each
    elementwise = 2 + 3 * padded * (1 / BLOCK[0] + 1 / BLOCK[1])
    done = 2 * 3 * pairs * d * padded / cores + 2 * elementwise * pairs * d / lanes
    return {
        f"arithmetic as it is done, at {cores / 1e12:.3g} and {lanes / 1e12:.3g} Tflop/s": done,
        f"arithmetic in float32 at {lanes / 1e12:.3g} Tflop/s": 2 * pairs * d * (heads + 3) / lanes,
        f"memory at {bandwidth / 1e12:.3g} TB/s": moved / bandwidth,
    }
