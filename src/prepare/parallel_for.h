#pragma once
// A loop whose iterations several threads share.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace athanor {

/// Calls work(0) ... work(count - 1), started in this order. After an error no further call starts, and the first error
/// is thrown.
template <class Work>
void parallel_for(int num_threads, int64_t count, Work work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t t = 1; t < std::min<int64_t>(num_threads, count); ++t) threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace athanor
