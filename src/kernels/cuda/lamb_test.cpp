// LAMB's kernels of a device against those of the CPU, over parts that begin anywhere in each memory.

#include "kernels/cuda/lamb.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"
#include "kernels/master.h"

namespace athanor::kernels::lamb_test {
namespace {

using namespace test;

constexpr int64_t kFlat = 60'000, kMatrices = 5;

// Parts of several runs, of less than one, aligned for packs and not; with those of another matrix in between, and two
// of one matrix, of which one is not counted. Matrix 3 has none.
std::vector<MatrixPart> parts() {
  return {{0, 3 * kMatrixRun, 8, 16, 0, 1},
          {3 * kMatrixRun, 100, 3 * kMatrixRun + 8, 3 * kMatrixRun + 16, 0, 0},
          {24'677, 37, 30'000, 33'333, 1, 1},
          {24'800, 1, 31'000, 34'000, 2, 1},
          {25'003, 2 * kMatrixRun + 5, 31'002, 34'003, 4, 1}};
}

std::vector<int64_t> first_runs(const std::vector<MatrixPart>& parts) {
  std::vector<int64_t> first{0};
  for (const MatrixPart& part : parts) first.push_back(first.back() + matrix_runs(part.size));
  return first;
}

class LambOnCuda : public OnEachPlace {
 protected:
  // The memory of an update on the host: masters in both forms, moments, and gradients or directions.
  struct Memory {
    std::vector<float> master = numbers<float>(kFlat, 1), exp_avg = numbers<float>(kFlat, 2),
                       exp_avg_sq = numbers<float>(kFlat, 3), grad = numbers<float>(kFlat, 4);
    std::vector<Bf16> weight = std::vector<Bf16>(kFlat);
    std::vector<uint16_t> low = std::vector<uint16_t>(kFlat);

    Memory() {
      for (float& x : exp_avg_sq) x = std::abs(x);
      for (size_t i = 0; i < master.size(); ++i) {
        Bf16 weight_of;
        uint16_t low_of;
        split_master(master[i], weight_of, low_of);
        weight[i] = weight_of, low[i] = low_of;
      }
    }
    Masters masters(bool split) {
      return split ? Masters{nullptr, weight.data(), low.data()} : Masters{master.data(), nullptr, nullptr};
    }
  };
  // The same in memory of the place.
  struct There {
    Buffer<float> master, exp_avg, exp_avg_sq, grad;
    Buffer<Bf16> weight;
    Buffer<uint16_t> low;

    Masters masters(bool split) {
      return split ? Masters{nullptr, weight.data(), low.data()} : Masters{master.data(), nullptr, nullptr};
    }
  };
  There there_of(const Memory& m) {
    return {put(m.master), put(m.exp_avg), put(m.exp_avg_sq), put(m.grad), put(m.weight), put(m.low)};
  }
  static void expect_same(const There& there, const Memory& here) {
    expect_same_bits(there.master.values(), here.master, "master");
    expect_same_bits(there.weight.values(), here.weight, "weight");
    EXPECT_EQ(there.low.values(), here.low);
    expect_same_bits(there.exp_avg.values(), here.exp_avg, "first moment");
    expect_same_bits(there.exp_avg_sq.values(), here.exp_avg_sq, "second moment");
    expect_same_bits(there.grad.values(), here.grad, "direction");
  }
  static LambStep step() {
    LambStep step{};
    step.eps = 1e-6f, step.weight_decay = 0.1f, step.beta1 = 0.9, step.beta2 = 0.999;
    step.bias_correction1 = 0.19f, step.bias_correction2 = 0.002f, step.grad_scale = 0.5f;
    return step;
  }

  const std::vector<MatrixPart> all = parts();
  const std::vector<int64_t> first = first_runs(all);
  // The lists in memory of the place.
  struct Lists {
    Buffer<MatrixPart> parts;
    Buffer<int64_t> first_run;
    const std::vector<int64_t>& first;

    cuda::MatrixParts within(size_t begin, size_t end) const {
      return {parts.data() + begin, first_run.data() + begin, static_cast<int64_t>(end - begin),
              first[end] - first[begin]};
    }
    cuda::MatrixParts all() const { return within(0, first.size() - 1); }
  };
  Lists lists() { return {put(all), put(first), first}; }
};
ATHANOR_ON_CUDA_PLACES(LambOnCuda);

TEST_P(LambOnCuda, DirectionsHaveTheBitsOfTheCpusAndSumsThoseOfDoubles) {
  for (const bool split : {false, true}) {
    Memory here;
    There there = there_of(here);
    const Lists lists = this->lists();
    const std::vector<double> before(2 * kMatrices, 3);
    const auto squares = put(before);
    const auto partials = put(std::vector<double>(static_cast<size_t>(2 * first.back()), NAN));
    cuda::lamb_directions(stream(), step(), lists.all(), there.masters(split), there.exp_avg.data(),
                          there.exp_avg_sq.data(), there.grad.data(), partials.data(), nullptr);
    cuda::add_lamb_partials(stream(), lists.all(), partials.data(), squares.data());
    std::vector<double> expected = before;
    for (const MatrixPart& part : all) {
      const LambSums sums =
          lamb_direction(step(), here.masters(split).at(part.begin, part.low_begin), &here.exp_avg[part.state_begin],
                         &here.exp_avg_sq[part.state_begin], &here.grad[part.begin], part.size);
      if (!part.is_counted) continue;
      expected[2 * part.matrix] += sums.weights;
      expected[2 * part.matrix + 1] += sums.directions;
    }
    expect_same(there, here);
    // Squares are exact in double; each addition rounds once, on either side.
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(squares.values()[i], expected[i], 2 * 0x1p-53 * kFlat * expected[i]) << i;
  }
}

TEST_P(LambOnCuda, TheStepHasTheBitsOfTheCpusInAnyRange) {
  const std::vector<float> ratios{0.5f, 1, 3.3f, NAN, 0.07f};
  const auto on_ratios = put(ratios);
  constexpr double kFactor = 0.0123;
  for (const bool split : {false, true}) {
    Memory here;
    There there = there_of(here);
    const Lists lists = this->lists();
    const auto changed = put(std::vector<int64_t>{7});
    int64_t count = 7;
    // The cuts leave packs whole in the first part, and not in the last; each call has the parts that it needs.
    struct Range {
      int64_t begin, end;
      size_t first, last;
    };
    for (const Range& range :
         {Range{0, 9'000, 0, 1}, {9'000, 24'700, 0, 3}, {24'700, 30'001, 2, 5}, {30'001, kFlat, 4, 5}}) {
      cuda::apply_lamb(stream(), kFactor, on_ratios.data(), lists.within(range.first, range.last), range.begin,
                       range.end, there.masters(split), there.grad.data(), changed.data(), nullptr);
    }
    for (const MatrixPart& part : all) {
      const auto rate = static_cast<float>(kFactor * double{ratios[static_cast<size_t>(part.matrix)]});
      count += update(SubtractRule{1, rate}, here.masters(split).at(part.begin, part.low_begin), {},
                      &here.grad[part.begin], 1, part.size)
                   .changed;
    }
    expect_same(there, here);
    EXPECT_EQ(changed.values()[0], count);
  }
}

TEST_P(LambOnCuda, AScaleThatIsNoNumberChangesNothing) {
  Memory here;
  There there = there_of(here);
  const Lists lists = this->lists();
  const auto scale = put(std::vector<float>{NAN}), ratios = put(std::vector<float>(kMatrices, 1));
  const auto changed = put(std::vector<int64_t>{7});
  const std::vector<double> before(2 * kMatrices, 3);
  const auto squares = put(before), partials = put(std::vector<double>(static_cast<size_t>(2 * first.back()), NAN));
  cuda::lamb_directions(stream(), step(), lists.all(), there.masters(true), there.exp_avg.data(),
                        there.exp_avg_sq.data(), there.grad.data(), partials.data(), scale.data());
  cuda::add_lamb_partials(stream(), lists.all(), partials.data(), squares.data());
  cuda::apply_lamb(stream(), 0.1, ratios.data(), lists.all(), 0, kFlat, there.masters(true), there.grad.data(),
                   changed.data(), scale.data());
  expect_same(there, here);
  EXPECT_EQ(squares.values(), before);
  EXPECT_EQ(changed.values()[0], 7);
}

}  // namespace
}  // namespace athanor::kernels::lamb_test
