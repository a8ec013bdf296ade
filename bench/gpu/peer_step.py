#!/usr/bin/env python3
"""Training steps by `transformers` on one GPU: the peer of gpu_check. Weights and moments in float32, bfloat16 autocast, fused AdamW.

usage: peer_step.py SHAPE [--form grouped_mm|module_list|compiled] [--batches 8,4,2,1] [--steps 5] [--device cuda]

It takes the largest of the batches that fits. Prints JSON: batch, the medians of forward and backward, of the update and of the
step in seconds, the peak of allocated memory, and the rates of this GPU's products and copies.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import shapes


def make_model(shape, form, device):
    import transformers

    config = getattr(transformers, f"{shape.peer}Config")(
        hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, vocab_size=shape.vocab, intermediate_size=shape.intermediate,
        max_position_embeddings=shape.seq_len, use_cache=False, pad_token_id=None, bos_token_id=None, eos_token_id=None,
        tie_word_embeddings=shape.tied,
        **(dict(num_experts=shape.experts, num_local_experts=shape.experts, num_experts_per_tok=shape.topk,
                moe_intermediate_size=shape.intermediate, router_aux_loss_coef=0.01,
                output_router_logits=form != "module_list") if shape.experts else {}))
    experts = {"experts_implementation": "eager" if form == "module_list" else "grouped_mm"} if shape.experts else {}
    with torch.device(device):
        model = getattr(transformers, f"{shape.peer}ForCausalLM")._from_config(config, attn_implementation="sdpa", **experts)
        if form == "module_list":
            import sparse_block

            for layer in model.model.layers:
                layer.mlp = sparse_block.ModuleListBlock(shape.hidden, shape.intermediate, shape.experts, shape.topk)
    return model


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Peer:
    def __init__(self, shape, form, device):
        torch.manual_seed(1)
        self.shape, self.device = shape, device
        self.model = make_model(shape, form, device)
        self.call = torch.compile(self.model) if form == "compiled" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(self, batch):
        tokens = torch.randint(0, self.shape.vocab, (batch, self.shape.seq_len), device=self.device)
        wait(self.device)
        begin = time.perf_counter()
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.call(input_ids=tokens, labels=tokens).loss
        loss.backward()
        wait(self.device)
        middle = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        wait(self.device)
        return middle - begin, time.perf_counter() - middle


def largest_batch(peer, batches):
    for batch in batches:
        try:
            for _ in range(2):  # the optimizer's state comes with the first step
                peer.step(batch)
            return batch
        except torch.OutOfMemoryError:
            peer.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
    sys.exit(f"none of the batches {batches} fits")


def best_time(call, device, times=8):
    best = float("inf")
    for _ in range(times):
        wait(device)
        begin = time.perf_counter()
        call()
        wait(device)
        best = min(best, time.perf_counter() - begin)
    return best


def rates(device):
    """The largest rates of a square bf16 product (FLOP/s) and of a copy (bytes read and written, per second)."""
    n = 8192 if device == "cuda" else 512
    a, b = (torch.randn(n, n, device=device).bfloat16() for _ in range(2))
    x = torch.empty(2**30 if device == "cuda" else 2**24, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    return 2 * n**3 / best_time(lambda: torch.mm(a, b), device), 2 * x.numel() / best_time(lambda: y.copy_(x), device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=shapes.SHAPES)
    parser.add_argument("--form", choices=("grouped_mm", "module_list", "compiled"), default="grouped_mm")
    parser.add_argument("--batches")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a hundredth of the model, to try this program without a GPU")
    options = parser.parse_args()
    shape = shapes.SHAPES[options.shape]
    if options.tiny:
        shape = shapes.tiny(shape)
    gemm_rate, copy_rate = rates(options.device)
    peer = Peer(shape, options.form, options.device)
    batch = largest_batch(peer, [int(each) for each in options.batches.split(",")] if options.batches else shape.batches)
    peer.step(batch)
    times = [peer.step(batch) for _ in range(options.steps)]
    memory = torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
    print(json.dumps({"batch": batch, "backward_and_forward_s": statistics.median(each[0] for each in times),
                      "update_s": statistics.median(each[1] for each in times),
                      "step_s": statistics.median(sum(each) for each in times), "peak_bytes": memory,
                      "gemm_rate": gemm_rate, "copy_rate": copy_rate, "form": options.form, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
