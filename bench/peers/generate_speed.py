#!/usr/bin/env python3
"""Measures generation by `transformers` and by Athanor, alternately on the same CPU: new tokens per second, and the ratio.

Both continue the same prompts greedily with the same random weights, in float32 and with the same threads. The new tokens are compared
first. The time of a token is a difference: that of a call with many new tokens less that of one with few, so that neither loading nor the
prompts count. `transformers` gets each batch padded on the left, as its documentation asks for; its texts all have the same number of tokens.

Usage: bench/peers/generate_speed.py [--family llama|olmoe] [--batch N ...] [--rounds N] [--threads N] [--json FILE]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

FEW, MANY = 8, 72
SIZES = {
    "llama": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, intermediate_size=2048),
    "olmoe": dict(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, intermediate_size=512, num_experts=16,
                  num_experts_per_tok=4),
}


def make_model(folder, family):
    import torch
    from greedy import make_tokenizer
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(5)
    config = AutoConfig.for_model(family, **SIZES[family], vocab_size=8192, max_position_embeddings=1024, eos_token_id=None,
                                  pad_token_id=None, bos_token_id=None, initializer_range=0.05)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tokenizer.pad_token_id, tokenizer.padding_side = 0, "left"
    return model, tokenizer


def their_turn(model, tokenizer, prompts, count):
    """Returns the new ids and the seconds."""
    import torch

    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    # Padding rows of the embedding have no token: they are left out on both sides.
    bad = [[token] for token in range(len(tokenizer), model.config.vocab_size)]
    start = time.perf_counter()
    with torch.no_grad():
        out = model.generate(**{key: inputs[key] for key in ("input_ids", "attention_mask")}, max_new_tokens=count, do_sample=False,
                             pad_token_id=0, suppress_tokens=[token for [token] in bad])
    return [row[inputs.input_ids.shape[1]:].tolist() for row in out], time.perf_counter() - start


def our_turn(athanor, folder, prompts, count, threads):
    words = [part for prompt in prompts for part in ("--prompt", prompt)]
    command = [athanor, "generate", folder, *words, "--max-new-tokens", str(count), "--temperature", "0", "--dtype", "float32", "--json",
               "--device", "cpu", "--batch-size", str(len(prompts))]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
    seconds = time.perf_counter() - start
    return [json.loads(line)["new_ids"] for line in done.stdout.splitlines()], seconds


def compare(athanor, folder, model, tokenizer, batch, rounds, threads):
    from greedy import make_prompts

    prompts = make_prompts(batch)
    turns = {"transformers": lambda count: their_turn(model, tokenizer, prompts, count),
             "athanor": lambda count: our_turn(athanor, folder, prompts, count, threads)}
    theirs, ours = (turn(FEW)[0] for turn in turns.values())
    equal = sum(a == b for a, b in zip(theirs, ours, strict=True))
    rates = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            rates[name].append(batch * (MANY - FEW) / (turn(MANY)[1] - turn(FEW)[1]))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    ratio = medians["athanor"] / medians["transformers"]
    spreads = ", ".join(f"{name} {medians[name]:.1f} tokens/s ({min(each):.1f} to {max(each):.1f})" for name, each in rates.items())
    print(f"batch {batch:3}: {spreads}; {ratio:.2f} times; {equal} of {batch} texts equal", flush=True)
    return dict(batch=batch, rates=rates, ratio=ratio, equal=equal)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=SIZES, default="llama")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--athanor", type=pathlib.Path, default=ROOT / "build" / "athanor")
    given = parser.parse_args()

    import torch

    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = make_model(folder, given.family)
        print(f"{given.family}, {sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters, float32, {given.threads} threads")
        rows = [compare(given.athanor, folder, model, tokenizer, batch, given.rounds, given.threads) for batch in given.batch]
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
