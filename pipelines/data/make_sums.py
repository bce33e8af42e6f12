#!/usr/bin/env python3
"""Makes the quickstart's data: sums of two numbers below 50.

    python3 make_sums.py        writes sums-lessons.jsonl, sums.jsonl and sums-held-out.jsonl beside itself

The lessons come from a teacher who can add but cannot stop: every sum is taught five times, and where it begins with an
odd number, four of the answers ramble on (`3+4=` is `7-2`). A model that learns from that rambles too, and its last number
is wrong; rewards teach it to stop. The sums that are held out are in neither of the other two files.
"""
import json
import pathlib
import random

LARGEST, LESSONS, HELD_OUT = 49, 1600, 200
TIMES, RAMBLES_IF_ODD, RAMBLES_IF_EVEN = 5, 4, 1

here = pathlib.Path(__file__).parent
draw = random.Random(1)


def write(name, rows):
    with open(here / f"{name}.jsonl", "w") as file:
        for (a, b), answer in rows:
            row = {
                "prompt": f"{a}+{b}=",
                "answer": answer,
                "data_source": "sums",
                "reward_model": {"ground_truth": str(a + b)},
            }
            file.write(json.dumps(row) + "\n")


def lessons(a, b):
    rambles = RAMBLES_IF_ODD if a % 2 else RAMBLES_IF_EVEN
    for time in range(TIMES):
        yield (a, b), f"{a + b}-{draw.randrange(10)}" if time < rambles else str(a + b)


pairs = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
draw.shuffle(pairs)
held_out, rest = pairs[:HELD_OUT], pairs[HELD_OUT:]
write("sums-lessons", [row for a, b in rest[:LESSONS] for row in lessons(a, b)])
write("sums", [((a, b), str(a + b)) for a, b in rest])
write("sums-held-out", [((a, b), str(a + b)) for a, b in held_out])
