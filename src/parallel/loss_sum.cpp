#include "parallel/loss_sum.h"

#include <cmath>

#include "ops/transfer.h"

namespace athanor::inline parallel {
namespace {

// Adds up tensors of one type over ranks as one, and puts the sums back.
void sum_together(comm::Communicator& ranks, const std::vector<Tensor*>& tensors) {
  std::vector<Tensor> parts;
  for (const Tensor* each : tensors)
    if (each->defined()) parts.push_back(each->reshape({-1}));
  if (parts.empty()) return;
  const Tensor packed = at::cat(parts);
  ranks.all_reduce(packed).wait();
  int64_t at = 0;
  for (Tensor* each : tensors) {
    if (!each->defined()) continue;
    *each = packed.narrow(0, at, each->numel()).reshape(each->sizes()).clone();
    at += each->numel();
  }
}

}  // namespace

std::vector<Tensor*> LossTotals::tensors() {
  std::vector<Tensor*> all = routers.tensors();
  all.insert(all.begin(), &sums);
  return all;
}

LossTotals totals_of(const LossParts& parts, at::Device device) {
  const auto fp64 = at::TensorOptions(at::kDouble).device(device);
  const Tensor sums = parts.sums.defined() ? parts.sums : at::zeros({LossParts::kNumSums}, fp64);
  return {at::cat({sums, at::full({1}, static_cast<double>(parts.num_targets), fp64)}), parts.routers};
}

void sum_over_ranks(comm::Communicator& ranks, LossTotals& totals) {
  if (ranks.size() == 1) return;
  sum_together(ranks, {&totals.sums, &totals.routers.entropy_sum});
  std::vector<Tensor*> counts;
  for (Tensor RouterCounts::*count : RouterCounts::kCounts) counts.push_back(&(totals.routers.*count));
  sum_together(ranks, counts);
}

LossNumbers numbers_of(const LossTotals& totals) {
  const auto* const sums = totals.sums.const_data_ptr<double>();
  return {sums[LossParts::kLoss], sums[LossParts::kAux], sums[LossParts::kZ], std::llround(sums[3]), totals.routers};
}

LossNumbers numbers_of(LossParts parts) {
  LossTotals totals = totals_of(parts, parts.sums.defined() ? parts.sums.device() : at::Device(at::kCPU));
  ops::fetch_together(totals.tensors());
  return numbers_of(totals);
}

}  // namespace athanor::inline parallel
