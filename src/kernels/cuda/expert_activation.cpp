#include "kernels/cuda/expert_activation.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

template <class T, int N>
void forward_packs(const Stream& stream, const T* gate, const T* up, const float* weights, const ExpertRows& rows,
                   T* act, int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "expert_activation", rows.most_rows * packs, [=] ATHANOR_BODY(int64_t i) {
    if (i / packs >= *rows.num_rows) return;
    const int64_t choice = rows.choice_of_row[i / packs];
    Pack<T, N> result{};
    if (choice >= 0) {
      const Pack<T, N> g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
      for (int l = 0; l < N; ++l) {
        const float product = load(g.at[l]) * sigmoid(load(g.at[l])) * load(u.at[l]);
        store(result.at[l], weights ? weights[choice] * product : product);
      }
    }
    store_pack(act + i * N, result);
  });
}

// The order of operations is that of kernels/cpu/expert_activation.cpp.
template <class T, int N>
void backward_packs(const Stream& stream, const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights,
                    const ExpertRows& rows, float* dweights, int64_t width) {
  for_each_team<kWarp>(stream, "expert_activation_backward", rows.most_rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    if (team.index() >= *rows.num_rows) return;
    const int64_t begin = team.index() * width, end = begin + width, choice = rows.choice_of_row[team.index()];
    if (choice < 0) {
      team.each([=](int thread) {
        for (int64_t i = begin + thread * N; i < end; i += kWarp * N) {
          store_pack(dact + i, Pack<T, N>{});
          store_pack(dup + i, Pack<T, N>{});
          store_pack(act + i, Pack<T, N>{});
        }
      });
      return;
    }
    const float weight = weights[choice];
    // A thread reads a value before it overwrites it, so one pass is enough for the sum and the gradients.
    const float dot = team.sum<float>([=](int thread) {
      float sum = 0;
      for (int64_t i = begin + thread * N; i < end; i += kWarp * N) {
        const Pack<T, N> gates = load_pack<N>(gate + i), ups = load_pack<N>(up + i), dacts = load_pack<N>(dact + i);
        Pack<T, N> dgates, dups, acts;
        for (int l = 0; l < N; ++l) {
          const float g = load(gates.at[l]), u = load(ups.at[l]), d = load(dacts.at[l]);
          const float s = sigmoid(g), silu = g * s, weighted = weight * d, a = silu * u;
          store(acts.at[l], weight * a);
          store(dups.at[l], weighted * silu);
          store(dgates.at[l], weighted * u * (s + silu * (1.0f - s)));
          sum += a * d;
        }
        store_pack(act + i, acts);
        store_pack(dup + i, dups);
        store_pack(dact + i, dgates);
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
void expert_activation(const Stream& stream, const T* gate, const T* up, const float* weights, const ExpertRows& rows,
                       T* act, int64_t width) {
  if (can_pack<T>(width, gate, up, act)) {
    forward_packs<T, kPack<T>>(stream, gate, up, weights, rows, act, width);
  } else {
    forward_packs<T, 1>(stream, gate, up, weights, rows, act, width);
  }
}

template <class T>
void expert_activation_backward(const Stream& stream, const T* gate, const T* up, T* dact, T* dup, T* act,
                                const float* weights, const ExpertRows& rows, float* dweights, int64_t width) {
  if (can_pack<T>(width, gate, up, dact, dup, act)) {
    backward_packs<T, kPack<T>>(stream, gate, up, dact, dup, act, weights, rows, dweights, width);
  } else {
    backward_packs<T, 1>(stream, gate, up, dact, dup, act, weights, rows, dweights, width);
  }
}

#define ATHANOR_CUDA_EXPERT_ACTIVATION(T)                                                                              \
  template void expert_activation<T>(const Stream&, const T*, const T*, const float*, const ExpertRows&, T*, int64_t); \
  template void expert_activation_backward<T>(const Stream&, const T*, const T*, T*, T*, T*, const float*,             \
                                              const ExpertRows&, float*, int64_t);

ATHANOR_CUDA_EXPERT_ACTIVATION(float)
ATHANOR_CUDA_EXPERT_ACTIVATION(Bf16)

}  // namespace athanor::kernels::cuda
