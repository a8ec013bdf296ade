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

/// Calls work(i) once for each i from 0 to count − 1, on up to `num_threads` threads, the calling one included; they
/// take the numbers in order. After a failure no further numbers are taken. Of several failures, that of the smallest
/// number is thrown: it is the same for any number of threads.
template <class Work>
void parallel_for(int num_threads, int64_t count, const Work& work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr failure;
  int64_t failure_at = count;
  const auto run = [&] {
    while (!failed) {
      const int64_t i = next++;
      if (i >= count) return;
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = true;
        if (i >= failure_at) continue;
        failure_at = i;
        failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t t = 1; t < std::min<int64_t>(count, num_threads); ++t) threads.emplace_back(run);
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace athanor
