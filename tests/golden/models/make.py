"""Makes tiny models and their golden values with transformers, in float32 on a CPU.

    python make.py [NAME...]    # needs torch, transformers and safetensors; writes beside itself

Weights are large enough that the distributions are far from uniform. Positions go beyond the original length where there
is a rotary scaling, far enough that it changes the log-probs. `config.json` is written in the spelling that is named: new
ones have `rope_parameters`, older ones `rope_scaling` with `rope_type`, still older ones `rope_scaling` with `type`;
what it means is left to transformers, which loads the folder before anything is computed.
"""

import json
import sys
from copy import deepcopy
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers import Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).parent
CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
SMALL = dict(vocab_size=48, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=64)
# Heads of 16 pairs, so that every part of a ramp over pairs has some.
ROTARY = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
              num_key_value_heads=1, head_dim=32, max_position_embeddings=64, tie_word_embeddings=True)
MODELS = {
    # One shard, a tied head.
    "tied": ("llama", dict(vocab_size=61, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
                           tie_word_embeddings=True)),
    # Two shards, grouped-query attention, another head size, base and epsilon.
    "untied": ("llama", dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                             num_attention_heads=6, num_key_value_heads=2, head_dim=16, max_position_embeddings=64,
                             tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=5000.0)),
    "llama-biases": ("llama", dict(**SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "qwen2-tied": ("qwen2", dict(**SMALL, tie_word_embeddings=True, rope_theta=1e6)),
    "qwen2-untied": ("qwen2", dict(**SMALL, tie_word_embeddings=False)),
    "qwen3": ("qwen3", dict(**SMALL, head_dim=16, tie_word_embeddings=False, rope_theta=1e6)),
    "qwen3-biases": ("qwen3", dict(**SMALL, head_dim=8, attention_bias=True, tie_word_embeddings=True)),
    "rope-linear": ("llama", dict(**ROTARY | dict(max_position_embeddings=16)), "type",
                    dict(rope_type="linear", factor=4.0)),
    "rope-dynamic": ("qwen2", dict(**ROTARY | dict(max_position_embeddings=32)), "rope_parameters",
                     dict(rope_type="dynamic", factor=3.0, rope_theta=500.0)),
    "rope-llama3": ("llama", dict(**ROTARY), "rope_type",
                    dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                         original_max_position_embeddings=16, rope_theta=300.0)),
    "rope-yarn": ("qwen3", dict(**ROTARY | dict(max_position_embeddings=20)), "rope_type",
                  dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=1000.0)),
    # The original length at the top level, beside the scaling.
    "rope-yarn-old": ("llama", dict(**ROTARY, original_max_position_embeddings=16), "type",
                      dict(rope_type="yarn", factor=4.0, attention_factor=1.3, rope_theta=100.0)),
    "rope-yarn-scales": ("qwen2", dict(**ROTARY), "rope_parameters",
                         dict(rope_type="yarn", factor=6.0, original_max_position_embeddings=16, beta_fast=4.0,
                              beta_slow=0.5, mscale=0.9, mscale_all_dim=0.5, truncate=False, rope_theta=200.0)),
}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def spell(path, spelling, rope):
    """Rewrites the rotary settings of a `config.json`."""
    config = json.loads(path.read_text())
    config.pop("rope_parameters", None)
    config.pop("original_max_position_embeddings", None) if "original_max_position_embeddings" in rope else None
    if spelling == "rope_parameters":
        config["rope_parameters"] = rope
    else:
        rope = dict(rope)
        if "rope_theta" in rope:
            config["rope_theta"] = rope.pop("rope_theta")
        rope = {spelling: rope.pop("rope_type")} | rope
        config["rope_scaling"] = rope
    path.write_text(json.dumps(config, indent=2) + "\n")


def logprobs(folder, ids):
    """Of each token but the first. A fresh model each time: `dynamic` scaling remembers the longest sequence."""
    with torch.no_grad():
        values = load(folder)(ids[None]).logits[0].double().log_softmax(-1)
    return values[:-1].gather(1, ids[1:, None])[:, 0]


def make(name, architecture, options, spelling=None, rope=None, seed=0):
    torch.manual_seed(seed)
    config_class, model_class = CLASSES[architecture]
    config = config_class(bos_token_id=0, eos_token_id=1, initializer_range=0.15, **options)
    model = model_class(config).float().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            if key.endswith("bias"):
                parameter.copy_(0.2 * torch.randn_like(parameter))
            if rope and ("q_proj" in key or "k_proj" in key):
                # Attention far from uniform, so that angles count.
                parameter.mul_(3)
    folder = HERE / name
    model.save_pretrained(folder, max_shard_size="160KB" if name == "untied" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.chmod(0o644)
    lengths = (2, 7, 19, 33)
    if rope:
        lengths = (7, 33, 60)
        plain = dict(rope_type="default") | ({"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {})
        spell(folder / "config.json", "rope_parameters", plain)
        generator = torch.Generator().manual_seed(seed)
        probe = torch.randint(0, config.vocab_size, (60,), generator=generator)
        unscaled = logprobs(folder, probe)
        spell(folder / "config.json", spelling, rope)
        changed = (logprobs(folder, probe) - unscaled).abs().mean()
        assert changed > 0.05, f"{name}: the scaling changes log-probs by {changed} only"

    generator = torch.Generator().manual_seed(seed)
    sequences = []
    for length in lengths:
        ids = torch.randint(0, config.vocab_size, (length,), generator=generator)
        # logprobs[i] is that of ids[i + 1]
        sequences.append({"ids": ids.tolist(), "logprobs": logprobs(folder, ids).tolist()})
    model = load(folder)
    # With `dynamic` scaling generation keeps to the original length.
    new = 20
    prompts = (1, 5, 12) if name == "rope-dynamic" or not rope else (1, 12, 38)
    greedy = []
    for length in prompts:
        prompt = torch.randint(0, config.vocab_size, (length,), generator=generator)
        ids, gaps, chosen = prompt[None], [], []
        with torch.no_grad():
            for _ in range(new):
                logits = model(ids).logits[0, -1].double()
                top = logits.topk(2)
                gaps.append((top.values[0] - top.values[1]).item())
                chosen.append(logits.log_softmax(-1)[top.indices[0]].item())
                ids = torch.cat([ids, top.indices[None, :1]], 1)
        greedy.append({"prompt": prompt.tolist(), "ids": ids[0, length:].tolist(), "logprobs": chosen, "gaps": gaps})
    golden = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "context": max(prompts) + new,
        "sequences": sequences,
        "greedy": greedy,
    }
    (HERE / f"{name}.json").write_text(json.dumps(golden) + "\n")


def rotary(config, length):
    """Frequencies and scale of transformers for a `config.json`, after a sequence of `length` tokens."""
    config_class, model_class = CLASSES[config["model_type"]]
    # Transformers writes into what it is given.
    network = model_class(config_class(**deepcopy(config), **dict(num_hidden_layers=1, intermediate_size=8, vocab_size=8)))
    embedding = network.model.rotary_emb
    embedding(torch.zeros(1), torch.arange(length)[None])
    return {"config": config, "length": length, "scale": float(embedding.attention_scaling),
            "frequencies": embedding.inv_freq.tolist()}


# Rotary settings of models that are in use, at their real widths.
LLAMA31 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=8192)
WIDTH_128 = dict(hidden_size=1024, num_attention_heads=8, num_key_value_heads=8)
ROTARIES = [
    (dict(model_type="llama", hidden_size=576, num_attention_heads=9, max_position_embeddings=8192,
          rope_theta=100000.0), 1),
    (dict(model_type="llama", **WIDTH_128, max_position_embeddings=131072, rope_theta=500000.0,
          rope_scaling=LLAMA31), 1),
    (dict(model_type="llama", hidden_size=512, num_attention_heads=8, max_position_embeddings=131072,
          rope_theta=500000.0, rope_scaling=LLAMA31 | dict(factor=32.0)), 1),
    (dict(model_type="llama", **WIDTH_128, max_position_embeddings=16384, rope_theta=100000.0,
          rope_scaling=dict(type="linear", factor=4.0)), 1),
    (dict(model_type="llama", **WIDTH_128, max_position_embeddings=4096,
          rope_scaling=dict(type="dynamic", factor=2.0)), 4096),
    (dict(model_type="llama", **WIDTH_128, max_position_embeddings=4096,
          rope_scaling=dict(type="dynamic", factor=2.0)), 7001),
    (dict(model_type="qwen2", **WIDTH_128, max_position_embeddings=32768, rope_theta=1000000.0,
          rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32768)), 1),
    (dict(model_type="qwen3", **WIDTH_128, head_dim=128, max_position_embeddings=40960,
          rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768,
                               rope_theta=1000000.0)), 1),
    (dict(model_type="llama", hidden_size=512, num_attention_heads=8, max_position_embeddings=163840,
          rope_theta=10000.0, rope_scaling=dict(type="yarn", factor=40.0, beta_fast=32, beta_slow=1, mscale=1.0,
                                                mscale_all_dim=0.8, original_max_position_embeddings=4096)), 1),
    (dict(model_type="llama", hidden_size=512, num_attention_heads=8, max_position_embeddings=131072,
          rope_theta=150000.0, rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0,
                                                 original_max_position_embeddings=4096, truncate=False)), 1),
]

if len(sys.argv) == 1 or "rotary" in sys.argv[1:]:
    (HERE / "rotary.json").write_text("\n".join(
        ["["] + [json.dumps(rotary(*case)) + "," * (case is not ROTARIES[-1]) for case in ROTARIES] + ["]\n"]))
for number, (name, model) in enumerate(MODELS.items(), 7):
    if len(sys.argv) == 1 or name in sys.argv[1:]:
        make(name, *model, seed=number)
