#include "model/sample.h"

#include <cmath>
#include <numeric>
#include <vector>

namespace athanor::inline model {

int64_t sample_token(const Tensor& logits, const Sampling& sampling, double draw) {
  const Tensor wide = logits.to(at::kDouble).contiguous();
  const double* logit = wide.const_data_ptr<double>();
  const int64_t vocab = wide.numel();
  const int64_t best = std::max_element(logit, logit + vocab) - logit;  // the first of equal ones
  if (sampling.temperature == 0) return best;

  std::vector<double> weight(static_cast<size_t>(vocab));
  double total = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    weight[static_cast<size_t>(i)] = std::exp((logit[i] - logit[best]) / sampling.temperature);
    total += weight[static_cast<size_t>(i)];
  }
  std::vector<int64_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto likelier = [&](int64_t a, int64_t b) {
    return weight[static_cast<size_t>(a)] > weight[static_cast<size_t>(b)];
  };
  std::stable_sort(order.begin(), order.end(), likelier);

  size_t kept = 0;
  double mass = 0;
  do mass += weight[static_cast<size_t>(order[kept++])];
  while (kept < order.size() && mass < sampling.top_p * total);

  double left = draw * mass;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weight[static_cast<size_t>(order[i])];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace athanor::inline model
