#include "kernels/cuda/expert_activation.h"

#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/gated_unit.h"
#include "kernels/gelu.h"

namespace athanor::kernels::cuda {
namespace {

template <bool kSwiGlu, class T, int N>
void forward_packs(const Stream& stream, const T* gate, const T* up, const float* weights, const ExpertRows& rows,
                   T* act, int64_t width, const GatedUnit& unit) {
  const int64_t packs = width / N;
  for_each_index(stream, "expert_activation", rows.most_rows * packs, [=] ATHANOR_BODY(int64_t i) {
    if (i / packs >= *rows.num_rows) return;
    const int64_t choice = rows.choice_of_row[i / packs];
    Pack<T, N> result{};
    if (choice >= 0) {
      const Pack<T, N> g = load_pack<N>(gate + i * N), u = load_pack<N>(up + i * N);
      for (int l = 0; l < N; ++l) {
        const GatedTerms<kSwiGlu> of(unit, load(g.at[l]), load(u.at[l]));
        const float product = of.silu * of.factor;
        store(result.at[l], weights ? weights[choice] * product : product);
      }
    }
    store_pack(act + i * N, result);
  });
}

// The order of operations is that of kernels/cpu/expert_activation.cpp.
template <bool kSwiGlu, class T, int N>
void backward_packs(const Stream& stream, const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights,
                    const ExpertRows& rows, float* dweights, int64_t width, const GatedUnit& unit) {
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
          const float d = load(dacts.at[l]);
          const GatedTerms<kSwiGlu> of(unit, load(gates.at[l]), load(ups.at[l]));
          const float weighted = weight * d, a = of.silu * of.factor;
          store(acts.at[l], weight * a);
          store(dups.at[l], kSwiGlu ? weighted * of.silu : weighted * of.silu * of.by_up);
          store(dgates.at[l], weighted * of.factor * of.by_gate);
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

template <class T, int N>
void gelu_packs(const Stream& stream, const T* up, const float* weights, const ExpertRows& rows, T* act,
                int64_t width) {
  const int64_t packs = width / N;
  for_each_index(stream, "expert_gelu", rows.most_rows * packs, [=] ATHANOR_BODY(int64_t i) {
    if (i / packs >= *rows.num_rows) return;
    const int64_t choice = rows.choice_of_row[i / packs];
    Pack<T, N> result{};
    if (choice >= 0) {
      const Pack<T, N> u = load_pack<N>(up + i * N);
      for (int l = 0; l < N; ++l) {
        const float value = gelu_of<GeluForm::kTanh>(load(u.at[l]));
        store(result.at[l], weights ? weights[choice] * value : value);
      }
    }
    store_pack(act + i * N, result);
  });
}

template <class T, int N>
void gelu_backward_packs(const Stream& stream, const T* up, T* dact, T* act, const float* weights,
                         const ExpertRows& rows, float* dweights, int64_t width) {
  for_each_team<kWarp>(stream, "expert_gelu_backward", rows.most_rows, [=] ATHANOR_BODY(const Team<kWarp>& team) {
    if (team.index() >= *rows.num_rows) return;
    const int64_t begin = team.index() * width, end = begin + width, choice = rows.choice_of_row[team.index()];
    const float weight = choice < 0 ? 0.0f : weights[choice];
    const float dot = team.sum<float>([=](int thread) {
      float sum = 0;
      for (int64_t i = begin + thread * N; i < end; i += kWarp * N) {
        Pack<T, N> acts{}, dups{};
        if (choice >= 0) {
          const Pack<T, N> ups = load_pack<N>(up + i), dacts = load_pack<N>(dact + i);
          for (int l = 0; l < N; ++l) {
            const float x = load(ups.at[l]), d = load(dacts.at[l]), a = gelu_of<GeluForm::kTanh>(x);
            store(acts.at[l], weight * a);
            store(dups.at[l], weight * d * gelu_slope<GeluForm::kTanh>(x));
            sum += a * d;
          }
        }
        store_pack(act + i, acts);
        store_pack(dact + i, dups);
      }
      return sum;
    });
    team.each([=](int thread) {
      if (thread == 0 && choice >= 0) dweights[choice] = dot;
    });
  });
}

// Calls f<SwiGLU, elements of a pack>(…).
template <class T, class F>
void with_unit(const GatedUnit& unit, bool packs, F f) {
  const auto with_packs = [&](auto is_swiglu) {
    if (packs)
      f(is_swiglu, std::integral_constant<int, kPack<T>>());
    else
      f(is_swiglu, std::integral_constant<int, 1>());
  };
  if (unit.is_swiglu())
    with_packs(std::true_type());
  else
    with_packs(std::false_type());
}

}  // namespace

template <class T>
void expert_activation(const Stream& stream, const T* gate, const T* up, const float* weights, const ExpertRows& rows,
                       T* act, int64_t width, const GatedUnit& unit) {
  with_unit<T>(unit, can_pack<T>(width, gate, up, act), [&](auto is_swiglu, auto pack) {
    forward_packs<is_swiglu.value, T, pack.value>(stream, gate, up, weights, rows, act, width, unit);
  });
}

template <class T>
void expert_activation_backward(const Stream& stream, const T* gate, const T* up, T* dact, T* dup, T* act,
                                const float* weights, const ExpertRows& rows, float* dweights, int64_t width,
                                const GatedUnit& unit) {
  with_unit<T>(unit, can_pack<T>(width, gate, up, dact, dup, act), [&](auto is_swiglu, auto pack) {
    backward_packs<is_swiglu.value, T, pack.value>(stream, gate, up, dact, dup, act, weights, rows, dweights, width,
                                                   unit);
  });
}

template <class T>
void expert_gelu(const Stream& stream, const T* up, const float* weights, const ExpertRows& rows, T* act,
                 int64_t width) {
  if (can_pack<T>(width, up, act))
    gelu_packs<T, kPack<T>>(stream, up, weights, rows, act, width);
  else
    gelu_packs<T, 1>(stream, up, weights, rows, act, width);
}

template <class T>
void expert_gelu_backward(const Stream& stream, const T* up, T* dact, T* act, const float* weights,
                          const ExpertRows& rows, float* dweights, int64_t width) {
  if (can_pack<T>(width, up, dact, act))
    gelu_backward_packs<T, kPack<T>>(stream, up, dact, act, weights, rows, dweights, width);
  else
    gelu_backward_packs<T, 1>(stream, up, dact, act, weights, rows, dweights, width);
}

#define ATHANOR_CUDA_EXPERT_ACTIVATION(T)                                                                             \
  template void expert_activation<T>(const Stream&, const T*, const T*, const float*, const ExpertRows&, T*, int64_t, \
                                     const GatedUnit&);                                                               \
  template void expert_activation_backward<T>(const Stream&, const T*, const T*, T*, T*, T*, const float*,            \
                                              const ExpertRows&, float*, int64_t, const GatedUnit&);                  \
  template void expert_gelu<T>(const Stream&, const T*, const float*, const ExpertRows&, T*, int64_t);                \
  template void expert_gelu_backward<T>(const Stream&, const T*, T*, T*, const float*, const ExpertRows&, float*,     \
                                        int64_t);

ATHANOR_CUDA_EXPERT_ACTIVATION(float)
ATHANOR_CUDA_EXPERT_ACTIVATION(Bf16)

}  // namespace athanor::kernels::cuda
