"""Writes the folders `chat`, `bare`, `lower` and `words`: a token a byte, and special tokens. Run in this folder.

`bare` has no chat template. `lower` turns texts into lower case. The decoder of `words` is of a kind without bytes.
"""
import json
import pathlib

SPECIAL = ["<pad>", "<s>", "</s>", "<start>", "<end>"]


def characters():
    """GPT-2's printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


TEMPLATE = ("{{ bos_token }}{% for message in messages %}<start>{{ message.role }}\n{{ message.content }}</s>\n"
            "{% endfor %}{% if add_generation_prompt %}<start>assistant\n{% endif %}")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def write(name, template, normalizer, decoder):
    folder = pathlib.Path(name)
    folder.mkdir(exist_ok=True)
    vocabulary = {token: id for id, token in enumerate(SPECIAL + characters())}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for id, token in enumerate(SPECIAL)],
        "normalizer": normalizer, "pre_tokenizer": BYTES, "post_processor": None, "decoder": decoder,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": []},
    }
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    model = json.loads(pathlib.Path("strict/config.json").read_text())
    model |= {"vocab_size": len(vocabulary), "bos_token_id": 1, "eos_token_id": 2}
    if template:
        config["chat_template"] = template
    for file, value in [("tokenizer.json", tokenizer), ("tokenizer_config.json", config), ("config.json", model)]:
        (folder / file).write_text(json.dumps(value, ensure_ascii=False) + "\n")


write("chat", TEMPLATE, None, BYTES)
write("bare", None, None, BYTES)
write("lower", TEMPLATE, {"type": "Lowercase"}, BYTES)
write("words", TEMPLATE, None, {"type": "BPEDecoder", "suffix": "</w>"})
