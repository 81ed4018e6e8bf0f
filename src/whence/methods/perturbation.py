"""Methods that only ask the model: change the text, and see what becomes of the answer.

f(S) is the model's value (`of`: the target's logit or its probability) when only the units S of the text are kept; u is how many there
are, f(all) the value of the text as it is, f(∅) that of the baseline from which all are taken. All four methods share these options:

    unit      "token", or "word": all pieces of a word go together, and share its score equally
    replace   what takes the place of a unit: "mask", "unk", "pad" (that token), or "delete" (nothing: the text gets shorter).
              None is the first of these that the model has; the Explanation's options say which it was
    segment   perturb only the text (0) or only the pair (1), the other held fixed; None perturbs both
    of        "logit" or "probability"

Special tokens, and tokens that a task asks about, are held fixed and score 0. Samples are drawn from `seed` and the text alone.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whence.errors import InputError
from whence.inputs.numbers import short, whole, work
from whence.methods.ground import change_of
from whence.registry import method

if TYPE_CHECKING:
    from whence.run.perturb import Game, Play, Text

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_EXACT = 12  # units: 4,096 coalitions
ROWS_AT_ONCE = 8192  # that one text asks for before it waits for answers
LIME_PERCENT = 100.0  # lime measures cosine distance in percent
LIME_WIDTH = 25.0


@method(
    "occlusion",
    kind="perturbation",
    signed=True,
    family="perturbation",
    paper="Zeiler & Fergus 2014; Decoded Grad-CAM",
    first_choice=True,
)
def occlusion(
    text: Text,
    *,
    window: int = 1,
    unit: str = "token",
    replace: str | None = None,
    segment: int | None = None,
    of: str = "logit",
) -> Play:
    """f(all) − f(all but a window of `window` units), averaged over the windows that cover a unit; stride 1.

    Windows lie wholly inside the text, so units near its ends are covered by fewer.

    Args:
        window: units hidden at once.
        unit, replace, segment, of: as for all methods here.
    """
    game = text.game(unit=unit, replace=replace, segment=segment, of=of)
    width = min(whole("window", window), game.units)
    starts = np.arange(game.units - width + 1)[:, None]
    places = np.arange(game.units)
    lost = (places >= starts) & (places < starts + width)  # (windows, u)
    y = yield game.ask(np.concatenate([np.ones((1, game.units), bool), ~lost]))
    return game.part((y[0] - y[1:]) @ lost / lost.sum(0))


@method("lime", kind="perturbation", signed=True, family="perturbation", paper="Ribeiro 2016")
def lime(
    text: Text,
    *,
    samples: int = 100,
    kernel_width: float = LIME_WIDTH,
    alpha: float = 1.0,
    seed: int = 0,
    unit: str = "token",
    replace: str | None = None,
    segment: int | None = None,
    of: str = "logit",
) -> Play:
    """Coefficients of a ridge regression of f(S) on random S, weighted by how near S is to the whole text.

    As the lime package does it for texts: the first sample is the text itself; the others lose a uniform number (1 to u) of
    units, drawn without replacement; weights are √exp(−d²/w²) with d = 100·(1 − cosine(S, all)); the fit is ridge (α = 1) with
    an intercept. `options["fit"]` is the weighted R² of the surrogate. Departures: no selection of features beforehand, f is the
    logit unless of="probability", and units become [MASK] unless replace="delete".

    Args:
        samples: the text itself and random S; the comparison in Decoded Grad-CAM uses 25.
        kernel_width: w above.
        alpha: how much coefficients are drawn to 0.
        seed: chance depends on it and the text alone.
        unit, replace, segment, of: as for all methods here.
    """
    count = work("samples", samples, 2)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (kernel_width, alpha))
    if not (numbers and 0 < kernel_width < 1e100 and 0 <= alpha < 1e100):
        raise InputError(
            f"kernel_width={short(kernel_width)}, alpha={short(alpha)}: the width must be above 0, alpha 0 or more."
        )
    game = text.game(unit=unit, replace=replace, segment=segment, of=of)
    random = game.draw(seed)
    lost = random.integers(1, game.units + 1, count - 1)  # how many each sample loses
    keep = np.ones((count, game.units), bool)
    keep[1:] = random_ranks(random, count - 1, game.units) >= lost[:, None]
    y = yield game.ask(keep)
    distance = LIME_PERCENT * (1 - np.sqrt(keep.sum(1) / game.units))  # cosine distance to the all-ones vector
    with np.errstate(over="ignore", under="ignore"):
        weights = np.sqrt(np.exp(-((distance / kernel_width) ** 2)))
    if weights.sum() == weights[0]:
        raise InputError(
            f"kernel_width={short(kernel_width)}: so narrow that no sample weighs anything beside the text itself; {LIME_WIDTH:g} is usual."
        )
    coefficients, fit = weighted_ridge(keep.astype(float), y, weights, alpha)
    return game.part(coefficients, fit=fit)


@method(
    "shapley",
    kind="perturbation",
    signed=True,
    sums_to=change_of,
    family="perturbation",
    paper="Shapley 1953; Castro 2009",
)
def shapley(
    text: Text,
    *,
    permutations: int | str = 25,
    antithetic: bool = True,
    seed: int = 0,
    unit: str = "token",
    replace: str | None = None,
    segment: int | None = None,
    of: str = "logit",
) -> Play:
    """What a unit adds to f when it joins the units before it, averaged over random orders (Shapley value by sampling).

    Scores sum to f(all) − f(∅) exactly, whatever the sample. `options["stderr"]` holds each token's standard error over orders
    (pairs of them when antithetic); None when there are too few to tell.

    Args:
        permutations: orders drawn; "all" is the mean over all u! orders, computed from the 2^u coalitions, for texts of up to 12
            units: exact, with standard error 0.
        antithetic: follow each order by its reverse, which shares no step with it and cancels much of its error.
        seed: chance depends on it and the text alone.
        unit, replace, segment, of: as for all methods here.
    """
    game = text.game(unit=unit, replace=replace, segment=segment, of=of)
    u = game.units
    if permutations == "all":
        check_small(game, "permutations")
        y = yield game.ask(all_coalitions(u))
        return game.part(exact_shapley(y, u), np.zeros(u))
    orders = work("permutations", permutations, other=" or 'all'")
    random = game.draw(seed)
    ends = yield game.ask(np.array([[False] * u, [True] * u]), later=orders * (u - 1))
    per_block = max(1, ROWS_AT_ONCE // (2 * max(u - 1, 1)))
    gains: list[Floats] = []
    remaining = orders
    while remaining:
        drawn = min(per_block, (remaining + 1) // 2 if antithetic else remaining)
        ranks = random_ranks(random, drawn, u)  # (p, u) when each unit joins
        if antithetic:
            ranks = np.stack([ranks, u - 1 - ranks], axis=1).reshape(-1, u)[:remaining]
        remaining -= len(ranks)
        joined = ranks[:, None, :] < np.arange(1, u)[:, None]  # (p, u − 1, u) every order's steps between the ends
        y = yield game.ask(joined.reshape(-1, u), later=remaining * (u - 1))
        steps = np.pad(y.reshape(len(ranks), u - 1), ((0, 0), (1, 1)))
        steps[:, 0], steps[:, -1] = ends  # (p, u + 1)
        gains.append(np.take_along_axis(np.diff(steps, axis=1), ranks, axis=1))  # (p, u) of each unit
    all_gains = np.concatenate(gains)
    return game.part(all_gains.mean(0), spread_of_mean(all_gains, antithetic))


@method(
    "kernel-shap",
    kind="perturbation",
    signed=True,
    sums_to=change_of,
    family="perturbation",
    paper="Lundberg & Lee 2017",
)
def kernel_shap(
    text: Text,
    *,
    samples: int | str = 500,
    seed: int = 0,
    unit: str = "token",
    replace: str | None = None,
    segment: int | None = None,
    of: str = "logit",
) -> Play:
    """Shapley values as the weighted least-squares fit of f(S) with the SHAP kernel, Σ scores = f(all) − f(∅) held exactly.

    Coalitions as in the shap package: sizes whose share of the kernel's weight covers all their coalitions are enumerated,
    smallest and largest first; the other sizes are sampled in pairs of a coalition and its complement, until `samples`
    distinct ones are found. The constraint is solved by eliminating one unit, so no large weight is needed; there is no
    regularisation. `options["stderr"]` is the sampling error of the fit (the sandwich estimate over sampled pairs): 0 when
    exact, None when there are fewer coalitions than units.

    Args:
        samples: coalitions; with "all" (up to 12 units), or as many as there are, the result is exact.
        seed: chance depends on it and the text alone.
        unit, replace, segment, of: as for all methods here.
    """
    game = text.game(unit=unit, replace=replace, segment=segment, of=of)
    u = game.units
    if samples == "all":
        check_small(game, "samples")
        count = max(2**u - 2, 1)
    else:
        count = work("samples", samples, 2, other=" or 'all'")
    keep, weights, pair_counts = kernel_coalitions(u, count, game.draw(seed))
    y = yield game.ask(np.concatenate([np.array([[False] * u, [True] * u]), keep]))
    scores, stderr = constrained_fit(keep, y[2:] - y[0], weights, pair_counts, float(y[1] - y[0]))
    return game.part(scores, stderr)


def check_small(game: Game, option: str) -> None:
    """Refuse to enumerate the coalitions of a long text."""
    if game.units > MOST_EXACT:
        raise InputError(
            f"{option}='all' needs 2^{game.units} rows for a text of {game.units} units; it is for up to {MOST_EXACT}: give a "
            "number instead, or unit='word'."
        )


def random_ranks(random: np.random.Generator, count: int, u: int) -> NDArray[np.int64]:
    """(count, u) random orders, each as every unit's place in it."""
    return random.random((count, u)).argsort(1).argsort(1)


def weighted_ridge(x: Floats, y: Floats, weights: Floats, alpha: float) -> tuple[Floats, float]:
    """Coefficients of min Σ w (y − xβ − c)² + α‖β‖² and the weighted R²; the intercept c is not penalised.

    >>> coefficients, fit = weighted_ridge(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]), np.ones(3), 0.0)
    >>> coefficients.round(6), round(fit, 6)
    (array([2.]), 1.0)
    """
    share = weights / weights.sum()
    dx, dy = x - share @ x, y - share @ y
    normal = dx.T @ (weights[:, None] * dx) + alpha * np.eye(x.shape[1])
    coefficients = np.linalg.lstsq(normal, dx.T @ (weights * dy), rcond=None)[0]
    total = float(weights @ dy**2)
    missed = float(weights @ (dy - dx @ coefficients) ** 2)
    return coefficients, 1 - missed / total if total > 0 else 1.0


def spread_of_mean(gains: Floats, antithetic: bool) -> Floats | None:
    """Standard error of the mean over orders (p, u). Reversed pairs are independent of one another, not within; an order
    without its reverse (the last of an odd number) counts with the spread of single orders."""
    p = len(gains)
    if not antithetic:
        return None if p < 2 else gains.std(0, ddof=1) / np.sqrt(p)
    if p < 4:
        return None
    paired = p - p % 2
    pairs = gains[:paired].reshape(paired // 2, 2, -1).mean(1)
    variance = len(pairs) * (2 / p) ** 2 * pairs.var(0, ddof=1) + (p % 2) / p**2 * gains.var(0, ddof=1)
    spread: Floats = np.sqrt(variance)
    return spread


def all_coalitions(u: int) -> Bools:
    """(2^u, u); bit i of the row's number says whether unit i is kept."""
    coalitions: Bools = (np.arange(2**u)[:, None] >> np.arange(u)) & 1 == 1
    return coalitions


def exact_shapley(values: Floats, u: int) -> Floats:
    """φ_i = Σ_{S∌i} |S|!(u−|S|−1)!/u! · (f(S∪i) − f(S)), from f of `all_coalitions`.

    >>> exact_shapley(np.array([0.0, 1.0, 2.0, 5.0]), 2)
    array([2., 3.])
    """
    numbers = np.arange(2**u)
    sizes = all_coalitions(u).sum(1)
    weight = np.array([1 / (u * comb(u - 1, s)) for s in range(u)])
    scores = np.empty(u)
    for i in range(u):
        without = numbers[numbers >> i & 1 == 0]
        scores[i] = weight[sizes[without]] @ (values[without | 1 << i] - values[without])
    return scores


def kernel_coalitions(u: int, samples: int, random: np.random.Generator) -> tuple[Bools, Floats, NDArray[np.int64]]:
    """About `samples` distinct coalitions (k, u) other than ∅ and all, their weights (k,), which sum to 1, and how often
    the pair of a sampled one was drawn (k,): 0 for enumerated ones. Sampled pairs come last, complements side by side."""
    half = u // 2
    sizes = np.arange(1, half + 1)
    weight = (u - 1) / (sizes * (u - sizes)) * np.where(2 * sizes == u, 1, 2)
    weight = weight / weight.sum() if u > 1 else weight
    blocks: list[Bools] = []
    weights: list[Floats] = []
    to_draw, remaining, size = samples, 1.0, 1
    while size <= half:
        count = comb(u, size) * (1 if 2 * size == u else 2)
        if to_draw * weight[size - 1] / remaining < count - 1e-8:
            break
        block = of_size(u, size)
        blocks.append(block if 2 * size == u else np.concatenate([block, ~block]))
        weights.append(np.full(count, weight[size - 1] / count))
        to_draw, remaining, size = to_draw - count, remaining - weight[size - 1], size + 1
    enumerated = np.concatenate([np.zeros((0, u), bool), *blocks])
    pairs = to_draw // 2
    if size > half or pairs == 0:
        flat = np.concatenate([np.zeros(0), *weights])
        return enumerated, flat / max(flat.sum(), 1e-300), np.zeros(len(enumerated), np.int64)
    drawn = random_ranks(random, 4 * pairs, u) < random.choice(
        sizes[size - 1 :], 4 * pairs, p=weight[size - 1 :] / weight[size - 1 :].sum()
    ).reshape(-1, 1)
    drawn ^= ~drawn[:, :1]  # of a pair, the one that keeps the first unit
    _, first = np.unique(drawn, axis=0, return_index=True)
    first.sort()
    drawn = drawn[: first[pairs]] if len(first) > pairs else drawn  # up to the draw that would be one pair too many
    distinct, counts = np.unique(drawn, axis=0, return_counts=True)
    both = np.stack([distinct, ~distinct], axis=1).reshape(-1, u)
    twice = np.repeat(counts, 2)
    weights.append(remaining * twice / (2 * len(drawn)))
    keep = np.concatenate([enumerated, both])
    return keep, np.concatenate(weights), np.concatenate([np.zeros(len(enumerated), np.int64), twice])


def of_size(u: int, size: int) -> Bools:
    """All coalitions of a size."""
    members = np.array(list(combinations(range(u), size)))
    keep = np.zeros((len(members), u), bool)
    np.put_along_axis(keep, members, True, axis=1)
    return keep


def constrained_fit(
    keep: Bools, values: Floats, weights: Floats, pair_counts: NDArray[np.int64], total: float
) -> tuple[Floats, Floats | None]:
    """min Σ w (f(S) − f(∅) − Σ_{i∈S} φ_i)² subject to Σφ = total, by eliminating the last unit; and the standard errors.

    A sampled pair with count c stands for c independent draws, each moving the fit by ψ = (AᵀWA)⁻¹ Σ_{S in pair} w A_S r_S / c:
    the variance is Σ_pairs c ψψᵀ, scaled by rows/(rows − parameters) since the residuals r were fitted.
    """
    u = keep.shape[1]
    if u == 1:
        return np.array([total]), np.zeros(1)
    z = keep.astype(float)
    a, b = z[:, :-1] - z[:, -1:], values - z[:, -1] * total  # (k, u − 1), (k,)
    root = np.sqrt(weights)
    fitted = np.linalg.lstsq(root[:, None] * a, root * b, rcond=None)[0]
    scores = np.append(fitted, total - fitted.sum())
    sampled = pair_counts > 0
    if not sampled.any():
        return scores, np.zeros(u)
    k = len(keep)
    if k <= u - 1:
        return scores, None
    inverse = np.linalg.pinv(a.T @ (weights[:, None] * a))
    influence = (weights * (b - a @ fitted))[sampled, None] * a[sampled] @ inverse  # (sampled, u − 1)
    per_pair = influence.reshape(-1, 2, u - 1).sum(1) / np.sqrt(pair_counts[sampled][::2, None])
    per_pair = np.concatenate([per_pair, -per_pair.sum(1, keepdims=True)], axis=1)  # the eliminated unit takes the rest
    stderr: Floats = np.sqrt((per_pair**2).sum(0) * k / (k - u + 1))
    return scores, stderr
