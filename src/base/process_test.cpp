#include "base/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace athanor::process_test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A machine described by files: 64 GiB are available, and there are no limits until a test writes some.
class Process : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal:       100663296 kB\nMemFree:  1024 kB\nMemAvailable:   67108864 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  KernelFolders folders() const { return {root_ / "proc", root_ / "cgroup"}; }

  fs::path root_ = fs::path(testing::TempDir()) / ("athanor_process_" + std::to_string(::getpid()));
};

TEST_F(Process, ResidentMemoryGrowsByWhatIsTouchedAndItsPeakStays) {
  constexpr uint64_t kBytes = 64 << 20, kSlack = 16 << 20;
  const uint64_t before = resident_bytes();
  // The block is not from the heap, which may keep memory that is freed.
  void* block = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  const uint64_t held = resident_bytes();
  EXPECT_GE(held + kSlack, before + kBytes);
  EXPECT_LE(held, before + kBytes + kSlack);
  ::munmap(block, kBytes);
  EXPECT_LE(resident_bytes(), before + kSlack);
  EXPECT_GE(peak_resident_bytes() + kSlack, before + kBytes);
}

TEST_F(Process, WithoutAControlGroupAllThatTheMachineHasIsAvailable) {
  EXPECT_EQ(available_memory_bytes(folders()), 64 * kGiB);
}

TEST_F(Process, AGroupsLimitCountsWithoutWhatItUsesButWithItsPageCache) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("cgroup/job/step/memory.max", std::to_string(16 * kGiB));
  write("cgroup/job/step/memory.current", std::to_string(6 * kGiB));
  write("cgroup/job/step/memory.stat", "anon 1\nactive_file 1073741824\ninactive_file 1073741824\n");
  EXPECT_EQ(available_memory_bytes(folders()), 12 * kGiB);
}

TEST_F(Process, TheTightestOfTheGroupsAboveDecides) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("cgroup/job/step/memory.max", "max\n");
  write("cgroup/job/memory.max", std::to_string(8 * kGiB));
  write("cgroup/job/memory.high", std::to_string(7 * kGiB));
  write("cgroup/job/memory.current", std::to_string(2 * kGiB));
  write("cgroup/memory.max", std::to_string(32 * kGiB));
  EXPECT_EQ(available_memory_bytes(folders()), 5 * kGiB);
}

TEST_F(Process, AGroupThatUsesMoreThanItsLimitHasNothingLeft) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "1000");
  write("cgroup/memory.current", "2000");
  EXPECT_EQ(available_memory_bytes(folders()), 0u);
}

TEST_F(Process, TheFirstVersionOfControlGroupsIsReadTooEvenWhereItsPathIsTheHosts) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n3:memory_other:/\n0::/\n");
  write("cgroup/memory/memory.limit_in_bytes", std::to_string(4 * kGiB));
  write("cgroup/memory/memory.usage_in_bytes", std::to_string(3 * kGiB));
  write("cgroup/memory/memory.stat", "total_inactive_file 536870912\ntotal_active_file 0\n");
  EXPECT_EQ(available_memory_bytes(folders()), kGiB + kGiB / 2);
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // the kernel's value for "none"
  EXPECT_EQ(available_memory_bytes(folders()), 64 * kGiB);
}

TEST_F(Process, ThisMachineHasMemoryAndProcessors) {
  EXPECT_GT(available_memory_bytes(), 1u << 20);
  EXPECT_GE(cpu_count(), 1);
  EXPECT_GE(machine_cpu_count(), cpu_count());
  EXPECT_FALSE(host_name().empty());
}

TEST_F(Process, TheModelOfTheProcessorsIsTheKernelsNameOfTheFirst) {
  EXPECT_EQ(cpu_model(folders()), "unknown model");
  write("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 50.00\n");
  EXPECT_EQ(cpu_model(folders()), "unknown model");
  write("proc/cpuinfo",
        "processor\t: 0\nmodel\t\t: 17\nmodel name\t:  AMD EPYC 9654  \nprocessor\t: 1\nmodel name\t: B\n");
  EXPECT_EQ(cpu_model(folders()), "AMD EPYC 9654");
}

TEST_F(Process, ProcessorsAreThoseOfTheAffinity) {
  cpu_set_t old_mask, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(old_mask), &old_mask), 0);
  EXPECT_EQ(cpu_count(folders()), CPU_COUNT(&old_mask));
  int first = 0;
  while (!CPU_ISSET(first, &old_mask)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(cpu_count(folders()), 1);
  ::sched_setaffinity(0, sizeof(old_mask), &old_mask);
}

TEST_F(Process, AQuotaLowersTheProcessorsRoundedUp) {
  const int all = cpu_count(folders());
  write("proc/self/cgroup", "5:cpu:/\n0::/job\n");
  write("cgroup/job/cpu.max", "max 100000\n");
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_count(folders()), all);
  write("cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_count(folders()), 1);
  write("cgroup/job/cpu.max", "110000 100000\n");
  EXPECT_EQ(cpu_count(folders()), std::min(all, 2));
  write("cgroup/cpu/cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(cpu_count(folders()), 1);
}

}  // namespace
}  // namespace athanor::process_test
