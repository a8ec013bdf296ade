#include "optim/clip.h"

#include "kernels/adamw.h"

namespace athanor {

double gradient_norm(const Tensor& flat_grad) {
  constexpr int64_t kBlock = int64_t{1} << 18;  // 1 MiB of fp32: fits a core's cache, leaves threads enough blocks
  const int64_t n = flat_grad.numel(), blocks = (n + kBlock - 1) / kBlock;
  const auto* grad = flat_grad.const_data_ptr<float>();
  std::vector<double> sums(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      sums[static_cast<size_t>(b)] = kernels::sum_of_squares(grad + b * kBlock, std::min(kBlock, n - b * kBlock));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

double clip_scale(const OptimizerConfig& config, double grad_norm, int64_t step) {
  if (config.max_grad_norm == 0 || (config.clip_after_warmup && step <= config.warmup_steps)) return 1;
  constexpr double kEpsilon = 1e-6;  // as torch's clip_grad_norm_, so that a zero gradient divides nothing by zero
  return std::min(1.0, config.max_grad_norm / (grad_norm + kEpsilon));
}

}  // namespace athanor
