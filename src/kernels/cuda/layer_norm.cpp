#include "kernels/cuda/layer_norm.h"

#include <cmath>

#include "kernels/cuda/residual.h"

namespace athanor::kernels::cuda {
namespace {

// Adds f over the elements of a row that one thread of a warp has.
template <int N, class T, class F>
ATHANOR_INLINE float sum_of_thread(const T* row, int64_t width, int thread, F f) {
  float total = 0;
  for (int64_t i = thread * N; i < width; i += kWarp * N) {
    const Pack<T, N> a = load_pack<N>(row + i);
    for (int l = 0; l < N; ++l) total += f(load(a.at[l]), i + l);
  }
  return total;
}

template <class T, int N>
void layer_forward_packs(const Stream& stream, const T* x, const T* branch, T* sum, T* y, float* mean, float* rstd,
                         int64_t rows, int64_t width, float eps) {
  for_each_team<kWarp>(stream, "layer_norm_forward", rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    const int64_t begin = team.index() * width;
    const T* row = (branch ? sum : x) + begin;
    if (branch) add_branch<N>(team, x, branch, sum, begin, width);
    const auto count = static_cast<float>(width);
    const float total = team.sum<float>(
        [=](int thread) { return sum_of_thread<N>(row, width, thread, [](float value, int64_t) { return value; }); });
    const float centre = total / count;
    const float squares = team.sum<float>([=](int thread) {
      return sum_of_thread<N>(row, width, thread,
                              [=](float value, int64_t) { return (value - centre) * (value - centre); });
    });
    const float r = 1.0f / std::sqrt(squares / count + eps);
    team.each([=](int thread) {
      if (thread == 0) {
        mean[team.index()] = centre;
        rstd[team.index()] = r;
      }
      for (int64_t i = thread * N; i < width; i += kWarp * N) {
        Pack<T, N> a = load_pack<N>(row + i);
        for (int l = 0; l < N; ++l) store(a.at[l], (load(a.at[l]) - centre) * r);
        store_pack(y + begin + i, a);
      }
    });
  });
}

template <class T, int N>
void layer_backward_packs(const Stream& stream, const T* dsum, const T* dy, const T* x, const float* mean,
                          const float* rstd, T* dx, int64_t rows, int64_t width) {
  for_each_team<kWarp>(stream, "layer_norm_backward", rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    const int64_t begin = team.index() * width;
    const float centre = mean[team.index()], r = rstd[team.index()];
    const auto count = static_cast<float>(width);
    const T* row = x + begin;
    const T* gradient = dy + begin;
    const float total = team.sum<float>(
        [=](int thread) { return sum_of_thread<N>(gradient, width, thread, [](float g, int64_t) { return g; }); });
    const float dot = team.sum<float>([=](int thread) {
      return sum_of_thread<N>(row, width, thread,
                              [=](float value, int64_t i) { return load(gradient[i]) * ((value - centre) * r); });
    });
    const float mean_of_gradient = total / count, mean_of_dot = dot / count;
    team.each([=](int thread) {
      for (int64_t i = thread * N; i < width; i += kWarp * N) {
        const Pack<T, N> g = load_pack<N>(gradient + i), a = load_pack<N>(row + i);
        Pack<T, N> result;
        for (int l = 0; l < N; ++l) {
          const float normed = (load(a.at[l]) - centre) * r;
          store(result.at[l], r * (load(g.at[l]) - mean_of_gradient - normed * mean_of_dot));
        }
        if (dsum) add_stream_part(dsum + begin + i, result);
        store_pack(dx + begin + i, result);
      }
    });
  });
}

}  // namespace

template <class T>
void layer_norm_forward(const Stream& stream, const T* x, const T* branch, T* sum, T* y, float* mean, float* rstd,
                        int64_t rows, int64_t width, float eps) {
  if (can_pack<T>(width, x, branch, sum, y)) {
    layer_forward_packs<T, kPack<T>>(stream, x, branch, sum, y, mean, rstd, rows, width, eps);
  } else {
    layer_forward_packs<T, 1>(stream, x, branch, sum, y, mean, rstd, rows, width, eps);
  }
}

template <class T>
void layer_norm_backward(const Stream& stream, const T* dsum, const T* dy, const T* x, const float* mean,
                         const float* rstd, T* dx, int64_t rows, int64_t width) {
  if (can_pack<T>(width, dsum, dy, x, dx)) {
    layer_backward_packs<T, kPack<T>>(stream, dsum, dy, x, mean, rstd, dx, rows, width);
  } else {
    layer_backward_packs<T, 1>(stream, dsum, dy, x, mean, rstd, dx, rows, width);
  }
}

#define ATHANOR_CUDA_LAYER_NORM(T)                                                                                  \
  template void layer_norm_forward<T>(const Stream&, const T*, const T*, T*, T*, float*, float*, int64_t, int64_t,  \
                                      float);                                                                       \
  template void layer_norm_backward<T>(const Stream&, const T*, const T*, const T*, const float*, const float*, T*, \
                                       int64_t, int64_t);

ATHANOR_CUDA_LAYER_NORM(float)
ATHANOR_CUDA_LAYER_NORM(Bf16)

}  // namespace athanor::kernels::cuda
