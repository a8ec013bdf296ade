#pragma once
// A stage small enough to compute by hand, for tests of code that drives stages: it reads rows of a table for tokens,
// then computes tanh(x W) in each stage, and a loss that weights the last stage's values by the targets.

#include <map>
#include <memory>
#include <vector>

#include "parallel/stage.h"

namespace athanor::inline parallel::toy {

constexpr int64_t kBatch = 2, kTokens = 3, kWidth = 5;
constexpr int64_t kActivationBytes = kBatch * kTokens * kWidth * 8;  // fp64

struct ToyStage : Stage {
  int number, last;
  Tensor weight, gradient;         ///< [width, width]
  std::vector<int> sums_began_at;  ///< microbatches with which backward got one
  int breaks_at = -1;              ///< the microbatch whose forward throws
  at::ScalarType out_dtype = at::kDouble;

  ToyStage(int stage, int num_stages) : number(stage), last(num_stages - 1) {
    weight = at::arange(kWidth * kWidth, at::kDouble).mul_(0.37 + 0.1 * stage).sin_().view({kWidth, kWidth});
    gradient = at::zeros_like(weight);
  }

  void expect(int64_t batch, int64_t seq_len) override {
    const Spec spec{{batch, seq_len, kWidth}, at::kDouble};
    if (number > 0) in = spec;
    if (number < last) out = spec;
  }

  Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
    if (microbatch == breaks_at) fail<DataError>("broken");
    Kept& kept = kept_[microbatch];
    kept.x = embed(x);
    kept.y = at::tanh(kept.x.matmul(weight));
    kept.targets = labels->targets;
    return number == last ? Tensor{} : kept.y;
  }

  Tensor backward(int microbatch, Tensor dy, GradientReducer* sums) override {
    if (sums) sums_began_at.push_back(microbatch);
    Kept& kept = kept_.at(microbatch);
    Tensor& totals = parts_[microbatch].sums;
    totals = at::zeros({LossParts::kNumSums}, at::kDouble);
    if (number == last) {
      const Tensor targets = kept.targets.unsqueeze(-1).to(at::kDouble);
      totals[LossParts::kLoss] = (kept.y * targets).sum();
      parts_[microbatch].num_targets = kept.targets.numel();
      dy = targets.expand_as(kept.y);
    }
    totals[LossParts::kAux] = number + 1;  // small integers: exact in every order
    const Tensor dz = dy * (1 - kept.y * kept.y);
    gradient.add_(kept.x.reshape({-1, kWidth}).t().matmul(dz.reshape({-1, kWidth})));
    Tensor dx = dz.matmul(weight.t());
    kept_.erase(microbatch);
    return number == 0 ? Tensor{} : dx;
  }

  LossParts take_parts(int microbatch) override { return parts_.extract(microbatch).mapped(); }

  Tensor forward_only(Tensor x, const Labels*) override { return at::tanh(embed(x).matmul(weight)).to(out_dtype); }
  TokenScores score(Tensor x, const Labels*) override {
    return {at::tanh(embed(x).matmul(weight)).sum(-1).to(at::kFloat), {}};
  }

 private:
  struct Kept {
    Tensor x, y, targets;
  };

  Tensor embed(const Tensor& x) const {
    if (number > 0) return x;
    return (x.unsqueeze(-1) * at::arange(1, kWidth + 1)).to(at::kDouble).sin_();
  }

  std::map<int, Kept> kept_;
  std::map<int, LossParts> parts_;
};

using Stages = std::vector<std::unique_ptr<ToyStage>>;

inline Stages stages(int num_stages) {
  Stages all;
  for (int s = 0; s < num_stages; ++s) all.push_back(std::make_unique<ToyStage>(s, num_stages));
  return all;
}

inline Stages stages_of(int rank, int ranks, int chunks) {
  Stages own;
  for (int c = 0; c < chunks; ++c) own.push_back(std::make_unique<ToyStage>(c * ranks + rank, ranks * chunks));
  return own;
}

inline std::vector<Stage*> pointers(const Stages& stages) {
  std::vector<Stage*> all;
  for (const auto& stage : stages) all.push_back(stage.get());
  return all;
}

inline Microbatch microbatch(int seed, int64_t batch = kBatch, int64_t tokens = kTokens) {
  Microbatch one;
  one.tokens = at::arange(batch * tokens, at::kLong).mul_(seed + 3).add_(seed).remainder_(31).view({batch, tokens});
  one.labels.targets = one.tokens.mul(7).remainder_(13);
  return one;
}

inline std::vector<Microbatch> microbatches(int count) {
  std::vector<Microbatch> all;
  for (int m = 0; m < count; ++m) all.push_back(microbatch(m));
  return all;
}

}  // namespace athanor::inline parallel::toy
