"""Methods that take each layer's attention block apart into what every source token j adds to every token i.

Notation: F_ij = Σ_h A_h[i, j] W_O^h v_j^h + δ_ij x_j, so that the block's sum before its norm is s_i = Σ_j F_ij + b_O (v holds b_V).
T_ij = γ ⊙ (F_ij − mean_d F_ij)/σ_i, σ_i = std of s_i: what the norm makes of F_ij. y_i is the block's real output, b_O and β
included. Pre-norm models (GPT-2, LLaMA, …) have no norm on the sum: T = F, y = s.

Every method makes one matrix C^l (n, n) per layer, and scores are row r of the product C^L ··· C^1. `Explanation.layers` holds
row r after each layer; with matrices=True `Explanation.matrices` holds "C" and "R" (L, n, n), R^l = C^l ··· C^1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from whence.errors import UnknownName
from whence.methods.attention import rollout_rows
from whence.methods.distances import Parts, distances, norms, slices
from whence.registry import method
from whence.trace import Block, Norm, Trace
from whence.trace.attribution import Attribution

RELEASED_EPS = 1e-6  # of torch's pairwise_distance, which the released code measures with
ZEROING_BYTES = 64 << 20  # feed-forward activations of value-zeroing worked on at once


@method(
    "norms",
    needs={"blocks", "readout"},
    signed=False,
    sums_to="1",
    layers_start=1,
    knows_target=False,
    family="mixing",
    paper="Kobayashi 2021; ALTI 'Norm'",
)
def norms_rollout(trace: Trace, *, matrices: bool = False) -> Attribution:
    """Norm of what token j adds: ‖T_ij‖₂, rows scaled to sum 1, multiplied through the layers, row r.

    Departure: σ_i without the norm's eps, as in the code released with ALTI.

    Args:
        matrices: keep C^l and R^l of every layer.
    """
    return roll_out(trace, lambda block: shares(norms(parts_of(block, first(block))), block, trace), matrices)


@method(
    "globenc",
    needs={"blocks", "readout"},
    signed=False,
    layers_start=1,
    knows_target=False,
    family="mixing",
    paper="Modarressi 2022",
)
def globenc(trace: Trace, *, matrices: bool = False) -> Attribution:
    """GlobEnc: norms of T_ij after the layer's second norm too, ‖γ₂ ⊙ (T_ij − mean T_ij)/σ₂_i‖₂; plain product, row r.

    The feed-forward part enters only through σ₂, the std of the second norm's input; eps inside the roots, rows not scaled
    (scores grow with depth), both as released. Departure: in pre-norm models, which the paper does not treat, the second
    norm reads the block's output itself, so T = F is divided by the std (RMSNorm: root mean square) of y_i.

    Args:
        matrices: keep C^l and R^l of every layer.
    """

    def contributions(block: Block) -> Tensor:
        both = [*first(block), block.second_norm]
        return real_pairs(norms(parts_of(block, both, with_eps=True)), block, trace)

    return roll_out(trace, contributions, matrices)


@method(
    "alti",
    needs={"blocks", "readout"},
    signed=False,
    sums_to="1",
    layers_start=1,
    knows_target=False,
    family="mixing",
    paper="ALTI, Ferrando 2022, eq. 9–11",
    first_choice=True,
    variants=[{"norm": 2}],
)
def alti(trace: Trace, *, norm: int = 1, ln2: bool = False, matrices: bool = False) -> Attribution:
    """ALTI: C_ij ∝ max(0, ‖y_i‖₁ − ‖y_i − T_ij‖₁), rows sum to 1; R^l = C^l R^{l−1}; row r of R^L.

    Departures: a row that clips entirely becomes the identity row (released: NaN). The released code adds 1e-6 to every
    coordinate of a distance; so does ln2=True here, which exists in that code only, while the paper's own definition
    (ln2=False) goes without.

    Args:
        norm: 1, or 2 to measure in ℓ2 ("ours_l2" of the released code).
        ln2: go on through the second norm and measure the distance to its output ("ours2"; in post-norm models that is the
            layer's output).
        matrices: keep C^l and R^l of every layer.
    """
    if norm not in (1, 2):
        raise UnknownName("norm", str(norm), ["1", "2"])

    def contributions(block: Block) -> Tensor:
        through = [*first(block), block.second_norm] if ln2 else first(block)
        target = block.second_norm.output if ln2 else block.y
        size = torch.linalg.vector_norm(target, norm, dim=-1)[:, :, None]
        far = distances(parts_of(block, through), target - RELEASED_EPS if ln2 else target, norm)
        return shares((size - far).clamp(min=0), block, trace)

    return roll_out(trace, contributions, matrices)


@method(
    "value-zeroing",
    needs={"blocks", "readout"},
    signed=False,
    sums_to="1",
    layers_start=1,
    knows_target=False,
    family="mixing",
    paper="Mohebbi 2023",
)
def value_zeroing(trace: Trace, *, matrices: bool = False) -> Attribution:
    """Value zeroing: cosine distance of the layer's output at i with and without token j's value; rows sum to 1; row r.

    Token j's value vectors are zeroed in all heads of one layer, its residual stays, and the layer is finished (norms and
    feed-forward part): n feed-forward passes a layer, so about n times the cost of the other mixing methods.

    Args:
        matrices: keep C^l and R^l of every layer.
    """
    return roll_out(trace, lambda block: shares(zeroing_distances(block), block, trace), matrices)


# ---- from a block to its parts --------------------------------------------------------------------------------------


def first(block: Block) -> list[Norm]:
    """The norm on the block's sum, where there is one."""
    return [] if block.norm is None else [block.norm]


def parts_of(block: Block, through: Sequence[Norm], with_eps: bool = False) -> Parts:
    """T_ij of a block after the given norms. A norm with fixed σ_i is linear, so it acts on W_O and x once, not on pairs."""
    weight, residual = block.output_weight, block.x
    scale = torch.ones_like(residual[..., 0])  # (b, n)
    for norm in through:
        weight, residual = (transformed(vectors, norm) for vectors in (weight, residual))
        variance = norm.variance + norm.eps if with_eps else norm.variance
        scale = scale * variance.clamp(min=torch.finfo(variance.dtype).tiny).rsqrt()
    return Parts(block.attention, block.own_value, weight, residual, scale)


def transformed(vectors: Tensor, norm: Norm) -> Tensor:
    """γ ⊙ (u − mean_d u); RMSNorm does not centre. (…, d)"""
    return norm.weight * (vectors - vectors.mean(-1, keepdim=True) if norm.centred else vectors)


# ---- value zeroing --------------------------------------------------------------------------------------------------


def zeroing_distances(block: Block) -> Tensor:
    """1 − cos(out_i, out_i without the value of j): (b, n, n)."""
    b, _, n, _ = block.attention.shape
    sums, out = block.sums(), unit(block.output)
    vectors = parts_of(block, []).vectors()  # (b, n, H, d)
    distances = torch.empty_like(block.attention[:, 0])
    widest = 6 * block.x.shape[-1]  # the feed-forward part's own activations, roughly
    for keys in slices(n, ZEROING_BYTES // (b * n * widest * sums.element_size())):
        weights = block.attention[..., keys].permute(0, 3, 2, 1)  # (b, key, query, H)
        without = block.finish(block.normed(sums[:, None] - weights @ vectors[:, keys]))  # (b, key, query, d)
        # ½‖û − v̂‖² = 1 − cos, without the cancellation
        distances[..., keys] = (unit(without) - out[:, None]).square().sum(-1).transpose(1, 2) / 2
    return distances


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1."""
    return torch.nn.functional.normalize(vectors, dim=-1)


# ---- from contributions to scores -----------------------------------------------------------------------------------


def real_pairs(matrix: Tensor, block: Block, trace: Trace) -> Tensor:
    """0 where a padded token takes part, and where i never looks at j (mask, causality): there T_ij = 0 up to rounding."""
    seen = (block.attention.sum(1) + trace.eye) > 0  # (b, n, n)
    return matrix * (seen & trace.valid[:, :, None] & trace.valid[:, None, :])


def shares(matrix: Tensor, block: Block, trace: Trace) -> Tensor:
    """Rows that sum to 1; a row of zeros (all clipped, or padding) becomes the identity's row. (b, n, n)"""
    matrix = real_pairs(matrix, block, trace)
    total = matrix.sum(-1, keepdim=True)
    return torch.where(total > 0, matrix / total.where(total > 0, torch.ones_like(total)), trace.eye)


def roll_out(trace: Trace, contributions: Callable[[Block], Tensor], matrices: bool) -> Attribution:
    """Scores and layers from the product of C^l = contributions(block l), and the matrices if wanted."""

    def contributions_of(block: Block) -> Tensor:
        at_hand = block.attention  # the map is looked at more than once: held, it is not made anew
        matrix = contributions(block)
        del at_hand
        return matrix

    per_layer = [contributions_of(block) for block in trace.blocks]  # L × (b, n, n)
    layers = rollout_rows(trace, per_layer)
    maps = None
    if matrices:
        product = [per_layer[0]]
        for c in per_layer[1:]:
            product.append(c @ product[-1])
        maps = {"C": torch.stack(per_layer, 1), "R": torch.stack(product, 1)}
    return Attribution(layers[:, -1], layers, matrices=maps)
