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

template void swiglu_forward<float>(const Stream&, const float*, const float*, float*, int64_t);
template void swiglu_forward<Bf16>(const Stream&, const Bf16*, const Bf16*, Bf16*, int64_t);
template void swiglu_backward<float>(const Stream&, const float*, const float*, const float*, float*, float*, int64_t);
template void swiglu_backward<Bf16>(const Stream&, const Bf16*, const Bf16*, const Bf16*, Bf16*, Bf16*, int64_t);

}  // namespace athanor::kernels::cuda
