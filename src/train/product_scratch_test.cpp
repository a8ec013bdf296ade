// Compares the formula that plans memory with the memory that the kernels ask for.

#include "layout/product_scratch.h"

#include <gtest/gtest.h>

#include "kernels/matmul.h"

namespace athanor::product_scratch_test {
namespace {

using kernels::Bf16;
using kernels::MatmulPath;

template <class T>
double asked_for(MatmulPath path, const ProductShape& s) {
  const T* const some = reinterpret_cast<const T*>(64);
  const auto n = [](double x) { return static_cast<int64_t>(x); };
  kernels::Product<T> p{n(s.m), n(s.n), n(s.k), {{some, s.sum ? n(s.m) : n(s.k), s.sum}, {some, n(s.n), false}}};
  if (s.factors == 2) p.second = p.first;
  s.sum ? void(p.sum = reinterpret_cast<float*>(64)) : void(p.out = const_cast<T*>(some));
  p.ld = p.n;
  return static_cast<double>(kernels::scratch_bytes<T>(path, {p}));
}

TEST(ProductScratch, OfTheFormulaIsWhatTheKernelsAskFor) {
  for (const double m : {1, 40, 127, 128, 700, 721, 3000}) {
    for (const double n : {16, 100, 128, 768, 5000}) {
      for (const double k : {2, 64, 256, 258, 1024, 1026, 4096, 5000}) {
        for (const ProductShape& s :
             {ProductShape{m, n, k}, ProductShape{m, n, k, false, 2}, ProductShape{m, n, k, true}}) {
          const auto what = [&] { return testing::Message() << m << " x " << n << " x " << k << " sum " << s.sum; };
          EXPECT_EQ(product_scratch(s, {2, 2}, 1), asked_for<Bf16>(MatmulPath::kAvx512Bf16, s)) << what();
          EXPECT_EQ(product_scratch(s, {2, 4}, 1), asked_for<Bf16>(MatmulPath::kAvx512, s)) << what();
          EXPECT_EQ(product_scratch(s, {4, 4}, 1), asked_for<float>(MatmulPath::kAvx2, s)) << what();
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor::product_scratch_test
