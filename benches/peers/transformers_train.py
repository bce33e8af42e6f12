#!/usr/bin/env python3
"""The work of `rlpipe bench train` with transformers' network, autograd and torch's fused AdamW.

    transformers_train.py MODEL [--sequences 512] [--tokens 352] [--prompt-tokens 96] [--pack-tokens 32768] [--runs 3]

Equal sequences in micro batches of a pack, so that nothing is padded. float32 weights, computing in bfloat16 on a card (as TRL
does); the loss is minus advantage times the log-prob of each response token. Prints JSON.
"""
import argparse

import torch
import transformers

from results import choose_device, measured, show, timed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=352)
    parser.add_argument("--prompt-tokens", type=int, default=96)
    parser.add_argument("--pack-tokens", type=int, default=32768)
    parser.add_argument("--runs", type=int, default=3, help="that are measured, after one that is not")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int)
    wanted = parser.parse_args()
    device = choose_device(wanted.device, wanted.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(wanted.model, dtype=torch.float32).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    response = wanted.tokens - wanted.prompt_tokens
    together = max(wanted.pack_tokens // wanted.tokens, 1)
    ids = torch.randint(0, model.config.vocab_size, (wanted.sequences, wanted.tokens))
    advantages = torch.tensor([1.0, -1.0]).repeat(wanted.sequences)[:wanted.sequences]

    def forward_backward():
        for part, signs in zip(ids.split(together), advantages.split(together)):
            part, signs = part.to(device), signs.to(device)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                logits = model(part, use_cache=False, logits_to_keep=response + 1).logits[:, :-1]
                logprobs = -torch.nn.functional.cross_entropy(
                    logits.float().flatten(0, 1), part[:, wanted.prompt_tokens:].flatten(), reduction="none")
                loss = -(logprobs.view(-1, response) * signs[:, None]).sum() / (wanted.sequences * response)
            loss.backward()

    def step():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    packs, steps = [], []
    for _ in range(wanted.runs + 1):
        packs.append(timed(device, forward_backward)[1])
        steps.append(timed(device, step)[1])
    tokens = wanted.sequences * wanted.tokens
    both = [pack + step for pack, step in zip(packs, steps)]
    results = [measured(name, seconds[1:], seconds[0], "tokens", tokens)
               for name, seconds in (("train", both), ("forward and backward", packs), ("optimizer step", steps))]
    settings = {"sequences": wanted.sequences, "tokens": wanted.tokens, "prompt_tokens": wanted.prompt_tokens,
                "pack_tokens": wanted.pack_tokens, "packs": -(-wanted.sequences // together)}
    dtype = "bfloat16" if device == "cuda" else "float32"
    show("train", transformers, device, wanted.model, model.num_parameters(), dtype, settings, results)


if __name__ == "__main__":
    main()
