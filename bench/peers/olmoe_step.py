#!/usr/bin/env python3
"""One training step of an OLMoE by `transformers`: the peer that ours is held against.

The model of the comparison: 4 layers, hidden 1024, 8 heads, 32 experts of 512, top-4, vocabulary 50,304, batch 2 x 1024.
Weights in float32, forward and backward in bfloat16 autocast, experts by grouped_mm (the fastest form `transformers` has on
a CPU), fused AdamW. No gradient clipping and no z-loss: ours does both, so the peer has a little less to do.

Alone it runs --warmup and then --steps steps. With --paced it waits for a line on standard input before each batch of
steps ("steps N") and answers with a line, so that bench/peers/run can let two programs take turns. The result is JSON on
standard output: median_s, min_s, max_s, tokens_per_s, tflops, share_of_gemm_peak, peak_rss_bytes.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

SHAPE = dict(hidden_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8, intermediate_size=512,
             num_experts=32, num_experts_per_tok=4, vocab_size=50304, max_position_embeddings=1024)
BATCH, SEQ_LEN = 2, 1024


def train_flops():
    """2 FLOPs a multiply-add, 3 multiplications forward and backward; attention scores over the causal half only."""
    d, f, layers = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["num_hidden_layers"]
    experts, k = SHAPE["num_experts"], SHAPE["num_experts_per_tok"]
    active = layers * (4 * d * d + d * experts + k * 3 * d * f) + SHAPE["vocab_size"] * d
    scores = layers * 2 * (SEQ_LEN * SEQ_LEN // 2) * d
    return 6 * active * BATCH * SEQ_LEN + 6 * scores * BATCH


def gemm_peak_flops():
    """The best that the same threads reach on a square bfloat16 multiplication, in FLOP/s."""
    best = 0.0
    for n in (1024, 2048):
        a, b = torch.randn(n, n).bfloat16(), torch.randn(n, n).bfloat16()
        out = torch.empty(n, n, dtype=torch.bfloat16)
        for _ in range(8):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


class Peer:
    def __init__(self, experts):
        torch.manual_seed(1)
        config = OlmoeConfig(**SHAPE, router_aux_loss_coef=0.01, output_router_logits=True, use_cache=False,
                             pad_token_id=None, bos_token_id=None, eos_token_id=None)
        self.model = OlmoeForCausalLM._from_config(config, experts_implementation=experts, attn_implementation="sdpa")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
        self.times_s, self.losses = [], []

    def step(self, timed):
        tokens = torch.randint(0, SHAPE["vocab_size"], (BATCH, SEQ_LEN))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())
        if timed:
            self.times_s.append(time.perf_counter() - start)

    def result(self, peak):
        median = statistics.median(self.times_s)
        return {
            "median_s": median, "min_s": min(self.times_s), "max_s": max(self.times_s), "times_s": self.times_s,
            "tokens_per_s": BATCH * SEQ_LEN / median, "tflops": train_flops() / median / 1e12,
            "gemm_peak_tflops": peak / 1e12, "share_of_gemm_peak": train_flops() / median / peak,
            "first_loss": self.losses[0], "last_loss": self.losses[-1],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--experts", default="grouped_mm", help="experts_implementation of transformers")
    parser.add_argument("--paced", action="store_true", help="wait for 'steps N' lines on standard input")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    peer = Peer(options.experts)
    for _ in range(options.warmup):
        peer.step(timed=False)
    if options.paced:
        print("ready", flush=True)
        for line in sys.stdin:
            for _ in range(int(line.split()[1])):
                peer.step(timed=True)
            print("done", flush=True)
    else:
        for _ in range(options.steps):
            peer.step(timed=True)
    memory = peak_rss_bytes()  # before the multiplications below add to it
    print(json.dumps({**peer.result(gemm_peak_flops()), "peak_rss_bytes": memory, "threads": options.threads,
                      "experts": options.experts, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
