// Sums of terms along the tree: the kernel, the form without it, and the definition.

#include <tuple>

#include "ops/device/sum_terms.h"

#include <gtest/gtest.h>

#include "guarded/device.h"

namespace athanor::ops::device::sum_terms_test {
namespace {

Tensor normal(at::IntArrayRef sizes, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
  return at::randn(sizes, generator, at::TensorOptions(at::kDouble)).to(type);
}

// Neighbours are added until one is left; with an odd number the last waits for the next level.
Tensor by_levels(std::vector<Tensor> terms) {
  while (terms.size() > 1) {
    std::vector<Tensor> next;
    for (size_t i = 0; i + 1 < terms.size(); i += 2) next.push_back(terms[i] + terms[i + 1]);
    if (terms.size() % 2 == 1) next.push_back(terms.back());
    terms = next;
  }
  return terms[0];
}

TEST(SumTerms, OnDeviceAreThoseOfTheTreeInEachTypeAndShape) {
  guarded::install_for_tests();
  const at::Device device = guarded::device_of_tests();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kHalf, at::kLong}) {
    for (const int64_t n : {1, 2, 3, 5, 7, 8, 13}) {
      for (const auto& [rows, taken, width] :
           {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1000}, {3, 3, 5}, {4, 3, 8}, {2, 0, 4}}) {
        const Tensor terms = normal({n, rows, width}, type);
        std::vector<Tensor> wide;
        for (int64_t i = 0; i < n; ++i)
          wide.push_back(terms[i].narrow(0, 0, taken).to(terms.element_size() <= 4 ? at::kFloat : type));
        const Tensor expected = by_levels(wide).to(type);
        const Tensor there = terms.to(device);
        const Tensor out = at::empty({taken, width}, there.options()), plain = at::empty_like(out);
        sum_terms(there, out);
        without_kernels::sum_terms(there, plain);
        EXPECT_TRUE(at::equal(out.cpu(), expected)) << type << " " << n << " " << width;
        EXPECT_TRUE(at::equal(plain.cpu(), expected)) << type << " " << n << " " << width;
      }
    }
  }
}

}  // namespace
}  // namespace athanor::ops::device::sum_terms_test
