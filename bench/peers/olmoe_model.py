"""The model of the comparison of training steps, and its arithmetic. It needs nothing but Python."""

SHAPE = dict(hidden_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8, intermediate_size=512,
             num_experts=32, num_experts_per_tok=4, vocab_size=50304, max_position_embeddings=1024)
BATCH, SEQ_LEN = 2, 1024


def train_flops():
    """Counts 2 FLOPs for a multiply-add, 3 multiplications forward and backward, and attention scores over the causal half only."""
    d, f, layers = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["num_hidden_layers"]
    experts, k = SHAPE["num_experts"], SHAPE["num_experts_per_tok"]
    active = layers * (4 * d * d + d * experts + k * 3 * d * f) + SHAPE["vocab_size"] * d
    scores = layers * 2 * (SEQ_LEN * SEQ_LEN // 2) * d
    return 6 * active * BATCH * SEQ_LEN + 6 * scores * BATCH


def with_rates(result):
    """Adds what follows from the median: rates and the share of the GEMM peak."""
    flops = train_flops() / result["median_s"]
    return {**result, "tokens_per_s": BATCH * SEQ_LEN / result["median_s"], "tflops": flops / 1e12,
            "share_of_gemm_peak": flops / 1e12 / result["gemm_peak_tflops"]}
