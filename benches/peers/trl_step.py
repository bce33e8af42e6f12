#!/usr/bin/env python3
"""The work of `rlpipe bench step` with TRL's GRPOTrainer: the pipelines `gsm8k-smollm2` and `chain-sum-smollm2`.

    trl_step.py gsm8k     MODEL DATA [--steps 6]     DATA has GSM8K's train.jsonl and test.jsonl
    trl_step.py chain_sum MODEL DATA [--steps 60]    DATA has chain_sum_train.jsonl and chain_sum_test.jsonl

Prompts, rewards, optimizer, clip, groups and lengths are those of the pipeline; one optimizer step a step, no KL, temperature 1.
Prints JSON: the first step is the warm-up; `rewards` has every step's, `accuracy` that of greedy answers before and after
(`--evaluate`).
"""
import argparse
import contextlib
import json
import os
import re
import resource
import sys
import tempfile

import torch
import transformers
import trl
from datasets import Dataset

from results import choose_device, measured, show, show_failed, timed

GSM8K_TAIL = '\nLet\'s think step by step and output the final answer after "####".'
# Groups, samples, longest response, learning rate, betas, weight decay, upper clip.
RECIPES = {
    "gsm8k": dict(steps=6, new_tokens=256, lr=1e-6, betas=(0.9, 0.95), weight_decay=0.01, clip_high=0.28, eval_batch=256),
    "chain_sum": dict(steps=60, new_tokens=64, lr=5e-6, betas=(0.9, 0.999), weight_decay=0.0, clip_high=0.2, eval_batch=250),
}


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def rows(task, folder, split):
    if task == "chain_sum":
        return [{"prompt": row["prompt"], "truth": row["reward_model"]["ground_truth"]}
                for row in lines(os.path.join(folder, f"chain_sum_{split}.jsonl"))]
    return [{"prompt": [{"role": "user", "content": row["question"] + GSM8K_TAIL}],
             "truth": row["answer"].split("#### ")[1].replace(",", "")}
            for row in lines(os.path.join(folder, f"{split}.jsonl"))]


def answer(task, text):
    """The last number, as the pipelines' judges find it."""
    if task == "chain_sum":
        found = re.findall(r"-?[0-9]+", text)
        return found[-1] if found else None
    found = re.findall(r"-?[0-9][0-9.,]*", text)
    return found[-1].rstrip(".,").replace(",", "") if found else None


def accuracy(task, trainer, tokenizer, test, recipe):
    model, right = trainer.model, 0
    device = next(model.parameters()).device
    model.eval()
    for start in range(0, len(test), recipe["eval_batch"]):
        part = test[start:start + recipe["eval_batch"]]
        texts = [tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False) for row in part]
        asked = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(device)
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            out = model.generate(**asked, max_new_tokens=recipe["new_tokens"], do_sample=False)
        said = tokenizer.batch_decode(out[:, asked.input_ids.shape[1]:], skip_special_tokens=True)
        right += sum(answer(task, text) == row["truth"] for text, row in zip(said, part))
    model.train()
    return right / len(test)


def steps(wanted, recipe, device, micro, folder, reward):
    """Logs of the steps, accuracy before and after, seconds of all, and the number of weights."""
    total = wanted.prompts * wanted.samples
    trainer = trl.GRPOTrainer(
        wanted.model, reward_funcs=reward, train_dataset=Dataset.from_list(rows(wanted.task, wanted.data, "train")),
        args=trl.GRPOConfig(
            output_dir=folder, max_steps=recipe["steps"], per_device_train_batch_size=micro,
            gradient_accumulation_steps=total // micro, num_generations=wanted.samples,
            max_completion_length=recipe["new_tokens"], temperature=1.0, beta=0.0, epsilon=0.2,
            epsilon_high=recipe["clip_high"], loss_type="dapo", scale_rewards="group", learning_rate=recipe["lr"],
            adam_beta1=recipe["betas"][0], adam_beta2=recipe["betas"][1], weight_decay=recipe["weight_decay"],
            lr_scheduler_type="constant", max_grad_norm=1.0, bf16=device == "cuda", use_cpu=device == "cpu",
            generation_kwargs={"min_new_tokens": wanted.min_new_tokens} if wanted.min_new_tokens else None,
            gradient_checkpointing=wanted.recompute, logging_steps=1, save_strategy="no", report_to=[], seed=wanted.seed,
            disable_tqdm=True))
    tokenizer = transformers.AutoTokenizer.from_pretrained(wanted.model, padding_side="left")
    test = rows(wanted.task, wanted.data, "test") if wanted.evaluate else []
    scores = [accuracy(wanted.task, trainer, tokenizer, test, recipe)] if test else []
    _, all_s = timed(device, trainer.train)
    scores += [accuracy(wanted.task, trainer, tokenizer, test, recipe)] if test else []
    return [log for log in trainer.state.log_history if "reward" in log], scores, all_s, trainer.model.num_parameters()


def peak(device):
    """What was taken at most, as rlpipe counts it: of a card all that is in use, the CUDA context with it; else of the process."""
    if device == "cpu":
        return {"host_peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)}
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    return {"accelerator_peak_gib": round((torch.cuda.max_memory_reserved() + others) / 2**30, 3)}


def is_too_little_memory(error):
    """On a card, in cuBLAS, on a processor."""
    said = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
    return isinstance(error, MemoryError) or any(text in str(error) for text in said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=RECIPES)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--new-tokens", type=int)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--min-new-tokens", type=int, help="of every response; so many and no more with the same `--new-tokens`")
    parser.add_argument("--micro", type=int, default=128, help="sequences that go through the model together")
    parser.add_argument("--recompute", action="store_true", help="gradient checkpointing: less memory, more time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="greedy accuracy on the test rows before and after")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int)
    wanted = parser.parse_args()
    device = choose_device(wanted.device, wanted.threads)
    recipe = dict(RECIPES[wanted.task])
    recipe["steps"] = wanted.steps or recipe["steps"]
    recipe["new_tokens"] = wanted.new_tokens or recipe["new_tokens"]
    total = wanted.prompts * wanted.samples
    micro = min(wanted.micro, total)
    if total % micro:
        sys.exit(f"`--micro {micro}` does not divide the {total} sequences of a step")

    def reward(completions, truth, **_):
        return [float(answer(wanted.task, completion[0]["content"]) == one) for completion, one in zip(completions, truth)]

    settings = {"pipeline": wanted.task, "steps": recipe["steps"], "prompts": wanted.prompts, "samples": wanted.samples,
                "new_tokens": recipe["new_tokens"], "min_new_tokens": wanted.min_new_tokens, "micro": micro, "recompute": wanted.recompute}
    # Results alone go to standard output.
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            logs, scores, all_s, parameters = steps(wanted, recipe, device, micro, folder, reward)
    except (RuntimeError, MemoryError) as error:
        if not is_too_little_memory(error):
            raise
        show_failed("step", "out of memory", error, settings | peak(device))
        return

    seconds = [float(log["step_time"]) for log in logs]
    tokens = [float(log["completions/mean_length"]) * total for log in logs]
    first = 1 if len(seconds) > 1 else 0
    settings |= {"rewards": [round(float(log["reward"]), 4) for log in logs], "accuracy": scores, **peak(device)}
    results = [measured("step", seconds[first:], seconds[0] if first else None, "tokens", tokens[first:]),
               measured("all steps", [all_s])]
    dtype = "bfloat16" if device == "cuda" else "float32"
    show("step", trl, device, wanted.model, parameters, dtype, settings, results)


if __name__ == "__main__":
    main()
