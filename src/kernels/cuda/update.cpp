#include "kernels/cuda/update.h"

#include <type_traits>
#include <utility>

#include "kernels/cuda/master_packs.h"

namespace athanor::kernels::cuda {
namespace {

// A rule for N elements at once.
template <class Rule>
struct PackRule {
  Rule rule;
  RuleStates<Rule> states;
  float* grad;

  template <int N>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float grad_scale) const {
    return update<N>(i, masters, grad_scale, std::make_index_sequence<Rule::kStates>());
  }

 private:
  template <int N, size_t... K>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float grad_scale,
                            std::index_sequence<K...> /*states*/) const {
    Pack<float, N> state[Rule::kStates + 1] = {load_pack<N>(states.at[K] + i)..., {}};
    const Pack<float, N> gradient = load_pack<N>(grad + i);
    int clipped = 0;
    for (int l = 0; l < N; ++l) {
      const float g = kTakesDirection<Rule> ? gradient.at[l] : gradient.at[l] * grad_scale;
      masters.at[l] = rule(masters.at[l], g, CountedClip{clipped}, state[K].at[l]...);
    }
    for (int k = 0; k < Rule::kUpdated; ++k) store_pack(states.at[k] + i, state[k]);
    store_pack(grad + i, Pack<float, N>{});
    return clipped;
  }
};

template <class Form, size_t... K>
bool can_pack_all(const Form& masters, int64_t n, const float* grad, float* const* states,
                  std::index_sequence<K...> /*states*/) {
  return masters.can_pack_with(n, grad, states[K]...);
}

}  // namespace

template <class Rule>
void update(const Stream& stream, const Rule& rule, const Masters& masters, const RuleStates<Rule>& states, float* grad,
            float scale, int64_t n, int64_t* changed, int64_t* clipped, const float* grad_scale) {
  using OnPacks = PackRule<Rule>;
  with_form(masters, [&](const auto& form) {
    using Form = std::decay_t<decltype(form)>;
    const bool packs = can_pack_all(form, n, grad, states.at, std::make_index_sequence<Rule::kStates>());
    const auto run = packs ? &update_packs<kPack<float>, Form, OnPacks> : &update_packs<1, Form, OnPacks>;
    run(stream, Rule::kName, form, OnPacks{rule, states, grad}, n, scale, grad_scale, changed, clipped);
  });
}
#define ATHANOR_UPDATE(Rule)                                                                                     \
  template void update<Rule>(const Stream&, const Rule&, const Masters&, const RuleStates<Rule>&, float*, float, \
                             int64_t, int64_t*, int64_t*, const float*);
ATHANOR_FOR_EACH_UPDATE_RULE(ATHANOR_UPDATE)
#undef ATHANOR_UPDATE

void momentum_direction(const Stream& stream, const MomentumStep& step, float* momentum, float* grad, int64_t n,
                        const float* grad_scale) {
  for_each_index(stream, "momentum", n, [=] ATHANOR_BODY(int64_t i) {
    const float scale = grad_scale ? *grad_scale : step.grad_scale;
    if (scale != scale) return;
    const float g = grad[i] * scale, m = momentum[i] + (1.0f - step.momentum) * (g - momentum[i]);
    momentum[i] = m;
    grad[i] = step.nesterov ? g + step.momentum * (m - g) : m;
  });
}

void add_squares(const Stream& stream, float beta, float tokens, const float* grad, float* hessian, int64_t n) {
  for_each_index(stream, "squares", n, [=] ATHANOR_BODY(int64_t i) {
    hessian[i] = beta * hessian[i] + (1.0f - beta) * ((tokens * grad[i]) * grad[i]);
  });
}

}  // namespace athanor::kernels::cuda
