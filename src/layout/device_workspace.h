#pragma once
// The memory that libtorch's kernels take for themselves on a CUDA device: the workspaces of cuBLAS, which stay, and
// what attention takes for a moment. None of it was measured on a GPU; it is computed from shapes as libtorch does.
//
// cuBLAS. Libtorch gives each pair of a cuBLAS handle and a stream a workspace from its allocator at the first product
// and never frees it (getCurrentCUDABlasHandle in ATen/cuda/CublasHandlePool.cpp). It has 32 MiB on Hopper (libtorch
// newer than 2.11: also on Blackwell) and 8 MiB + 128 KiB on others; CUBLAS_WORKSPACE_CONFIG, described in NVIDIA's
// manual of cuBLAS ("Results Reproducibility"), sets another size. A thread has one handle. Two threads multiply, on
// one stream: the one that computes forward, and autograd's, which computes backward (OnDeviceMemory.* in train_test).
// A graph is recorded on another stream, by the same threads. Products with a bias, for which libtorch would take
// cuBLASLt and its separate workspace, do not occur.
//
// Attention. The kernel is chosen as in ops/device/library_attention.h, for a GPU that has all of them. Symbols: N
// tokens of a microbatch in B sequences of T; H query heads of D elements; d documents in the tables, with the empty
// ones (ops/document_tables.h). Without tables each sequence is one.
//
//   flash, backward       4·H·R for the sums of softmax's gradient, where R = N + 128·d rows with tables, and else B·T'
//   (bf16)                with T' = T in multiples of 128. s·4·H·R·D' for the gradient of queries in fp32, where D' = D
//                         in multiples of 32, or of 64 above 128. s = ⌈132 / (d·H)⌉ (B without tables) copies of it,
//                         for a fixed order of sums: 132 is the number of multiprocessors of an H100. With fewer key
//                         heads also 4·N·H·D: gradients of a key and a value for each query head (mha_bwd and
//                         mha_varlen_bwd in ATen/native/transformers/cuda/flash_attn/flash_api.cpp).
//   memory-efficient,     4·N·H for the sums, and in fp32 before that 4·N·H·(D + 2) while they are formed. For each
//   backward (fp32)       document (sequence) and head a gradient of queries in fp32 with room for T of them. It is in
//                         tiles of 64 columns and of 64 rows, or 128 where D > 64, with 16 bytes more for each tile
//                         (_efficient_attention_backward in ATen/native/transformers/cuda/attention_backward.cu,
//                         Params::workspace_size in mem_eff_attention/kernel_backward.h). So with tables it is d times
//                         what N = T would need.
//   ..., kept             4·H·T'' for each document (sequence), T'' = T in multiples of 32, instead of 4·N·H for the
//                         logsumexp; keys and values have a head for each query head.
//
// What was read are libtorch 2.11's headers and binary, and its repository (github.com/pytorch/pytorch). Not counted is
// the state of the random generator (under a kilobyte). Nor are the partial results of flash's forward, which it has
// where its blocks are too few for the GPU.

#include <cstdint>

#include "config/run_config.h"
#include "layout/product_scratch.h"

namespace athanor::inline layout {

/// Returns the bytes of one workspace of cuBLAS: CUBLAS_WORKSPACE_CONFIG, read as libtorch reads it (":SIZE:COUNT" in
/// KiB, several times), or the 32 MiB of Hopper.
double cublas_workspace_bytes();

/// Returns the number of pairs of a handle and a stream that multiply in a run.
/// @param records_graph  train.cuda_graphs, in a run of one rank; one graph is counted, as in count_graph_bytes.
int count_cublas_workspaces(bool records_graph);

/// What computes attention on a device.
enum class AttentionKernel {
  kFlash,
  kEfficient,
  kOther  ///< a call for each document, by what libtorch chooses; nothing is known of its memory
};

/// A rank's attention in one layer, for one microbatch.
struct AttentionCall {
  double sequences = 1, seq_len = 0, heads = 1, kv_heads = 1, head_dim = 1;
  double documents = 0;   ///< those that the tables hold, with the empty ones; 0: each sequence is one
  double window = 0;      ///< keys that a query sees; 0: all before it
  bool soft_cap = false;  ///< no kernel has one: all scores are in memory, and backward keeps two tensors of them
  bool sinks = false;     ///< no kernel has them: backward computes all scores again, and nothing of them is kept
  bool bf16 = true;
  AttentionKernel kernel = AttentionKernel::kOther;

  double tokens() const { return sequences * seq_len; }
  double scores_bytes() const { return 4 * sequences * heads * seq_len * seq_len; }
  /// Returns the bytes that backward takes in addition to its arguments and results.
  double backward_bytes() const;
  /// Returns the bytes of the logarithms that forward keeps for backward.
  double logsumexp_bytes() const;
  /// Returns the bytes that are kept if libtorch has no kernel: of the window's mask, which is bools and fp32 numbers
  /// that are added to the scores; with a soft cap tanh and softmax of all scores, in fp32, and
  /// queries, keys and values in fp32.
  double mask_bytes() const;
};

/// Returns the kernel that computes a call on a CUDA device.
AttentionKernel attention_kernel(const AttentionCall& call);

/// Returns whether a planned device has these libraries: an XPU has others, about which nothing is known.
bool uses_cuda_libraries(const RunConfig& config, Multiplier multiplier);

/// Returns the documents of the tables for such a microbatch, if documents have at least 128 tokens on average.
double count_table_documents(int64_t sequences, int64_t seq_len);

}  // namespace athanor::inline layout
