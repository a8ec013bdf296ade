#!/usr/bin/env python3
"""What a fixed order of sums costs in attention's backward: libtorch's flash kernel, deterministic and not, in turns.

usage: attention_cost.py [--device cuda]

Prints JSON: the median milliseconds of forward and backward in both forms, for 4 sequences of 4096 tokens, 16 heads of 128.
"""
import argparse
import json
import statistics
import time

import torch


def milliseconds(q, k, v, dy, deterministic, wait):
    torch.use_deterministic_algorithms(deterministic)
    wait()
    begin = time.perf_counter()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(dy)
    wait()
    return 1e3 * (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=4096)
    options = parser.parse_args()
    shape = (4, 16, options.tokens, 128)
    q, k, v = (torch.randn(shape, device=options.device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dy = torch.randn(shape, device=options.device, dtype=torch.bfloat16)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    times = {True: [], False: []}
    for turn in range(8):
        for deterministic in times:
            spent = milliseconds(q, k, v, dy, deterministic, wait)
            if turn > 1:
                times[deterministic].append(spent)
    print(json.dumps({"deterministic_ms": statistics.median(times[True]), "ms": statistics.median(times[False])}))


if __name__ == "__main__":
    main()
