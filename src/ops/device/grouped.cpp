#include "ops/device/grouped.h"

#include <ATen/ops/_grouped_mm.h>

#include "kernels/cuda/accumulate.h"
#include "kernels/cuda/grouped_matmul.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
namespace {

// The library requires rows and columns of whole 16 bytes, and counts elements of an operand in 31 bits. It takes fp32
// in a loop that waits for the offsets, and gives no result in another type than that of the operands.
bool library_groups(const Tensor& a, const Tensor& b, int64_t num_groups) {
  constexpr int64_t kElements = 16 / 2;
  constexpr int64_t kMostElements = (int64_t{1} << 31) - 1, kMostGroups = 1023;
  if (a.numel() > kMostElements || b.numel() > kMostElements || num_groups > kMostGroups) return false;
  return a.scalar_type() == at::kBFloat16 && a.size(-1) % kElements == 0 && b.size(-1) % kElements == 0 &&
         b.size(-2) % kElements == 0 && a.size(0) > 0;
}

}  // namespace

Tensor grouped_matmul(const Tensor& a_RK, const Tensor& b_LKN, const Groups& groups) {
  const at::NoGradGuard no_grad;
  if (library_groups(a_RK, b_LKN, b_LKN.size(0))) return at::_grouped_mm(a_RK, b_LKN, groups.ends).contiguous();
  const Tensor out_RN = at::empty({a_RK.size(0), b_LKN.size(2)}, a_RK.options());
  const Tensor stored = b_LKN.is_contiguous() ? b_LKN : b_LKN.transpose(1, 2);
  const kernels::cuda::GroupedShape shape{b_LKN.size(0), a_RK.size(0), a_RK.size(1), b_LKN.size(2)};
  const OnStream stream(a_RK);
  with_element(a_RK, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::grouped_matmul<T>(stream, data<T>(a_RK), data<T>(stored), !b_LKN.is_contiguous(), data<T>(out_RN),
                                     data<int64_t>(groups.offsets), shape);
  });
  return out_RN;
}

void add_grouped_outer_product(const Tensor& sum_LMN, const Tensor& a_RM, const Tensor& b_RN, const Groups& groups) {
  const at::NoGradGuard no_grad;
  const OnStream stream(a_RM);
  // a and b are both [R, …]: rows of whole 16 bytes there also satisfy the library for the transposed view.
  if (!library_groups(a_RM, b_RN, sum_LMN.size(0)) || a_RM.size(0) % kGroupAlignment != 0) {
    with_element(a_RM, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      kernels::cuda::add_grouped_outer_product<T>(stream, data<float>(sum_LMN), data<T>(a_RM), data<T>(b_RN),
                                                  data<int64_t>(groups.offsets), sum_LMN.size(0), sum_LMN.size(1),
                                                  sum_LMN.size(2));
    });
    return;
  }
  // The product of a group without rows is zero by definition, but some kernels leave old memory there. When the
  // products are added, counts that stay on the device exclude it.
  const Tensor product_LMN = at::_grouped_mm(a_RM.t(), b_RN, groups.ends).contiguous();
  kernels::cuda::accumulate_groups(stream, data<float>(sum_LMN), data<kernels::Bf16>(product_LMN),
                                   data<int64_t>(groups.offsets), sum_LMN.size(0), sum_LMN.size(1) * sum_LMN.size(2));
}

}  // namespace athanor::ops::device
