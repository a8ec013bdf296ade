// Tests that loops run on all threads, and that no bits depend on their number.

#include <fmt/core.h>

#include <mutex>
#include <set>
#include <thread>

#include "ops/attention.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/testing/on_path.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::threads_test {
namespace {

using namespace test;

TEST(Threads, ALoopOverRowsUsesThemAll) {
  const Threads two(2);
  std::set<std::thread::id> seen;
  std::mutex mutex;
  for_rows(int64_t{1} << 20, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(seen.size(), 2u) << "at::parallel_for was compiled without OpenMP";
}

// One head of one sequence, which the library computes with its products' threads, and several heads.
void attend(at::ScalarType dtype, std::vector<Tensor>& all) {
  for (const int64_t heads : {1, 4}) {
    const std::vector<int64_t> q = {1, 150, heads, 32}, kv = {1, 150, (heads + 1) / 2, 32};
    const Outcome outcome =
        run([&](const auto& leaves) { return attention(leaves[0], leaves[1], leaves[2], {}); },
            {normal(q, 9, dtype), normal(kv, 10, dtype), normal(kv, 11, dtype)}, normal(q, 12, dtype));
    all.push_back(outcome.y);
    all.insert(all.end(), outcome.dx.begin(), outcome.dx.end());
  }
}

// Returns everything that experts, a dense layer and attention compute, on a given number of threads.
std::vector<Tensor> results(int threads, at::ScalarType dtype) {
  const Threads some(threads);
  constexpr int64_t kTokens = 300, kHidden = 72, kFfn = 40, kExperts = 6, kChoices = 2;
  const Tensor ids = std::get<1>(normal({kTokens, kExperts}, 1).topk(kChoices, -1));
  const ExpertWeights w{weight_of(normal({kExperts, kFfn, kHidden}, 2, dtype)),
                        weight_of(normal({kExperts, kFfn, kHidden}, 3, dtype)),
                        weight_of(normal({kExperts, kHidden, kFfn}, 4, dtype))};
  const Weight dense = weight_of(normal({1100, kHidden}, 5, dtype));
  const Tensor x = normal({kTokens, kHidden}, 6, dtype), gates = normal({kTokens, kChoices}, 7).abs();
  const Outcome sparse =
      run([&](const auto& leaves) { return experts(leaves[0], leaves[1], ids, w, 0, kExperts); }, {x, gates}, x);
  const Outcome linear_outcome =
      run([&](const auto& leaves) { return linear(leaves[0], dense); }, {x}, normal({kTokens, 1100}, 8, dtype));
  std::vector<Tensor> all = {sparse.y,        sparse.dx[0],     sparse.dx[1],         w.gate_LFD.grad, w.up_LFD.grad,
                             w.down_LDF.grad, linear_outcome.y, linear_outcome.dx[0], dense.grad};
  attend(dtype, all);
  return all;
}

TEST(Threads, NoBitsOfExpertsLayersOrAttentionDependOnTheirNumberOnAnyPath) {
  for (const MatmulPath path : kernels::paths_here()) {
    const OnPath on(path);
    for (const auto dtype : kComputeTypes) {
      const auto one = results(1, dtype);
      for (const int threads : {2, 3, 5}) {
        const auto more = results(threads, dtype);
        for (size_t i = 0; i < one.size(); ++i)
          expect_same_bits(more[i], one[i], fmt::format("{} {}", name_of(path), i).c_str());
      }
    }
  }
}

// Long sums, which a library tends to divide.
TEST(Threads, NoBitsOfALongSumDependOnTheirNumberOnAnyPath) {
  for (const MatmulPath path : kernels::paths_here()) {
    const OnPath on(path);
    for (const auto dtype : kComputeTypes) {
      const Tensor a = normal({9000, 40}, 1, dtype), b = normal({9000, 70}, 2, dtype);
      const auto sum = [&](int threads) {
        const Threads some(threads);
        const Tensor grad = at::zeros({40, 70}, at::kFloat);
        add_outer_product(grad, a, b);
        return grad;
      };
      const Tensor one = sum(1);
      for (const int threads : {2, 3, 5}) expect_same_bits(sum(threads), one, name_of(path));
    }
  }
}

}  // namespace
}  // namespace athanor::ops::threads_test
