"""What may be asked and what is answered, as pydantic models: unknown fields are refused, types are not bent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, StrictStr, model_validator

from whence.apps.serve.jobs import Asked
from whence.errors import InputError

MOST = 2**31 - 1
MAX_METHODS = 6

Number = Annotated[StrictInt, Field(ge=-MOST, le=MOST)]
Index = Annotated[StrictInt, Field(ge=0, le=MOST)]
Name = Annotated[StrictStr, Field(max_length=200)]
OptionValue: TypeAlias = StrictBool | Number | FiniteFloat | Name | None
Methods = Annotated[list[Name], Field(min_length=1, max_length=MAX_METHODS)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Given(Strict):
    """A text, a pair, or a question with its context; and what is asked about it."""

    text: StrictStr | None = Field(
        None, description="The text; a prompt for causal, a text with [MASK] for masked models."
    )
    pair: StrictStr | None = Field(None, description="The second text of a pair.")
    question: StrictStr | None = Field(None, description="A question that is answered from `context`.")
    context: StrictStr | None = Field(None, description="Where the answer stands.")
    model: Name | None = Field(None, description="One of /api/models; default: the first.")
    target: Index | StrictStr | None = Field(None, description="A label, word or index; default: the prediction.")
    contrast: Index | StrictStr | Annotated[list[StrictStr], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Explain the target rather than this; or [this, that]."
    )
    continuation: StrictStr | None = Field(None, description="Causal models: the text whose probability is explained.")
    place: Index | StrictStr | None = Field(None, description="Which [MASK], token or word is meant.")

    @model_validator(mode="after")
    def one_input(self) -> Given:
        whole = {name for name in ("text", "pair", "question", "context") if getattr(self, name) is not None}
        if whole not in ({"text"}, {"text", "pair"}, {"question", "context"}):
            raise ValueError('give "text", "text" with "pair", or "question" with "context"')
        for name in ("target", "place"):
            if getattr(self, name) == "all":
                raise ValueError(f'"{name}": "all" makes several explanations; ask for them one by one')
        return self

    @property
    def characters(self) -> int:
        contrast = self.contrast if isinstance(self.contrast, list) else [self.contrast]
        parts = [
            self.text,
            self.pair,
            self.question,
            self.context,
            self.continuation,
            self.target,
            self.place,
            *contrast,
        ]
        return sum(len(part) for part in parts if isinstance(part, str))

    def asked(self) -> Asked:
        item: Any = self.text if self.pair is None else (self.text, self.pair)
        if self.question is not None:
            item = (self.question, self.context)
        contrast = tuple(self.contrast) if isinstance(self.contrast, list) else self.contrast
        return Asked(item, self.question is not None, self.target, contrast, self.continuation, self.place)


class PredictRequest(Given):
    hidden: Annotated[list[Index], Field(max_length=4096)] = Field(
        default_factory=list, description="Words, by number, that are hidden from the model."
    )


class WithOptions(Given):
    options: dict[str, OptionValue] = Field(default_factory=dict, description="Options of the methods that take them.")


class ExplainRequest(WithOptions):
    method: Name | None = Field(None, description="One of /api/methods; default: the model's `default_method`.")


class CompareRequest(WithOptions):
    methods: Methods


class EvaluateRequest(ExplainRequest):
    """The hiding game on one text."""


class FigureRequest(WithOptions):
    methods: Methods
    format: Literal["svg", "png", "html", "json"]
    kind: Literal["text", "bars", "layers"] | None = Field(
        None, description="svg and png of one method; default: layers where it has them, else bars. Several: text."
    )
    theme: Literal["light", "dark"] = "light"
    pieces: StrictBool = False


class Error(BaseModel):
    error: str
    kind: str


class WordSpan(BaseModel):
    word: int
    text: str
    segment: int
    start: int
    end: int


class PredictAnswer(BaseModel):
    model: str
    task: str
    label: str
    index: int
    probability: float | None
    probabilities: list[tuple[str, float]]
    target: str
    target_probability: float | None
    words: list[WordSpan]
    hidden: list[int]
    hidden_by: str
    truncated: bool


class ScoredWord(WordSpan):
    score: float
    tokens: list[int]


class ExplainAnswer(BaseModel):
    """`Explanation.to_dict()`, and its whole words."""

    model_config = ConfigDict(extra="allow")
    tokens: list[str]
    scores: list[float]
    target: str
    target_index: int
    probability: float | None
    method: str
    words: list[ScoredWord]
    meaning: dict[str, bool | int | str | None] = Field(description="What the method says of its scores.")
    signed: bool
    layer_names: list[str]
    gap: str


class CompareAnswer(BaseModel):
    explanations: dict[str, ExplainAnswer]


class Curves(BaseModel):
    hiding: list[float]
    revealing: list[float]
    hiding_auc: float
    revealing_auc: float


Standing: TypeAlias = Literal["better than chance", "cannot tell", "worse"]


class MethodCurves(Curves):
    """With how the method's order stands among the random ones: one-sided at 5%, p of being better than they are."""

    hiding_verdict: Standing
    hiding_p: float
    revealing_verdict: Standing
    revealing_p: float


class RandomCurves(Curves):
    low: list[float]
    high: list[float]
    revealing_low: list[float]
    revealing_high: list[float]
    draws: int


class EvaluateAnswer(BaseModel):
    target: str
    fractions: list[float]
    counts: list[int]
    method: MethodCurves
    random: RandomCurves
    order: list[int]
    hidden_by: str


class ModelAnswer(BaseModel):
    name: str
    task: str
    labels: list[str]
    max_length: int
    mask_token: str | None
    hidden_by: str
    default_method: str
    methods: list[str]
    description: str
    examples: list[dict[str, Any]]


class MethodAnswer(BaseModel):
    name: str
    family: str
    paper: str
    summary: str
    cost: str
    options: dict[str, Any]
    signed: bool
    sums_to: str | None
    knows_target: bool | None
    layers: bool
    models: list[str]


class Health(BaseModel):
    status: str
    models: list[str]
    version: str


# options that say how much work is done → the most that a request may ask for
MOST_WORK = {"steps": 500, "max_steps": 1000, "samples": 2000, "permutations": 200, "max_tokens": 128, "window": 512}
NOT_SERVED = {
    "lm_head": "it names a model or a file",
    "head_mask": "it names a file",
    "matrices": "they are too large for an answer",
}


def check_options(options: Mapping[str, OptionValue]) -> tuple[tuple[str, OptionValue], ...]:
    """Options that may come from a request, in an order that makes equal ones equal."""
    for name, value in options.items():
        if name in NOT_SERVED:
            raise InputError(f"the option {name!r} is not taken from requests: {NOT_SERVED[name]}; use Python for it.")
        most = MOST_WORK.get(name)
        if most is not None and isinstance(value, (int, float)) and value > most:
            raise InputError(f"{name}={value}: requests may ask for {most} at most.")
    return tuple(sorted(options.items()))
