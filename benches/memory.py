#!/usr/bin/env python3
"""Peak device memory of a GSM8K step of 64 prompts x 8 samples, and the longest responses with which it still fits, rlpipe beside TRL.

    benches/memory.py NAME --model FOLDER --gsm8k FOLDER [--lengths 256 1024 2048 4096 7936] [--limit-s 600] [--date DATE]

Every response has its full length. Each side goes over the lengths, the shortest first, one step each, until one does not fit or takes
longer than the limit. README.md beside this says what the sides are.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

from run import HERE, Work, common_arguments, count, missing, ours, parsed, run, write_results

PACK_TOKENS = 32768  # As the pipeline has it.
PROMPT_TOKENS = 256  # The same.


def pipeline_step(new_tokens, wanted, *more):
    """One step of the pipeline, with all that has to grow with the responses (RL0501 and RL0502 say what that is)."""
    sequence = PROMPT_TOKENS + new_tokens
    prompts, samples = (2, 2) if wanted.small else (64, 8)
    device = ["pools.one.accelerator=cpu", "models.policy.dtype=float32"] if wanted.small else []
    settings = [
        f"nodes.answers.sampling.max_new_tokens={new_tokens}", f"nodes.answers.sampling.min_new_tokens={new_tokens}",
        f"nodes.engine.max_context_tokens={sequence}", f"nodes.trainer.max_tokens_per_pack={max(PACK_TOKENS, sequence)}",
        f"nodes.engine.max_concurrent_rollouts={prompts * samples}", f"nodes.buffer.prompts_per_step={prompts}",
        f"nodes.prompts.samples_per_prompt={samples}", "nodes.evaluator.enabled=false", *device, *more]
    words = [word for setting in settings for word in ("--set", setting)]
    return Work(["bench", "step", "pipelines/gsm8k-smollm2.yaml", "--steps", "1", *words], "step")


def least(new_tokens, wanted):
    """The same work in less memory, and more time."""
    sequence = PROMPT_TOKENS + new_tokens
    return pipeline_step(new_tokens, wanted, f"nodes.engine.max_concurrent_rollouts={2 if wanted.small else 64}",
                         f"nodes.trainer.max_tokens_per_pack={max(4096, sequence)}", "nodes.trainer.activations=recompute_layers",
                         "nodes.trainer.loss.logprob_chunk_tokens=1024")


def trl_step(micro, *more):
    def work(new_tokens, wanted):
        size = ["--prompts", "2", "--samples", "2", "--device", "cpu"] if wanted.small else []
        return [wanted.python, HERE / "peers" / "trl_step.py", "gsm8k", wanted.model, wanted.gsm8k, "--steps", "1", "--new-tokens", new_tokens,
                "--min-new-tokens", new_tokens, "--micro", min(micro, 4) if wanted.small else micro, *size, *more]
    return work


SIDES = {"rlpipe": pipeline_step, "rlpipe, least": least, "TRL, 128": trl_step(128), "TRL, 8": trl_step(8, "--recompute")}


def attempt(side, new_tokens, wanted):
    """The JSON of one step, or why there is none."""
    work = SIDES[side](new_tokens, wanted)
    if not isinstance(work, Work):
        return run(work, dict(os.environ), wanted.limit_s)
    with tempfile.TemporaryDirectory() as folder:
        return ours(wanted, work, folder, wanted.limit_s)


def peak_gib(found):
    """Of the card; on a processor, of the process."""
    settings = found.get("settings", {})
    return settings.get("accelerator_peak_gib", settings.get("host_peak_gib"))


def shown(found):
    if found is None:
        return "-"
    peak = peak_gib(found)
    if "failed" in found:
        return found["failed"]
    return f"{peak:.1f} GiB" if peak is not None else "fits"


def table(sides, lengths):
    rows = [("new tokens", *sides)]
    rows += [(f"{length:,}", *(shown(tries.get(str(length))) for tries in sides.values())) for length in lengths]
    fitting = [[int(length) for length, found in tries.items() if "failed" not in found] for tries in sides.values()]
    rows.append(("longest", *(f"{max(some):,}" if some else "none" for some in fitting)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common_arguments(parser)
    parser.add_argument("--gsm8k", required=True, help="folder with GSM8K's train.jsonl and test.jsonl")
    parser.add_argument("--lengths", type=count, nargs="+", help="new tokens of each response")
    parser.add_argument("--side", nargs="+", choices=SIDES, default=list(SIDES), help="all of them, if left out")
    parser.add_argument("--limit-s", type=float, default=600, help="seconds of one try, start included")
    wanted = parsed(parser, ("gsm8k",))
    context = json.loads(pathlib.Path(wanted.model, "config.json").read_text())["max_position_embeddings"]
    lengths = sorted(set(wanted.lengths or ([8, 16] if wanted.small else [256, 1024, 2048, 4096, context - PROMPT_TOKENS])))
    if lengths[0] < 1 or lengths[-1] + PROMPT_TOKENS > context:
        parser.error(f"--lengths are from 1 to {context - PROMPT_TOKENS}: the model has {context} positions, and prompts up to {PROMPT_TOKENS}")
    lacking = missing(wanted, ("torch", "transformers", "trl", "datasets"))
    names = [name for name in wanted.side if not (lacking and name.startswith("TRL"))]
    for name in wanted.side:
        if name not in names:
            print(f"{name}: not run, not installed: {', '.join(lacking)}", file=sys.stderr)
    sides = {name: {} for name in names}
    stopped = set()
    # In turn, so that whatever time there is, all sides have the same lengths.
    for length in lengths:
        for name in names:
            if name in stopped:
                continue
            found = attempt(name, length, wanted)
            sides[name][str(length)] = found
            if "failed" in found:
                stopped.add(name)
            write_results(wanted, {"bench": "memory", "sides": sides})
            print(f"{name}, {length} new tokens: {shown(found)}", file=sys.stderr, flush=True)
    print(table(sides, lengths))
    # Too little memory or time is a result; anything else is not.
    broken = ("exit code", "printed")
    sys.exit(any(found.get("failed", "").startswith(broken) for tries in sides.values() for found in tries.values()))


if __name__ == "__main__":
    main()
