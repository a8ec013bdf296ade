// Chooses the form of packing, and packs the edges in plain loops.

#include "kernels/gemm_pack.h"

#include <type_traits>

#include "kernels/cpu/gemm_pack_forms.h"

namespace athanor::kernels {
namespace {

template <class T>
struct Strides {
  const T* data;
  int64_t k, n;
};

template <class T, class P>
void put(P& to, T from) {
  store(to, load(from));
}
inline void put(Bf16& to, Bf16 from) { to = from; }  // copies any bits

// Packs element (k, n), which is at data[k · k_stride + n · n_stride], from a step on; elements outside of the matrix
// are zero.
template <class T, class P>
void pack_plainly(const Strides<T>& from, int64_t first_step, int64_t k, int64_t n_end, int64_t width, P* panel) {
  for (int64_t s = first_step; s < steps_of<P>(k); ++s) {
    for (int64_t n = 0; n < width; ++n) {
      for (int64_t j = 0; j < kStep<P>; ++j) {
        const int64_t at = s * kStep<P> + j;
        P& to = panel[(s * width + n) * kStep<P> + j];
        if (at < k && n < n_end) {
          put(to, from.data[at * from.k + n * from.n]);
        } else {
          to = P{};
        }
      }
    }
  }
}

// AVX-512 has its own forms if the type stays.
template <class T, class P>
[[maybe_unused]] bool wide(MatmulPath path) {
  return std::is_same_v<T, P> && path != MatmulPath::kAvx2;
}

}  // namespace

template <class T, class P>
void pack_panel([[maybe_unused]] MatmulPath path, const T* b, int64_t ld, int64_t k, int64_t columns, P* panel) {
  int64_t whole = 0;
#if defined(__x86_64__)
  if (columns == kTileColumns) {
    whole = k / kStep<P>;
    if constexpr (std::is_same_v<T, P>) {
      if (wide<T, P>(path)) avx512::rows_to_panel(b, ld, whole, panel);
    }
    if constexpr (std::is_same_v<P, float>) {
      if (!wide<T, P>(path)) avx2::rows_to_panel(b, ld, whole, panel);
    }
  }
#endif
  pack_plainly(Strides<T>{b, ld, 1}, whole, k, columns, kTileColumns, panel);
}

template <class T, class P>
void pack_panel_transposed([[maybe_unused]] MatmulPath path, const T* b, int64_t ld, int64_t k, int64_t columns,
                           P* panel) {
  int64_t whole = 0;
#if defined(__x86_64__)
  if (columns == kTileColumns) {
    if constexpr (std::is_same_v<T, P>) {
      if (wide<T, P>(path)) whole = avx512::columns_to_panel(b, ld, k / kStep<P>, panel);
    }
    if constexpr (std::is_same_v<P, float>) {
      if (!wide<T, P>(path)) whole = avx2::columns_to_panel(b, ld, k, panel);
    }
  }
#endif
  pack_plainly(Strides<T>{b, 1, ld}, whole, k, columns, kTileColumns, panel);
}

template <class T, class P>
void pack_rows_transposed([[maybe_unused]] MatmulPath path, const T* a, int64_t ld, int64_t k, int64_t rows,
                          [[maybe_unused]] int64_t readable, P* block) {
  int64_t whole = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, P>) {
    if (wide<T, P>(path)) avx512::rows_to_block(a, ld, whole = k / kStep<P>, rows, block);
  }
  if constexpr (std::is_same_v<P, float>) {
    if (!wide<T, P>(path) && readable >= kTileRows) avx2::rows_to_block(a, ld, whole = k, block);
  }
#endif
  pack_plainly(Strides<T>{a, ld, 1}, whole, k, rows, kTileRows, block);
}

template <class T, class P>
void pack_rows([[maybe_unused]] MatmulPath path, const T* a, int64_t ld, int64_t k, int64_t rows, P* block) {
  int64_t whole = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<P, float>) whole = avx2::columns_to_block(a, ld, k, rows, block);
#endif
  pack_plainly(Strides<T>{a, 1, ld}, whole, k, rows, kTileRows, block);
}

#define ATHANOR_PACK(T, P)                                                                                \
  template void pack_panel<T, P>(MatmulPath, const T*, int64_t, int64_t, int64_t, P*);                    \
  template void pack_panel_transposed<T, P>(MatmulPath, const T*, int64_t, int64_t, int64_t, P*);         \
  template void pack_rows_transposed<T, P>(MatmulPath, const T*, int64_t, int64_t, int64_t, int64_t, P*); \
  template void pack_rows<T, P>(MatmulPath, const T*, int64_t, int64_t, int64_t, P*);
ATHANOR_PACK(float, float)
ATHANOR_PACK(Bf16, Bf16)
ATHANOR_PACK(Bf16, float)

}  // namespace athanor::kernels
