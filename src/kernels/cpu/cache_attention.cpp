#include "kernels/cache_attention.h"

#include "kernels/soft_cap.h"

namespace athanor::kernels {
namespace {

// Returns Σ exp(score − largest), in the order of the lanes and at last that of the sink, if there is one, and replaces
// the scores by these weights.
ATHANOR_INLINE float weigh(float* scores, int64_t length, const float* sink) {
  float largest = sink ? *sink : scores[0];
  for (int64_t t = sink ? 0 : 1; t < length; ++t) largest = scores[t] > largest ? scores[t] : largest;
  for (int64_t t = 0; t < length; ++t) scores[t] = exp_fast(scores[t] - largest);
  const float sum = sum_over(length, [scores](int64_t t) { return scores[t]; });
  return sink ? sum + exp_fast(*sink - largest) : sum;
}

template <class T>
ATHANOR_INLINE void attend(const CachedHead<T>& head, const T* q, T* out, int64_t group, int64_t head_dim, float scale,
                           float soft_cap, const float* sinks, float* scratch) {
  float *scores = scratch, *sums = scratch + group * head.length;
  for (int64_t t = 0; t < head.length; ++t) {
    const T* key = head.keys + t * head.ld;
    for (int64_t g = 0; g < group; ++g) {
      const T* query = q + g * head_dim;
      scores[g * head.length + t] =
          scale * sum_over(head_dim, [=](int64_t d) { return load(query[d]) * load(key[d]); });
    }
  }
  if (soft_cap > 0) {
    for (int64_t i = 0; i < group * head.length; ++i) scores[i] = soft_cap_of(scores[i], soft_cap);
  }
  for (int64_t g = 0; g < group; ++g) {
    const float inverse = 1.0f / weigh(scores + g * head.length, head.length, sinks ? sinks + g : nullptr);
    for (int64_t t = 0; t < head.length; ++t) scores[g * head.length + t] *= inverse;
  }
  for (int64_t i = 0; i < group * head_dim; ++i) sums[i] = 0;
  for (int64_t t = 0; t < head.length; ++t) {
    const T* value = head.values + t * head.ld;
    for (int64_t g = 0; g < group; ++g) {
      const float weight = scores[g * head.length + t];
      float* sum = sums + g * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) sum[d] += weight * load(value[d]);
    }
  }
  for (int64_t i = 0; i < group * head_dim; ++i) store(out[i], sums[i]);
}

}  // namespace

#define ATHANOR_CACHE_ATTENTION(T)                                                                            \
  template <>                                                                                                 \
  ATHANOR_EACH_ISA void cache_attention<T>(const CachedHead<T>& head, const T* q, T* out, int64_t group,      \
                                           int64_t head_dim, float scale, float soft_cap, const float* sinks, \
                                           float* scratch) {                                                  \
    attend(head, q, out, group, head_dim, scale, soft_cap, sinks, scratch);                                   \
  }

ATHANOR_CACHE_ATTENTION(float)
ATHANOR_CACHE_ATTENTION(Bf16)

}  // namespace athanor::kernels
