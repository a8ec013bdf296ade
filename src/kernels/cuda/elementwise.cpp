#include "kernels/cuda/elementwise.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/gelu.h"
#include "kernels/soft_cap.h"

namespace athanor::kernels::cuda {
namespace {

struct Swiglu {
  static constexpr const char *kForward = "swiglu_forward", *kBackward = "swiglu_backward";
  ATHANOR_INLINE static float of(float g, float u) { return g * sigmoid(g) * u; }

  // The order of operations is that of kernels/cpu/swiglu.cpp.
  ATHANOR_INLINE Swiglu(float d, float g, float u) {
    const float s = sigmoid(g);
    dup = d * (g * s);
    dgate = d * u * (s + g * s * (1.0f - s));
  }
  float dgate, dup;
};

struct Geglu : GegluGradients {
  static constexpr const char *kForward = "geglu_forward", *kBackward = "geglu_backward";
  ATHANOR_INLINE static float of(float g, float u) { return geglu_of(g, u); }
  ATHANOR_INLINE Geglu(float d, float g, float u) : GegluGradients(geglu_gradients(d, g, u)) {}
};

template <class Unit, class T, int N>
void forward_packs(const Stream& stream, const T* gate, const T* up, T* out, int64_t n) {
  for_each_index(stream, Unit::kForward, n / N, [=] ATHANOR_BODY(int64_t i) {
    const Pack<T, N> g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
    Pack<T, N> result;
    for (int l = 0; l < N; ++l) store(result.at[l], Unit::of(load(g.at[l]), load(u.at[l])));
    store_pack(out + i * N, result);
  });
}

template <class Unit, class T, int N>
void backward_packs(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  for_each_index(stream, Unit::kBackward, n / N, [=] ATHANOR_BODY(int64_t i) {
    const Pack<T, N> d = load_pack<N>(dout + i * N), g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
    Pack<T, N> dg, du;
    for (int l = 0; l < N; ++l) {
      const Unit gradients(load(d.at[l]), load(g.at[l]), load(u.at[l]));
      store(dg.at[l], gradients.dgate);
      store(du.at[l], gradients.dup);
    }
    store_pack(dgate + i * N, dg);
    store_pack(dup + i * N, du);
  });
}

template <class Unit, class T>
void forward_of(const Stream& stream, const T* gate, const T* up, T* out, int64_t n) {
  can_pack<T>(n, gate, up, out) ? forward_packs<Unit, T, kPack<T>>(stream, gate, up, out, n)
                                : forward_packs<Unit, T, 1>(stream, gate, up, out, n);
}

template <class Unit, class T>
void backward_of(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  can_pack<T>(n, dout, gate, up, dgate, dup) ? backward_packs<Unit, T, kPack<T>>(stream, dout, gate, up, dgate, dup, n)
                                             : backward_packs<Unit, T, 1>(stream, dout, gate, up, dgate, dup, n);
}

}  // namespace

template <class T>
void swiglu_forward(const Stream& stream, const T* gate, const T* up, T* out, int64_t n) {
  forward_of<Swiglu>(stream, gate, up, out, n);
}
template <class T>
void swiglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  backward_of<Swiglu>(stream, dout, gate, up, dgate, dup, n);
}
template <class T>
void geglu_forward(const Stream& stream, const T* gate, const T* up, T* out, int64_t n) {
  forward_of<Geglu>(stream, gate, up, out, n);
}
template <class T>
void geglu_backward(const Stream& stream, const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  backward_of<Geglu>(stream, dout, gate, up, dgate, dup, n);
}

#define ATHANOR_CUDA_GATED(T)                                                                     \
  template void swiglu_forward<T>(const Stream&, const T*, const T*, T*, int64_t);                \
  template void swiglu_backward<T>(const Stream&, const T*, const T*, const T*, T*, T*, int64_t); \
  template void geglu_forward<T>(const Stream&, const T*, const T*, T*, int64_t);                 \
  template void geglu_backward<T>(const Stream&, const T*, const T*, const T*, T*, T*, int64_t);

ATHANOR_CUDA_GATED(float)
ATHANOR_CUDA_GATED(Bf16)

namespace {

template <GeluForm kForm, class T, int N>
void gelu_packs(const Stream& stream, const T* x, T* y, int64_t n) {
  for_each_index(stream, "gelu_forward", n / N, [=] ATHANOR_BODY(int64_t i) {
    Pack<T, N> pack = load_pack<N>(x + i * N);
    for (int l = 0; l < N; ++l) store(pack.at[l], gelu_of<kForm>(load(pack.at[l])));
    store_pack(y + i * N, pack);
  });
}

template <GeluForm kForm, class T, int N>
void gelu_backward_packs(const Stream& stream, const T* dy, const T* x, T* dx, int64_t n) {
  for_each_index(stream, "gelu_backward", n / N, [=] ATHANOR_BODY(int64_t i) {
    Pack<T, N> d = load_pack<N>(dy + i * N);
    const Pack<T, N> from = load_pack<N>(x + i * N);
    for (int l = 0; l < N; ++l) store(d.at[l], load(d.at[l]) * gelu_slope<kForm>(load(from.at[l])));
    store_pack(dx + i * N, d);
  });
}

template <GeluForm kForm, class T>
void gelu_forward_of(const Stream& stream, const T* x, T* y, int64_t n) {
  can_pack<T>(n, x, y) ? gelu_packs<kForm, T, kPack<T>>(stream, x, y, n) : gelu_packs<kForm, T, 1>(stream, x, y, n);
}

template <GeluForm kForm, class T>
void gelu_backward_of(const Stream& stream, const T* dy, const T* x, T* dx, int64_t n) {
  can_pack<T>(n, dy, x, dx) ? gelu_backward_packs<kForm, T, kPack<T>>(stream, dy, x, dx, n)
                            : gelu_backward_packs<kForm, T, 1>(stream, dy, x, dx, n);
}

}  // namespace

template <class T>
void gelu_forward(const Stream& stream, GeluForm form, const T* x, T* y, int64_t n) {
  form == GeluForm::kTanh ? gelu_forward_of<GeluForm::kTanh>(stream, x, y, n)
                          : gelu_forward_of<GeluForm::kExact>(stream, x, y, n);
}

template <class T>
void gelu_backward(const Stream& stream, GeluForm form, const T* dy, const T* x, T* dx, int64_t n) {
  form == GeluForm::kTanh ? gelu_backward_of<GeluForm::kTanh>(stream, dy, x, dx, n)
                          : gelu_backward_of<GeluForm::kExact>(stream, dy, x, dx, n);
}

template void gelu_forward<float>(const Stream&, GeluForm, const float*, float*, int64_t);
template void gelu_forward<Bf16>(const Stream&, GeluForm, const Bf16*, Bf16*, int64_t);
template void gelu_backward<float>(const Stream&, GeluForm, const float*, const float*, float*, int64_t);
template void gelu_backward<Bf16>(const Stream&, GeluForm, const Bf16*, const Bf16*, Bf16*, int64_t);

namespace {

template <class T, int N>
void soft_cap_packs(const Stream& stream, const T* x, T* y, int64_t n, float cap) {
  for_each_index(stream, "soft_cap_forward", n / N, [=] ATHANOR_BODY(int64_t i) {
    Pack<T, N> pack = load_pack<N>(x + i * N);
    for (int l = 0; l < N; ++l) store(pack.at[l], soft_cap_of(load(pack.at[l]), cap));
    store_pack(y + i * N, pack);
  });
}

template <class T, int N>
void soft_cap_backward_packs(const Stream& stream, const T* dy, const T* x, T* dx, int64_t n, float cap) {
  for_each_index(stream, "soft_cap_backward", n / N, [=] ATHANOR_BODY(int64_t i) {
    Pack<T, N> d = load_pack<N>(dy + i * N);
    const Pack<T, N> from = load_pack<N>(x + i * N);
    for (int l = 0; l < N; ++l) store(d.at[l], load(d.at[l]) * soft_cap_slope(load(from.at[l]), cap));
    store_pack(dx + i * N, d);
  });
}

}  // namespace

template <class T>
void soft_cap_forward(const Stream& stream, const T* x, T* y, int64_t n, float cap) {
  can_pack<T>(n, x, y) ? soft_cap_packs<T, kPack<T>>(stream, x, y, n, cap) : soft_cap_packs<T, 1>(stream, x, y, n, cap);
}

template <class T>
void soft_cap_backward(const Stream& stream, const T* dy, const T* x, T* dx, int64_t n, float cap) {
  can_pack<T>(n, dy, x, dx) ? soft_cap_backward_packs<T, kPack<T>>(stream, dy, x, dx, n, cap)
                            : soft_cap_backward_packs<T, 1>(stream, dy, x, dx, n, cap);
}

template void soft_cap_forward<float>(const Stream&, const float*, float*, int64_t, float);
template void soft_cap_forward<Bf16>(const Stream&, const Bf16*, Bf16*, int64_t, float);
template void soft_cap_backward<float>(const Stream&, const float*, const float*, float*, int64_t, float);
template void soft_cap_backward<Bf16>(const Stream&, const Bf16*, const Bf16*, Bf16*, int64_t, float);

namespace {

template <class T, int N>
void turn_packs(const Stream& stream, const T* x, T* y, const float* cos, const float* sin, int64_t tokens,
                int64_t num_heads, int64_t head_dim, float direction) {
  const int64_t half = head_dim / 2, packs = half / N;
  for_each_index(stream, "rope", tokens * num_heads * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t head = i / packs, at = i % packs * N, angle = head / num_heads * half + at;
    const int64_t first = head * head_dim + at, second = first + half;
    Pack<T, N> a = load_pack<N>(x + first), b = load_pack<N>(x + second);
    for (int l = 0; l < N; ++l) {
      const float xa = load(a.at[l]), xb = load(b.at[l]), c = cos[angle + l], s = direction * sin[angle + l];
      store(a.at[l], xa * c - xb * s);
      store(b.at[l], xb * c + xa * s);
    }
    store_pack(y + first, a);
    store_pack(y + second, b);
  });
}

}  // namespace

template <class T>
void rope(const Stream& stream, const T* x, T* y, const float* cos, const float* sin, int64_t tokens, int64_t num_heads,
          int64_t head_dim, float direction) {
  if (can_pack<T>(head_dim / 2, x, y)) {
    turn_packs<T, kPack<T>>(stream, x, y, cos, sin, tokens, num_heads, head_dim, direction);
  } else {
    turn_packs<T, 1>(stream, x, y, cos, sin, tokens, num_heads, head_dim, direction);
  }
}

template void rope<float>(const Stream&, const float*, float*, const float*, const float*, int64_t, int64_t, int64_t,
                          float);
template void rope<Bf16>(const Stream&, const Bf16*, Bf16*, const float*, const float*, int64_t, int64_t, int64_t,
                         float);

}  // namespace athanor::kernels::cuda
