#pragma once
// What the ops of a layer hold and let go, in their order: the memory of forward and backward, played without tensors.
//
// Each line of layer_memory.cpp is a tensor of src/ops, src/moe or src/model; whoever changes what an op saves changes
// it here, and arch/activations.h is held to the allocator's count by train/activation_memory_test.cpp.

#include <algorithm>
#include <cstdint>

#include "arch/layout.h"
#include "arch/product_scratch.h"
#include "config/run_config.h"

namespace athanor {

/// Bytes that are held now, and at most so far.
class Tape {
 public:
  void take(double bytes) { now_ += bytes, peak_ = std::max(peak_, now_); }
  void give(double bytes) { now_ -= bytes; }
  void pulse(double bytes) { take(bytes), give(bytes); }
  /// A tensor takes another one's place: both are there for a moment.
  void swap(double in, double out) { take(in), give(out); }

  double now() const { return now_; }
  double peak() const { return peak_; }
  void reset_peak() { peak_ = now_; }

 private:
  double now_ = 0, peak_ = 0;
};

/// A rank's part of a layer, for one microbatch. Tokens and widths are doubles: they are multiplied.
struct LayerShape {
  double tokens;      ///< N: those that matrices see
  double own_tokens;  ///< of the residual stream and its norms: N, or N / tensor under sequence_parallel
  double width;       ///< bytes of an activation: 2 or 4
  double hidden, q, kv, heads, kv_heads, head_dim, seq_len;
  double ffn, shared;              ///< of a dense layer, of the shared experts
  double experts, choices, local;  ///< E, K, and experts held
  double expert_ffn;
  double rows;      ///< choices that this rank's experts take
  double sent;      ///< rows to the expert group, one for each token and rank that has an expert of it
  double received;  ///< and from it
  bool allgather, sigmoid, layer_norm, norm_whole, norm_head, clip;
  bool dispatches;  ///< experts are shared among ranks
  bool shares_tokens, tensor;
  double threads;
  double packed;  ///< bytes of an activation as tiles read it

  double residual() const { return own_tokens * hidden * width; }  ///< one tensor of the residual stream
  double stream() const { return tokens * hidden * width; }        ///< the same of all tokens
  double of(double columns) const { return tokens * columns * width; }
  ProductWidths widths() const { return {width, packed}; }
};

/// Experts take an even share of the choices, and tokens choose among them evenly.
LayerShape layer_shape(const RunConfig& config, int64_t seq_len, const Layout& layout, Multiplier multiplier);

struct Recomputed {
  bool norm = false, attention = false, moe = false, layer = false;
};
Recomputed recomputed(const ParallelismConfig& parallelism);

/// One layer of a stage on a tape. Forward leaves what backward needs; backward gives it back, except for what lives as
/// long as the microbatch's graph (`left`: row statistics, routing), which its end gives.
class LayerMemory {
 public:
  LayerMemory(const LayerShape& shape, Recomputed again, bool sparse) : s_(shape), again_(again), sparse_(sparse) {}

  /// @param branch  the layer before has left a branch beside the residual stream, which this one's norm adds.
  void forward(Tape& tape, bool branch);
  /// The gradient of the residual stream is on the tape, before and after.
  void backward(Tape& tape);
  double left() const { return left_; }
  /// Does the layer leave a branch to be added?
  bool leaves_branch() const { return !again_.layer; }

 private:
  void norm_forward(Tape& t, bool branch);
  void norm_backward(Tape& t);
  void parts_forward(Tape& t, bool branch, const Recomputed& again, bool keep);
  void parts_backward(Tape& t, const Recomputed& again);
  void attention_forward(Tape& t, bool keep);
  void attention_backward(Tape& t);
  void swiglu_forward(Tape& t, double ffn, bool keep);
  void swiglu_backward(Tape& t, double ffn);
  void route_forward(Tape& t, bool keep, bool decides);
  void route_backward(Tape& t);
  void experts_forward(Tape& t, bool keep);
  void experts_backward(Tape& t);
  void dispatch_forward(Tape& t, bool keep);
  void dispatch_backward(Tape& t);
  void feed_forward(Tape& t, bool keep, bool decides);
  void feed_backward(Tape& t);
  void let_go_of_gathered(Tape& t);
  double statistics() const { return s_.own_tokens * (s_.layer_norm ? 8 : 4); }
  double product(double rows, double columns, double k, double factors = 1, double count = 1) const;
  double sum(double rows, double columns, double tokens, double count = 1) const;
  bool reads_projections() const { return s_.norm_whole || s_.norm_head || s_.clip; }
  bool shares_norm() const { return s_.tensor && s_.norm_whole; }
  double choice_rows() const { return s_.dispatches ? s_.received : s_.tokens; }

  const LayerShape& s_;
  Recomputed again_;
  bool sparse_;
  double left_ = 0;
  double gathered_ = 0;  // the gradient of all ranks' tokens, under sequence_parallel
};

}  // namespace athanor
