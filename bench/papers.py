"""Figures printed in the four papers, by the names that their methods have here, to compare orderings with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """One column of a paper's table."""

    source: str
    metric: str  # as whence names it
    figures: dict[str, float]  # method → printed value


ATTCAT = "AttCAT 2022, table 1 (BERT, SST-2)"
MASK_LRP = "Mask-LRP 2024, table 1 (BERT, SST-2); its “GAE” is transatt"
ALTI = "ALTI 2022, table 2 (BERT, SST-2)"
DECODED_SST2 = "Decoded saliency 2023, table 1a (RoBERTa, SST-2; best layer)"
DECODED_NEWS = "Decoded saliency 2023, table 1b (RoBERTa, AG News; best layer)"

_ATTCAT = ("raw-attention", "rollout", "grads", "attgrads", "partial-lrp", "transatt", "cat", "attcat")
_MASK_LRP = (
    "raw-attention",
    "rollout",
    "lrp",
    "partial-lrp",
    "transatt",
    "grads",
    "attention-gradcam",
    "attcat",
    "mask-lrp",
)
_ALTI = ("gradient", "integrated-gradients", "gradient-x-input", "rollout", "globenc", "alti")
_SST2 = ("grad-cam", "decoded-grad-cam", "simple", "smoothgrad", "integrated-gradients", "random")
_NEWS = ("grad-cam", "decoded-grad-cam", "shapley", "occlusion", "integrated-gradients", "gradient-shap", "lime")
_NEWS += ("gradient-x-input", "deeplift-shap", "random")


def column(source: str, metric: str, methods: tuple[str, ...], *values: float) -> Printed:
    return Printed(source, metric, dict(zip(methods, values, strict=True)))


SENTIMENT = (
    column(ATTCAT, "aopc:attcat", _ATTCAT, 0.331, 0.286, 0.335, 0.351, 0.341, 0.354, 0.352, 0.371),
    column(ATTCAT, "lodds:attcat-pad", _ATTCAT, -0.885, -0.641, -0.252, -0.603, -0.922, -1.038, -1.115, -1.319),
    column(
        "AttCAT 2022, table 2 (BERT, SST-2)",
        "kendall:argsort",
        ("grads", "attgrads", "partial-lrp", "transatt", "cat", "attcat"),
        *(0.150, 0.116, 0.955, 0.336, 0.101, 0.018),
    ),
    column(MASK_LRP, "aopc:mask-lrp", _MASK_LRP, 0.374, 0.337, 0.336, 0.396, 0.423, 0.399, 0.341, 0.405, 0.438),
    column(
        MASK_LRP, "lodds:mask-lrp", _MASK_LRP, -0.992, -0.911, -0.888, -1.052, -1.171, -1.086, -0.855, -1.110, -1.208
    ),
    column(ALTI, "comprehensiveness:alti", _ALTI, 0.204, 0.223, 0.199, 0.074, 0.174, 0.317),
    column(ALTI, "sufficiency:alti", _ALTI, 0.076, 0.084, 0.080, 0.270, 0.125, 0.044),
    column(DECODED_SST2, "revealing-auc:accuracy", _SST2, 0.797, 0.867, 0.799, 0.795, 0.804, 0.748),
    column(DECODED_SST2, "hiding-auc:accuracy", _SST2, 0.713, 0.609, 0.756, 0.762, 0.756, 0.77),
)
TOPICS = (
    column(
        DECODED_NEWS,
        "revealing-auc:accuracy",
        _NEWS,
        0.853,
        0.895,
        0.905,
        0.894,
        0.897,
        0.86,
        0.851,
        0.851,
        0.823,
        0.829,
    ),
    column(
        DECODED_NEWS, "hiding-auc:accuracy", _NEWS, 0.804, 0.739, 0.567, 0.731, 0.661, 0.784, 0.792, 0.794, 0.842, 0.841
    ),
)
# table 2: SQuAD v2, BERT, per cent of answer tokens among the top 20
QA = (
    column(
        "Mask-LRP 2024, table 2 (BERT, SQuAD v2, %)",
        "precision-at-k:mask-lrp",
        ("rollout", "raw-attention", "attcat", "mask-lrp"),
        *(6.15, 4.69, 18.81, 27.03),
    ),
)
