#pragma once
// The sparse block of the benchmarks: router and experts with random weights, forward and backward.

#include <string>

#include "bench/timer.h"
#include "moe/router.h"
#include "ops/experts.h"

namespace athanor::bench {

using at::Tensor;

/// The sizes of the block: T tokens, D hidden, F ffn, E experts, K choices of each token.
struct MoeShape {
  int64_t tokens, hidden, ffn, experts, topk;
  at::ScalarType dtype = at::kBFloat16;
  ops::ExpertForm form = {};

  double router_flops() const { return 2.0 * double(tokens) * double(hidden) * double(experts); }
  double expert_flops() const {
    return 2.0 * double(tokens) * double(topk) * double(form.num_matrices()) * double(hidden) * double(ffn);
  }
  std::string name() const;
};

/// Returns approximately the memory for the weights, their gradients and what forward keeps.
double memory_bytes(const MoeShape& shape);

class MoeBlock {
 public:
  /// @param uniform  each expert gets the same number of tokens; otherwise a random router decides.
  MoeBlock(const MoeShape& shape, bool uniform, at::Device device = at::kCPU);

  /// Returns the subject to time, which must not outlive this object: forward and backward of router, experts and
  /// combine; weight gradients are added into fp32. Its parts are router, experts, and backward of both.
  Subject subject() const;

  /// Compares outputs and all gradients of sampled tokens and of sampled experts' rows with fp64 values, at this shape.
  /// For SwiGLU without biases only.
  /// @throws Error if one is outside its derived bound.
  /// @return what was verified, as a sentence.
  std::string verify() const;

  /// Returns the largest load of an expert divided by the mean.
  double max_over_mean() const;

 private:
  struct Sample;

  moe::Routing route(const Tensor& x_TD) const;
  Tensor forward(const Tensor& x_TD, const moe::Routing& routing) const;
  /// Returns this block on the host, with its gradients.
  MoeBlock on_host() const;
  void verify_router(const Tensor& ids_TK, const Tensor& weights_TK) const;
  void verify_tokens(const Sample& sample) const;
  void verify_expert(const Sample& sample, int64_t expert) const;

  MoeShape shape_;
  bool uniform_;
  Tensor x_TD_, dy_TD_;
  Weight router_ED_;
  ops::ExpertWeights experts_;
  Tensor uniform_ids_TK_;
};

}  // namespace athanor::bench
