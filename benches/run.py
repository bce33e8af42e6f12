#!/usr/bin/env python3
"""Runs rlpipe and its peers on the same work in turn, and writes what came of it to benches/results/NAME.json.

    benches/run.py NAME --model FOLDER [--work generate-512 ...] [--rounds 2] [--date DATE]

README.md beside this says what each work is, and what it needs. A round is rlpipe, then the peer; the ratio of a round is of its
two medians. A peer that is not installed is left out, and named.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent


class Work:
    """`ours`: arguments of rlpipe. `peer`: the script, its arguments and the packages that it needs. `name`: what is compared."""

    def __init__(self, ours, name, peer=None, packages=("torch", "transformers"), needs=(), by="per second"):
        self.ours, self.name, self.peer, self.packages, self.needs, self.by = ours, name, peer, packages, needs, by


def pipeline_settings(evaluate, steps, *more):
    """An evaluation before the first step and after the last, or none."""
    start, every = ("true", steps) if evaluate else ("false", "100000")
    arguments = []
    for setting in (f"nodes.evaluator.at_start={start}", f"nodes.evaluator.every_steps={every}", *more):
        arguments += ["--set", setting]
    return arguments


def works(wanted):
    """All of them, by name. Sizes of a small machine with `--small`: they show that it works, and nothing else."""
    small = wanted.small
    runs = ["--runs", str(wanted.runs)]
    model = ["--model", wanted.model]

    def generate(prompts):
        prompts, new = (4, 8) if small else (prompts, 256)
        size = ["--prompts", str(prompts), "--new-tokens", str(new), "--prompt-tokens", "128"]
        return Work(["bench", "generate", *model, *size, "--slots", str(prompts), *runs], "generate",
                    ["transformers_generate.py", wanted.model, *size, *runs])

    def shared():
        size = ["2", "8", "64"] if small else ["64", "256", "512"]
        names = ("--prompts", "--new-tokens", "--prompt-tokens")
        sizes = [word for pair in zip(names, size) for word in pair]
        slots = str(8 * int(size[0]))
        return Work(["bench", "generate", *model, *sizes, "--samples", "8", "--shared", "--slots", slots, *runs], "shared prompts")

    def train():
        size = ["--sequences", "4" if small else "512", "--tokens", "352", "--prompt-tokens", "96"]
        pack = ["--pack-tokens", "704" if small else "32768"]
        return Work(["bench", "train", *model, *size, *pack, *runs], "train",
                    ["transformers_train.py", wanted.model, *size, *pack, *runs])

    def step(file, task, folder, steps, sizes=(), peer=()):
        steps = str(wanted.steps or steps)
        evaluate = ["--evaluate"] if wanted.evaluate and not small else []
        return Work(["bench", "step", f"pipelines/{file}", "--steps", steps,
                     *pipeline_settings(evaluate, steps, *sizes)], "step",
                    ["trl_step.py", task, wanted.model, folder or "", "--steps", str(wanted.peer_steps or steps), *evaluate, *peer],
                    ("torch", "transformers", "trl", "datasets"), [folder], "seconds")

    few = ["nodes.buffer.prompts_per_step=8", "nodes.prompts.samples_per_prompt=4", "nodes.answers.sampling.max_new_tokens=64",
           "pools.one.cpus_per_worker=2", "pools.one.accelerator=cpu", "models.policy.dtype=float32"]
    few_peer = ["--prompts", "8", "--samples", "4", "--new-tokens", "64", "--device", "cpu", "--threads", "2"]
    tiny = [*few[:2], "nodes.answers.sampling.max_new_tokens=8", "nodes.prompts.samples_per_prompt=2",
            "nodes.buffer.prompts_per_step=2"] if small else []
    tiny_peer = ["--prompts", "2", "--samples", "2", "--new-tokens", "8"] if small else []
    return {
        "generate-512": generate(512),
        "generate-2048": generate(2048),
        "shared-prompts": shared(),
        "train": train(),
        "gsm8k-step": step("gsm8k-smollm2.yaml", "gsm8k", wanted.gsm8k, 2 if small else 6, tiny, tiny_peer),
        "chain-sum": step("chain-sum-smollm2.yaml", "chain_sum", wanted.chain_sum, 2 if small else 60, tiny, tiny_peer),
        "cpu-step": step("gsm8k-smollm2.yaml", "gsm8k", wanted.gsm8k, 2 if small else 3, few + tiny, few_peer + tiny_peer),
    }


def environment(wanted, work):
    """What pipelines ask for by variables."""
    variables = dict(os.environ, MODEL_PATH=wanted.model)
    is_chain_sum = "chain-sum" in " ".join(work.ours)
    folder = wanted.chain_sum if is_chain_sum else wanted.gsm8k
    if folder:
        prefix = "chain_sum_" if is_chain_sum else ""
        variables |= {"DATA_PATH": os.path.join(folder, f"{prefix}train.jsonl"),
                      "EVAL_DATA_PATH": os.path.join(folder, f"{prefix}test.jsonl")}
    return variables


# How torch and rlpipe say that there is too little memory: on a card, in cuBLAS, on a processor, before anything starts.
TOO_LITTLE = {"out of memory": "out of memory", "CUBLAS_STATUS_ALLOC_FAILED": "out of memory", "can't allocate memory": "out of memory",
              "error[RL1133]": "refused before it starts: too little memory", "error[RL0705]": "refused before it starts: too little memory"}


def ended(command, variables, limit_s):
    """Output, errors and exit code; without a code where it took too long."""
    # In the project's folder, so that pipelines have the same name wherever it lies.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables, cwd=PROJECT) as process:
        try:
            return (*process.communicate(timeout=limit_s), process.returncode)
        except subprocess.TimeoutExpired:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=60)
            return ("", "", None)
        finally:
            if process.poll() is None:
                process.kill()


def run(command, variables, limit_s=None):
    """The JSON that a command prints; what it says besides is shown."""
    print("$", " ".join(map(str, command)), file=sys.stderr, flush=True)
    start = time.perf_counter()
    output, errors, code = ended([str(word) for word in command], variables, limit_s)
    took = time.perf_counter() - start
    if code is None:
        return {"failed": f"not done in {limit_s:g} s"}
    if code != 0:
        print(errors[-4000:], file=sys.stderr)
        why = next((why for said, why in TOO_LITTLE.items() if said in errors), f"exit code {code}")
        return {"failed": why, "said": errors[-2000:], "whole_process_s": round(took, 2)}
    # Libraries may print before the results.
    try:
        found = json.loads(output[output.index("{"):])
    except ValueError:
        return {"failed": "printed no results", "said": output[-2000:]}
    found["whole_process_s"] = round(took, 2)
    return found


def ours(wanted, work, folder, limit_s=None):
    """Where it is a run, with its rewards: a faster step that learns less is not faster."""
    command = [wanted.rlpipe, *work.ours, "--format", "json"]
    is_run = work.ours[1] == "step"
    if is_run:
        command += ["--work-dir", folder]
    found = run(command, environment(wanted, work), limit_s)
    # They name files of the run, whose folder does not stay.
    found.pop("notes", None)
    metrics = sorted(pathlib.Path(folder).glob("*/*/metrics.jsonl"))
    if is_run and metrics and "measured" in found:
        rows = [json.loads(line) for line in metrics[-1].read_text().splitlines()]
        steps = [row for row in rows if row["step"] > 0]
        found["settings"]["rewards"] = [round(row["reward/mean"], 4) for row in steps]
        found["settings"]["accuracy"] = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
        for place in ("host", "accelerator"):
            peaks = [row[name] for row in rows if (name := f"memory/worker-0/{place}_peak_gib") in row]
            found["settings"] |= {f"{place}_peak_gib": round(max(peaks), 3)} if peaks else {}
        whole = sum(row["time/step_s"] - row.get("time/eval_s", 0.0) for row in steps)
        found["measured"].append({"name": "all steps", "seconds": {"runs": 1, "median": whole, "min": whole, "max": whole}})
    return found


def missing(wanted, packages):
    """The packages that Python has not."""
    code = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"
    asked = subprocess.run([wanted.python, "-c", code, *packages], capture_output=True, text=True, check=False)
    return asked.stdout.split() if asked.returncode == 0 else [wanted.python]


def value(found, name):
    """Median seconds of what is compared, and what it does in one."""
    for one in found.get("measured", []):
        if one["name"] == name:
            done = one.get("done")
            return one["seconds"]["median"], done and done["per_second"]["median"]
    return None, None


def ratio(work, mine, theirs):
    """How many times as fast rlpipe is: by rate where work is counted, else by time."""
    (my_s, my_rate), (their_s, their_rate) = value(mine, work.name), value(theirs, work.name)
    if work.by == "per second" and my_rate and their_rate:
        return my_rate / their_rate
    return their_s / my_s if my_s and their_s else None


def shown(found, work):
    seconds, rate = value(found, work.name)
    if seconds is None:
        return found.get("failed") or found.get("missing") or "-"
    return f"{rate:,.0f} tokens/s" if work.by == "per second" and rate else f"{seconds:.3f} s"


def table(results):
    rows = [("work", "round", "rlpipe", "peer", "ratio")]
    for name, result in results.items():
        for index, one in enumerate(result["rounds"]):
            own = one["rlpipe"].get("ratios") or {}
            times = one.get("ratio") or next(iter(own.values()), None)
            rows.append((name, str(index + 1), one["rlpipe_shown"], one["peer_shown"], f"{times:.2f}" if times else "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def data_of(work):
    return "--chain-sum" if work == "chain-sum" else "--gsm8k"


def count(text):
    """Of an argument."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def common_arguments(parser):
    """What both programs of this folder are told."""
    parser.add_argument("name", help="results go to benches/results/NAME.json, or to NAME where that ends in .json")
    parser.add_argument("--model", required=True, help="SmolLM2-135M-Instruct as a Hugging Face folder")
    parser.add_argument("--rlpipe", default=str(PROJECT / "target/release/rlpipe"), help="the program, rlpipe-worker beside it")
    parser.add_argument("--python", default=sys.executable, help="that has the peers' packages")
    parser.add_argument("--small", action="store_true", help="sizes that show that it works, and nothing else")
    parser.add_argument("--date", help="goes into the results")


def parsed(parser, folders):
    """The arguments, with whole paths, programs that are there and a place for results.

    `folders`: names of those that are paths, besides the model.
    """
    wanted = parser.parse_args()
    for name in ("model", "rlpipe", *folders):
        setattr(wanted, name, getattr(wanted, name) and os.path.abspath(getattr(wanted, name)))
    if os.sep in wanted.python:
        wanted.python = os.path.abspath(wanted.python)
    if not os.path.isfile(os.path.join(wanted.model, "config.json")):
        parser.error(f"{wanted.model} has no config.json; --model is a Hugging Face folder")
    if shutil.which(wanted.python) is None:
        parser.error(f"{wanted.python} is not a program; --python names the Python that has the peers' packages")
    if not os.access(wanted.rlpipe, os.X_OK):
        parser.error(f"{wanted.rlpipe} is not a program; `make build` makes it, and --rlpipe names another")
    # Before anything is measured: then it can be written.
    wanted.target = pathlib.Path(wanted.name) if wanted.name.endswith(".json") else HERE / "results" / f"{wanted.name}.json"
    wanted.target.parent.mkdir(parents=True, exist_ok=True)
    return wanted


def write_results(wanted, results):
    """To the file that was asked for."""
    whole = {key: text for key, text in (("date", wanted.date), ("small", wanted.small)) if text}
    wanted.target.write_text(json.dumps({**whole, **results}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    common_arguments(parser)
    parser.add_argument("--gsm8k", help="folder with GSM8K's train.jsonl and test.jsonl")
    parser.add_argument("--chain-sum", help="folder with chain_sum_train.jsonl and chain_sum_test.jsonl")
    parser.add_argument("--work", nargs="+", help="all of them, if left out")
    parser.add_argument("--rounds", type=count, default=2)
    parser.add_argument("--runs", type=count, default=3, help="in a round, after one that is not measured")
    parser.add_argument("--steps", type=count, help="of works that are train steps")
    parser.add_argument("--peer-steps", type=count, help="of peers, where that differs: medians of steps compare all the same")
    parser.add_argument("--peer-rounds", type=count, help="with a peer; in later rounds rlpipe is alone")
    parser.add_argument("--evaluate", action="store_true", help="greedy accuracy before the first step and after the last")
    parser.add_argument("--no-peers", action="store_true", help="rlpipe alone")
    wanted = parsed(parser, ("gsm8k", "chain_sum"))
    all_works = works(wanted)
    names = wanted.work or list(all_works)
    unknown = [name for name in names if name not in all_works]
    if unknown:
        parser.error(f"there is no work {', '.join(unknown)}; there are {', '.join(all_works)}")
    idle = [name for name in names if None in all_works[name].needs]
    if idle and wanted.work:
        parser.error("; ".join(f"{name} needs {data_of(name)}" for name in idle))
    for name in idle:
        print(f"{name}: not run, it needs {data_of(name)}", file=sys.stderr)
    names = [name for name in names if name not in idle]
    results = {}

    for index in range(wanted.rounds):
        for name in names:
            work = all_works[name]
            with tempfile.TemporaryDirectory() as folder:
                mine = ours(wanted, work, folder)
            alone = not work.peer or wanted.no_peers or index >= (wanted.peer_rounds or wanted.rounds)
            lacking = [] if alone else missing(wanted, work.packages)
            if alone:
                theirs = {}
            elif lacking:
                theirs = {"missing": f"not installed: {', '.join(lacking)}"}
            else:
                theirs = run([wanted.python, HERE / "peers" / work.peer[0], *work.peer[1:]], dict(os.environ))
            one = {"rlpipe": mine, "peer": theirs, "rlpipe_shown": shown(mine, work), "peer_shown": shown(theirs, work)}
            times = ratio(work, mine, theirs)
            if times:
                one["ratio"] = times
            results.setdefault(name, {"rounds": []})["rounds"].append(one)
            # What was measured is there, whatever comes next.
            write_results(wanted, {"works": results})
            print(f"round {index + 1}, {name}: rlpipe {one['rlpipe_shown']}, peer {one['peer_shown']}", file=sys.stderr, flush=True)
    print(table(results))
    failed = any("failed" in one[side] for result in results.values() for one in result["rounds"] for side in ("rlpipe", "peer"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
