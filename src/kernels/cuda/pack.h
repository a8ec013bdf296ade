#pragma once
// Loads and stores of 16 bytes: what a thread moves at once if rows are aligned for it; otherwise it moves one element.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels::cuda {

constexpr int64_t kPackBytes = 16;

/// Number of elements in a full pack.
template <class T>
constexpr int kPack = static_cast<int>(kPackBytes / sizeof(T));

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <int N, class T>
ATHANOR_INLINE Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N>
ATHANOR_INLINE void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

ATHANOR_INLINE bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0; }

/// Returns whether rows of `width` elements from each of the pointers may be moved in full packs; a null pointer counts
/// as aligned.
template <class T, class... Pointers>
ATHANOR_INLINE bool can_pack(int64_t width, Pointers... pointers) {
  return width % kPack<T> == 0 && (is_aligned(pointers) && ...);
}

}  // namespace athanor::kernels::cuda
