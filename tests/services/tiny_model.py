"""A tiny random Llama model with its tokenizer, made here: real servers load it, and nothing has to be downloaded.

`write_checkpoint` makes the folder that vLLM, transformers and the peers' tokenizers read, `write_gguf` the same for
llama.cpp. The tokenizer is byte-level BPE in the manner of GPT-2, learnt from the paragraph below, so that a test can
count tokens by itself (`encode`) and hold the server to it. Weights and tokenizer are the same wherever they are made.

The model never ends by itself and writes printable ASCII only (see `weights`): a request for n tokens gets n, and each
can stand alone in a streamed event.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

NAME = "tiny-llama"
SPECIAL = ("<unk>", "<s>", "</s>")
VOCABULARY = 640
HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 128, 2, 4, 2, 256, 4096
ROPE_THETA = 10000.0
NORM_EPSILON = 1e-5
CHAT_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
TEXT = """
A benchmark is a promise that somebody else can check. It says what was measured, on which machine, with which
version of every program, and how often; it keeps the raw numbers, because a mean without its spread is only a
rumour. When a server answers slowly, the question is whether the time was lost in the queue, in the model, on the
network or in the client that held the stop watch. Most tools measure themselves more than they know: they send
late, they wait for their own event loop, and they count pieces of text where they should count tokens. A good
client sends each request at the moment it promised, stamps each answer when the kernel received it, and does its
thinking afterwards. It asks for a fixed number of words, it never sends the same question twice unless the cache is
what it wants to see, and it says clearly when the load was not what had been asked for. Then two people in two
places may compare their results, and a third may repeat both. The weather of a shared machine changes from hour to
hour, so every pair of measurements is taken in turns, in random order, with a warm start, and the difference is
reported with its interval. If the interval is wide, more runs are needed, not a bolder headline. Write down what
failed as well; a time out is a result, and leaving it out makes the rest look faster than it is.
"""


def byte_letters() -> list[str]:
    """The letter that stands for each byte: itself when it prints, else one from a block that does (GPT-2's table)."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printing else next(others)) for byte in range(256)]


def words(text: str) -> list[str]:
    """Pieces within which tokens may form, with the space before each, in byte letters. Exact for ASCII text."""
    letters = byte_letters()
    pieces = re.findall(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", text)
    return ["".join(letters[byte] for byte in piece.encode()) for piece in pieces]


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    made: list[str] = []
    at = 0
    while at < len(word):
        if word[at : at + 2] == pair:
            made.append(pair[0] + pair[1])
            at += 2
        else:
            made.append(word[at])
            at += 1
    return tuple(made)


def learn_merges(count: int) -> list[tuple[str, str]]:
    """The most frequent pair is merged, again and again; of equals the first in the alphabet, on every machine."""
    corpus = Counter(tuple(word) for word in words(TEXT))
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, often in corpus.items():
            for pair in pairwise(word):
                pairs[pair] += often
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        remade: Counter[tuple[str, ...]] = Counter()
        for word, often in corpus.items():
            remade[merged(word, best)] += often
        corpus = remade
    return merges


class Tokenizer:
    """Vocabulary and merges, and an encoder of our own to hold the servers' token counts against."""

    def __init__(self) -> None:
        self.merges = learn_merges(VOCABULARY - 256 - len(SPECIAL))
        self.tokens = [*SPECIAL, *byte_letters(), *(first + second for first, second in self.merges)]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}

    def encode(self, text: str) -> list[int]:
        """Token ids of ASCII text; no token is added at either end."""
        ids: list[int] = []
        for piece in words(text):
            word = tuple(piece)
            while known := [pair for pair in pairwise(word) if pair in self._rank]:
                word = merged(word, min(known, key=self._rank.__getitem__))
            ids += [self.ids[token] for token in word]
        return ids

    def printable(self) -> list[bool]:
        """Which tokens are printable ASCII, the only ones the model writes."""
        space = byte_letters()[0x20]
        return [
            number >= len(SPECIAL) and all("!" <= letter <= "~" or letter == space for letter in token)
            for number, token in enumerate(self.tokens)
        ]


def weights(tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Seeded random weights under the names of a Llama checkpoint, float32.

    Component 0 of the hidden state is held constant (each token's embedding sets it, no layer writes to it), and the
    output row of an unwanted token looks only there, with a large minus: the end of text and bytes that don't print
    never come.
    """
    import numpy as np

    random = np.random.Generator(np.random.PCG64(20))

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    ones = np.ones(HIDDEN, dtype=np.float32)
    kv_width = HIDDEN * KV_HEADS // HEADS
    embedding = random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    embedding[:, 0] = 4
    made = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        made[f"{name}.input_layernorm.weight"] = ones
        made[f"{name}.post_attention_layernorm.weight"] = ones
        for part, rows in (("q", HIDDEN), ("k", kv_width), ("v", kv_width), ("o", HIDDEN)):
            made[f"{name}.self_attn.{part}_proj.weight"] = matrix(rows, HIDDEN)
        made[f"{name}.mlp.gate_proj.weight"] = matrix(FEED_FORWARD, HIDDEN)
        made[f"{name}.mlp.up_proj.weight"] = matrix(FEED_FORWARD, HIDDEN)
        made[f"{name}.mlp.down_proj.weight"] = matrix(HIDDEN, FEED_FORWARD)
        made[f"{name}.self_attn.o_proj.weight"][0] = 0
        made[f"{name}.mlp.down_proj.weight"][0] = 0
    output = 4 * matrix(VOCABULARY, HIDDEN)
    output[:, 0] = 0
    unwanted = ~np.array(tokenizer.printable())
    output[unwanted] = 0
    output[unwanted, 0] = -30
    return made | {"lm_head.weight": output}


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            out.write(tensor.tobytes())


def write_checkpoint(folder: Path) -> Path:
    """Config, weights and tokenizer as `transformers` saves them. A folder that exists is complete and left alone."""
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    tokenizer = Tokenizer()
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": HIDDEN,
            "intermediate_size": FEED_FORWARD,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HIDDEN // HEADS,
            "hidden_act": "silu",
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": NORM_EPSILON,
            "rope_theta": ROPE_THETA,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "float32",
        },
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [{"id": number, "content": token, **special} for number, token in enumerate(SPECIAL)],
            "normalizer": None,
            "pre_tokenizer": by_bytes,
            "post_processor": None,
            "decoder": by_bytes,
            "model": {
                "type": "BPE",
                "vocab": tokenizer.ids,
                "merges": [list(pair) for pair in tokenizer.merges],
                "unk_token": None,
                "byte_fallback": False,
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<unk>",
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
    }
    for name, content in files.items():
        (unfinished / name).write_text(json.dumps(content, indent=1))
    write_safetensors(unfinished / "model.safetensors", weights(tokenizer))
    try:
        unfinished.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(unfinished)
    return folder


def write_gguf(path: Path) -> Path:
    """The same model in one file for llama.cpp. Needs the package `gguf`, which the server's own environment has."""
    import gguf
    import numpy as np

    tokenizer = Tokenizer()
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    out = gguf.GGUFWriter(unfinished, "llama")
    out.add_name(NAME)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(FEED_FORWARD)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(NORM_EPSILON)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_rope_freq_base(ROPE_THETA)
    out.add_vocab_size(VOCABULARY)
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokenizer.tokens)
    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.NORMAL] * (VOCABULARY - len(SPECIAL))
    out.add_token_types(kinds)
    out.add_token_merges([f"{first} {second}" for first, second in tokenizer.merges])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_add_bos_token(False)
    out.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in weights(tokenizer).items():
        heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else None
        if heads:  # llama.cpp turns neighbouring components, a checkpoint the two halves of a head
            halves = tensor.reshape(heads, 2, HIDDEN // HEADS // 2, HIDDEN)
            tensor = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(tensor.shape))
        out.add_tensor(gguf_name(name), tensor)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    unfinished.rename(path)
    return path


def gguf_name(name: str) -> str:
    for ours, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.", "attn_"),
        ("mlp.", "ffn_"),
        ("_proj", ""),
    ):
        name = name.replace(ours, theirs)
    return name


if __name__ == "__main__":
    write_gguf(Path(sys.argv[1]))
