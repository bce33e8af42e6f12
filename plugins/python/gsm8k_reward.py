"""GSM8K with some credit for the form: 1 where the last number is right, and `form` more where it stands after `####`.

A small model hardly ever ends an answer as GSM8K does. Credit for the form gives it something to learn from before it gets
numbers right.
"""

import re

from rlpipe_plugin import Score, reward, run

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
SCHEMA = {
    "type": "object",
    "properties": {"form": {"type": "number", "minimum": 0}},
    "required": ["form"],
    "additionalProperties": False,
}


@reward(version="1", config_schema=SCHEMA)
def gsm8k(sample, config):
    _, mark, after = sample.response.rpartition("####")
    in_form = bool(mark) and NUMBER.fullmatch(after.strip()) is not None
    numbers = NUMBER.findall(sample.response)
    answer = numbers[-1].replace(",", "") if numbers else None
    right = answer == sample.ground_truth
    return Score(
        right + config["form"] * in_form,
        parsed=answer if in_form else None,
        parts={"right": float(right), "form": float(in_form)},
    )


run()
