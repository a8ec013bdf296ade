#include "base/parallel_for.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace athanor::parallel_for_test {
namespace {

TEST(ParallelFor, EachNumberIsDoneOnceByAnyNumberOfThreads) {
  for (const int num_threads : {0, 1, 3, 64}) {
    for (const int64_t count : {0, 1, 2, 50}) {
      std::array<std::atomic<int>, 50> done{};
      parallel_for(num_threads, count, [&](int64_t i) { done.at(static_cast<size_t>(i))++; });
      for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(done.at(static_cast<size_t>(i)), i < count ? 1 : 0);
    }
  }
}

// Each call waits for all others, so the test ends only if each number has a separate thread.
TEST(ParallelFor, AsManyNumbersAsThreadsAreDoneAtTheSameTime) {
  std::mutex mutex;
  std::condition_variable all_here;
  int here = 0;
  parallel_for(3, 3, [&](int64_t) {
    std::unique_lock lock(mutex);
    if (++here == 3) all_here.notify_all();
    all_here.wait(lock, [&] { return here == 3; });
  });
  EXPECT_EQ(here, 3);
}

TEST(ParallelFor, TheFailureOfTheSmallestNumberIsThrownAndAllNumbersBelowItAreDone) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::array<std::atomic<int>, 200> done{};
    const auto work = [&](int64_t i) {
      done.at(static_cast<size_t>(i))++;
      if (i == 60 || i == 61 || i == 199) throw std::runtime_error(std::to_string(i));
    };
    try {
      parallel_for(4, 200, work);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "60");
    }
    for (size_t i = 0; i < 60; ++i) EXPECT_EQ(done.at(i), 1);
  }
}

TEST(ParallelFor, AfterAFailureNoFurtherNumberIsTaken) {
  int64_t last = -1;
  const auto work = [&](int64_t i) {
    last = i;
    if (i == 2) throw std::runtime_error("2");
  };
  EXPECT_THROW(parallel_for(1, 5, work), std::runtime_error);
  EXPECT_EQ(last, 2);
}

// Both have begun before either fails, and the larger number fails first.
TEST(ParallelFor, AFailureOfALargerNumberThatComesFirstIsNotTheOneThatIsThrown) {
  std::atomic<bool> second_begins{false}, second_ends{false};
  const auto work = [&](int64_t i) {
    if (i == 1) second_begins = true;
    while (!second_begins) std::this_thread::yield();
    if (i == 1) {
      second_ends = true;
      throw std::runtime_error("1");
    }
    while (!second_ends) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw std::runtime_error("0");
  };
  try {
    parallel_for(2, 2, work);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "0");
  }
}

}  // namespace
}  // namespace athanor::parallel_for_test
