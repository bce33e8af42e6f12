"""Reward functions for rlpipe: one file, no dependencies, Python 3.8 or newer. Copy it beside your own script.

    from rlpipe_plugin import reward, run

    @reward
    def short(sample):
        return 1.0 if len(sample.response) < 100 else 0.0

    run()

and in the pipeline: `judge: { command: { run: [python3, ./short.py] } }`.

A reward function takes a `Sample`, and `config` as a second argument if it has one. It returns a number, `None` to abstain
(the response is then not trained), or a `Score` with parts. What it raises becomes that sample's error, never a reward; the
traceback goes to standard error. `@reward(batch=True)` takes a list of samples and returns a list. The function must depend
on its sample alone: which samples come together is chance.

Everything runs in the main thread. There is no time-out here: rlpipe kills a process that takes too long and starts it
again. Printing is harmless once this is imported: it goes to standard error, which is kept in the run's `logs/`. Standard
input is empty then: `input()` and child processes read nothing of rlpipe's messages.
"""

import inspect
import json
import math
import os
import sys
import traceback

PROTOCOL = 1

_questions = None
_messages = None
if os.environ.get("RLPIPE_PLUGIN"):
    # Started by rlpipe: messages get descriptors of their own. Whatever else is written to standard output, also by
    # libraries and child processes, goes to standard error; whatever else reads standard input finds its end.
    _questions = os.fdopen(os.dup(0), "rb")
    _nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(_nothing, 0)
    os.close(_nothing)
    _messages = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    sys.stdout = sys.stderr


class Sample:
    """A response with what is known of it."""

    __slots__ = (
        "prompt", "response", "ground_truth", "data_source", "columns", "finish_reason", "step", "total_steps", "seed",
    )

    def __init__(self, fields):
        #: The chat that was answered: a list of {"role": ..., "content": ...}.
        self.prompt = fields.get("prompt", [])
        #: The response as text, without special tokens.
        self.response = fields["response"]
        #: What a right answer is, or None.
        self.ground_truth = fields.get("ground_truth")
        #: Where the row comes from; empty where it does not say.
        self.data_source = fields.get("data_source", "")
        #: The row as it is in the file.
        self.columns = fields.get("columns", {})
        #: "stop", "length" or "aborted".
        self.finish_reason = fields.get("finish_reason", "stop")
        #: The train step, from 1; 0 before the first.
        self.step = fields.get("step", 0)
        #: Train steps in the whole run.
        self.total_steps = fields.get("total_steps", 0)
        #: A number of this sample, the same whenever the run is repeated: `random.Random(sample.seed)`.
        self.seed = fields.get("seed", 0)


class Score:
    """A reward with the answer as it was found, and parts that are shown in the metrics by name."""

    def __init__(self, reward, parsed=None, parts=None):
        self.reward = reward
        self.parsed = parsed
        self.parts = parts or {}


_registered = None


def reward(function=None, *, batch=False, name=None, version="", config_schema=None, reads=()):
    """Marks the reward function of this script. `config_schema` is a JSON Schema of `config`, checked before a run;
    `reads` names columns of the rows that must be there."""

    def register(function):
        global _registered
        if _registered is not None:
            raise ValueError("a script has one reward function")
        _registered = {
            "function": function,
            "batch": batch,
            "takes_config": len(inspect.signature(function).parameters) > 1,
            "ready": {
                "type": "ready",
                "name": name or function.__name__,
                "version": str(version),
                "config_schema": config_schema,
                "reads": list(reads),
            },
        }
        return function

    return register if function is None else register(function)


def run():
    """Judges until rlpipe closes standard input."""
    if _registered is None:
        raise ValueError("mark a function with `@reward` before `run()`")
    if _messages is None:
        name = os.path.basename(sys.argv[0])
        sys.exit("this script is started by rlpipe: `judge: { command: { run: [python3, ./%s] } }`" % name)
    config = {}
    for line in _questions:
        message = json.loads(line)
        if message["type"] == "start":
            if message["protocol"] != PROTOCOL:
                sys.exit("this script speaks version %d of the protocol, rlpipe %s" % (PROTOCOL, message["protocol"]))
            config = message["config"]
            answer = _registered["ready"]
        elif message["type"] == "score":
            samples = [Sample(fields) for fields in message["samples"]]
            answer = {"type": "scores", "id": message["id"], "scores": _scores(samples, config)}
        else:
            sys.exit("rlpipe sent a message `%s`, which this script does not know" % message["type"])
        # No NaN: JSON has none.
        _messages.write(json.dumps(answer, allow_nan=False) + "\n")
        _messages.flush()


def _scores(samples, config):
    function = _registered["function"]
    arguments = (config,) if _registered["takes_config"] else ()
    if not _registered["batch"]:
        return [_guarded(lambda: function(sample, *arguments)) for sample in samples]
    try:
        results = list(function(samples, *arguments))
    except Exception as error:
        return [_failed(error)] * len(samples)
    return [_guarded(lambda: result) for result in results]


def _guarded(call):
    try:
        return _fields(call())
    except Exception as error:
        return _failed(error)


def _failed(error):
    traceback.print_exc()
    return {"error": _text("%s: %s" % (type(error).__name__, error))}


def _fields(result):
    score = result if isinstance(result, Score) else Score(result)
    return {
        "reward": None if score.reward is None else _finite("reward", score.reward),
        "parsed": None if score.parsed is None else _text(score.parsed),
        "parts": {_text(name): _finite("part `%s`" % name, value) for name, value in score.parts.items()},
    }


def _text(value):
    """As text that can be sent: half of a surrogate pair alone, which no UTF-8 has, becomes a question mark."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _finite(what, value):
    if isinstance(value, str):
        raise TypeError("the %s is the text %r, not a number" % (what, value))
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("the %s is %r; return None to abstain" % (what, number))
    return number
