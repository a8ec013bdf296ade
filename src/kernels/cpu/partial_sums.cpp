#include "kernels/partial_sums.h"

#include <algorithm>
#include <vector>

namespace athanor::kernels {
namespace {

constexpr int64_t kBlock = 256;  // elements of a row at a time: the partial sums of a tree over 2^15 ranks stay in L1

struct Partial {
  int64_t level;  // sum of 2^level ranks
  float* sum;     // null: none of them has a term
};

// Adds the first `width` elements of the rows named in `row_of`, at least one row, into `sums`, which has one block for
// each level and one more. It is a binary counter over ranks: two sums of equal level are added as soon as both are
// there, and the rest from the right.
template <class From>
ATHANOR_INLINE const float* sum_block(const From* rows, const int32_t* row_of, int64_t n, int64_t stride, int64_t width,
                                      std::vector<Partial>& stack, float* sums) {
  stack.clear();
  int64_t used = 0;
  const auto merge = [&] {
    const Partial right = stack.back();
    stack.pop_back();
    Partial& left = stack.back();
    if (left.sum && right.sum) {
      float *a = left.sum, *b = right.sum;
      for (int64_t i = 0; i < width; ++i) a[i] += b[i];
      --used;  // the right one is always the newest block
    } else if (right.sum) {
      left.sum = right.sum;
    }
    ++left.level;
  };
  for (int64_t p = 0; p < n; ++p) {
    float* leaf = nullptr;
    if (row_of[p] >= 0) {
      leaf = sums + used++ * kBlock;
      const From* row = rows + row_of[p] * stride;
      for (int64_t i = 0; i < width; ++i) leaf[i] = load(row[i]);
    }
    stack.push_back({0, leaf});
    while (stack.size() > 1 && stack[stack.size() - 2].level == stack.back().level) merge();
  }
  while (stack.size() > 1) merge();
  return stack.back().sum;
}

template <class From, class To>
ATHANOR_INLINE void sum_rows(const From* rows, const int32_t* row_of, int64_t n, To* out, int64_t begin, int64_t end,
                             int64_t width) {
  int64_t levels = 2;
  while ((int64_t{1} << levels) < n) ++levels;
  std::vector<float> sums(static_cast<size_t>((levels + 2) * kBlock));
  std::vector<Partial> stack;
  for (int64_t t = begin; t < end; ++t) {
    const int32_t* of = row_of + t * n;
    To* to = out + t * width;
    const int64_t present = std::count_if(of, of + n, [](int32_t row) { return row >= 0; });
    // All absent terms together are one zero, which changes nothing but −0.
    const float absent = present < n ? 0.0f : -0.0f;
    if (present == 0) {
      std::fill_n(to, width, To{});
    } else if (present <= 2) {
      const auto is_row = [](int32_t row) { return row >= 0; };
      const int32_t* first = std::find_if(of, of + n, is_row);
      const From* a = rows + *first * width;
      if (present == 1) {
        for (int64_t i = 0; i < width; ++i) store(to[i], load(a[i]) + absent);
        continue;
      }
      const From* b = rows + *std::find_if(first + 1, of + n, is_row) * width;
      for (int64_t i = 0; i < width; ++i) store(to[i], load(a[i]) + load(b[i]) + absent);
    } else {
      for (int64_t at = 0; at < width; at += kBlock) {
        const int64_t part = std::min(kBlock, width - at);
        const float* sum = sum_block(rows + at, of, n, width, part, stack, sums.data());
        for (int64_t i = 0; i < part; ++i) store(to[at + i], sum[i] + absent);
      }
    }
  }
}

}  // namespace

#define ATHANOR_SUM_PARTIALS(From, To)                                                                      \
  template <>                                                                                               \
  ATHANOR_EACH_ISA void sum_partials<From, To>(const From* rows, const int32_t* row_of, int64_t n, To* out, \
                                               int64_t begin, int64_t end, int64_t width) {                 \
    sum_rows(rows, row_of, n, out, begin, end, width);                                                      \
  }

ATHANOR_SUM_PARTIALS(float, float)
ATHANOR_SUM_PARTIALS(float, Bf16)
ATHANOR_SUM_PARTIALS(Bf16, float)
ATHANOR_SUM_PARTIALS(Bf16, Bf16)

}  // namespace athanor::kernels
