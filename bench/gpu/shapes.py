"""The models whose steps are compared, and the least that a GPU must do for a step of each (their roofline)."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """A decoder; `experts` 0 is dense. `settings` changes the recipe of Athanor to this shape."""

    recipe: str
    peer: str  # the class of `transformers`
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    experts: int = 0
    topk: int = 0
    seq_len: int = 4096
    tied: bool = False
    settings: tuple = ()
    batches: tuple = (16, 8, 4, 2, 1)  # sequences at once; the largest that both hold is measured

    def matrices(self):
        """(outputs, inputs, number of them, rows for each token) of the matrices of a layer; all experts' rows together."""
        d, f, q, kv = self.hidden, self.intermediate, self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(q, d, 1, 1), (kv, d, 1, 1), (kv, d, 1, 1), (d, q, 1, 1)]
        if not self.experts:
            return attention + [(f, d, 1, 1), (f, d, 1, 1), (d, f, 1, 1)]
        return attention + [(self.experts, d, 1, 1), (f, d, self.experts, self.topk), (f, d, self.experts, self.topk),
                            (d, f, self.experts, self.topk)]

    def parameters(self):
        layer = sum(outputs * inputs * count for outputs, inputs, count, _ in self.matrices())
        return layer * self.layers + (1 if self.tied else 2) * self.vocab * self.hidden


SHAPES = {
    "olmo-1b": Shape("olmo-1b.toml", "Olmo", 2048, 16, 16, 16, 128, 8192, 50304, seq_len=2048, tied=True),
    "olmoe-1b-7b": Shape("olmoe-1b-7b.toml", "Olmoe", 2048, 16, 16, 16, 128, 1024, 50304, 64, 8, batches=(8, 4, 2, 1)),
    # transformers needs more than 140 GB for all sixteen layers.
    "olmoe-half": Shape("olmoe-1b-7b.toml", "Olmoe", 2048, 8, 16, 16, 128, 1024, 50304, 64, 8, batches=(8, 4, 2, 1),
                        settings=("model.num_hidden_layers=8",)),
    "qwen3-slice": Shape("qwen3-30b-a3b.toml", "Qwen3Moe", 2048, 6, 32, 4, 128, 768, 151936, 128, 8,
                         settings=("model.num_hidden_layers=6", "parallelism.expert_parallel_degree=1")),
}


def step_work(shape, batch):
    """[(name, FLOPs, bytes)] of the kernels of a step: forward, backward and update, weights in bf16, sums in fp32.

    A product of R rows counts its operands and result once. Attention counts half of the scores, as they are causal. Backward
    makes two products of each in forward, and computes attention's scores again (2.5 times the FLOPs of forward).
    """
    tokens = batch * shape.seq_len
    work = []
    for outputs, inputs, count, rows_of_token in shape.matrices():
        rows, weight = tokens * rows_of_token, 2.0 * count * outputs * inputs
        flops = 2.0 * rows * outputs * inputs
        operands = 2.0 * rows * (inputs + outputs) + weight
        work += [("matmul", flops, operands), ("matmul dx", flops, operands), ("matmul dw", flops, operands + weight)]
    width = shape.heads * shape.head_dim
    scores = 2.0 * 2.0 * batch * shape.seq_len**2 / 2 * width
    moved = 2.0 * tokens * (2 * width + 2 * shape.kv_heads * shape.head_dim)
    work += [("attention", scores, moved), ("attention backward", 2.5 * scores, 2 * moved)]
    rows = tokens * (shape.topk if shape.experts else 1)
    work += [("norms", 0.0, 2.0 * tokens * shape.hidden * 2 * (3 + 5)), ("rope", 0.0, 2.0 * tokens * width * 2 * 2 * 2),
             ("swiglu", 0.0, 2.0 * rows * shape.intermediate * (3 + 6))]
    if shape.experts:
        work += [("gather and combine", 0.0, 2.0 * rows * shape.hidden * 2 * 5)]
    work = [(name, flops * shape.layers, moved * shape.layers) for name, flops, moved in work]
    head = 2.0 * tokens * shape.vocab * shape.hidden
    work += [("head", head, 2.0 * tokens * shape.vocab), ("head dx", head, 2.0 * tokens * shape.vocab),
             ("head dw", head, 2.0 * tokens * shape.vocab), ("loss", 0.0, 4.0 * tokens * shape.vocab)]
    # Gradient (fp32) read twice, for the norm and the update, and zeroed; two moments read and written; the weight in two halves.
    work += [("update", 0.0, (4 * 2 + 4 + 16 + 8.0) * shape.parameters())]
    return work


def roofline_s(work, gemm_rate, copy_rate):
    """The sum over kernels of the larger of FLOPs / GEMM rate and bytes / copy rate."""
    return sum(max(flops / gemm_rate, moved / copy_rate) for _, flops, moved in work)


def flops(work):
    return sum(each for _, each, _ in work)


def tiny(shape):
    """A shape of the same kind that a CPU trains in a second."""
    return dataclasses.replace(shape, hidden=64, layers=2, heads=4, kv_heads=max(1, 4 * shape.kv_heads // shape.heads), head_dim=16,
                               intermediate=96, vocab=512, experts=min(shape.experts, 8), topk=min(shape.topk, 2), seq_len=64,
                               batches=(2, 1))
