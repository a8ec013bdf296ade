#include "kernels/cuda/accumulate.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

// A pack of sums has N floats: 16 bytes at a time for any T.
constexpr int kSums = kPack<float>;

template <class T, int N>
ATHANOR_INLINE void add_pack(float* sum, const T* x) {
  Pack<float, N> total = load_pack<N>(sum);
  const Pack<T, N> term = load_pack<N>(x);
  for (int l = 0; l < N; ++l) total.at[l] += load(term.at[l]);
  store_pack(sum, total);
}

template <class T, int N>
void add_packs(const Stream& stream, float* sum, const T* x, int64_t n) {
  for_each_index(stream, "accumulate", n / N, [=] ATHANOR_BODY(int64_t i) { add_pack<T, N>(sum + i * N, x + i * N); });
}

template <class T, int N>
void add_groups(const Stream& stream, float* sum, const T* x, const int64_t* offsets, int64_t groups, int64_t size) {
  const int64_t packs = size / N;
  for_each_index(stream, "accumulate_groups", groups * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t group = i / packs;
    if (offsets[group + 1] > offsets[group]) add_pack<T, N>(sum + i * N, x + i * N);
  });
}

template <class T, int N>
void add_rows(const Stream& stream, float* sum, const T* dy, const int64_t* ids, const int64_t* next,
              const int64_t* previous, int64_t rows, int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "accumulate_rows", rows * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t first = i / packs, at = i % packs * N;
    if (previous[first] >= 0) return;  // the first row of an id adds all of them
    float* to = sum + ids[first] * width + at;
    Pack<float, N> total = load_pack<N>(to);
    for (int64_t row = first; row >= 0; row = next[row]) {
      const Pack<T, N> term = load_pack<N>(dy + row * width + at);
      for (int l = 0; l < N; ++l) total.at[l] += load(term.at[l]);
    }
    store_pack(to, total);
  });
}

}  // namespace

template <class T>
void accumulate(const Stream& stream, float* sum, const T* x, int64_t n) {
  if (can_pack<float>(n, sum, x)) {
    add_packs<T, kSums>(stream, sum, x, n);
  } else {
    add_packs<T, 1>(stream, sum, x, n);
  }
}

template <class T>
void accumulate_groups(const Stream& stream, float* sum, const T* x, const int64_t* offsets, int64_t groups,
                       int64_t size) {
  if (can_pack<float>(size, sum, x)) {
    add_groups<T, kSums>(stream, sum, x, offsets, groups, size);
  } else {
    add_groups<T, 1>(stream, sum, x, offsets, groups, size);
  }
}

template <class T>
void accumulate_rows(const Stream& stream, float* sum, const T* dy, const int64_t* ids, int64_t* workspace,
                     int64_t rows, int64_t width) {
  int64_t *next = workspace, *previous = workspace + rows;
  for_each_index(stream, "accumulate_rows: previous", rows, [=] ATHANOR_BODY(int64_t row) {
    int64_t before = row - 1;
    while (before >= 0 && ids[before] != ids[row]) --before;
    previous[row] = before;
    next[row] = -1;
  });
  // A row is the previous one of at most one other row, so no two threads write to the same address.
  for_each_index(stream, "accumulate_rows: next", rows, [=] ATHANOR_BODY(int64_t row) {
    if (previous[row] >= 0) next[previous[row]] = row;
  });
  if (can_pack<float>(width, sum, dy)) {
    add_rows<T, kSums>(stream, sum, dy, ids, next, previous, rows, width);
  } else {
    add_rows<T, 1>(stream, sum, dy, ids, next, previous, rows, width);
  }
}

#define ATHANOR_CUDA_ACCUMULATE(T)                                                                       \
  template void accumulate<T>(const Stream&, float*, const T*, int64_t);                                 \
  template void accumulate_groups<T>(const Stream&, float*, const T*, const int64_t*, int64_t, int64_t); \
  template void accumulate_rows<T>(const Stream&, float*, const T*, const int64_t*, int64_t*, int64_t, int64_t);

ATHANOR_CUDA_ACCUMULATE(float)
ATHANOR_CUDA_ACCUMULATE(Bf16)

}  // namespace athanor::kernels::cuda
