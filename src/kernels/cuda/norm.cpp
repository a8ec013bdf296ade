#include "kernels/cuda/norm.h"

#include <cmath>

#include "kernels/cuda/residual.h"

namespace athanor::kernels::cuda {
namespace {

template <class T, int N>
void forward_packs(const Stream& stream, const T* x, const T* branch, const T* w, T* sum, T* y, float* rstd,
                   int64_t rows, int64_t width, float eps, float offset) {
  for_each_team<kWarp>(stream, "rms_norm_forward", rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    const int64_t begin = team.index() * width;
    const T* row = (branch ? sum : x) + begin;
    if (branch) add_branch<N>(team, x, branch, sum, begin, width);
    const float squares = team.sum<float>([=](int thread) {
      float total = 0;
      for (int64_t i = thread * N; i < width; i += kWarp * N) {
        const Pack<T, N> a = load_pack<N>(row + i);
        for (int l = 0; l < N; ++l) total += load(a.at[l]) * load(a.at[l]);
      }
      return total;
    });
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
    team.each([=](int thread) {
      if (thread == 0) rstd[team.index()] = r;
      for (int64_t i = thread * N; i < width; i += kWarp * N) {
        Pack<T, N> a = load_pack<N>(row + i);
        const Pack<T, N> scale = load_pack<N>(w + i);
        for (int l = 0; l < N; ++l) store(a.at[l], load(a.at[l]) * r * (load(scale.at[l]) + offset));
        store_pack(y + begin + i, a);
      }
    });
  });
}

template <class T, int N>
void backward_packs(const Stream& stream, const T* dsum, const T* dy, const T* x, const T* w, const float* rstd, T* dx,
                    int64_t rows, int64_t width, float offset) {
  for_each_team<kWarp>(stream, "rms_norm_backward", rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    const int64_t begin = team.index() * width;
    const float r = rstd[team.index()];
    const float dot = team.sum<float>([=](int thread) {
      float total = 0;
      for (int64_t i = thread * N; i < width; i += kWarp * N) {
        const Pack<T, N> g = load_pack<N>(dy + begin + i), a = load_pack<N>(x + begin + i), s = load_pack<N>(w + i);
        for (int l = 0; l < N; ++l) total += load(g.at[l]) * (load(s.at[l]) + offset) * (load(a.at[l]) * r);
      }
      return total;
    });
    const float mean = dot / static_cast<float>(width);
    team.each([=](int thread) {
      for (int64_t i = thread * N; i < width; i += kWarp * N) {
        const Pack<T, N> g = load_pack<N>(dy + begin + i), a = load_pack<N>(x + begin + i), s = load_pack<N>(w + i);
        Pack<T, N> result;
        for (int l = 0; l < N; ++l) {
          const float normed = load(a.at[l]) * r;
          store(result.at[l], r * (load(g.at[l]) * (load(s.at[l]) + offset) - normed * mean));
        }
        if (dsum) add_stream_part(dsum + begin + i, result);
        store_pack(dx + begin + i, result);
      }
    });
  });
}

}  // namespace

template <class T>
void rms_norm_forward(const Stream& stream, const T* x, const T* branch, const T* w, T* sum, T* y, float* rstd,
                      int64_t rows, int64_t width, float eps, float offset) {
  if (can_pack<T>(width, x, branch, w, sum, y)) {
    forward_packs<T, kPack<T>>(stream, x, branch, w, sum, y, rstd, rows, width, eps, offset);
  } else {
    forward_packs<T, 1>(stream, x, branch, w, sum, y, rstd, rows, width, eps, offset);
  }
}

template <class T>
void rms_norm_backward(const Stream& stream, const T* dsum, const T* dy, const T* x, const T* w, const float* rstd,
                       T* dx, float* dw, float* partials, int64_t rows, int64_t width, float offset) {
  // The weight's part comes first, because dx may be dy.
  const int64_t blocks = (rows + kRowsPerPartial - 1) / kRowsPerPartial;
  for_each_index(stream, "rms_norm_backward: partials", blocks * width, [=] ATHANOR_BODY(int64_t i) {
    const int64_t column = i % width, first = i / width * kRowsPerPartial;
    const int64_t last = min_of(first + kRowsPerPartial, rows);
    float sum = 0;
    for (int64_t row = first; row < last; ++row) {
      sum += load(dy[row * width + column]) * (load(x[row * width + column]) * rstd[row]);
    }
    partials[i] = sum;
  });
  if (blocks > 0) {
    for_each_index(stream, "rms_norm_backward: weight", width, [=] ATHANOR_BODY(int64_t column) {
      float sum = dw[column];
      for (int64_t block = 0; block < blocks; ++block) sum += partials[block * width + column];
      dw[column] = sum;
    });
  }
  if (can_pack<T>(width, dsum, dy, x, w, dx)) {
    backward_packs<T, kPack<T>>(stream, dsum, dy, x, w, rstd, dx, rows, width, offset);
  } else {
    backward_packs<T, 1>(stream, dsum, dy, x, w, rstd, dx, rows, width, offset);
  }
}

#define ATHANOR_CUDA_NORM(T)                                                                                          \
  template void rms_norm_forward<T>(const Stream&, const T*, const T*, const T*, T*, T*, float*, int64_t, int64_t,    \
                                    float, float);                                                                    \
  template void rms_norm_backward<T>(const Stream&, const T*, const T*, const T*, const T*, const float*, T*, float*, \
                                     float*, int64_t, int64_t, float);

ATHANOR_CUDA_NORM(float)
ATHANOR_CUDA_NORM(Bf16)

}  // namespace athanor::kernels::cuda
