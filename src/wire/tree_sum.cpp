#include "wire/tree_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "base/half.h"

// There is one body for each level of x86-64, chosen when the library is loaded. The thread sanitizer does not work
// with code that runs that early.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define ATHANOR_EACH_CPU __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define ATHANOR_EACH_CPU
#endif
#define ATHANOR_INLINE inline __attribute__((always_inline))

namespace athanor::comm {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

template <class T>
struct Wide {
  using Type = T;
};
template <>
struct Wide<Bf16> {
  using Type = float;
};
template <>
struct Wide<F16> {
  using Type = float;
};
template <class T>
using WideOf = typename Wide<T>::Type;

ATHANOR_INLINE float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, rest = h & 0x7FFFu;
  if (rest >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
  // As a float of the same exponent bits it is 2^112 too small, including subnormals.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

ATHANOR_INLINE uint16_t f16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), rest = bits & 0x7FFFFFFFu;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (rest > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((rest >> 13) & 0x3FFu));
  if (rest >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and above round to infinity
  if (rest < 0x38800000u) {  // below 2^-14: adding 1/2 leaves the subnormal in the lowest bits, rounded to even
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = rest + 0xFFFu + ((rest >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

template <class T>
ATHANOR_INLINE WideOf<T> wide_of(T x) {
  if constexpr (std::is_same_v<T, Bf16>) return bf16_to_float(x.bits);
  if constexpr (std::is_same_v<T, F16>) return f16_to_float(x.bits);
  if constexpr (!std::is_same_v<T, Bf16> && !std::is_same_v<T, F16>) return x;
}

template <class T>
ATHANOR_INLINE T narrow_of(WideOf<T> x) {
  if constexpr (std::is_same_v<T, Bf16>) return {bf16_from_float(x)};
  if constexpr (std::is_same_v<T, F16>) return {f16_from_float(x)};
  if constexpr (!std::is_same_v<T, Bf16> && !std::is_same_v<T, F16>) return x;
}

template <bool kMax, class W>
ATHANOR_INLINE W combined(W a, W b) {
  if constexpr (kMax) return (a != a || a > b) ? a : b;
  if constexpr (!kMax && std::is_same_v<W, int64_t>) {  // wraps around, as tensors do
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  return a + b;
}

// ---- Loops. `s` is 1 for integers and if nothing is scaled: a multiplication by 1 changes no bits.
// --------------------

constexpr int64_t kBlock = 512;  // elements; with one level for each power of two of ranks they stay in the first cache

template <class T>
ATHANOR_INLINE void load(const T* in, int64_t count, WideOf<T> s, WideOf<T>* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = wide_of(in[i]) * s;
}

template <bool kMax, class T>
ATHANOR_INLINE void load_pair(const T* a, const T* b, int64_t count, WideOf<T> s, WideOf<T>* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = combined<kMax, WideOf<T>>(wide_of(a[i]) * s, wide_of(b[i]) * s);
}

template <bool kMax, class W>
ATHANOR_INLINE void add(W* left, const W* right, int64_t count) {
  for (int64_t i = 0; i < count; ++i) left[i] = combined<kMax, W>(left[i], right[i]);
}

template <class T>
ATHANOR_INLINE void store(const WideOf<T>* in, int64_t count, WideOf<T> s, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = narrow_of<T>(in[i] * s);
}

/// Sums one block along the tree: a stack of partial sums of falling powers of two, like the digits of a counter.
constexpr int kLevels = 32;

template <bool kMax, class T, class Out>
ATHANOR_INLINE void sum_block(const void* const* terms, int num_terms, int64_t begin, int64_t count, WideOf<T> first,
                              WideOf<T> last, void* out) {
  WideOf<T> stack[kLevels][kBlock];
  int depth = 0;
  const auto term = [&](int i) { return static_cast<const T*>(terms[i]) + begin; };
  for (int i = 0; i < num_terms; i += 2) {
    if (i + 1 == num_terms) {
      load(term(i), count, first, stack[depth++]);
      break;
    }
    load_pair<kMax>(term(i), term(i + 1), count, first, stack[depth++]);
    for (int pairs = i / 2; pairs & 1; pairs >>= 1, --depth) add<kMax>(stack[depth - 2], stack[depth - 1], count);
  }
  for (; depth > 1; --depth) add<kMax>(stack[depth - 2], stack[depth - 1], count);
  store(stack[0], count, last, static_cast<Out*>(out) + begin);
}

template <bool kMax, class T, class Out>
ATHANOR_INLINE void sum_all(const void* const* terms, int num_terms, int64_t count, Scale scale, void* out) {
  using W = WideOf<T>;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    sum_block<kMax, T, Out>(terms, num_terms, begin, std::min(kBlock, count - begin), static_cast<W>(scale.first),
                            static_cast<W>(scale.last), out);
  }
}

/// Adds branches as sum_block adds terms: two neighbours of one size whose sum is a branch become that branch.
template <bool kMax, class T>
ATHANOR_INLINE void add_block(const void* const* blocks, std::span<const int> sizes, int64_t begin, int64_t count,
                              WideOf<T> last, void* out) {
  WideOf<T> stack[kLevels][kBlock];
  int64_t size[kLevels];
  int depth = 0;
  int64_t end = 0;  // terms so far
  for (size_t b = 0; b < sizes.size(); ++b) {
    load(static_cast<const WideOf<T>*>(blocks[b]) + begin, count, WideOf<T>{1}, stack[depth]);
    size[depth++] = sizes[b];
    end += sizes[b];
    while (depth > 1 && size[depth - 2] == size[depth - 1] && end % (2 * size[depth - 1]) == 0) {
      add<kMax>(stack[depth - 2], stack[depth - 1], count);
      size[--depth - 1] *= 2;
    }
  }
  for (; depth > 1; --depth) add<kMax>(stack[depth - 2], stack[depth - 1], count);
  store(stack[0], count, last, static_cast<T*>(out) + begin);
}

template <bool kMax, class T>
ATHANOR_INLINE void add_all(const void* const* blocks, std::span<const int> sizes, int64_t count, double last,
                            void* out) {
  for (int64_t begin = 0; begin < count; begin += kBlock)
    add_block<kMax, T>(blocks, sizes, begin, std::min(kBlock, count - begin), static_cast<WideOf<T>>(last), out);
}

// Compilers clone plain functions only, not templates.
#define ATHANOR_SUMS(name, T)                                                                                       \
  ATHANOR_EACH_CPU void sum_##name(const void* const* terms, int n, int64_t count, Scale scale, void* out) {        \
    sum_all<false, T, T>(terms, n, count, scale, out);                                                              \
  }                                                                                                                 \
  ATHANOR_EACH_CPU void max_##name(const void* const* terms, int n, int64_t count, Scale scale, void* out) {        \
    sum_all<true, T, T>(terms, n, count, scale, out);                                                               \
  }                                                                                                                 \
  ATHANOR_EACH_CPU void sum_wide_##name(const void* const* terms, int n, int64_t count, double first, void* wide) { \
    sum_all<false, T, WideOf<T>>(terms, n, count, {first, 1}, wide);                                                \
  }                                                                                                                 \
  ATHANOR_EACH_CPU void max_wide_##name(const void* const* terms, int n, int64_t count, double first, void* wide) { \
    sum_all<true, T, WideOf<T>>(terms, n, count, {first, 1}, wide);                                                 \
  }                                                                                                                 \
  ATHANOR_EACH_CPU void sum_blocks_##name(const void* const* blocks, std::span<const int> sizes, int64_t count,     \
                                          double last, void* out) {                                                 \
    add_all<false, T>(blocks, sizes, count, last, out);                                                             \
  }                                                                                                                 \
  ATHANOR_EACH_CPU void max_blocks_##name(const void* const* blocks, std::span<const int> sizes, int64_t count,     \
                                          double last, void* out) {                                                 \
    add_all<true, T>(blocks, sizes, count, last, out);                                                              \
  }
ATHANOR_SUMS(bf16, Bf16)
ATHANOR_SUMS(f16, F16)
ATHANOR_SUMS(f32, float)
ATHANOR_SUMS(f64, double)
ATHANOR_SUMS(i64, int64_t)
#undef ATHANOR_SUMS

/// Calls f with a null pointer of the element's type.
template <class F>
void with_type(Element element, F f) {
  switch (element) {
    case Element::kBf16: return f(static_cast<Bf16*>(nullptr));
    case Element::kF16: return f(static_cast<F16*>(nullptr));
    case Element::kF32: return f(static_cast<float*>(nullptr));
    case Element::kF64: return f(static_cast<double*>(nullptr));
    case Element::kI64: return f(static_cast<int64_t*>(nullptr));
  }
}

}  // namespace

int64_t element_bytes(Element element) {
  int64_t bytes = 0;
  with_type(element, [&](auto* tag) { bytes = sizeof(*tag); });
  return bytes;
}

int64_t wide_bytes(Element element) {
  int64_t bytes = 0;
  with_type(element, [&](auto* tag) { bytes = sizeof(WideOf<std::decay_t<decltype(*tag)>>); });
  return bytes;
}

Scale mean_scale(int count) {
  const double up = static_cast<double>(std::bit_ceil(static_cast<unsigned>(std::max(count, 1))));
  return {1 / up, up / std::max(count, 1)};
}

void tree_sum(Element element, Combine combine, Scale scale, const void* const* terms, int num_terms, int64_t count,
              void* out) {
  const bool max = combine == Combine::kMax;
  switch (element) {
    case Element::kBf16: return (max ? max_bf16 : sum_bf16)(terms, num_terms, count, scale, out);
    case Element::kF16: return (max ? max_f16 : sum_f16)(terms, num_terms, count, scale, out);
    case Element::kF32: return (max ? max_f32 : sum_f32)(terms, num_terms, count, scale, out);
    case Element::kF64: return (max ? max_f64 : sum_f64)(terms, num_terms, count, scale, out);
    case Element::kI64: return (max ? max_i64 : sum_i64)(terms, num_terms, count, scale, out);
  }
}

void tree_sum_wide(Element element, Combine combine, double first, const void* const* terms, int num_terms,
                   int64_t count, void* wide) {
  const bool max = combine == Combine::kMax;
  switch (element) {
    case Element::kBf16: return (max ? max_wide_bf16 : sum_wide_bf16)(terms, num_terms, count, first, wide);
    case Element::kF16: return (max ? max_wide_f16 : sum_wide_f16)(terms, num_terms, count, first, wide);
    case Element::kF32: return (max ? max_wide_f32 : sum_wide_f32)(terms, num_terms, count, first, wide);
    case Element::kF64: return (max ? max_wide_f64 : sum_wide_f64)(terms, num_terms, count, first, wide);
    case Element::kI64: return (max ? max_wide_i64 : sum_wide_i64)(terms, num_terms, count, first, wide);
  }
}

void sum_blocks(Element element, Combine combine, double last, const void* const* blocks, std::span<const int> sizes,
                int64_t count, void* out) {
  const bool max = combine == Combine::kMax;
  switch (element) {
    case Element::kBf16: return (max ? max_blocks_bf16 : sum_blocks_bf16)(blocks, sizes, count, last, out);
    case Element::kF16: return (max ? max_blocks_f16 : sum_blocks_f16)(blocks, sizes, count, last, out);
    case Element::kF32: return (max ? max_blocks_f32 : sum_blocks_f32)(blocks, sizes, count, last, out);
    case Element::kF64: return (max ? max_blocks_f64 : sum_blocks_f64)(blocks, sizes, count, last, out);
    case Element::kI64: return (max ? max_blocks_i64 : sum_blocks_i64)(blocks, sizes, count, last, out);
  }
}

void widen(Element element, double first, const void* in, int64_t count, void* wide) {
  with_type(element, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    load(static_cast<const T*>(in), count, static_cast<WideOf<T>>(first), static_cast<WideOf<T>*>(wide));
  });
}

void add_wide(Element element, Combine combine, void* wide, const void* term, int64_t count) {
  with_type(element, [&](auto* tag) {
    using W = WideOf<std::decay_t<decltype(*tag)>>;
    if (combine == Combine::kMax) return add<true>(static_cast<W*>(wide), static_cast<const W*>(term), count);
    add<false>(static_cast<W*>(wide), static_cast<const W*>(term), count);
  });
}

void narrow(Element element, double last, const void* wide, int64_t count, void* out) {
  with_type(element, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    store(static_cast<const WideOf<T>*>(wide), count, static_cast<WideOf<T>>(last), static_cast<T*>(out));
  });
}

}  // namespace athanor::comm
