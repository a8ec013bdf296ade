#pragma once
// The memory of a layer's forward and backward: a simulation, without tensors, of what its ops allocate and release, in
// their order.
//
// Each line of layer_memory.cpp is a tensor of src/ops, src/moe or src/model. A change to what an op saves needs the
// same change here; train/activation_memory_test.cpp compares the results (layout/activations.h) with the allocator's
// count.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "config/run_config.h"
#include "layout/device_workspace.h"
#include "layout/layout.h"
#include "layout/product_scratch.h"

namespace athanor::inline layout {

/// Counts the bytes held now, and their peak so far.
class MemoryPeak {
 public:
  void take(double bytes) { now_ += bytes, peak_ = std::max(peak_, now_); }
  void give(double bytes) { now_ -= bytes; }
  /// Counts a temporary tensor.
  void pulse(double bytes) { take(bytes), give(bytes); }
  /// Counts a tensor of `in` bytes that replaces one of `out` bytes; both exist for a moment.
  void swap(double in, double out) { take(in), give(out); }

  double now() const { return now_; }
  double peak() const { return peak_; }
  void reset_peak() { peak_ = now_; }

 private:
  double now_ = 0, peak_ = 0;
};

/// A rank's part of a layer, for one microbatch: heads and widths are those of this rank. Counts are doubles because
/// they are multiplied.
struct LayerShape {
  double tokens;      ///< N: the tokens that matrix products take
  double own_tokens;  ///< tokens of the residual stream and its norms: N, or N / tensor under sequence_parallel
  double width;       ///< bytes of an activation element: 2 or 4
  double hidden, q, kv, heads, kv_heads, head_dim, seq_len;  ///< q, kv: columns of all query heads, of all key heads
  double ffn, shared;              ///< feed-forward widths of a dense layer and of the shared experts
  double experts, choices, local;  ///< experts of a layer, experts that a token chooses, experts that this rank holds
  double expert_ffn;
  double expert_inputs() const { return gated ? 2 : 1; }  ///< matrices of an expert that read tokens
  /// Choices that this rank's experts take. On a device it is the room for them: what experts get is not known to the
  /// host there (rows of padding are included), and with allgather nothing else about them is.
  double rows;
  /// Tokens sent to the expert group, the rank itself included: a token counts once for each rank that has an expert of
  /// it (with allgather for every rank). 0 unless `dispatches`.
  double sent;
  double received;  ///< tokens received, counted in the same way as `sent`
  /// The kinds of dispatch, of router scores and of norm; QK-norm over the whole projection or of each head; clip_qkv.
  bool allgather, sigmoid, layer_norm, norm_whole, norm_head, clip;
  /// LayerNorm with parameters; all linear layers with biases; a dense layer with a gate; a gate of shared experts.
  bool scales_layer_norm, biases, gated, shared_gate;
  /// Attention with latents (without them rank is 0): dims of the latents of keys and values, and of queries (0: none);
  /// the columns of the dims that keys share, of a rank's own dims of keys, of its queries, and of its values.
  double rank, query_rank, shared_key, own_keys, queries, values;
  bool value_biases;             ///< queries, keys and values with biases
  bool parallel;                 ///< attention and the feed-forward read the same sum
  bool norm_before, norm_after;  ///< norms of what attention and the feed-forward read, and of what they return
  bool dispatches;               ///< experts are spread over several ranks
  bool shares_tokens, tensor;    ///< sequence_parallel; several tensor ranks
  bool on_device;
  double expert_ranks;      ///< ranks over which experts are spread
  double threads;           ///< 0 on a device
  double packed;            ///< bytes of an activation element as tiles read it
  AttentionCall attention;  ///< its kernel is kOther unless the device has libtorch's

  /// Returns this shape for a layer with this window (0: none).
  LayerShape in_window(int64_t window) const;

  double residual() const { return own_tokens * hidden * width; }       ///< one tensor of the residual stream
  double stream() const { return tokens * hidden * width; }             ///< such a tensor for all tokens
  double of(double columns) const { return tokens * columns * width; }  ///< [tokens, columns]
  bool widens_queries() const { return queries < q; }
  bool widens_values() const { return values < q; }
  /// True if attention gets a key head for each query head.
  bool repeats_keys() const { return attention.kernel == AttentionKernel::kEfficient && kv < q; }
  ProductWidths widths() const { return {width, packed}; }
};

/// Returns the shape of a rank's part of a layer. Assumes that experts take even shares of the choices, and that tokens
/// choose among them evenly.
LayerShape layer_shape(const RunConfig& config, int64_t seq_len, const Layout& layout, Multiplier multiplier);

inline constexpr double kNormRowsPerPartial = 64;  // as in ops/norm.cpp

/// Simulates one layer of a stage on a tape. `forward` leaves the bytes that backward needs. `backward` releases them,
/// except left() bytes, which live as long as the microbatch's graph: row statistics and the maps of routing.
class LayerMemory {
 public:
  LayerMemory(LayerShape shape, RecomputeKinds again, bool sparse)
      : s_(std::move(shape)), again_(again), sparse_(sparse) {}

  /// @param branch  if true, the previous layer of the stage has left a branch next to the residual stream, which this
  ///                layer's first norm adds.
  void forward(MemoryPeak& tape, bool branch);
  /// Simulates backward. The gradient of the residual stream is on the tape before and after the call.
  void backward(MemoryPeak& tape);
  double left() const { return left_; }
  /// True if the layer leaves a branch for the next norm to add.
  bool leaves_branch() const { return !again_.layer; }

 private:
  void norm_forward(MemoryPeak& t);
  void norm_backward(MemoryPeak& t);
  void norm_weight_backward(MemoryPeak& t);
  void parts_forward(MemoryPeak& t, bool branch, const RecomputeKinds& again, bool keep);
  void parts_backward(MemoryPeak& t, const RecomputeKinds& again);
  void attention_forward(MemoryPeak& t, bool keep);
  void attention_backward(MemoryPeak& t);
  void latent_forward(MemoryPeak& t, double rank);
  void latent_backward(MemoryPeak& t, double rank);
  void latent_attention_forward(MemoryPeak& t, bool keep);
  void latent_attention_backward(MemoryPeak& t);
  void affine_backward(MemoryPeak& t, double tokens, double columns, bool scales);
  void gelu_forward(MemoryPeak& t, double ffn, bool keep);
  void gelu_backward(MemoryPeak& t, double ffn);
  void dense_forward(MemoryPeak& t, double ffn, bool keep);
  void dense_backward(MemoryPeak& t, double ffn);
  void swiglu_forward(MemoryPeak& t, double ffn, bool keep);
  void swiglu_backward(MemoryPeak& t, double ffn);
  void route_forward(MemoryPeak& t, bool keep, bool decides);
  void route_backward(MemoryPeak& t);
  void experts_forward(MemoryPeak& t, bool keep);
  void experts_backward(MemoryPeak& t);
  void dispatch_forward(MemoryPeak& t, bool keep);
  void dispatch_backward(MemoryPeak& t);
  void feed_forward(MemoryPeak& t, bool keep, bool decides);
  double kept_rows() const;
  double gradient_rows() const;
  void feed_backward(MemoryPeak& t);
  void let_go_of_gathered(MemoryPeak& t);
  double kept_keys() const { return s_.repeats_keys() ? s_.q : s_.kv; }  // columns of keys, and of values
  double statistics() const { return s_.own_tokens * (s_.layer_norm ? 8 : 4); }
  double product(double rows, double columns, double k, double factors = 1, double count = 1) const;
  double sum(double rows, double columns, double tokens, double count = 1) const;
  bool reads_projections() const { return s_.norm_whole || s_.norm_head || s_.clip; }
  bool shares_norm() const { return s_.tensor && s_.norm_whole; }
  double choice_rows() const { return s_.dispatches ? s_.received : s_.tokens; }
  double route() const;
  double hop() const;
  double came_back() const;

  LayerShape s_;
  RecomputeKinds again_;
  bool sparse_;
  double left_ = 0;
  double gathered_ = 0;  // gradient of all tensor ranks' tokens, under sequence_parallel
};

}  // namespace athanor::inline layout
