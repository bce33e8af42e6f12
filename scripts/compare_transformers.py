"""Compares a model folder's log-probs and greedy tokens with transformers', in float32 on this machine's processor.

    python scripts/compare_transformers.py MODEL_FOLDER ROWS.jsonl [--rows 10] [--new-tokens 64] [--dtype float32]

Needs torch, transformers and a build (`make build`, then `cargo build --release -p rlpipe-torch --example score`). ROWS
has `question` and `answer`, as GSM8K. Every token of the templated question and the answer is scored; greedy tokens of the
question must be equal until the two likeliest are closer than 1e-4. Ends with 1 where something differs by more than:
log-probs by 1e-3 at worst or 1e-4 on average.
"""

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SCORE = Path(__file__).resolve().parent.parent / "target/release/examples/score"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("rows")
    parser.add_argument("--rows", dest="count", type=int, default=10)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    arguments = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    prompts, sequences = [], []
    with open(arguments.rows) as lines:
        for line in itertools.islice(lines, arguments.count):
            row = json.loads(line)
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True)
            prompts.append(tokenizer(text, add_special_tokens=False)["input_ids"])
            answer = tokenizer(row["answer"] + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
            sequences.append(prompts[-1] + answer)
    request = {"sequences": sequences, "prompts": prompts, "new_tokens": arguments.new_tokens}
    program = subprocess.run([SCORE, arguments.model, arguments.dtype], input=json.dumps(request).encode(),
                             stdout=subprocess.PIPE, check=True)
    ours = json.loads(program.stdout)

    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, arguments.dtype)).eval()
    differences, scored = [], 0
    with torch.no_grad():
        for ids, found in zip(sequences, ours["logprobs"], strict=True):
            ids = torch.tensor(ids)
            expected = model(ids[None]).logits[0].float().log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
            differences.append((torch.tensor(found) - expected).abs())
            scored += len(found)
    differences = torch.cat(differences)

    equal, ties, wrong = 0, 0, 0
    for number, (prompt, found) in enumerate(zip(prompts, ours["greedy"], strict=True)):
        with torch.no_grad():
            made = model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                max_new_tokens=arguments.new_tokens, eos_token_id=None, pad_token_id=0, repetition_penalty=1.0,
                output_logits=True, return_dict_in_generate=True)
        for at, logits in enumerate(made.logits):
            top = logits[0].float().topk(2)
            if top.values[0] - top.values[1] < 1e-4:
                ties += 1
                break
            if found[at] != top.indices[0]:
                wrong += 1
                print(f"row {number}, token {at}: {found[at]} instead of {top.indices[0]}, "
                      f"gap {top.values[0] - top.values[1]:.2e}")
                break
            equal += 1
    print(f"log-probs of {scored} tokens: mean difference {differences.mean():.2e}, largest {differences.max():.2e}")
    print(f"greedy tokens: {equal} equal, {ties} rows end in a tie, {wrong} rows differ")
    return 1 if wrong or differences.max() > 1e-3 or differences.mean() > 1e-4 else 0


sys.exit(main())
