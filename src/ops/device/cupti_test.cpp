#include "ops/device/cupti.h"

#include <gtest/gtest.h>

#include <vector>

#include "guarded/device.h"
#include "ops/launches.h"

namespace athanor::ops::cupti_test {
namespace {

using device::Cupti;

// A CUPTI that records what its tests put into `ran`.
struct Played {
  static inline std::vector<device::KernelRecord> ran;
  static inline bool enabled = false, refuses = false;
  static inline Cupti::Requested requested = nullptr;
  static inline Cupti::Completed completed = nullptr;

  static Cupti functions() {
    Cupti cupti;
    cupti.register_callbacks = [](Cupti::Requested r, Cupti::Completed c) { return requested = r, completed = c, 0; };
    cupti.enable = [](int kind) {
      return enabled = !refuses, refuses || kind != device::kCuptiConcurrentKernel ? 1 : 0;
    };
    cupti.disable = [](int) { return enabled = false, 0; };
    cupti.flush_all = [](uint32_t) {
      uint8_t* buffer = nullptr;
      size_t size = 0, most = 7;
      requested(&buffer, &size, &most);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 8, 0u);
      EXPECT_EQ(most, 0u);
      completed(nullptr, 0, buffer, size, ran.size());
      return 0;
    };
    cupti.next_record = [](uint8_t*, size_t num_records, void** record) {
      const auto index = *record ? static_cast<device::KernelRecord*>(*record) - ran.data() + 1 : 0;
      if (index == static_cast<std::ptrdiff_t>(num_records)) return 12;  // no more
      *record = ran.data() + index;
      return 0;
    };
    return cupti;
  }
};

TEST(Cupti, AddsUpTheKernelsAmongAllActivitiesByTheirNames) {
  const auto times = [](const std::vector<device::KernelRecord>& records) {
    return device::time_kernels(Played::functions(), [&] {
      EXPECT_TRUE(Played::enabled);
      Played::ran = records;
    });
  };
  const auto record = [](int kind, const char* name, uint64_t start, uint64_t end) {
    return device::KernelRecord{kind, {}, start, end, {}, name};
  };
  const auto found =
      times({record(10, "_Z3addPf", 100, 350), record(1, "_Z3addPf", 0, 9), record(10, "gemm", 400, 1400),
             record(2, nullptr, 0, 9), record(10, "_Z3addPf", 2000, 2250)});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found->at("add(float*)").launches, 2);
  EXPECT_DOUBLE_EQ(found->at("add(float*)").seconds, 500e-9);
  EXPECT_EQ(found->at("gemm").launches, 1);
  EXPECT_EQ(times({})->size(), 0u);
  EXPECT_FALSE(Played::enabled);
}

TEST(Cupti, DoesTheWorkAndCountsNothingIfItRefuses) {
  Played::refuses = true;
  bool done = false;
  EXPECT_FALSE(device::time_kernels(Played::functions(), [&] { done = true; }));
  EXPECT_TRUE(done);
  Played::refuses = false;
}

TEST(Launches, AreThoseOfTheDevicesQueueAndUnknownOnTheCpu) {
  guarded::install_for_tests();
  const Tensor x = at::ones({4}).to(guarded::device_of_tests());
  const auto before = guarded::queues().counts().launches;
  EXPECT_EQ(count_launches(guarded::device_of_tests(), [&] { x.add_(1).mul_(2); })->launches, 2);
  EXPECT_EQ(guarded::queues().counts().launches - before, 2);
  bool done = false;
  EXPECT_FALSE(count_launches(at::kCPU, [&] { done = true; }));
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace athanor::ops::cupti_test
