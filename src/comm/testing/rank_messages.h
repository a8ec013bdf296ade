#pragma once
// What the ranks of a job of threads report when something goes wrong.

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/thread_ranks.h"

namespace athanor::comm {

/// Returns each rank's CommError; "" for a rank without one. All ranks stay until the last is done, so a rank whose
/// function returns at once is there, and in no call, for as long as others wait for it.
inline std::vector<std::string> messages_of(int n, const WorldOptions& options, const std::function<void(World&)>& rank,
                                            const ThreadNetwork& network = {}) {
  std::vector<std::string> messages(static_cast<size_t>(n));
  std::vector<std::exception_ptr> others(messages.size());
  std::atomic<int> num_over = 0;
  const auto run = [&](World& world) {
    const auto me = static_cast<size_t>(world.rank());
    try {
      rank(world);
    } catch (const CommError& error) {
      messages[me] = error.what();
    } catch (...) {
      others[me] = std::current_exception();
    }
    // A rank that leaves takes its messages with it.
    ++num_over;
    while (num_over < n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // One that throws does not wait for its unfinished calls.
    if (!messages[me].empty()) throw CommError(messages[me]);
  };
  try {
    run_ranks(n, run, options, network);
  } catch (const CommError&) {
    // The caller looks at the messages.
  }
  for (const std::exception_ptr& other : others)
    if (other) std::rethrow_exception(other);
  return messages;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace athanor::comm
