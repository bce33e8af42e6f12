"""Writes goldens.json: what transformers renders for the templates in this folder.

    pip install transformers jinja2 tokenizers && python goldens.py

Written with transformers 5.24.0 and jinja2 3.1.6; the clock is replaced by 2024-07-04 05:06:07.
"""
import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as utils

HERE = pathlib.Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": " What is 2 + 3?\n"}
ASSISTANT = {"role": "assistant", "content": "<think>\nadd\n</think>\n\nIt is 5. é 🙂"}
SYSTEM = {"role": "system", "content": "  Say it in “quotes” & <tags>.\t"}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [USER, ASSISTANT, {"role": "user", "content": "And 4 + 4?"}],
    [SYSTEM, USER, ASSISTANT],
    [USER, ASSISTANT, {"role": "tool", "content": "8"}, USER, ASSISTANT],
]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 4, 5, 6, 7)


utils.datetime = Clock
cases = []
for path in sorted(HERE.glob("templates/*.jinja")):
    for messages in CONVERSATIONS:
        for add_generation_prompt in (False, True):
            case = {"template": path.name, "messages": messages, "add_generation_prompt": add_generation_prompt}
            try:
                rendered, _ = utils.render_jinja_template(
                    conversations=[messages], chat_template=path.read_text(),
                    add_generation_prompt=add_generation_prompt, **SPECIAL)
                case["text"] = rendered[0]
            except Exception as error:
                case["error"] = str(error)
            cases.append(case)
(HERE / "goldens.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")
