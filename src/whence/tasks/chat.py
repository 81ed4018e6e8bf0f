"""Chats as prompts: messages through the tokenizer's own chat template, up to where the model goes on.

Templates are programs of many hands. Some cannot write content that is absent or in parts, and some leave a message or a tool call out without
a word: what a template does is therefore looked at, and what it does not write is refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from whence.errors import InputError

ASSISTANT = "assistant"
Messages = list[dict[str, Any]]


def chat_text(tokenizer: Any, item: Mapping[str, Any], at: str) -> str:
    """The prompt that {"messages": […]} stands for: it ends where the assistant's answer begins or, where the last message is the
    assistant's, in the last of its words. `at` begins the errors about it."""
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise InputError(f"{at}this tokenizer has no chat template: give the prompt as a text.")
    if len(item) > 1:
        others = ", ".join(repr(key) for key in item if key != "messages")
        raise InputError(f"{at}a chat is given by its 'messages' alone; write what {others} should say into a message.")
    messages = checked(item["messages"], at)
    if messages[-1]["role"] == ASSISTANT and messages[-1].get("tool_calls"):
        raise InputError(
            f"{at}the chat ends in a call of a tool, which the tool answers and not the model: add the tool's message, or leave the call out."
        )
    plain = [{**message, "content": text_of(message["content"])} for message in messages]
    problems: list[str] = []
    for form in [messages] if messages == plain else [messages, plain]:
        try:
            text = rendered(tokenizer, form)
            problem = unwritten(tokenizer, form) or misread(tokenizer, form, plain)
        except Exception as error:  # a template is a program of somebody's own
            problem = f"the tokenizer's chat template cannot write these messages ({shorten(str(error), 120, placeholder='…')})"
        if problem is None:
            return text
        problems.append(problem)
    raise InputError(f"{at}{problems[-1]}: give messages that the model was trained on, or the whole prompt as a text.")


def checked(messages: Any, at: str) -> Messages:
    """Messages with a role, and content that is a text, parts that are texts, or absent beside calls of tools."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InputError(
            f"{at}'messages' takes a list of messages, {{'role': …, 'content': …}} each, with at least one in it."
        )
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InputError(
                f"{at}messages[{i}] is a {type(message).__name__}: give a mapping, {{'role': …, 'content': …}}."
            )
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise InputError(
                f"{at}messages[{i}] has no 'role' that is a text: 'user', 'assistant', 'system', 'tool', …."
            )
        check_content(message, f"{at}messages[{i}] ({role})")
    return [{"content": None, **message} for message in messages]


def check_content(message: Mapping[str, Any], name: str) -> None:
    calls, content = message.get("tool_calls"), message.get("content")
    if calls:
        listed = isinstance(calls, Sequence) and not isinstance(calls, str)
        if not listed or not all(isinstance(call, Mapping) and isinstance(name_of(call), str) for call in calls):
            raise InputError(
                f"{name} has 'tool_calls' that cannot be read: give a list of {{'function': {{'name': …, 'arguments': …}}}}."
            )
    if isinstance(content, str) or (content is None and calls):
        return
    if content is None or content == []:
        raise InputError(f"{name} has no content: give a text ('' for none).")
    if not isinstance(content, list):
        raise InputError(f"{name} has content of type {type(content).__name__}: give a text (json.dumps makes one).")
    for part in content:
        if not (isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise InputError(
                f"{name} has a part of type {kind!r}, which a language model of texts cannot read: give {{'type': 'text', 'text': …}}."
            )


def name_of(call: Mapping[str, Any]) -> Any:
    """The name of the function that a message calls."""
    function = call.get("function", call)
    return function.get("name") if isinstance(function, Mapping) else None


def text_of(content: Any) -> str:
    """Content as one text."""
    if content is None:
        return ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def rendered(tokenizer: Any, messages: Messages) -> str:
    """The template's text: the assistant's last words are left open, anything else is followed by the opening of an answer."""
    goes_on = messages[-1]["role"] == ASSISTANT
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, continue_final_message=goes_on, add_generation_prompt=not goes_on
    )
    return text


def closed(tokenizer: Any, messages: Messages) -> str | None:
    """The template's text of messages that are all over; None where it fails, on marks say, or for want of content that is None."""
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    except Exception:
        return None
    return text


def misread(tokenizer: Any, messages: Messages, plain: Messages) -> str | None:
    """What is wrong with a text in which Python's or JSON's words for a part, or for no content, stand in place of it."""
    text, other = closed(tokenizer, messages), closed(tokenizer, plain)
    if text is None:
        return None
    parts = [dict(part) for m in messages if isinstance(m["content"], list) for part in m["content"]]
    if any(str(part) in text or json.dumps(part, ensure_ascii=False) in text for part in parts):
        return "the tokenizer's chat template cannot write content in parts"
    absent = any(message["content"] is None for message in messages)
    if absent and other is not None and text.count("None") > other.count("None"):
        return "the tokenizer's chat template cannot write a message without content"
    return None


def unwritten(tokenizer: Any, messages: Messages) -> str | None:
    """What a template leaves out, as a sentence begins: every content and every call is marked, and the marks are looked for."""
    marked, names = copy.deepcopy(messages), {}
    for i, message in enumerate(marked):
        content, mark = message["content"], f"whencemark{i}x"
        if isinstance(content, list):
            content[-1]["text"] += f" {mark}"
        elif content:
            message["content"] = f"{content} {mark}"
        if content:
            names[mark] = f"leaves out messages[{i}] ({message['role']})"
        for k, call in enumerate(message.get("tool_calls") or ()):
            mark = f"whencemark{i}x{k}x"
            function = call.get("function", call)
            names[mark] = f"does not write the tool call {function['name']!r} of messages[{i}]"
            function["name"] += mark
    text = closed(tokenizer, marked)
    lost = next((name for mark, name in names.items() if text is not None and mark not in text), None)
    return lost and f"the tokenizer's chat template {lost}"
