"""Makes the tiny Llama models and their golden values with transformers, in float32 on a CPU.

    python make.py    # needs torch, transformers and safetensors; writes beside itself

`tied/` has a tied head and one shard; `untied/` has grouped-query attention with another head size, rope_theta and
norm epsilon, and two shards with an index. Weights are large enough that the distributions are far from uniform.
"""

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
MODELS = {
    "tied": dict(vocab_size=61, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=True),
    "untied": dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
                   num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=False,
                   rms_norm_eps=1e-5, rope_theta=5000.0),
}


def make(name, options, seed):
    torch.manual_seed(seed)
    config = LlamaConfig(bos_token_id=0, eos_token_id=1, initializer_range=0.15, attention_bias=False, **options)
    model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
    model.save_pretrained(HERE / name, max_shard_size="160KB" if name == "untied" else "1GB")
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    for file in (HERE / name).iterdir():
        file.chmod(0o644)

    generator = torch.Generator().manual_seed(seed)
    sequences = []
    for length in (2, 7, 19, 33):
        ids = torch.randint(0, config.vocab_size, (length,), generator=generator)
        with torch.no_grad():
            logprobs = model(ids[None]).logits[0].double().log_softmax(-1)
        sequences.append({
            "ids": ids.tolist(),
            # logprobs[i] is that of ids[i + 1]
            "logprobs": logprobs[:-1].gather(1, ids[1:, None])[:, 0].tolist(),
        })
    greedy = []
    for length in (1, 5, 12):
        prompt = torch.randint(0, config.vocab_size, (length,), generator=generator)
        ids, gaps, chosen = prompt[None], [], []
        with torch.no_grad():
            for _ in range(20):
                logits = model(ids).logits[0, -1].double()
                top = logits.topk(2)
                gaps.append((top.values[0] - top.values[1]).item())
                chosen.append(logits.log_softmax(-1)[top.indices[0]].item())
                ids = torch.cat([ids, top.indices[None, :1]], 1)
        greedy.append({"prompt": prompt.tolist(), "ids": ids[0, length:].tolist(), "logprobs": chosen, "gaps": gaps})
    golden = {"parameters": sum(p.numel() for p in model.parameters()), "sequences": sequences, "greedy": greedy}
    (HERE / f"{name}.json").write_text(json.dumps(golden) + "\n")


for seed, (name, options) in enumerate(MODELS.items(), 7):
    make(name, options, seed)
