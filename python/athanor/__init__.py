"""Athanor's sparse block, tokenizer and loader for programs in Python.

`SparseBlock(config)` has the parameters, the signature and the results of `OlmoeSparseMoeBlock` in `transformers`, and
`replace_sparse_blocks(model)` puts one in the place of each of a model's. `Tokenizer(path)` gives the ids of `tokenizers`.
`Loader(folder, batch_size)` gives the batches of a folder that `athanor prepare` wrote, in the order of a run with its seed.
"""
import torch
from torch import nn

from . import _athanor
from ._athanor import Loader, Tokenizer

if torch.__version__.split("+")[0] != _athanor.torch_version.split("+")[0]:
    raise ImportError(f"athanor was built for torch {_athanor.torch_version}, and this is {torch.__version__}: "
                      "build it again with `pip install --no-build-isolation .`")

__all__ = ["Experts", "Loader", "SparseBlock", "Tokenizer", "TopKRouter", "replace_sparse_blocks"]


class Experts(nn.Module):
    """Experts with SwiGLU, of which only those that tokens chose are computed; parameters as `OlmoeExperts` has them."""

    def __init__(self, num_experts, hidden_size, intermediate_size):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, 2 * intermediate_size, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, intermediate_size))

    def forward(self, hidden_states, top_k_index, top_k_weights):
        """hidden_states [tokens, hidden], top_k_index and top_k_weights [tokens, choices] → [tokens, hidden]."""
        return _athanor.expert_layer(hidden_states, top_k_weights.float(), top_k_index, self.gate_up_proj, self.down_proj)


class TopKRouter(nn.Module):
    """Returns the logits, and the weights and the experts of each token's choices, as `OlmoeTopKRouter` does."""

    def __init__(self, num_experts, hidden_size, choices, norm_topk_prob=False):
        super().__init__()
        self.choices, self.norm_topk_prob = choices, norm_topk_prob
        self.weight = nn.Parameter(torch.zeros(num_experts, hidden_size))

    def forward(self, hidden_states):
        logits = nn.functional.linear(hidden_states.reshape(-1, hidden_states.shape[-1]), self.weight)
        weights, experts = torch.topk(logits.softmax(-1, dtype=torch.float), self.choices, dim=-1)
        if self.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        return logits, weights.to(logits.dtype), experts


class SparseBlock(nn.Module):
    """A drop-in for `OlmoeSparseMoeBlock`: the same names of parameters, so that a state_dict of one loads in the other."""

    def __init__(self, config):
        super().__init__()
        self.gate = TopKRouter(config.num_experts, config.hidden_size, config.num_experts_per_tok, config.norm_topk_prob)
        self.experts = Experts(config.num_experts, config.hidden_size, config.intermediate_size)

    def forward(self, hidden_states):
        """hidden_states [batch, tokens, hidden] → the same."""
        tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
        _, weights, experts = self.gate(tokens)
        return self.experts(tokens, experts, weights).view(hidden_states.shape)


def replace_sparse_blocks(model):
    """Lets the experts of an OLMoE of `transformers` be computed here. Parameters and routers stay what they are; returns the number."""
    found = [module for module in model.modules() if type(module).__name__ == "OlmoeSparseMoeBlock"]
    for block in found:
        theirs = block.experts
        ours = Experts(1, 1, 1)
        ours.gate_up_proj, ours.down_proj = theirs.gate_up_proj, theirs.down_proj
        block.experts = ours
    return len(found)
