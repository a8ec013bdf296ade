#pragma once
// The memory that libtorch's attention takes on CUDA for the time of a backward, in addition to its results. It is
// computed from shapes as libtorch 2.11 does it, for a GPU with the 132 multiprocessors of an H100; none of it was
// measured on a GPU.
//
// Symbols: N tokens of a microbatch in B sequences of T; H query heads of D elements; d documents in the tables, with
// the empty ones. Without tables each sequence is one.
//
//   flash (bf16)        4·H·R for the sums of softmax's gradient, where R = N + 128·d rows with tables, and else B·T'
//                       with T' = T in multiples of 128. s·4·H·R·D' for the gradient of queries in fp32, where D' = D
//                       in multiples of 32, or of 64 above 128. s = ⌈132 / (d·H)⌉ (B without tables) copies of it, for
//                       a fixed order of sums; else one. With fewer key heads also 4·N·H·D: gradients of a key and a
//                       value for each query head (mha_bwd and mha_varlen_bwd in
//                       ATen/native/transformers/cuda/flash_attn/flash_api.cpp).
//   memory-efficient    4·N·H for the sums, and in fp32 before that 4·N·H·(D + 2) while they are formed. For each
//                       document (sequence) and head a gradient of queries in fp32 with room for T of them, in tiles of
//                       64 columns and of 64 rows, or 128 where D > 64, with 16 bytes more for each tile
//                       (_efficient_attention_backward in ATen/native/transformers/cuda/attention_backward.cu,
//                       Params::workspace_size in mem_eff_attention/kernel_backward.h). So with tables it is d times
//                       what N = T would need. In bf16 results are not added to in place, and those of a key and a
//                       value have a block, too.
//
// The logarithms that the memory-efficient forward keeps have 4·H·T'' for each document (sequence), T'' = T in
// multiples of 32. Not counted are partial results of flash's forward, which it has where its blocks are too few for
// the GPU.

#include <cstdint>

namespace athanor::kernels::cuda {

/// A call of attention, in the symbols above.
struct AttentionShape {
  int64_t sequences, seq_len, heads, kv_heads, head_dim;
  int64_t documents = 0;  ///< those of the tables; 0: there are none
  bool is_bf16 = true;

  int64_t tokens() const { return sequences * seq_len; }
  int64_t parts() const { return documents > 0 ? documents : sequences; }
};

/// Returns the bytes that flash's backward takes.
int64_t flash_backward_bytes(const AttentionShape& shape, bool has_fixed_order = true);

/// The bytes that the memory-efficient backward takes: first one, and after that is freed the other.
struct EfficientBytes {
  int64_t forming_sums, rest;
};
EfficientBytes efficient_backward_bytes(const AttentionShape& shape);

/// Returns the tokens that a part has in the memory-efficient kernel's logarithms.
int64_t efficient_rows(int64_t seq_len);

}  // namespace athanor::kernels::cuda
