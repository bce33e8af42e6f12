"""Writes NAME.json for each NAME.jinja here: what transformers renders for the chats below.

    pip install transformers==5.24.0 jinja2==3.1.6 && python make.py

`chats.json` has the chats. A golden has `text`, or `raises` with what the template said through `raise_exception`, or
`fails` with what jinja2 said. `masks.json` says what is trained of examples. The clock is replaced by 2024-07-04 05:06:07.
"""
import datetime
import json
import pathlib

import jinja2
import transformers.utils.chat_template_utils as utils

HERE = pathlib.Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def said(role, content, **further):
    return {"role": role, "content": content, **further}


SYSTEM = said("system", "  Answer in “quotes” & <tags>.\t")
USER = said("user", " What is 2 + 3?\n")
ANSWER = said("assistant", "It is 5. é 🙂")
THOUGHT = said("assistant", "It is 5.", reasoning_content="\n2 and 3\nare 5\n")
OTHER_THOUGHT = said("assistant", "It is 5.", reasoning="2 and 3 are 5")
INLINE = said("assistant", "<think>\nadd\n</think>\n\nIt is 5.")
NEXT = said("user", "And 4 + 4?")
TOOLS = [
    {"type": "function", "function": {
        "name": "add", "description": "Adds two numbers, \"a\" & 'b' <é>.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "number", "description": "The first."},
                "b": {"type": "number", "default": 1.5, "enum": [1.5, 2, 1e-05]},
                "unit": {"type": ["string", "null"], "enum": ["m", None]},
            },
            "required": ["a"],
        },
        "return": {"type": "number", "description": "The sum."},
    }},
    {"type": "function", "function": {
        "name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}},
    }},
]
CALL = {"id": "call12345", "type": "function",
        "function": {"name": "add", "arguments": {"a": 2, "b": 3.0, "unit": "m é", "exact": True, "of": [1, None]}}}
CALLED_AS_TEXT = {"id": "call12345", "type": "function",
                  "function": {"name": "add", "arguments": "{\"a\": 2, \"b\": 3.0}"}}
RESULT = said("tool", "5", name="add", tool_call_id="call12345")
DOCUMENTS = [{"title": "Sums", "text": "2 + 3 = 5\n4 + 4 = 8"}, {"title": "More", "text": "é"}]
PARTS = said("user", [{"type": "text", "text": "What is"}, {"type": "text", "text": " 2 + 3?"}])

CHATS = {
    "user": {"messages": [USER]},
    "user, prompt": {"messages": [USER], "add_generation_prompt": True},
    "system, prompt": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, USER, ANSWER]},
    "turns, prompt": {"messages": [USER, ANSWER, NEXT], "add_generation_prompt": True},
    "reasoning": {"messages": [USER, THOUGHT, NEXT], "add_generation_prompt": True},
    "reasoning at the end": {"messages": [USER, OTHER_THOUGHT]},
    "reasoning inline": {"messages": [USER, INLINE, NEXT, INLINE]},
    "thinking on": {"messages": [USER], "add_generation_prompt": True, "variables": {"enable_thinking": True}},
    "thinking off": {"messages": [SYSTEM, USER], "add_generation_prompt": True, "variables": {
        "enable_thinking": False, "reasoning_effort": "low", "date_string": "1 Jan 2020", "model_identity": "A sum."}},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS, "add_generation_prompt": True},
    "tool call": {"messages": [
        USER, said("assistant", "", tool_calls=[CALL]), RESULT, ANSWER, NEXT,
        said("assistant", None, reasoning_content="again", tool_calls=[CALL]), RESULT,
    ], "tools": TOOLS, "add_generation_prompt": True},
    "tool call as text": {"messages": [USER, said("assistant", "So:", tool_calls=[CALLED_AS_TEXT]), RESULT]},
    "two tool calls": {"messages": [
        SYSTEM, USER, said("assistant", "So:", tool_calls=[CALL, CALL]), RESULT, RESULT,
    ], "tools": TOOLS[:1], "add_generation_prompt": True},
    "parts": {"messages": [PARTS], "add_generation_prompt": True},
    "documents": {"messages": [USER], "documents": DOCUMENTS, "add_generation_prompt": True},
    "assistant first": {"messages": [ANSWER, USER], "add_generation_prompt": True},
    "odd role": {"messages": [USER, said("critic", "Hm.")]},
}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 4, 5, 6, 7)


def golden(template, chat):
    chat = dict(chat)
    try:
        rendered, _ = utils.render_jinja_template(
            conversations=[chat.pop("messages")], chat_template=template, **SPECIAL, **chat.pop("variables", {}), **chat)
        return {"text": rendered[0]}
    except Exception as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"raises" if raised else "fails": str(error)}


def write(name, value):
    (HERE / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def mask(family, messages, **variables):
    """What is given and what is trained of an example: the answer and the token that ends it, no more."""
    template = (HERE / f"{family}.jinja").read_text()
    render = lambda chat, prompt: utils.render_jinja_template(
        conversations=[chat], chat_template=template, add_generation_prompt=prompt, **SPECIAL, **variables)[0][0]
    prompt, whole = render(messages, True), render([*messages, said("assistant", "It is 5.")], False)
    trained = "It is 5.<|im_end|>"
    assert whole == prompt + trained + "\n"
    return {"family": family, "messages": messages, "variables": variables, "prompt": prompt, "trained": trained}


utils.datetime = Clock
write("chats.json", CHATS)
for path in sorted(HERE.glob("*.jinja")):
    template = path.read_text()
    write(path.stem + ".json", {name: golden(template, chat) for name, chat in CHATS.items()})
OWN = said("system", "Answer in one short sentence.")
write("masks.json", {
    "qwen2_5": mask("qwen2_5", [USER]),
    "qwen2_5, own system": mask("qwen2_5", [OWN, USER]),
    "qwen2_5, turns": mask("qwen2_5", [OWN, USER, ANSWER, NEXT]),
    "qwen3, no thinking": mask("qwen3", [USER], enable_thinking=False),
    "qwen3, own system, no thinking": mask("qwen3", [OWN, USER], enable_thinking=False),
})
