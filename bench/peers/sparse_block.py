#!/usr/bin/env python3
"""The sparse block of an OLMoE by `transformers`, forward and backward: the peer of `athanor bench moe`.

--form  eager        the loop over experts that is the default today
        grouped_mm   torch's grouped matmul
        compiled     the same under torch.compile (a minute or more at first)
        module_list  a module for each expert, as in `transformers` 4.x
        athanor      the block of our Python module, which must be installed
Weights and their gradients are in --dtype (Athanor accumulates gradients in float32). It waits for turns; see pacing.py.
"""
import argparse
import time

import torch
from torch import nn
from transformers import OlmoeConfig
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock

import pacing


class Expert(nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, ffn, bias=False)
        self.up_proj = nn.Linear(hidden, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class ModuleListBlock(nn.Module):
    """Every expert selects its tokens by the mask of choices, and adds its output for them."""

    def __init__(self, hidden, ffn, experts, topk):
        super().__init__()
        self.topk = topk
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, ffn) for _ in range(experts))

    def forward(self, x):
        tokens = x.view(-1, x.shape[-1])
        probabilities = self.gate(tokens).softmax(-1, dtype=torch.float)
        weights, ids = probabilities.topk(self.topk, -1)
        weights = weights.to(x.dtype)
        out = torch.zeros_like(tokens)
        chosen = nn.functional.one_hot(ids, len(self.experts)).permute(2, 1, 0)
        for expert, mask in zip(self.experts, chosen):
            choice, token = torch.where(mask)
            out.index_add_(0, token, expert(tokens[token]) * weights[token, choice, None])
        return out.view_as(x)


def make_block(options):
    if options.form == "module_list":
        return ModuleListBlock(options.hidden, options.ffn, options.experts, options.topk)
    config = OlmoeConfig(hidden_size=options.hidden, intermediate_size=options.ffn, num_experts=options.experts,
                         num_experts_per_tok=options.topk)
    if options.form == "athanor":
        import athanor
        return athanor.SparseBlock(config)
    config._experts_implementation = "eager" if options.form == "eager" else "grouped_mm"
    return OlmoeSparseMoeBlock(config)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("tokens", 4096), ("hidden", 2048), ("ffn", 1024), ("experts", 64), ("topk", 8), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--form", choices=("eager", "grouped_mm", "compiled", "module_list", "athanor"), default="grouped_mm")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    dtype = getattr(torch, options.dtype)

    block = make_block(options).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(0, 0.02)
    call = torch.compile(block) if options.form == "compiled" else block
    x = torch.randn(1, options.tokens, options.hidden).to(dtype).requires_grad_()
    dy = torch.randn_like(x)

    def step():
        block.zero_grad(set_to_none=True)
        x.grad = None
        start = time.perf_counter()
        call(x).backward(dy)
        return time.perf_counter() - start

    pacing.serve(step, 3, lambda: {"form": options.form, "torch": torch.__version__})


if __name__ == "__main__":
    main()
