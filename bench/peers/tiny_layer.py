#!/usr/bin/env python3
"""One layer of an OLMoE by `transformers`, so small that only overhead is left: the peer of `athanor bench overhead`.

Models of one layer and of five are timed, forward and backward; a fourth of the difference is the time of a layer. A turn is 50
steps of each, so that it lasts as long as a round of Athanor. It waits for turns; see pacing.py.
"""
import argparse
import statistics
import time

import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

import pacing

STEPS = 50


def make_model(options, layers):
    config = OlmoeConfig(hidden_size=options.hidden, intermediate_size=options.hidden // 2, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=4, num_experts=8, num_experts_per_tok=2, vocab_size=64,
                         max_position_embeddings=max(options.tokens, 16), use_cache=False, pad_token_id=None,
                         bos_token_id=None, eos_token_id=None)
    model = OlmoeForCausalLM._from_config(config, experts_implementation=options.form, attn_implementation="sdpa")
    return model.to(getattr(torch, options.dtype))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--form", choices=("eager", "grouped_mm"), default="grouped_mm")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    models = [make_model(options, layers) for layers in (1, 5)]
    tokens = torch.randint(0, 64, (1, options.tokens))

    def time_steps(model):
        start = time.perf_counter()
        for _ in range(STEPS):
            model.zero_grad(set_to_none=True)
            model(input_ids=tokens, labels=tokens).loss.backward()
        return (time.perf_counter() - start) / STEPS

    ends_s = []

    def step():
        few, many = (time_steps(model) for model in models)
        ends_s.append(few)
        return (many - few) / 4

    pacing.serve(step, 1, lambda: {"form": options.form, "torch": torch.__version__,
                                   "one_layer_and_the_ends_s": statistics.median(ends_s[1:])})


if __name__ == "__main__":
    main()
