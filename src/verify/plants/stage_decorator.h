#pragma once
// A stage that passes every call on to another; derived classes change some of them.

#include <utility>

#include "parallel/stage.h"

namespace athanor::inline verify::plants {

class StageDecorator : public Stage {
 public:
  /// @param stage  must outlive this object.
  explicit StageDecorator(Stage& stage) : stage_(stage) { copy_specs(); }

  void expect(int64_t batch, int64_t seq_len) override {
    stage_.expect(batch, seq_len);
    copy_specs();
  }
  Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
    return stage_.forward(microbatch, std::move(x), labels);
  }
  Tensor backward(int microbatch, Tensor dy, GradientReducer* sums) override {
    return stage_.backward(microbatch, std::move(dy), sums);
  }
  LossParts take_parts(int microbatch) override { return stage_.take_parts(microbatch); }
  Tensor forward_only(Tensor x, const Labels* labels) override { return stage_.forward_only(std::move(x), labels); }
  TokenScores score(Tensor x, const Labels* labels) override { return stage_.score(std::move(x), labels); }

 private:
  // `in` and `out` are members, which callers read from this object.
  void copy_specs() { in = stage_.in, out = stage_.out; }

  Stage& stage_;
};

}  // namespace athanor::inline verify::plants
