"""Computes what 32-bit arithmetic can do to a computation: the reference in 64 bits, and the size of the rounding errors around it.

A tolerance for a deep graph cannot be a constant: the gradient of a query passes a softmax, whose backward subtracts nearly
equal numbers, and that of an output layer does not. So the bound is derived from the graph itself, by Monte Carlo arithmetic
(Parker 1997): the computation runs in float64, and every elementary result gets a random error of the size that float32 would
have made there. The resulting movement of the outputs is the standard deviation of a correct float32 result, in whatever order
it sums.

The error of one operation, if u = 2^-24 is the unit roundoff of float32:
- For a sum of n products s = sum x_i, added one after the other in any order, the partial sums are (j/n) s plus a random walk of
  the terms, so the errors u * partial_j add up to a variance of u^2 n (s^2 / 3 + sum x_i^2 / 2). Blocked, pairwise and fused
  sums have smaller errors.
- For any other operation it is u * |result|; for transcendental ones 2u * |result|, as vector libraries promise.

A result passes if its distance to the reference is at most `SIGMAS` standard deviations, both in the Euclidean norm (many small
errors) and in the largest element (a single wrong one).
"""
import math

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

UNIT_ROUNDOFF = 2.0**-24
SIGMAS = 6.0  # in a normal distribution 1 in 500 million
SAMPLES = 8
MASKED = 1e29  # larger values replace minus infinity in attention masks

aten = torch.ops.aten
# Fused operations hide the subtraction that loses digits, so they run as the elementary operations that they consist of.
DECOMPOSED = torch._decomp.get_decompositions([
    aten._softmax, aten._softmax_backward_data, aten._log_softmax, aten._log_softmax_backward_data,
    aten.native_layer_norm, aten.native_layer_norm_backward, aten.silu, aten.silu_backward, aten.sigmoid_backward, aten.tanh_backward, aten.gelu, aten.gelu_backward,
    aten.nll_loss_forward, aten.nll_loss_backward, aten.embedding_dense_backward, aten.addmm, aten.mean,
])
PRODUCTS = {aten.mm.default, aten.bmm.default}
SUMS = {aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim}
TRANSCENDENTAL = {aten.exp, aten.log, aten.sigmoid, aten.rsqrt, aten.pow, aten.cos, aten.sin, aten.sqrt, aten.silu, aten.tanh}
EXACT = {aten.clone, aten._to_copy, aten.copy_, aten.clamp, aten.clamp_, aten.neg, aten.cat, aten.stack, aten.index,
         aten.gather, aten.embedding, aten.zeros_like, aten.ones_like, aten.full_like, aten.zero_, aten.fill_, aten.topk,
         aten.where, aten.masked_fill, aten.amax, aten.max, aten.constant_pad_nd, aten.slice_backward, aten.new_zeros,
         aten.select_backward, aten.index_select, aten.scatter, aten.histc, aten.sort, aten.relu, aten.abs, aten.full,
         aten.zeros, aten.ones, aten.arange, aten.empty_like, aten.scalar_tensor, aten.lift_fresh, aten.detach,
         aten._unsafe_index, aten.new_full, aten.repeat, aten.empty, aten.new_empty, aten.threshold_backward}


class InDouble(TorchFunctionMode):
    """Uses float64 also if a model's code asks for float32 by name (norms, softmax, rotary angles)."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(x):
            return torch.float64 if x is torch.float32 else x

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*tree_map(widen, args), **tree_map(widen, kwargs or {}))


class Rounding(TorchDispatchMode):
    """Disturbs every elementary float64 result as float32 would have rounded it."""

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in DECOMPOSED:
            with self:
                return DECOMPOSED[func](*args, **kwargs)
        out = func(*args, **kwargs)
        if func.overloadpacket in EXACT or func.is_view or not isinstance(out, torch.Tensor) or out.dtype != torch.float64:
            return out
        error = self.error_size(func, args, out).mul_(UNIT_ROUNDOFF)
        error.masked_fill_(~(out.abs() < MASKED), 0)
        noise = torch.randn(out.shape, dtype=out.dtype, generator=self.generator)
        return out.addcmul_(error, noise)

    @staticmethod
    def error_size(func, args, out):
        if func in PRODUCTS:
            a, b = args[0], args[1]
            squares = torch.matmul(a * a, b * b)
            return (a.shape[-1] * (out * out / 3 + squares / 2)).sqrt()
        if func in SUMS:
            x, n = args[0], args[0].numel() // max(out.numel(), 1)
            dims = args[1] if len(args) > 1 and args[1] else list(range(x.dim()))
            keep = len(args) > 2 and args[2]
            squares = (x * x).sum(dims, keep) / (n if "mean" in func.name() else 1) ** 2
            return (n * (out * out / 3 + squares / 2)).sqrt()
        return out.abs() * (2 if func.overloadpacket in TRANSCENDENTAL else 1)


class Reference:
    """{name: float64 tensor} of a computation, with the size of float32's errors in each."""

    def __init__(self, compute, disturb=lambda seed: None):
        """`compute()` returns {name: tensor}; `disturb(seed)` may disturb constants made beforehand."""
        with InDouble():
            self.values = compute()
            runs = []
            for seed in range(1, SAMPLES + 1):
                undo = disturb(seed)
                with Rounding(seed):
                    runs.append(compute())
                if undo:
                    undo()
        self.deviations = {name: self._deviation([run[name] for run in runs], value) for name, value in self.values.items()}

    @staticmethod
    def _deviation(samples, value):
        errors = [sample - value for sample in samples]
        norm = math.sqrt(sum(float(e.norm()) ** 2 for e in errors) / len(errors))
        largest = math.sqrt(sum(float(e.abs().max()) ** 2 for e in errors) / len(errors)) if value.numel() else 0.0
        # Each value is stored in float32 in the end, however small the errors before.
        return max(norm, UNIT_ROUNDOFF * float(value.norm())), max(largest, UNIT_ROUNDOFF * float(value.abs().max()))

    def share_of_bound(self, name, tensor):
        """Returns the distance of `tensor` from the reference as a share of the bound; above 1 it is wrong."""
        value = self.values[name]
        assert tuple(tensor.shape) == tuple(value.shape), f"{name}: shape {tuple(tensor.shape)}, expected {tuple(value.shape)}"
        error = tensor.double() - value
        if not torch.isfinite(error).all():
            return math.inf
        norm, largest = self.deviations[name]
        shares = [float(size) / (SIGMAS * bound) if bound else (math.inf if float(size) else 0.0)
                  for size, bound in ((error.norm(), norm), (error.abs().max(), largest))]
        return max(shares)

    def failures(self, tensors):
        """Returns a line for each tensor that is missing or too far away."""
        lines = []
        for name in self.values:
            if name not in tensors:
                lines.append(f"{name}: missing")
                continue
            share = self.share_of_bound(name, tensors[name])
            if not share <= 1:  # also if it is NaN
                error = (tensors[name].double() - self.values[name]).abs().max()
                lines.append(f"{name}: {share:.3g} times the bound; largest error {float(error):.3g} where values reach "
                             f"{float(self.values[name].abs().max()):.3g}")
        return lines
