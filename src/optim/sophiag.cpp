#include "optim/sophiag.h"

#include <algorithm>
#include <utility>

#include "optim/optimizer_set.h"

namespace athanor::inline optim {

SophiaG::SophiaG(const OptimizerConfig& config, OptimizedParameters parameters, const ShardPlan& plan)
    : Optimizer(declare_optimizer("sophiag"), std::move(parameters)), beta1_(config.betas[0]), beta2_(config.betas[1]),
      rho_(config.rho), interval_(config.hessian_interval), plan_(plan),
      counts_(at::zeros({1}, this->parameters().store().grad().options().dtype(at::kLong))),
      uncounted_(at::zeros_like(counts_)) {}

std::optional<OtherLabels> SophiaG::second_backward(int64_t step, bool is_first) const {
  return is_first || (step - 1) % interval_ == 0 ? std::optional(OtherLabels()) : std::nullopt;
}

void SophiaG::learn_from_second(int64_t step, int64_t num_targets) {
  estimated_ = state("hessian").clone();
  estimate_step_ = step;
  const Tensor& grad = parameters().store().grad();
  parameters().for_each_owned({0, grad.size(0)}, [&](const auto&, FlatRange owned, int64_t begin) {
    ops::add_squares(beta2_, static_cast<double>(num_targets), grad.narrow(0, owned.begin, owned.size()),
                     estimated_.narrow(0, begin, owned.size()));
  });
}

void SophiaG::begin(const Update& update) {
  counts_.zero_();
  const Tensor estimated = std::exchange(estimated_, Tensor());
  if (!estimated.defined() || estimate_step_ != update.step) return;
  constexpr int64_t kBlock = int64_t{1} << 22;
  const Tensor& refused = update.on_device.grad_scale;
  for (int64_t at = 0; at < estimated.size(0); at += kBlock) {
    const int64_t size = std::min(kBlock, estimated.size(0) - at);
    const Tensor to = state("hessian").narrow(0, at, size), from = estimated.narrow(0, at, size);
    Tensor counts = at::isfinite(from);
    if (refused.defined()) counts = counts.logical_and(refused.isnan().logical_not());
    to.copy_(at::where(counts, from, to));
  }
}

int64_t SophiaG::apply(const Update& given, FlatRange range) {
  int64_t changed = 0;
  kernels::SophiaRule rule{
      .lr = 0, .weight_decay = 0, .beta1 = static_cast<float>(beta1_), .rho = static_cast<float>(rho_)};
  const auto add = [&](FlatRange piece, int64_t begin, const Tensor& counts) {
    if (piece.size() <= 0) return;
    const auto of_piece = [&](const char* kind) { return state(kind).narrow(0, begin, piece.size()); };
    changed += ops::update(rule, static_cast<float>(given.grad_scale), parameters().memory(piece),
                           {of_piece("exp_avg"), of_piece("hessian")}, given.on_device, counts);
  };
  for (const Bucket& bucket : parameters().store().buckets()) {
    const FlatRange here = intersect(range, bucket.range), counted = plan_.canonical(bucket);
    if (here.size() <= 0) continue;
    parameters().for_each_owned(intersect(range, bucket.range),
                                [&](const auto& segment, FlatRange owned, int64_t begin) {
                                  rule.lr = static_cast<float>(given.lr * segment.lr_scale);
                                  rule.weight_decay = static_cast<float>(segment.weight_decay);
                                  const FlatRange inside = intersect(owned, counted);
                                  if (inside.size() <= 0) return add(owned, begin, uncounted_);
                                  add({owned.begin, inside.begin}, begin, uncounted_);
                                  add(inside, begin + inside.begin - owned.begin, counts_);
                                  add({inside.end, owned.end}, begin + inside.end - owned.begin, uncounted_);
                                });
  }
  return changed;
}

std::unique_ptr<Optimizer> make_sophiag(const OptimizerConfig& config, OptimizedParameters parameters,
                                        const OptimizerServices& services) {
  return std::make_unique<SophiaG>(config, std::move(parameters), *services.plan);
}

}  // namespace athanor::inline optim
