#include "ops/device/grouped.h"

#include <ATen/ops/_grouped_mm.h>

#include "kernels/cuda/accumulate.h"
#include "ops/device/on_stream.h"
#include "ops/transfer.h"

namespace athanor::ops::device {
namespace {

// The library requires rows and columns of whole 16 bytes. Only its newest versions take fp32, in a loop that waits for
// the offsets, as ours does.
bool library_groups(const Tensor& a, const Tensor& b) {
  constexpr int64_t kElements = 16 / 2;
  return a.scalar_type() == at::kBFloat16 && a.size(-1) % kElements == 0 && b.size(-1) % kElements == 0 &&
         b.size(-2) % kElements == 0 && a.size(0) > 0;
}

// Returns the end of each group, which the library takes.
Tensor ends_of(const Tensor& offsets) { return offsets.narrow(0, 1, offsets.numel() - 1).to(at::kInt); }

// Calls f(e, begin, count) for the groups that have rows. Waits for the device.
template <class F>
void for_each_group(const Tensor& offsets, F f) {
  const Tensor on_host = fetch(offsets);
  const int64_t* offset = on_host.const_data_ptr<int64_t>();
  for (int64_t e = 0; e + 1 < on_host.numel(); ++e) {
    if (offset[e + 1] > offset[e]) f(e, offset[e], offset[e + 1] - offset[e]);
  }
}

}  // namespace

Tensor grouped_matmul(const Tensor& a_RK, const Tensor& b_LKN, const Tensor& offsets) {
  const at::NoGradGuard no_grad;
  if (library_groups(a_RK, b_LKN)) return at::_grouped_mm(a_RK, b_LKN, ends_of(offsets)).contiguous();
  const Tensor out_RN = at::empty({a_RK.size(0), b_LKN.size(2)}, a_RK.options());
  for_each_group(offsets, [&](int64_t e, int64_t begin, int64_t count) {
    Tensor rows = out_RN.narrow(0, begin, count);
    at::mm_out(rows, a_RK.narrow(0, begin, count), b_LKN[e]);
  });
  return out_RN;
}

void add_grouped_outer_product(const Tensor& sum_LMN, const Tensor& a_RM, const Tensor& b_RN, const Tensor& offsets) {
  const at::NoGradGuard no_grad;
  // a and b are both [R, …]: rows of whole 16 bytes there also satisfy the library for the transposed view.
  if (!library_groups(a_RM, b_RN) || !has_kernels(a_RM) || a_RM.size(0) % kGroupAlignment != 0) {
    for_each_group(offsets, [&](int64_t e, int64_t begin, int64_t count) {
      Tensor sum = sum_LMN[e];
      const Tensor a = a_RM.narrow(0, begin, count), b = b_RN.narrow(0, begin, count);
      if (a.scalar_type() == at::kFloat) {
        sum.addmm_(a.t(), b);
      } else {
        sum.add_(at::mm(a.t(), b));
      }
    });
    return;
  }
  // The product of a group without rows is zero by definition, but some kernels leave old memory there. When the
  // products are added, counts that stay on the device exclude it.
  const Tensor product_LMN = at::_grouped_mm(a_RM.t(), b_RN, ends_of(offsets)).contiguous();
  const OnStream stream(a_RM);
  kernels::cuda::accumulate_groups(stream, data<float>(sum_LMN), data<kernels::Bf16>(product_LMN),
                                   data<int64_t>(offsets), sum_LMN.size(0), sum_LMN.size(1) * sum_LMN.size(2));
}

}  // namespace athanor::ops::device
