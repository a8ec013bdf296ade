// Every collective, over ranks that are threads, against what its header says.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "comm/comm_test_support.h"
#include "comm/thread_wire.h"

namespace athanor::comm {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12};
const at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong};
// Of one part; small and large all-reduces, pieces that are cut, and none at all.
constexpr int64_t kCounts[] = {0, 1, 3, 257, 5001};

/// gtest's assertions are not for several threads at once: ranks say what is wrong by throwing.
void require(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

std::string label(const char* what, int n, int64_t count, at::ScalarType type) {
  return fmt::format("{} of {} {} over {}", what, count, c10::toString(type), n);
}

std::vector<Tensor> terms_of_all(int n, int call, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int r = 0; r < n; ++r) terms.push_back(term_of(r, call, count, type));
  return terms;
}

std::vector<Reduction> reductions(at::ScalarType type) {
  if (type == at::kLong) return {Reduction::kSum, Reduction::kMax};
  return {Reduction::kSum, Reduction::kMean, Reduction::kMax};
}

TEST(Communicator, AllReduceIsTheTreeBitForBit) {
  for (int n : kSizes) {
    run_ranks(n, [n](World& world) {
      for (at::ScalarType type : kTypes) {
        for (int64_t count : kCounts) {
          for (Reduction reduction : reductions(type)) {
            const Tensor x = term_of(world.rank(), 1, count, type).clone();
            world.all().all_reduce(x, reduction).wait();
            require(same_bits(x, tree_of(terms_of_all(n, 1, count, type), reduction)),
                    label("all_reduce", n, count, type));
          }
        }
      }
    });
  }
}

TEST(Communicator, ReduceScatterIsTheTreeBitForBitAndLeavesTheOtherPartsAlone) {
  for (int n : kSizes) {
    run_ranks(n, [n](World& world) {
      const int me = world.rank();
      for (at::ScalarType type : kTypes) {
        for (int64_t count : kCounts) {
          for (bool in_place : {false, true}) {
            const Tensor in = term_of(me, 2, count * n, type).clone(), before = in.clone();
            const Tensor out = in_place ? in.narrow(0, me * count, count) : at::empty({count}, type);
            world.all().reduce_scatter(out, in).wait();
            const Tensor sum = tree_of(terms_of_all(n, 2, count * n, type), Reduction::kSum);
            require(same_bits(out, sum.narrow(0, me * count, count)), label("reduce_scatter", n, count, type));
            if (in_place) before.narrow(0, me * count, count).copy_(out);
            require(same_bits(in, before), label("other parts of reduce_scatter", n, count, type));
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace athanor::comm
