#pragma once
// Ranks over TCP that are threads of one process, for tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "wire/tcp_wire.h"

namespace athanor::comm {

/// A meeting place for threads.
class MapMeeting : public MeetingPlace {
 public:
  std::string name() const override { return "the map"; }
  void set(const std::string& key, const std::string& text) override {
    std::lock_guard lock(mutex_);
    texts_[key] = text;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience) override {
    std::unique_lock lock(mutex_);
    ++num_gets;
    if (!changed_.wait_for(lock, patience, [&] { return texts_.contains(key); })) return {};
    return texts_[key];
  }
  int64_t count(const std::string& key) override {
    std::lock_guard lock(mutex_);
    return ++counts_[key];
  }
  std::atomic<int> num_gets = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, int64_t> counts_;
};

/// Thrown in place of the end of a process.
struct ProcessEnd {
  int exit_code;
};

/// Their wires, and what these have reported.
struct TcpRanks {
  std::shared_ptr<MapMeeting> place = std::make_shared<MapMeeting>();
  std::vector<std::unique_ptr<Wire>> wires;

  explicit TcpRanks(int size, const std::string& master = "127.0.0.1", unsigned seed = 1) : random_(seed) {
    std::vector<std::future<std::unique_ptr<Wire>>> opening;
    for (int rank = 0; rank < size; ++rank) {
      TcpWireOptions options;
      options.rank = rank;
      options.size = size;
      options.master = master;
      options.host = "host" + std::to_string(rank);
      options.own_end = std::chrono::milliseconds(300);
      options.end_process = [](int exit_code) { throw ProcessEnd{exit_code}; };
      opening.push_back(std::async(std::launch::async, [this, options] { return open_tcp_wire(place, options); }));
    }
    for (auto& one : opening) wires.push_back(one.get());
  }
  Wire& operator[](int rank) { return *wires[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(wires.size()); }

  /// Polls ranks in random order until the condition holds; false if it does not within two minutes.
  bool poll_until(const std::function<bool()>& condition) {
    for (const auto begin = std::chrono::steady_clock::now(); !condition();) {
      if (std::chrono::steady_clock::now() - begin > std::chrono::minutes(2)) return false;
      poll();
    }
    return true;
  }
  void poll() {
    for (int i = 0; i < size(); ++i) {
      const int rank = static_cast<int>(random_() % wires.size());
      if (wires[static_cast<size_t>(rank)]) (*this)[rank].poll(finished[rank]);
    }
  }
  const Wire::Finished* find(int rank, uint64_t token) {
    const auto found =
        std::ranges::find_if(finished[rank], [&](const Wire::Finished& one) { return one.token == token; });
    return found == finished[rank].end() ? nullptr : &*found;
  }
  std::map<int, std::vector<Wire::Finished>> finished;

 private:
  std::mt19937 random_;
};

}  // namespace athanor::comm
