#!/usr/bin/env python3
"""One training step of an OLMoE by `transformers`: the peer to which Athanor's step is compared.

The model of the comparison has 4 layers, hidden 1024, 8 heads, 32 experts of 512, top-4, vocabulary 50,304, and batch 2 x 1024.
Weights are in float32, forward and backward use bfloat16 autocast, experts use grouped_mm (the fastest form of `transformers` on
a CPU), and AdamW is fused. There is no gradient clipping and no z-loss: Athanor computes both, so the peer has a little less work.

--experts  grouped_mm, eager (the loop that is the default today) or module_list (a module for each expert, as in 4.x)
--compile  under torch.compile, which compiles for a minute or more first
--weights  bfloat16: no float32 weights and no autocast; updates below 1/256 of a weight are lost

Alone it runs --warmup and then --steps steps. With --paced it waits for turns; see pacing.py. The result is JSON on
standard output: median_s, min_s, max_s, tokens_per_s, tflops, share_of_gemm_peak, peak_rss_bytes.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

import pacing
import sparse_block
from olmoe_model import BATCH, SEQ_LEN, SHAPE, with_rates


def make_model(options):
    module_list = options.experts == "module_list"
    config = OlmoeConfig(**SHAPE, router_aux_loss_coef=0.01, output_router_logits=not module_list, use_cache=False,
                         pad_token_id=None, bos_token_id=None, eos_token_id=None)
    model = OlmoeForCausalLM._from_config(config, experts_implementation="eager" if module_list else options.experts,
                                          attn_implementation="sdpa")
    if module_list:
        for layer in model.model.layers:
            layer.mlp = sparse_block.ModuleListBlock(SHAPE["hidden_size"], SHAPE["intermediate_size"],
                                                     SHAPE["num_experts"], SHAPE["num_experts_per_tok"])
    return model.to(getattr(torch, options.weights))


class Peer:
    def __init__(self, options):
        torch.manual_seed(1)
        self.model = make_model(options)
        self.call = torch.compile(self.model) if options.compile else self.model
        self.autocast = options.weights == "float32"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
        self.losses, self.memory = [], 0

    def step(self):
        tokens = torch.randint(0, SHAPE["vocab_size"], (BATCH, SEQ_LEN))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext():
            loss = self.call(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())
        return time.perf_counter() - start

    def result(self, options):
        memory = pacing.peak_rss_bytes()  # before the multiplications below add to it
        peak = pacing.gemm_peak_flops()
        return {"gemm_peak_tflops": peak / 1e12, "peak_rss_bytes": memory, "first_loss": self.losses[0],
                "last_loss": self.losses[-1], "threads": options.threads, "experts": options.experts,
                "compile": options.compile, "weights": options.weights, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--experts", choices=("grouped_mm", "eager", "module_list"), default="grouped_mm")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--weights", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--paced", action="store_true", help="wait for 'steps N' lines on standard input")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    peer = Peer(options)
    if options.paced:
        pacing.serve(peer.step, options.warmup, lambda: peer.result(options))
        return
    for _ in range(options.warmup):
        peer.step()
    times_s = [peer.step() for _ in range(options.steps)]
    print(json.dumps(with_rates({**peer.result(options), "times_s": times_s, "median_s": statistics.median(times_s),
                                 "min_s": min(times_s), "max_s": max(times_s)})))


if __name__ == "__main__":
    main()
