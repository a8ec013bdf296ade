#include "ops/cpu_allocator.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ops/tensor.h"

namespace athanor::ops::cpu_allocator_test {
namespace {

// The rest of this test program then also runs with it, which is intended.
class CpuAllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  }
};

TEST_F(CpuAllocatorTest, TensorsOfEverySizeAreAlignedAndTheirOwn) {
  std::vector<Tensor> tensors;
  for (int64_t size = 0; size < 40000; size = size * 5 / 4 + 1) tensors.push_back(at::full({size}, size, at::kInt));
  for (const Tensor& tensor : tensors) {
    EXPECT_EQ(reinterpret_cast<size_t>(tensor.const_data_ptr()) % 64, 0u);
    EXPECT_TRUE(tensor.eq(tensor.numel()).all().item<bool>()) << tensor.numel();
  }
}

TEST_F(CpuAllocatorTest, EveryTensorIsCountedOnceAndUncounted) {
  for (const int64_t bytes : {1, 64, 65, 200, 257, 320, 321, 1024, 5000, 16384, 16385, 100000, 3 << 20}) {
    const size_t before = cpu_memory().in_use_bytes;
    {
      const Tensor tensor = at::empty({bytes}, at::kByte);
      const size_t used = cpu_memory().in_use_bytes - before;
      EXPECT_GE(used, static_cast<size_t>(bytes));
      // Bins are a quarter apart or 64 bytes; large blocks keep a rest that is too small to use.
      EXPECT_LE(used, static_cast<size_t>(bytes) + std::min<size_t>(64 + static_cast<size_t>(bytes) / 4, 9 << 10));
    }
    EXPECT_EQ(cpu_memory().in_use_bytes, before) << bytes;
  }
}

TEST_F(CpuAllocatorTest, TheSameTensorsAgainTakeNothingFromTheSystem) {
  const auto step = [](int64_t seed) {
    std::vector<Tensor> kept;
    for (int64_t i = 1; i < 60; ++i) kept.push_back(at::empty({(i * 7919 + seed) % 100 * 1000 + 10}, at::kFloat));
  };
  step(0);
  const size_t fresh = cpu_memory().num_fresh;
  for (int i = 0; i < 5; ++i) step(0);
  EXPECT_EQ(cpu_memory().num_fresh, fresh);
}

TEST_F(CpuAllocatorTest, ThePeakIsOfWhatWasInUseAtOnce) {
  reset_peak_cpu_memory();
  const size_t before = cpu_memory().in_use_bytes;
  for (int i = 0; i < 3; ++i) at::empty({1 << 20}, at::kByte);
  const size_t peak = cpu_memory().peak_in_use_bytes - before;
  EXPECT_GE(peak, size_t{1} << 20);
  EXPECT_LT(peak, size_t{2} << 20);
}

TEST_F(CpuAllocatorTest, AThreadCountsItsOwnTensors) {
  const Tensor others = at::empty({3 << 20}, at::kByte);
  std::thread([] {
    reset_peak_thread_cpu_memory();
    const auto before = thread_cpu_memory().in_use_bytes;
    {
      const Tensor own = at::empty({1 << 20}, at::kByte);
      EXPECT_EQ(thread_cpu_memory().in_use_bytes - before, 1 << 20);
    }
    EXPECT_EQ(thread_cpu_memory().in_use_bytes, before);
    EXPECT_EQ(thread_cpu_memory().peak_in_use_bytes - before, 1 << 20);
  }).join();
}

TEST_F(CpuAllocatorTest, ReleaseGivesBackWhatIsFreeUnlessItMayBeKept) {
  at::zeros({32 << 20}, at::kByte);
  const size_t held = cpu_memory().held_bytes;
  EXPECT_GE(held, size_t{32} << 20);
  release_cpu_memory(held);
  EXPECT_EQ(cpu_memory().held_bytes, held);
  release_cpu_memory();
  EXPECT_LE(cpu_memory().held_bytes, held - (size_t{31} << 20));
}

TEST_F(CpuAllocatorTest, ThreadsMayFreeWhatOthersAllocated) {
  const size_t before = cpu_memory().in_use_bytes;
  std::vector<Tensor> handed_over(400);
  const auto work = [&](size_t first) {
    for (size_t round = 0; round < 50; ++round) {
      for (size_t i = first; i < handed_over.size(); i += 4)
        handed_over[i] = at::full({static_cast<int64_t>((i * 37 + round) % 9000)}, static_cast<int>(i), at::kInt);
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < handed_over.size(); ++i)
    EXPECT_TRUE(handed_over[i].eq(static_cast<int>(i)).all().item<bool>());
  handed_over.clear();
  EXPECT_EQ(cpu_memory().in_use_bytes, before);
}

TEST_F(CpuAllocatorTest, ATensorThatCannotBeHeldIsRefusedInOneLine) {
  try {
    at::empty({int64_t{1} << 50}, at::kByte);
    FAIL() << "a petabyte was found";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("out of memory: a tensor of 1125899906842624 bytes"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace athanor::ops::cpu_allocator_test
