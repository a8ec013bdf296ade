#pragma once
// Masters on a device, in either form (kernels/master.h), and the loop of an update over them.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/master.h"
#include "kernels/update.h"

namespace athanor::kernels::cuda {

/// Masters in fp32.
struct WholeMasters {
  float* master;

  /// Returns the masters from an element on; of split ones, `low` is that of the lower bits.
  ATHANOR_INLINE WholeMasters at(int64_t begin, int64_t /*low*/) const { return {master + begin}; }

  template <int N>
  ATHANOR_INLINE Pack<float, N> load(int64_t i) const {
    return load_pack<N>(master + i);
  }
  /// Calls f(masters) for the N masters from i, which it changes. Returns how many weights are others afterwards.
  template <int N, class F>
  ATHANOR_INLINE int change(int64_t i, F f) const {
    Pack<float, N> x = load<N>(i);
    const Pack<float, N> before = x;
    f(x);
    int changed = 0;
    for (int l = 0; l < N; ++l) changed += x.at[l] != before.at[l] ? 1 : 0;
    store_pack(master + i, x);
    return changed;
  }
  template <class... More>
  ATHANOR_INLINE bool can_pack_with(int64_t n, More... more) const {
    return can_pack<float>(n, master, more...);
  }
};

/// Masters as bf16 weights and the lower 16 bits.
struct SplitMasters {
  Bf16* weight;
  uint16_t* low;

  ATHANOR_INLINE SplitMasters at(int64_t begin, int64_t low_begin) const { return {weight + begin, low + low_begin}; }

  template <int N>
  ATHANOR_INLINE Pack<float, N> load(int64_t i) const {
    const Pack<Bf16, N> w = load_pack<N>(weight + i);
    const Pack<uint16_t, N> rest = load_pack<N>(low + i);
    Pack<float, N> x;
    for (int l = 0; l < N; ++l) x.at[l] = join_master(w.at[l], rest.at[l]);
    return x;
  }
  template <int N, class F>
  ATHANOR_INLINE int change(int64_t i, F f) const {
    Pack<Bf16, N> w = load_pack<N>(weight + i);
    Pack<uint16_t, N> rest = load_pack<N>(low + i);
    Pack<float, N> x;
    for (int l = 0; l < N; ++l) x.at[l] = join_master(w.at[l], rest.at[l]);
    f(x);
    int changed = 0;
    for (int l = 0; l < N; ++l) {
      const uint16_t before = w.at[l].bits;
      split_master(x.at[l], w.at[l], rest.at[l]);
      changed += w.at[l].bits != before ? 1 : 0;
    }
    store_pack(weight + i, w);
    store_pack(low + i, rest);
    return changed;
  }
  template <class... More>
  ATHANOR_INLINE bool can_pack_with(int64_t n, More... more) const {
    return can_pack<float>(n, weight, low, more...);
  }
};

/// Calls f(form) with the form that `masters` have.
template <class F>
void with_form(const Masters& masters, F f) {
  masters.whole ? f(WholeMasters{masters.whole}) : f(SplitMasters{masters.weight, masters.low});
}

constexpr int kPacksOfThread = 8;  // a count is written for every 8 · 256 packs

/// What a rule counts in an update: weights that changed, in the lower half, and what the rule itself counts.
constexpr int kOwnCount = 32;

/// Calls rule.update<N>(i, masters, grad_scale) for each N masters from i, unless grad_scale is NaN; it changes them
/// and the memory of the rule, and returns its own count. Adds the weights that changed to *changed, and the rule's
/// counts to *counted unless that is null.
/// @param scale        of the gradients, unless `scale_there`, in the stream's memory, is not null.
template <int N, class Masters, class Rule>
void update_packs(const Stream& stream, const char* name, const Masters& masters, const Rule& rule, int64_t n,
                  float scale, const float* scale_there, int64_t* changed, int64_t* counted) {
  constexpr int64_t kRun = int64_t{kPacksOfThread} * kThreads * N;
  for_each_team<kThreads>(stream, name, (n + kRun - 1) / kRun, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const int64_t begin = team.index() * kRun, end = min_of(begin + kRun, n);
    const int64_t counts = team.sum<int64_t>([=](int thread) {
      int64_t mine = 0;
      const float grad_scale = scale_there ? *scale_there : scale;
      if (grad_scale != grad_scale) return mine;
      for (int64_t i = begin + thread * N; i < end; i += kThreads * N) {
        int own = 0;
        const int moved =
            masters.template change<N>(i, [&](Pack<float, N>& x) { own = rule.template update<N>(i, x, grad_scale); });
        mine += moved + (static_cast<int64_t>(own) << kOwnCount);
      }
      return mine;
    });
    team.add_once(changed, counts & 0xFFFFFFFF);
    if (counted) team.add_once(counted, counts >> kOwnCount);
  });
}

}  // namespace athanor::kernels::cuda
