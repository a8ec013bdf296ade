#pragma once
// For this directory's tests: a team whose members are threads.

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/team.h"

namespace athanor::inline checkpoint {

/// Runs `act` as every member of a team; rethrows the first exception of any of them.
inline void on_thread_team(int size, const std::function<void(const Team&)>& act) {
  std::vector<std::string> board(static_cast<size_t>(size));
  std::vector<std::vector<int64_t>*> numbers(static_cast<size_t>(size));
  std::barrier<> barrier(size);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto member = [&](int index) {
    Team team{index, size};
    team.gather = [&, index](const std::string& own) {
      board[static_cast<size_t>(index)] = own;
      barrier.arrive_and_wait();
      auto all = index == 0 ? board : std::vector<std::string>{};
      barrier.arrive_and_wait();
      return all;
    };
    team.broadcast = [&, index](const std::string& of_first) {
      if (index == 0) board[0] = of_first;
      barrier.arrive_and_wait();
      std::string text = board[0];
      barrier.arrive_and_wait();
      return text;
    };
    team.max = [&, index](std::vector<int64_t>& own) {
      numbers[static_cast<size_t>(index)] = &own;
      barrier.arrive_and_wait();
      std::vector<int64_t> largest = own;
      for (const auto* each : numbers)
        for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], each->at(i));
      barrier.arrive_and_wait();
      own = std::move(largest);
    };
    try {
      act(team);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int index = 1; index < size; ++index) threads.emplace_back(member, index);
  member(0);
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace athanor::inline checkpoint
