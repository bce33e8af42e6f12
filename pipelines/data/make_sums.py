#!/usr/bin/env python3
"""Makes the quickstart's data: sums of two numbers below 50, split without overlap.

    python3 make_sums.py        writes sums-lessons.jsonl, sums.jsonl and sums-held-out.jsonl beside itself
"""
import json
import pathlib
import random

LARGEST, LESSONS, HELD_OUT = 49, 1200, 200

here = pathlib.Path(__file__).parent
pairs = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
random.Random(1).shuffle(pairs)
parts = {
    "sums-held-out": pairs[:HELD_OUT],
    "sums-lessons": pairs[HELD_OUT : HELD_OUT + LESSONS],
    "sums": pairs[HELD_OUT:],
}
for name, part in parts.items():
    with open(here / f"{name}.jsonl", "w") as file:
        for a, b in part:
            answer = str(a + b)
            row = {"prompt": f"{a}+{b}=", "answer": answer, "data_source": "sums", "reward_model": {"ground_truth": answer}}
            file.write(json.dumps(row) + "\n")
