#include "kernels/routing.h"

#include <algorithm>
#include <vector>

namespace athanor::kernels {

void top_k(const float* scores, int64_t* ids, int64_t rows, int64_t width, int64_t k) {
  // The k passes insert: k is small (8 of 64), and a strict comparison gives ties to the lower index.
  for (int64_t row = 0; row < rows; ++row, scores += width, ids += k) {
    int64_t held = 0;
    for (int64_t e = 0; e < width; ++e) {
      if (held == k && scores[e] <= scores[ids[k - 1]]) continue;
      int64_t at = held < k ? held++ : k - 1;
      for (; at > 0 && scores[ids[at - 1]] < scores[e]; --at) ids[at] = ids[at - 1];
      ids[at] = e;
    }
  }
}

void sort_choices(const int64_t* ids, int64_t tokens, int64_t k, int64_t first_local_expert, int64_t num_local_experts,
                  int64_t* offsets, int64_t* choice_of_row, int64_t* row_of_choice, int64_t row_alignment) {
  const int64_t num_choices = tokens * k;
  std::fill_n(offsets, num_local_experts + 1, int64_t{0});
  const auto local = [&](int64_t choice) {
    const int64_t expert = ids[choice] - first_local_expert;
    return expert >= 0 && expert < num_local_experts ? expert : -1;
  };
  for (int64_t c = 0; c < num_choices; ++c) {
    if (const int64_t expert = local(c); expert >= 0) ++offsets[expert + 1];
  }
  for (int64_t e = 0; e < num_local_experts; ++e) {
    const int64_t padded = (offsets[e + 1] + row_alignment - 1) / row_alignment * row_alignment;
    offsets[e + 1] = offsets[e] + padded;
  }
  std::fill_n(choice_of_row, offsets[num_local_experts], int64_t{-1});
  std::vector<int64_t> next(offsets, offsets + num_local_experts);
  for (int64_t c = 0; c < num_choices; ++c) {  // ascending choices keep tokens ascending within each expert
    const int64_t expert = local(c);
    row_of_choice[c] = expert < 0 ? -1 : next[static_cast<size_t>(expert)]++;
    if (expert >= 0) choice_of_row[row_of_choice[c]] = c;
  }
}

namespace {

template <class T>
ATHANOR_INLINE void gather(const T* x, const int64_t* choice_of_row, T* out, int64_t begin, int64_t end, int64_t k,
                           int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    if (choice_of_row[r] < 0) {
      std::fill_n(out + r * width, width, T{});
    } else {
      std::copy_n(x + choice_of_row[r] / k * width, width, out + r * width);
    }
  }
}

template <class T>
ATHANOR_INLINE void combine(const T* y, const float* weights, const int64_t* row_of_choice, T* out, int64_t begin,
                            int64_t end, int64_t k, int64_t width) {
  std::vector<float> sum_buffer(static_cast<size_t>(width));
  float* sum = sum_buffer.data();
  for (int64_t t = begin; t < end; ++t) {
    std::fill_n(sum, width, 0.0f);
    for (int64_t c = t * k; c < (t + 1) * k; ++c) {
      if (row_of_choice[c] < 0) continue;
      const T* row = y + row_of_choice[c] * width;
      const float weight = weights ? weights[c] : 1.0f;
      for (int64_t i = 0; i < width; ++i) sum[i] += weight * load(row[i]);
    }
    for (int64_t i = 0; i < width; ++i) store(out[t * width + i], sum[i]);
  }
}

}  // namespace

#define ATHANOR_ROUTING(T)                                                                                           \
  template <>                                                                                                        \
  ATHANOR_EACH_ISA void gather_rows<T>(const T* x, const int64_t* choice_of_row, T* out, int64_t begin, int64_t end, \
                                       int64_t k, int64_t width) {                                                   \
    gather(x, choice_of_row, out, begin, end, k, width);                                                             \
  }                                                                                                                  \
  template <>                                                                                                        \
  ATHANOR_EACH_ISA void combine_rows<T>(const T* y, const float* weights, const int64_t* row_of_choice, T* out,      \
                                        int64_t begin, int64_t end, int64_t k, int64_t width) {                      \
    combine(y, weights, row_of_choice, out, begin, end, k, width);                                                   \
  }

ATHANOR_ROUTING(float)
ATHANOR_ROUTING(Bf16)

}  // namespace athanor::kernels
