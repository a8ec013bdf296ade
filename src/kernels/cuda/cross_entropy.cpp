#include "kernels/cuda/cross_entropy.h"

#include <cmath>
#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

// The largest block, so that few rows are processed at once: two on each multiprocessor. The three passes over a row of
// 100 KB then read it from memory once, and after that from the second-level cache.
constexpr int kRowThreads = 1024;
using RowTeam = Team<kRowThreads>;

template <class T, int N>
void rows_in_packs(const Stream& stream, T* all_logits, const int64_t* targets, float* losses, bool* is_greedy,
                   int64_t rows, int64_t vocab, float grad_scale) {
  for_each_team<kRowThreads>(stream, "cross_entropy", rows, [=] ATHANOR_BODY(const RowTeam& team) {
    T* logits = all_logits + team.index() * vocab;
    const int64_t target = targets[team.index()];
    if (target < 0 || target >= vocab) {
      team.each([=](int thread) {
        if (thread == 0) losses[team.index()] = target == kNoTarget ? 0 : std::numeric_limits<float>::quiet_NaN();
        if (thread == 0 && is_greedy) is_greedy[team.index()] = false;
        if (grad_scale == 0) return;
        for (int64_t i = thread * N; i < vocab; i += kRowThreads * N) store_pack(logits + i, Pack<T, N>{});
      });
      return;
    }
    const float peak = team.max<float>([=](int thread) {
      float best = load(logits[0]);
      for (int64_t i = thread * N; i < vocab; i += kRowThreads * N) {
        const Pack<T, N> pack = load_pack<N>(logits + i);
        for (int l = 0; l < N; ++l) best = load(pack.at[l]) > best ? load(pack.at[l]) : best;
      }
      return best;
    });
    const float at_target = load(logits[target]);
    if (is_greedy) {
      // The first logit that is not below the peak is the target.
      const int earlier = team.max<int>([=](int thread) {
        int found = 0;
        for (int64_t i = thread; i < target; i += kRowThreads) found |= load(logits[i]) < peak ? 0 : 1;
        return found;
      });
      team.each([=](int thread) {
        if (thread == 0) is_greedy[team.index()] = earlier == 0 && !(at_target < peak);
      });
    }
    const float total = team.sum<float>([=](int thread) {
      float sum = 0;
      for (int64_t i = thread * N; i < vocab; i += kRowThreads * N) {
        const Pack<T, N> pack = load_pack<N>(logits + i);
        for (int l = 0; l < N; ++l) sum += exp_fast(load(pack.at[l]) - peak);
      }
      return sum;
    });
    team.each([=](int thread) {
      if (thread == 0) losses[team.index()] = (peak - at_target) + std::log(total);
    });
    if (grad_scale == 0) return;
    const float scale = grad_scale / total;
    team.each([=](int thread) {
      for (int64_t i = thread * N; i < vocab; i += kRowThreads * N) {
        Pack<T, N> pack = load_pack<N>(logits + i);
        for (int l = 0; l < N; ++l) {
          const float e = exp_fast(load(pack.at[l]) - peak);
          store(pack.at[l], i + l == target ? (e / total - 1.0f) * grad_scale : e * scale);
        }
        store_pack(logits + i, pack);
      }
    });
  });
}

}  // namespace

template <class T>
void cross_entropy(const Stream& stream, T* logits, const int64_t* targets, float* losses, bool* is_greedy,
                   int64_t rows, int64_t vocab, float grad_scale) {
  if (can_pack<T>(vocab, logits)) {
    rows_in_packs<T, kPack<T>>(stream, logits, targets, losses, is_greedy, rows, vocab, grad_scale);
  } else {
    rows_in_packs<T, 1>(stream, logits, targets, losses, is_greedy, rows, vocab, grad_scale);
  }
}

void sum_losses(const Stream& stream, const float* losses, int64_t count, double* sum) {
  for_each_team<kRowThreads>(stream, "sum_losses", 1, [=] ATHANOR_BODY(const RowTeam& team) {
    const double total = team.sum<double>([=](int thread) {
      double own = 0;
      for (int64_t i = thread; i < count; i += kRowThreads) own += losses[i];
      return own;
    });
    team.each([=](int thread) {
      if (thread == 0) *sum = total;
    });
  });
}

void find_bad_target(const Stream& stream, const int64_t* targets, int64_t count, int64_t vocab, int64_t* bad) {
  for_each_team<kRowThreads>(stream, "find_bad_target", 1, [=] ATHANOR_BODY(const RowTeam& team) {
    // The lowest index is the largest of its negatives; "none" is the lowest number.
    constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
    const int64_t found = team.max<int64_t>([=](int thread) {
      for (int64_t i = thread; i < count; i += kRowThreads) {
        if (targets[i] != kNoTarget && (targets[i] < 0 || targets[i] >= vocab)) return -i;
      }
      return kNone;
    });
    team.each([=](int thread) {
      if (thread == 0) *bad = found == kNone ? -1 : -found;
    });
  });
}

template void cross_entropy<float>(const Stream&, float*, const int64_t*, float*, bool*, int64_t, int64_t, float);
template void cross_entropy<Bf16>(const Stream&, Bf16*, const int64_t*, float*, bool*, int64_t, int64_t, float);

}  // namespace athanor::kernels::cuda
