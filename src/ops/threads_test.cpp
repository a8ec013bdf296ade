// That loops run on every thread, and that no bits depend on how many there are.

#include <mutex>
#include <set>
#include <thread>

#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops {
namespace {

using namespace testing;

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

// Everything that experts and a dense layer compute, on some number of threads.
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
  return {sparse.y,        sparse.dx[0],     sparse.dx[1],         w.gate_LFD.grad, w.up_LFD.grad,
          w.down_LDF.grad, linear_outcome.y, linear_outcome.dx[0], dense.grad};
}

TEST(Threads, NoBitsOfExpertsOrLayersDependOnTheirNumber) {
  for (const auto dtype : kComputeTypes) {
    const auto one = results(1, dtype);
    for (const int threads : {2, 3, 5}) {
      const auto more = results(threads, dtype);
      for (size_t i = 0; i < one.size(); ++i) expect_same_bits(more[i], one[i], std::to_string(i).c_str());
    }
  }
}

}  // namespace
}  // namespace athanor::ops
