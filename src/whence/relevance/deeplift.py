"""DeepLIFT's rescale rule for every operation of a transformer: multipliers that hand f(x) − f(x̄) down exactly.

A paired run holds 2b rows: b inputs, then their b baselines, equal in everything but their word embeddings. Backwards carry
multipliers m of the input rows (those of the baseline rows are 0) with Σ m_out·Δout = Σ m_in·Δin, Δ = input − baseline, at
every operation (Shrikumar 2017, eq. 1 and 3–5). Linear operations keep their gradient. What follows covers the others; the
paper has only the first, and frameworks that let products, norms and softmax keep their gradient do not sum to the
difference. Each rule here does, exactly, becomes the gradient where x̄ → x, and divides by nothing that can be 0.

* Elementwise f: m·Δf/Δx, the slope of the secant.
* Products: Δ(ab) = Δa·(b + b̄)/2 + (a + ā)/2·Δb, which treats both factors alike.
* Norms y = γ c s + β, with c = x − mean x (RMSNorm: c = x) and s = 1/√v, v = mean c² + ε, by secants in closed form:
  Δs = −s²s̄²/(s + s̄)·Δv, Δv = mean (c + c̄)Δc, and a product rule whose ends are weighed by the other end's scale,
  Δ(cs) = 2ss̄/(s + s̄)·Δc + (sc + s̄c̄)/(s + s̄)·Δs. A baseline of zeros has a scale of 1/√ε, a thousand times the input's: even
  halves would hand it down, and take it away again, with a thousand times the rounding.
* Softmax p = exp(z − L), L = log Σ exp z. The secant of exp is the logarithmic mean ℓ_i = Δp_i/Δlog p_i, and from ΣΔp = 0
  follows ΔL = Σ ℓ_jΔz_j / Σℓ: m_z = ℓ ⊙ (m − Σ mℓ / Σℓ). Like the gradient it does not change when a constant is added to z.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whence.relevance.rules import Made, Pair, Product, RuleSet

STEEP = 8.0  # slopes further apart than this many thresholds are not of one smooth piece (ReLU at 0)


def halves(x: Tensor) -> Pair:
    """(2b, …) → the inputs' rows and the baselines' rows, each (b, …). Flattened rows (2b·n, …) come apart the same way."""
    first, second = x.chunk(2)
    return first, second


def change(x: Tensor) -> Tensor:
    """Δx (b, …)."""
    first, second = halves(x)
    return first - second


def middle(x: Tensor) -> Tensor:
    """(x + x̄)/2 (b, …)."""
    first, second = halves(x)
    return (first + second) * 0.5


def for_inputs(m: Tensor) -> Tensor:
    """Multipliers (b, …) of the inputs, with zeros for the baselines: (2b, …)."""
    return torch.cat([m, torch.zeros_like(m)])


def secant(x: Tensor, y: Tensor, m: Tensor) -> Tensor:
    """m·Δy/Δx; where Δx is small, the mean of the slopes at both ends, whose error ~Δx³/12 is below rounding there.

    The division alone would lose all digits where Δx is small. A kink between the ends (ReLU) shows in the slopes, and
    there the division stands whatever Δx is.
    """
    (slopes,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    dx = change(x)
    small = torch.finfo(x.dtype).eps ** (1 / 3)
    smooth = (dx.abs() < small) & (change(slopes).abs() < STEEP * small)
    quotient = change(y) / dx.masked_fill(dx == 0, 1.0)
    return for_inputs(torch.where(smooth, middle(slopes), quotient) * halves(m)[0])


product = Product(  # of two matrices
    lambda m, z: halves(m)[0],
    lambda a, b, upper: for_inputs(upper @ middle(b).mT),
    lambda a, b, upper: for_inputs(middle(a).mT @ upper),
)


def gate(a: Tensor, b: Tensor, z: Tensor, m: Tensor) -> Pair:
    """z = a ⊙ b. Where one factor is a number per token, as 1/σ is in norms written out, the rule of norms."""
    upper = halves(m)[0]
    if b.shape[-1] == 1 < a.shape[-1]:
        for_a, for_b = scaled_ends(a, b)
    elif a.shape[-1] == 1 < b.shape[-1]:
        for_b, for_a = scaled_ends(b, a)
    else:
        for_a, for_b = middle(b), middle(a)
    return for_inputs(upper * for_a), for_inputs(upper * for_b)


def scaled_ends(c: Tensor, scale: Tensor) -> Pair:
    """What Δc and Δs are multiplied with in Δ(cs), for scales s, s̄ (2b, …, 1); even halves where they are not both positive."""
    s, base = halves(scale)
    positive = (s > 0) & (base > 0)
    share = torch.where(positive, s / (s + base), 0.5)  # of the input's end in (sc + s̄c̄)/(s + s̄)
    first, second = halves(c)
    return (1 - share) * s + share * base, share * first + (1 - share) * second


def layer_norm(x: Tensor, rsigma: Tensor, m: Tensor, weight: Tensor | None, made: Made) -> Tensor:
    """The norm of centred features; a constant added to x changes nothing, so neither does a multiplier's mean."""
    found = rms_norm(x - x.mean(-1, keepdim=True), rsigma, m, weight)
    return found - found.mean(-1, keepdim=True)


def rms_norm(c: Tensor, scale: Tensor, m: Tensor, weight: Tensor | None) -> Tensor:
    """m_c = u·2ss̄/(s + s̄) − (u·(sc + s̄c̄)) s²s̄²/(s + s̄)² · (c + c̄)/d, with u = mγ; scale: s and s̄ (2b, …, 1)."""
    s, base = halves(scale)
    upper = halves(m)[0]
    u = upper if weight is None else upper * weight
    for_c, for_s = scaled_ends(c, scale)
    along = (u * for_s).mean(-1, keepdim=True) * (2 * (s * base).square() / (s + base))
    return for_inputs(u * for_c - along * middle(c))


def log_mean(log_p: Tensor) -> Tensor:
    """ℓ = (p − p̄)/(log p − log p̄), between p and p̄, from log-probabilities (2b, …); 0 where both are 0. (b, …)

    >>> log_mean(torch.tensor([[0.5, 0.25], [0.5, 0.75]]).log())
    tensor([[0.5000, 0.4551]])
    """
    first, second = halves(log_p)
    high = torch.maximum(first, second).exp()
    gap = (first - second).abs().nan_to_num(nan=0.0)  # −∞ twice: masked in both
    return torch.where(gap == 0, high, high * (-torch.expm1(-gap) / gap.masked_fill(gap == 0, 1.0)))


def softmax(x: Tensor, y: Tensor, m: Tensor) -> Tensor:
    """Over the last axis."""
    mean = log_mean(torch.log_softmax(x.to(m.dtype), -1))
    upper = halves(m)[0]
    return for_inputs(mean * (upper - (upper * mean).sum(-1, keepdim=True) / mean.sum(-1, keepdim=True)))


def log_softmax(x: Tensor, m: Tensor) -> Tensor:
    """Of multipliers m (b, …) at log p, those at x (2b, …): Δlog p_i = Δx_i − Σ_j ℓ_jΔx_j / Σℓ. (b, …)"""
    mean = log_mean(torch.log_softmax(x.to(m.dtype), -1))
    return m - mean / mean.sum(-1, keepdim=True) * m.sum(-1, keepdim=True)


DEEPLIFT = RuleSet(
    "deeplift",
    "multipliers that hand the difference from a baseline down exactly (Shrikumar 2017, rescale rule)",
    "coefficient",
    linear=None,
    product=product,
    gate=gate,
    skip=None,
    rotation=None,
    elementwise=secant,
    layer_norm=layer_norm,
    softmax=softmax,
    paired=True,
)
