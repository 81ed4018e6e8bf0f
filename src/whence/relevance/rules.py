"""Relevance rules: how an operation hands the relevance of its output down to its inputs. A rule set is a small table.

Relevance R has the shape of the tensor it belongs to. Two ways of carrying it backwards are in use:

* "relevance": a backward carries R itself; a linear layer divides by its output and multiplies by its input (sets
  `deep-taylor`, `lrp`, `epsilon`).
* "coefficient": a backward carries c with R = x ⊙ c, so that nothing is divided on the way (set `attnlrp`). An operation
  whose entry is None then keeps its own gradient, which *is* the ε→0 rule.

Every rule is per example: nothing is summed over the batch. Sources: Bach 2015 (LRP), Montavon 2017 (deep Taylor), Chefer
2021 (CVPR, and its released code), Achtibat 2024 (AttnLRP).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from whence.errors import UnknownName
from whence.fast.fused import fusible
from whence.fast.halves import NOISE, pays, product_in_halves

STABILISER = 1e-9  # the released code's: added to every denominator, whatever its sign
EPSILON = 1e-6  # of the ε rule, with the sign of the denominator
LAUNCHES = (
    1 << 23
)  # numbers below which three kernels of torch are started sooner than one of Triton, and run no longer

Pair = tuple[Tensor, Tensor]


@dataclass
class Made:
    """What rules need more than once, made once per trace: |W|, W⁺ and W⁻ of every weight met, and zeros."""

    kept: dict[tuple[object, ...], Tensor] = field(default_factory=dict)
    exact: frozenset[int] = frozenset()  # where weights lie that bfloat16 holds exactly (`halves.storages`)

    def get(self, kind: str, weight: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        key = (kind, weight.data_ptr(), weight.shape, weight.stride())
        if key not in self.kept:
            self.kept[key] = make(weight)
        return self.kept[key]

    def zeros(self, like: Tensor) -> Tensor:
        """Not to be written to."""
        key = ("zeros", like.shape, like.dtype)
        if key not in self.kept:
            self.kept[key] = torch.zeros_like(like)
        return self.kept[key]

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + b"""
        if self.in_halves(x, weight.T, weight):
            z = product_in_halves(x, weight.T)
            return z if bias is None else z.add_(bias)
        return F.linear(x, weight, bias)

    def times(self, x: Tensor, matrix: Tensor, weight: Tensor) -> Tensor:
        """x·matrix, where the matrix holds a weight's numbers or their sizes, as it is or transposed."""
        return product_in_halves(x, matrix) if self.in_halves(x, matrix, weight) else x @ matrix

    def in_halves(self, x: Tensor, matrix: Tensor, weight: Tensor) -> bool:
        """Whether that product is taken in halves: it may be, and pays."""
        return bool(self.exact) and weight.untyped_storage().data_ptr() in self.exact and pays(x, matrix)

    def absolute(self, weight: Tensor) -> Tensor:
        return self.get("abs", weight, torch.abs)

    def positive(self, weight: Tensor) -> Tensor:
        return self.get("positive", weight, lambda w: w.clamp(min=0))

    def negative(self, weight: Tensor) -> Tensor:
        return self.get("negative", weight, lambda w: w.clamp(max=0))


def safe_divide(a: Tensor, b: Tensor, factor: float = 1.0) -> Tensor:
    """factor · a / (b + 1e-9), and 0 where b is 0: as in the released code. A factor of ½ is exact, wherever it is applied."""
    if fusible(a, b):
        from whence.fast import rules_triton

        return rules_triton.quotient(a, b, STABILISER, factor)
    found = (a / (b + STABILISER)).masked_fill(b == 0, 0.0)
    return found if factor == 1 else found.mul_(factor)


def epsilon_divide(a: Tensor, b: Tensor, factor: float = 1.0) -> Tensor:
    """factor · a / (b + ε·sign b), with sign 0 = 1."""
    found = a / torch.where(b < 0, b - EPSILON, b + EPSILON)
    return found if factor == 1 else found.mul_(factor)


def per_example(values: Tensor) -> Tensor:
    """Sum over everything but the first axis, shaped to broadcast: (b, …) → (b, 1, …)."""
    return values.sum(dim=tuple(range(1, values.dim())), keepdim=True)


# ---- linear layers: z = x Wᵀ + b; x (…, in), W (out, in), z and R (…, out) ----------------------------------------------


def linear_common(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None, r: Tensor, made: Made) -> Tensor:
    """R_x = x⁺ ⊙ (S W⁺) + x⁻ ⊙ (S W⁻), S = R / (x⁺W⁺ + x⁻W⁻): one denominator for both halves. Chefer 2021, eq. 4.

    Of the four products of each direction two pairs are enough, and x Wᵀ is known from the forward:
    x⁺W⁺ + x⁻W⁻ = ½(xW + |x||W|), and the same on the way back. Where every contribution is negative the halves cancel to
    rounding noise, which counts as the 0 it stands for.
    """
    size, magnitude = x.abs(), made.absolute(weight)
    noise = NOISE if made.in_halves(size, magnitude.T, weight) else 16 * torch.finfo(x.dtype).eps
    s = shares(r, made.times(size, magnitude.T, weight), z, bias, noise)
    by_sign, by_size = made.times(s, weight, weight), made.times(s, magnitude, weight)
    if fusible(by_sign, by_size, x):
        from whence.fast import rules_triton

        return rules_triton.weighed(by_sign, by_size, x)
    return by_sign.mul_(x).addcmul_(by_size, size)


def shares(r: Tensor, total: Tensor, z: Tensor, bias: Tensor | None, noise: float) -> Tensor:
    """½S = R / (|x||W| + xW) from total = |x||W|, whose memory is used up, and z = xW + b; 0 where only noise is left, which
    is a share of the total."""
    if fusible(r, total, z):
        from whence.fast import rules_triton

        return rules_triton.shares(r, total, z, bias, noise, 2 * STABILISER)
    positive = total + z if bias is None else (total + z).sub_(bias)  # twice the denominator
    nothing = positive <= total.mul_(noise)
    return r.div(positive.add_(2 * STABILISER)).masked_fill_(nothing, 0.0)


def linear_separate(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None, r: Tensor, made: Made) -> Tensor:
    """R_x = x⁺ ⊙ (S₁ W⁺) + x⁻ ⊙ (S₂ W⁻), S₁ = R / x⁺W⁺, S₂ = R / x⁻W⁻: each half has a denominator of its own.

    As in Chefer's `layers_lrp`. An output fed by both halves hands its relevance to each of them, so that the sum is
    kept only where inputs have one sign; `relevance_kept` tells.
    """
    result = torch.zeros_like(x)
    for half, w in ((x.clamp(min=0), made.positive(weight)), (x.clamp(max=0), made.negative(weight))):
        s = safe_divide(r, F.linear(half, w))
        result.addcmul_(s @ w, half)
    return result


def linear_epsilon(x: Tensor, weight: Tensor, z: Tensor, bias: Tensor | None, r: Tensor, made: Made) -> Tensor:
    """R_x = x ⊙ (S W), S = R / (z + ε·sign z); z includes the bias, which keeps its share. Bach 2015, eq. 58."""
    return (epsilon_divide(r, z) @ weight).mul_(x)


# ---- products of two traced operands --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """z = a b. What each operand gets of R follows from one S; of a map A only its own share may be wanted."""

    ratio: Callable[[Tensor, Tensor], Tensor]  # R, z → S
    first: Callable[[Tensor, Tensor, Tensor], Tensor]  # a, b, S → R_a
    second: Callable[[Tensor, Tensor, Tensor], Tensor]  # a, b, S → R_b

    def __call__(self, a: Tensor, b: Tensor, z: Tensor, r: Tensor) -> Pair:
        s = self.ratio(r, z)
        return self.first(a, b, s), self.second(a, b, s)


def first_share(a: Tensor, b: Tensor, s: Tensor) -> Tensor:
    """a ⊙ (S bᵀ)"""
    return (s @ b.mT).mul_(a)


def second_share(a: Tensor, b: Tensor, s: Tensor) -> Tensor:
    """b ⊙ (aᵀ S), laid out in memory as b is: keys come transposed."""
    if b.stride(-1) != 1 == b.stride(-2):
        return (s.mT @ a).mul_(b.mT).mT
    return (a.mT @ s).mul_(b)


# R_a = ½ a ⊙ (S bᵀ), R_b = ½ b ⊙ (aᵀ S), S = R / z; halved so that both together keep R
product = Product(lambda r, z: safe_divide(r, z, 0.5), first_share, second_share)
# the same with the ε rule's denominator
product_epsilon = Product(lambda r, z: epsilon_divide(r, z, 0.5), first_share, second_share)
# AttnLRP, eq. 13–14 (uniform rule): half of the gradient each
product_coefficient = Product(lambda c, z: c * 0.5, lambda a, b, c: c @ b.mT, lambda a, b, c: a.mT @ c)


def gate(a: Tensor, b: Tensor, z: Tensor, r: Tensor) -> Pair:
    """Elementwise z = a ⊙ b (SwiGLU): half of R each."""
    half = r * 0.5
    return half, half


def gate_coefficient(a: Tensor, b: Tensor, z: Tensor, c: Tensor) -> Pair:
    half = c * 0.5
    return half * b, half * a


# ---- sums of two traced operands ------------------------------------------------------------------------------------------


def addition(a: Tensor, b: Tensor, z: Tensor, r: Tensor) -> Pair:
    """z = a + b: R_a = a ⊙ R/z, R_b = b ⊙ R/z."""
    s = safe_divide(r, z)
    return a * s, b * s


def addition_rescaled(a: Tensor, b: Tensor, z: Tensor, r: Tensor) -> Pair:
    """A skip connection: the rule above, then each branch scaled to |ΣR_a| / (|ΣR_a| + |ΣR_b|) of ΣR. Chefer 2021, eq. 11.

    Sums run over one example's tokens and features; padded tokens carry no relevance and so do not count.
    """
    if fusible(a, b, r):
        from whence.fast import rules_triton

        return rules_triton.rescaled(a, b, r, STABILISER, scales)
    ra, rb = addition(a, b, z, r)
    scale_a, scale_b = scales(per_example(ra), per_example(rb), per_example(r))
    return ra.mul_(scale_a), rb.mul_(scale_b)


def scales(sum_a: Tensor, sum_b: Tensor, total: Tensor) -> Pair:
    """What brings the sums of two branches to |ΣR_a| / (|ΣR_a| + |ΣR_b|) of ΣR, and likewise."""
    both = sum_a.abs() + sum_b.abs()
    return (
        safe_divide(safe_divide(sum_a.abs(), both) * total, sum_a),
        safe_divide(safe_divide(sum_b.abs(), both) * total, sum_b),
    )


def addition_epsilon(a: Tensor, b: Tensor, z: Tensor, r: Tensor) -> Pair:
    s = epsilon_divide(r, z)
    return a * s, b * s


# ---- one input, one output ------------------------------------------------------------------------------------------------


def identity(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    """Activations, RMSNorm, softmax: R passes unchanged."""
    return r


def masked_softmax(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    """Softmax passes R unchanged to x = scores + mask, and that sum hands it to the scores: R·x/x, with the stabiliser.

    Departure: where sums are rescaled the released code rescales this one too, by a ΣR/ΣR that is 1 but for rounding.
    """
    if fusible(r, x):
        from whence.fast import rules_triton

        return rules_triton.through_mask(r, x, STABILISER)
    return safe_divide(r, x).mul_(x)


def identity_coefficient(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """The same for coefficients: c_x = c y/x (AttnLRP eq. 9); also right for RMSNorm, where y/x is the detached scale."""
    if x.numel() >= LAUNCHES and fusible(x, y, c):
        from whence.fast import rules_triton

        return rules_triton.scaled(c, y, x)
    return y.div(x).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).mul_(c)


def layer_norm_identity(x: Tensor, rsigma: Tensor, r: Tensor, weight: Tensor | None, made: Made) -> Tensor:
    return r


def layer_norm_coefficient(x: Tensor, rsigma: Tensor, c: Tensor, weight: Tensor | None, made: Made) -> Tensor:
    """The gradient with the standard deviation held fixed: c_x = u − mean_d u, u = c γ/σ (AttnLRP §3.3.1, as in LXT).

    The true gradient takes x̂ mean_d(u x̂) away from that as well, x̂ the normalised input; for an input of 0 it is 0, so that
    torch's own kernel serves for both.
    """
    return layer_norm_gradient(made.zeros(x), made.zeros(rsigma), rsigma, c, weight)


def layer_norm_gradient(x: Tensor, mean: Tensor, rsigma: Tensor, g: Tensor, weight: Tensor | None) -> Tensor:
    """rσ (u − mean_d u − x̂ mean_d(u x̂)), u = g γ, x̂ = (x − mean) rσ; mean and rσ (…, 1) as `native_layer_norm` gives them."""
    only_input = [True, False, False]
    found: Tensor = torch.ops.aten.native_layer_norm_backward.default(
        g, x, x.shape[-1:], mean, rsigma, weight, None, only_input
    )[0]
    return found


@dataclass(frozen=True)
class RuleSet:
    """One rule per kind of operation. None: the operation keeps its own gradient."""

    name: str
    about: str
    carries: str  # "relevance" or "coefficient"
    linear: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Made], Tensor] | None
    product: Product  # of two matrices
    gate: Callable[[Tensor, Tensor, Tensor, Tensor], Pair]  # elementwise product
    skip: Callable[[Tensor, Tensor, Tensor, Tensor], Pair] | None  # a + b of two states
    rotation: Callable[[Tensor, Tensor, Tensor, Tensor], Pair] | None  # a + b of one state's scaled parts (rotary)
    elementwise: Callable[[Tensor, Tensor, Tensor], Tensor]  # activations, and norms that only rescale (RMSNorm)
    layer_norm: Callable[[Tensor, Tensor, Tensor, Tensor | None, Made], Tensor]
    softmax: Callable[[Tensor, Tensor, Tensor], Tensor] | None
    fused_attention: tuple[float, float, float] | None = None  # shares of the gradient of (q, k, v) in a fused kernel
    paired: bool = False  # rows come as inputs, then their baselines (whence.relevance.deeplift)


RULE_SETS = {
    rules.name: rules
    for rules in (
        RuleSet(
            "deep-taylor",
            "positive contributions only, skip connections rescaled; keeps the sum of relevance (Chefer 2021)",
            "relevance",
            linear=linear_common,
            product=product,
            gate=gate,
            skip=addition_rescaled,
            rotation=addition,
            elementwise=identity,
            layer_norm=layer_norm_identity,
            softmax=masked_softmax,
        ),
        RuleSet(
            "lrp",
            "positive and negative inputs divided apart, no rescaling (Chefer's `layers_lrp`)",
            "relevance",
            linear=linear_separate,
            product=product,
            gate=gate,
            skip=addition,
            rotation=addition,
            elementwise=identity,
            layer_norm=layer_norm_identity,
            softmax=masked_softmax,
        ),
        RuleSet(
            "epsilon",
            "plain proportions with an ε in the denominator; biases keep their share (Bach 2015)",
            "relevance",
            linear=linear_epsilon,
            product=product_epsilon,
            gate=gate,
            skip=addition_epsilon,
            rotation=addition_epsilon,
            elementwise=identity,
            layer_norm=layer_norm_identity,
            softmax=identity,
        ),
        RuleSet(
            "attnlrp",
            "AttnLRP's rules as gradient × input: softmax by Taylor, products shared evenly (Achtibat 2024)",
            "coefficient",
            linear=None,
            product=product_coefficient,
            gate=gate_coefficient,
            skip=None,
            rotation=None,
            elementwise=identity_coefficient,
            layer_norm=layer_norm_coefficient,
            softmax=None,
            fused_attention=(0.25, 0.25, 0.5),
        ),
    )
}


def rule_set(name: str | RuleSet) -> RuleSet:
    """The rule set called `name`, or an error that lists them; a rule set is itself."""
    if isinstance(name, RuleSet):
        return name
    if name not in RULE_SETS:
        raise UnknownName("rule set", str(name), RULE_SETS)
    return RULE_SETS[name]
