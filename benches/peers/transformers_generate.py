#!/usr/bin/env python3
"""The work of `rlpipe bench generate` with transformers' `generate`.

    transformers_generate.py MODEL [--prompts 512] [--prompt-tokens 128] [--new-tokens 256] [--runs 3]

Random prompts of equal length in one batch, drawn at temperature 1 without cuts, nothing ends a response, and the log-prob of
each token that was drawn is kept. Prints JSON.
"""
import argparse

import torch
import transformers

from results import choose_device, measured, show, timed


class Logprobs(transformers.LogitsProcessor):
    """Keeps the log-prob of each token: that of a step's token is known when the next step begins."""

    def __init__(self):
        self.last, self.found = None, []

    def keep(self, ids):
        if self.last is not None:
            self.found.append(self.last.gather(1, ids[:, -1:]))

    def __call__(self, ids, scores):
        self.keep(ids)
        self.last = torch.log_softmax(scores.float(), dim=-1)
        return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3, help="that are measured, after one that is not")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--threads", type=int)
    wanted = parser.parse_args()
    device = choose_device(wanted.device, wanted.threads)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(wanted.model, dtype=dtype).to(device).eval()

    def once():
        size = (wanted.prompts, wanted.prompt_tokens)
        prompts = torch.randint(0, model.config.vocab_size, size, device=device)
        logprobs = Logprobs()

        @torch.inference_mode()
        def work():
            out = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=wanted.new_tokens,
                                 min_new_tokens=wanted.new_tokens, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                                 logits_processor=transformers.LogitsProcessorList([logprobs]))
            logprobs.keep(out)
            return out, torch.cat(logprobs.found, dim=1).cpu()

        (out, kept), seconds = timed(device, work)
        tokens = out.shape[0] * (out.shape[1] - wanted.prompt_tokens)
        assert kept.numel() == tokens == wanted.prompts * wanted.new_tokens, (kept.shape, out.shape)
        return seconds

    seconds = [once() for _ in range(wanted.runs + 1)]
    settings = {"prompts": wanted.prompts, "prompt_tokens": wanted.prompt_tokens, "new_tokens": wanted.new_tokens, "samples": 1}
    results = [measured("generate", seconds[1:], seconds[0], "tokens", wanted.prompts * wanted.new_tokens)]
    show("generate", transformers, device, wanted.model, model.num_parameters(), str(dtype).removeprefix("torch."), settings,
         results)


if __name__ == "__main__":
    main()
