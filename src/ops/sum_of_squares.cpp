#include "ops/sum_of_squares.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/cuda/adamw.h"
#include "ops/device/on_stream.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using device::data;

constexpr int64_t kBlock = int64_t{1} << 18;  // 1 MiB of fp32: fits a core's cache, leaves threads enough blocks

// Of a played step.
Tensor report_sum(std::span<const Tensor> parts) {
  Op op{"sum_of_squares"};
  for (const Tensor& part : parts) op.bytes_read += static_cast<int64_t>(part.nbytes());
  report(op);
  return at::empty({}, parts.front().options().dtype(at::kDouble));
}

Tensor sum_on_host(std::span<const Tensor> parts) {
  if (parts.front().is_meta()) return report_sum(parts);
  struct Block {
    const float* begin;
    int64_t size;
  };
  std::vector<Block> blocks;
  for (const Tensor& part : parts) {
    const auto* const values = part.const_data_ptr<float>();
    for (int64_t begin = 0; begin < part.numel(); begin += kBlock)
      blocks.push_back({values + begin, std::min(kBlock, part.numel() - begin)});
  }
  std::vector<double> sums(blocks.size());
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b)
      sums[b] = kernels::sum_of_squares(blocks[b].begin, blocks[b].size);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return at::scalar_tensor(total, at::kDouble);
}

Tensor sum_there(const Tensor& x) {
  if (!device::has_kernels(x)) return at::linalg_vector_norm(x, 2, {}, false, at::kDouble).square();
  const auto fp64 = x.options().dtype(at::kDouble);
  const Tensor out = at::zeros({}, fp64),
               partials = at::empty({kernels::cuda::sum_of_squares_partials(x.numel())}, fp64);
  kernels::cuda::sum_of_squares(device::OnStream(x), data<float>(x), x.numel(), data<double>(partials),
                                data<double>(out));
  return out;
}

}  // namespace

Tensor sum_of_squares(std::span<const Tensor> parts) {
  if (on_host(parts.front())) return sum_on_host(parts);
  if (parts.size() == 1) return sum_there(parts.front()).reshape({});
  std::vector<Tensor> sums = {at::zeros({}, parts.front().options().dtype(at::kDouble))};
  for (const Tensor& part : parts) sums.push_back(sum_there(part).reshape({}));
  return at::stack(sums).sum();
}

Tensor square_root(const Tensor& x) {
  return x.is_cpu() ? at::scalar_tensor(std::sqrt(x.item<double>()), at::kDouble) : x.sqrt();
}

Tensor sum_by_rows(const Tensor& numbers) {
  if (!numbers.is_cpu()) return numbers.sum();
  const auto rows = numbers.accessor<double, 2>();
  double total = 0;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    double row = 0;
    for (int64_t j = 0; j < rows.size(1); ++j) row += rows[i][j];
    total += row;
  }
  return at::scalar_tensor(total, at::kDouble);
}

}  // namespace athanor::ops
