"""Reward functions as verl has them: `compute_score(data_source, solution_str, ground_truth, extra_info=None)`.

    judge: { command: { run: [python3, ./verl_reward.py, --function, ./my_reward.py:compute_score] } }

`extra_info` is the row's `extra_info`. The function returns a number, or a dictionary with `score`, whose other numbers become
parts of the reward. `config` of the pipeline is passed on as keyword arguments, as verl does with `reward_kwargs`.
"""

import argparse
import importlib.util
import os
import sys

from rlpipe_plugin import Score, reward, run


def load(place):
    path, _, name = place.rpartition(":")
    # Modules beside the function's file are found, as if it were run itself.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("custom_module", path)
    if spec is None:
        sys.exit("`--function` must be `FILE.py:NAME`, not `%s`" % place)
    module = importlib.util.module_from_spec(spec)
    # Pickling finds classes of a module by its name.
    sys.modules["custom_module"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


parser = argparse.ArgumentParser()
parser.add_argument("--function", required=True, metavar="FILE.py:NAME")
compute_score = load(parser.parse_args().function)


@reward(name=compute_score.__name__)
def verl(sample, config):
    found = compute_score(
        data_source=sample.data_source,
        solution_str=sample.response,
        ground_truth=sample.ground_truth,
        extra_info=sample.columns.get("extra_info"),
        **config,
    )
    if not isinstance(found, dict):
        return found
    numbers = {name: value for name, value in found.items() if name != "score" and isinstance(value, (bool, int, float))}
    return Score(found["score"], parsed=found.get("pred"), parts=numbers)


run()
