#include "ops/grouped_matmul.h"

#include "ops/tiles.h"

namespace athanor::ops {
namespace {

template <class F>
void for_each_group(const GroupOffsets& offsets, F f) {
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    if (offsets[e + 1] > offsets[e]) f(static_cast<int64_t>(e), offsets[e], offsets[e + 1] - offsets[e]);
  }
}

// Returns the matrix of a group; between those of two groups there may be other memory.
template <class T>
T* group_of(const Tensor& x_LMN, int64_t group) {
  ATHANOR_ASSERT(x_LMN.numel() == 0 || (x_LMN.stride(2) == 1 && x_LMN.stride(1) == x_LMN.size(2)) ||
                 (x_LMN.size(2) == 1 && x_LMN.stride(1) == 1));
  return address_of<T>(x_LMN) + group * x_LMN.stride(0);
}

template <class T>
std::vector<kernels::Product<T>> products_of(const GroupOffsets& offsets, const std::vector<GroupedProduct>& all) {
  std::vector<kernels::Product<T>> products;
  for_each_group(offsets, [&](int64_t e, int64_t begin, int64_t count) {
    for (const GroupedProduct& p : all) {
      const int64_t k = p.a_RK.size(1), n = p.out_RN.size(1), ld = p.b_transposed ? k : n;
      const auto factors = [&](const Tensor& a, const Tensor& b) -> typename kernels::Product<T>::Factors {
        return {{pointer<T>(a) + begin * k, k, false}, {group_of<T>(b, e), ld, p.b_transposed}};
      };
      kernels::Product<T> product{count, n, k, factors(p.a_RK, p.b_LKN)};
      if (p.second_a_RK.defined()) product.second = factors(p.second_a_RK, p.second_b_LKN);
      product.out = pointer<T>(p.out_RN) + begin * n;
      product.ld = n;
      products.push_back(product);
    }
  });
  return products;
}

template <class T>
std::vector<kernels::Product<T>> products_of(const GroupOffsets& offsets, const std::vector<GroupedOuterProduct>& all) {
  std::vector<kernels::Product<T>> products;
  for_each_group(offsets, [&](int64_t e, int64_t begin, int64_t count) {
    for (const GroupedOuterProduct& p : all) {
      const int64_t m = p.a_RM.size(1), n = p.b_RN.size(1);
      kernels::Product<T> product{
          m, n, count, {{pointer<T>(p.a_RM) + begin * m, m, true}, {pointer<T>(p.b_RN) + begin * n, n, false}}};
      product.sum = group_of<float>(p.sum_LMN, e);
      product.ld = n;
      products.push_back(product);
    }
  });
  return products;
}

}  // namespace

void grouped_matmul(const GroupOffsets& offsets, const std::vector<GroupedProduct>& products) {
  const Tensor& a = products.front().a_RK;
  with_element(a, [&](auto* tag) {
    multiply(a, matmul_path(a, ProductKind::kGrouped), products_of<std::decay_t<decltype(*tag)>>(offsets, products));
  });
}

void grouped_outer_product(const GroupOffsets& offsets, const std::vector<GroupedOuterProduct>& products) {
  const Tensor& a = products.front().a_RM;
  with_element(a, [&](auto* tag) {
    multiply(a, matmul_path(a, ProductKind::kGrouped), products_of<std::decay_t<decltype(*tag)>>(offsets, products));
  });
}

}  // namespace athanor::ops
