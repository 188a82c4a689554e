"""Train the byte-level BPE of 8,192 tokens and write it as a Hugging Face tokenizer directory.

    python tokenizer.py CORPUS_DIR OUT_DIR
"""

import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from chatform import CONTROL_TOKENS, MARK_TOKENS, chat_template
from corpus import chat_rows, prose_documents
from curriculum import SESSIONS, SKILLS, WEIGHTS, training_sample

N_VOCAB = 8192
N_MARKS = len(CONTROL_TOKENS) + len(MARK_TOKENS)
# Qwen3.5's split: letters with their combining marks, single digits, runs of punctuation, blanks.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def texts(corpus, n_bytes, seed=7):
    """A sample in about the proportions of training."""
    rng = random.Random(seed)
    prose = [d for d, _ in prose_documents(corpus)]
    rng.shuffle(prose)
    total = 0
    for d in prose:
        total += len(d)
        yield d
        if total > 0.55 * n_bytes:
            break
    chats = list(chat_rows(corpus))
    rng.shuffle(chats)
    total = 0
    for row in chats:
        text = "\n".join(m["content"] for m in row["messages"]) + "\n" + row["answer"]
        total += len(text)
        yield text
        if total > 0.15 * n_bytes:
            break
    skills, weights = list(WEIGHTS), list(WEIGHTS.values())
    total = 0
    while total < 0.3 * n_bytes:
        text = "".join(t for t, _ in training_sample(rng.choices(skills, weights)[0], rng))
        for mark in CONTROL_TOKENS + MARK_TOKENS:
            text = text.replace(mark, "\n")
        total += len(text)
        yield text


def untrained(vocab=None, merges=None):
    """The tokenizer around a vocabulary: Qwen3.5's normal form and split, bytes below."""
    tok = Tokenizer(models.BPE(vocab, merges) if vocab else models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
    return tok


def save(tok, out, n_vocab=N_VOCAB, n_ctx=2048):
    """Add the special tokens behind the vocabulary, and write a Hugging Face tokenizer directory."""
    assert tok.get_vocab_size() == n_vocab - N_MARKS
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL_TOKENS])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARK_TOKENS])
    os.makedirs(out, exist_ok=True)
    tok.save(os.path.join(out, "tokenizer.json"))
    ids = {t: tok.token_to_id(t) for t in CONTROL_TOKENS + MARK_TOKENS}
    config = {
        "tokenizer_class": "Qwen2Tokenizer", "model_max_length": n_ctx, "add_bos_token": False, "add_prefix_space": False,
        "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
        "clean_up_tokenization_spaces": False, "split_special_tokens": False, "errors": "replace",
        "added_tokens_decoder": {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                          "special": t in CONTROL_TOKENS} for t, i in ids.items()},
        "chat_template": chat_template(),
    }
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump(config, f, indent=1, ensure_ascii=False)
    with open(os.path.join(out, "chat_template.jinja"), "w") as f:
        f.write(chat_template())
    # vocab.json and merges.txt, the older pair of files, for readers that want them
    model = json.loads(tok.to_str())["model"]
    with open(os.path.join(out, "vocab.json"), "w") as f:
        json.dump(model["vocab"], f, ensure_ascii=False)
    with open(os.path.join(out, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "\n".join(" ".join(m) if isinstance(m, list) else m for m in model["merges"]) + "\n")
    print("vocabulary", tok.get_vocab_size(), ids)


def main():
    corpus, out = sys.argv[1:3]
    tok = untrained()
    tok.train_from_iterator(texts(corpus, 24_000_000), trainers.BpeTrainer(
        vocab_size=N_VOCAB - N_MARKS, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    save(tok, out)


if __name__ == "__main__":
    assert set(SKILLS) | set(SESSIONS) == set(WEIGHTS)
    main()
