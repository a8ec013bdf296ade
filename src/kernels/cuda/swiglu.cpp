#include "kernels/cuda/swiglu.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

ATHANOR_INLINE float forward(float g, float u) { return g * sigmoid(g) * u; }

// The order of operations is that of kernels/cpu/swiglu.cpp.
struct Gradients {
  ATHANOR_INLINE Gradients(float d, float g, float u) {
    const float s = sigmoid(g);
    dup = d * (g * s);
    dgate = d * u * (s + g * s * (1.0f - s));
  }
  float dgate, dup;
};

template <class T, int N>
void forward_packs(const Stream& stream, const T* gate, const T* up, T* out, int64_t n) {
  for_each_index(stream, "swiglu_forward", n / N, [=] ATHANOR_BODY(int64_t i) {
    const Pack<T, N> g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
    Pack<T, N> result;
    for (int l = 0; l < N; ++l) store(result.at[l], forward(load(g.at[l]), load(u.at[l])));
    store_pack(out + i * N, result);
  });
}

template <class T, int N>
void backward_packs(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  for_each_index(stream, "swiglu_backward", n / N, [=] ATHANOR_BODY(int64_t i) {
    const Pack<T, N> d = load_pack<N>(dout + i * N), g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
    Pack<T, N> dg, du;
    for (int l = 0; l < N; ++l) {
      const Gradients gradients(load(d.at[l]), load(g.at[l]), load(u.at[l]));
      store(dg.at[l], gradients.dgate);
      store(du.at[l], gradients.dup);
    }
    store_pack(dgate + i * N, dg);
    store_pack(dup + i * N, du);
  });
}

template <class T, int N>
void weighted_forward_packs(const Stream& stream, const T* gate, const T* up, const float* weights,
                            const int64_t* choice_of_row, T* out, int64_t rows, int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "weighted_swiglu_forward", rows * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t choice = choice_of_row[i / packs];
    Pack<T, N> result{};
    if (choice >= 0) {
      const float weight = weights[choice];
      const Pack<T, N> g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
      for (int l = 0; l < N; ++l) store(result.at[l], weight * forward(load(g.at[l]), load(u.at[l])));
    }
    store_pack(out + i * N, result);
  });
}

template <class T, int N>
void weighted_backward_packs(const Stream& stream, const T* dout, const T* gate, const T* up, const float* weights,
                             const int64_t* choice_of_row, T* dgate, T* dup, float* dweights, int64_t rows,
                             int64_t width) {
  for_each_team<kWarp>(stream, "weighted_swiglu_backward", rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    const int64_t begin = team.index() * width, end = begin + width, choice = choice_of_row[team.index()];
    if (choice < 0) {
      team.each([=](int thread) {
        for (int64_t i = begin + thread * N; i < end; i += kWarp * N) {
          store_pack(dgate + i, Pack<T, N>{});
          store_pack(dup + i, Pack<T, N>{});
        }
      });
      return;
    }
    const float weight = weights[choice];
    // A thread reads what it overwrites before it does, so that one pass serves both.
    const float dot = team.sum<float>([=](int thread) {
      float sum = 0;
      for (int64_t i = begin + thread * N; i < end; i += kWarp * N) {
        const Pack<T, N> d = load_pack<N>(dout + i), g = load_pack<N>(gate + i), u = load_pack<N>(up + i);
        Pack<T, N> dg, du;
        for (int l = 0; l < N; ++l) {
          const float dl = load(d.at[l]), gl = load(g.at[l]), ul = load(u.at[l]);
          sum += forward(gl, ul) * dl;
          const Gradients gradients(weight * dl, gl, ul);
          store(dg.at[l], gradients.dgate);
          store(du.at[l], gradients.dup);
        }
        store_pack(dgate + i, dg);
        store_pack(dup + i, du);
      }
      return sum;
    });
    team.each([=](int thread) {
      if (thread == 0) dweights[choice] = dot;
    });
  });
}

}  // namespace

template <class T>
void swiglu_forward(const Stream& stream, const T* gate, const T* up, T* out, int64_t n) {
  if (can_pack<T>(n, gate, up, out)) {
    forward_packs<T, kPack<T>>(stream, gate, up, out, n);
  } else {
    forward_packs<T, 1>(stream, gate, up, out, n);
  }
}

template <class T>
void swiglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  if (can_pack<T>(n, dout, gate, up, dgate, dup)) {
    backward_packs<T, kPack<T>>(stream, dout, gate, up, dgate, dup, n);
  } else {
    backward_packs<T, 1>(stream, dout, gate, up, dgate, dup, n);
  }
}

template <class T>
void weighted_swiglu_forward(const Stream& stream, const T* gate, const T* up, const float* weights,
                             const int64_t* choice_of_row, T* out, int64_t rows, int64_t width) {
  if (can_pack<T>(width, gate, up, out)) {
    weighted_forward_packs<T, kPack<T>>(stream, gate, up, weights, choice_of_row, out, rows, width);
  } else {
    weighted_forward_packs<T, 1>(stream, gate, up, weights, choice_of_row, out, rows, width);
  }
}

template <class T>
void weighted_swiglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, const float* weights,
                              const int64_t* choice_of_row, T* dgate, T* dup, float* dweights, int64_t rows,
                              int64_t width) {
  if (can_pack<T>(width, dout, gate, up, dgate, dup)) {
    weighted_backward_packs<T, kPack<T>>(stream, dout, gate, up, weights, choice_of_row, dgate, dup, dweights, rows,
                                         width);
  } else {
    weighted_backward_packs<T, 1>(stream, dout, gate, up, weights, choice_of_row, dgate, dup, dweights, rows, width);
  }
}

#define ATHANOR_CUDA_SWIGLU(T)                                                                                         \
  template void swiglu_forward<T>(const Stream&, const T*, const T*, T*, int64_t);                                     \
  template void swiglu_backward<T>(const Stream&, const T*, const T*, const T*, T*, T*, int64_t);                      \
  template void weighted_swiglu_forward<T>(const Stream&, const T*, const T*, const float*, const int64_t*, T*,        \
                                           int64_t, int64_t);                                                          \
  template void weighted_swiglu_backward<T>(const Stream&, const T*, const T*, const T*, const float*, const int64_t*, \
                                            T*, T*, float*, int64_t, int64_t);

ATHANOR_CUDA_SWIGLU(float)
ATHANOR_CUDA_SWIGLU(Bf16)

}  // namespace athanor::kernels::cuda
