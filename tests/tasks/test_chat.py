"""Chats: every message is a part of the prompt, an assistant's last words are gone on with, and what cannot be written is said."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest

import whence
from tests import architectures
from whence.errors import InputError

USER = {"role": "user", "content": "is the film good ?"}
WORDS = {"role": "assistant", "content": "the film is"}
CALL = {"type": "function", "function": {"name": "plot", "arguments": {"film": "long"}}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL = {"role": "tool", "content": "the plot is slow"}

TEMPLATES = {
    "printed": "{% for m in messages %}[CLS] {{ m.role }} {{ m.content }} [SEP] {% endfor %}"
    "{% if add_generation_prompt %}[CLS] assistant {% endif %}",
    "added": "{% for m in messages %}{{ '[CLS] ' + m['role'] + ' ' + m['content'] + ' [SEP] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[CLS] assistant ' }}{% endif %}",
    "trimmed": "{% for m in messages %}[CLS] {{ m.role }} {{ m.content | trim }} [SEP] {% endfor %}"
    "{% if add_generation_prompt %}[CLS] assistant {% endif %}",
}
# what DeepSeek's, Llama's and Qwen's do with calls of tools
IF_NONE = (
    "{% for m in messages %}[CLS] {{ m.role }} {% if m.content is none %}{{ m.tool_calls[0].function.name }}"
    "{% else %}{{ m.content }}{% endif %} [SEP] {% endfor %}{% if add_generation_prompt %}[CLS] assistant {% endif %}"
)
ADDED_CALLS = (
    "{% for m in messages %}{{ '[CLS] ' + m.role + ' ' + m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }}{% endfor %} [SEP] {% endfor %}{% if add_generation_prompt %}[CLS] assistant {% endif %}"
)
PRINTED_CALLS = ADDED_CALLS.replace("{{ '[CLS] ' + m.role + ' ' + m.content }}", "[CLS] {{ m.role }} {{ m.content }} ")
PARTS = (
    "{% for m in messages %}[CLS] {{ m.role }} {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ p.text }}{% endfor %}{% endif %} [SEP] {% endfor %}{% if add_generation_prompt %}[CLS] assistant {% endif %}"
)


@pytest.fixture
def chats() -> whence.Explainer:
    return whence.load(architectures.model("llama", task="causal-lm"), architectures.tokenizer(framed=False))


def prompt_of(chats: whence.Explainer, template: str, *messages: dict[str, Any]) -> str:
    assert chats.tokenizer is not None
    chats.tokenizer.chat_template = TEMPLATES.get(template, template)
    before = copy.deepcopy(messages)
    text = chats.explain({"messages": list(messages)}, "random").text
    assert messages == before
    return " ".join(text.split())


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_assistants_last_words_are_gone_on_with(chats: whence.Explainer, template: str) -> None:
    text = prompt_of(chats, template, USER, WORDS)
    assert text == "[CLS] user is the film good ? [SEP] [CLS] assistant the film is"
    e = chats.explain({"messages": [USER, WORDS]}, "attnlrp")
    plain = chats.explain({"input_ids": list(e.input_ids)}, "attnlrp")
    assert e.tokens[-1] == "is"
    assert (e.target_index, e.probability) == (plain.target_index, plain.probability)
    np.testing.assert_array_equal(e.scores, plain.scores)
    assert chats.predict({"messages": [USER, WORDS]}).index == plain.target_index
    longer = chats.explain({"messages": [USER, WORDS]}, "gradient", continuation="good")
    assert longer.tokens[-2:] == ("is", "good")


def test_other_chats_are_asked_for_an_answer(chats: whence.Explainer) -> None:
    asked = "[CLS] user is the film good ? [SEP] [CLS] assistant"
    assert prompt_of(chats, "added", USER) == asked
    assert prompt_of(chats, "added", USER, WORDS, USER).endswith("the film is [SEP] " + asked)
    begun = {"role": "assistant", "content": ""}
    assert prompt_of(chats, "added", USER, begun) == asked
    spaced = {"role": "assistant", "content": "the film is "}
    for template in TEMPLATES:
        assert prompt_of(chats, template, USER, spaced).endswith("assistant the film is")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_tools_message_is_one_like_any_other(chats: whence.Explainer, template: str) -> None:
    text = prompt_of(chats, template, USER, TOOL)
    assert text.endswith("[SEP] [CLS] tool the plot is slow [SEP] [CLS] assistant")
    e = chats.explain({"messages": [USER, TOOL]}, "attnlrp")
    slow = e.tokens.index("slow")
    assert e.scores[slow] != 0
    assert not e.special[slow]
    assert e.segments[slow] == 0


@pytest.mark.parametrize("template", [IF_NONE, ADDED_CALLS, PRINTED_CALLS])
def test_calls_of_tools_have_no_content(chats: whence.Explainer, template: str) -> None:
    text = prompt_of(chats, template, USER, CALLS, TOOL)
    assert text.endswith("[CLS] assistant plot [SEP] [CLS] tool the plot is slow [SEP] [CLS] assistant")


@pytest.mark.parametrize("template", [*TEMPLATES, PARTS])
def test_content_in_parts_is_text(chats: whence.Explainer, template: str) -> None:
    parts = [{"type": "text", "text": "is the film"}, {"type": "text", "text": " good ?"}]
    assert prompt_of(chats, template, {"role": "user", "content": parts}) == prompt_of(chats, template, USER)
    words = {"role": "assistant", "content": [{"type": "text", "text": "the film is"}]}
    assert prompt_of(chats, template, USER, words) == prompt_of(chats, template, USER, WORDS)


IMAGE = {"role": "user", "content": [{"type": "image", "url": "x"}]}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "a list of messages"),
        ("good", "a list of messages"),
        (USER, "a list of messages"),
        (["good"], r"messages\[0\] is a str"),
        ([{"content": "good"}], r"messages\[0\] has no 'role'"),
        ([{"role": 3, "content": "good"}], r"messages\[0\] has no 'role'"),
        ([{"role": "user"}], r"messages\[0\] \(user\) has no content"),
        ([USER, {"role": "tool", "content": None}], r"messages\[1\] \(tool\) has no content"),
        ([{"role": "tool", "content": {"rain": 3}}], r"messages\[0\] \(tool\) has content of type dict"),
        ([{"role": "user", "content": 3}], r"has content of type int"),
        ([IMAGE], r"messages\[0\] \(user\) has a part of type 'image'"),
        ([{"role": "user", "content": ["good"]}], r"a part of type 'str'"),
        ([{"role": "user", "content": []}], r"has no content"),
        ([USER, CALLS], "ends in a call of a tool"),
        ([USER, {**WORDS, "tool_calls": [CALL]}], "ends in a call of a tool"),
        ([USER, CALLS, TOOL], "does not write the tool call 'plot'|cannot write these messages"),
        ([USER, {**CALLS, "tool_calls": "plot"}, TOOL], "tool_calls"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(chats: whence.Explainer, template: str, messages: Any, says: str) -> None:
    assert chats.tokenizer is not None
    chats.tokenizer.chat_template = TEMPLATES[template]
    for call in (chats.explain, chats.predict):
        with pytest.raises(InputError, match=says):
            call({"messages": messages})
    with pytest.raises(InputError, match="input 1: "):
        chats.predict(["good", {"messages": messages}])


@pytest.mark.parametrize(
    ("template", "messages", "says"),
    [
        ("{{ raise_exception('Only user and assistant roles are supported!') }}", [USER], "Only user and assistant"),
        ("{{ messages[3].content.strip() }}", [USER], "cannot write these messages"),
        ("{% for m in messages %}{{ m.content", [USER], "cannot write these messages"),
        (
            "{% for m in messages if m.role != 'tool' %}{{ m.content }}{% endfor %}",
            [USER, TOOL],
            r"leaves out messages\[1\] \(tool\)",
        ),
        ("{{ messages[-1].content }}", [USER, WORDS, USER], r"leaves out messages\[0\] \(user\)"),
        ("{% for m in messages %}{{ m.content[:6] }}{% endfor %}", [USER, WORDS], "cannot write these messages"),
    ],
)
def test_a_template_that_does_not_write_all_of_it(
    chats: whence.Explainer, template: str, messages: list[Any], says: str
) -> None:
    assert chats.tokenizer is not None
    chats.tokenizer.chat_template = template
    with pytest.raises(InputError, match=says) as error:
        chats.explain({"messages": messages}, "random")
    assert not re.search(r"\n|MESSAGE_TAG", str(error.value))


def test_nothing_else_that_a_chat_holds_is_passed_over(chats: whence.Explainer) -> None:
    assert chats.tokenizer is not None
    chats.tokenizer.chat_template = TEMPLATES["added"]
    with pytest.raises(InputError, match="'tools'"):
        chats.explain({"messages": [USER], "tools": [CALL["function"]]}, "random")


def test_an_embedded_model_goes_on_with_what_was_said() -> None:
    ex = whence.load("causal-lm")
    assert ex.tokenizer is not None
    ex.tokenizer.chat_template = "{% for m in messages %}{{ m.content + eos_token }}{% endfor %}"
    messages = [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": "Once upon a"}]
    assert ex.predict({"messages": messages}).label == ex.predict("Once upon a").label == " time"
    messages.append({"role": "user", "content": "Go on."})
    assert ex.predict({"messages": messages}).label != " time"
