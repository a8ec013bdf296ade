#pragma once
// A network and disks whose time is computed, for thousands of nodes in one thread: links have a bandwidth and a
// latency, and a transfer takes the time that they give. Nothing waits, and two runs are equal.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "staging/chunk.h"
#include "wire/wire.h"

namespace athanor::staging {

/// Events in the order of their times; equal ones in the order in which they were added.
class VirtualClock {
 public:
  double now_s() const { return now_s_; }
  void at(double time_s, std::function<void()> event) { events_[{time_s, next_++}] = std::move(event); }
  /// Goes to the time of the next event. @return false if there is none.
  bool advance() {
    if (events_.empty()) return false;
    auto first = events_.extract(events_.begin());
    now_s_ = first.key().first;
    first.mapped()();
    return true;
  }

 private:
  double now_s_ = 0;
  uint64_t next_ = 0;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
};

struct VirtualLink {
  double bytes_per_s = 1e9;  ///< each node has it in each direction
  double latency_s = 0;      ///< from the last byte that leaves a node to its arrival
  double late_s = 0;         ///< a receiver learns of an arrival up to so much later, and of two in either order
};

class VirtualNetwork {
 public:
  VirtualNetwork(VirtualClock& clock, int num_nodes, VirtualLink link) : clock_(clock), link_(link) {
    for (int i = 0; i < num_nodes; ++i) wires_.push_back(std::make_unique<NodeWire>(*this, i, num_nodes));
  }

  comm::Wire& wire(int node) { return *wires_[static_cast<size_t>(node)]; }
  /// Calls touched(node) whenever something of a node is complete.
  std::function<void(int)> touched = [](int) {};
  /// Changes the bytes of a message on its way.
  std::function<void(int from, int to, std::byte* bytes, int64_t count)> damage = {};

 private:
  struct End {
    void* data;
    int64_t bytes;
    uint64_t token;
  };
  class NodeWire : public comm::Wire {
   public:
    NodeWire(VirtualNetwork& network, int rank, int size) : network_(network), rank_(rank), size_(size) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    int max_tag() const override { return 32767; }
    std::string library() const override { return "a computed network"; }
    void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) override {
      network_.channels_[{rank_, peer, tag}].first.push_back({const_cast<void*>(data), bytes, token});
      network_.match(rank_, peer, tag);
    }
    void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) override {
      network_.channels_[{peer, rank_, tag}].second.push_back({data, bytes, token});
      network_.match(peer, rank_, tag);
    }
    void poll(std::vector<Finished>& finished) override {
      finished.insert(finished.end(), over.begin(), over.end());
      over.clear();
    }
    void close() override {}
    [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

    std::vector<Finished> over;
    double free_to_send_s = 0, free_to_receive_s = 0;

   private:
    VirtualNetwork& network_;
    int rank_, size_;
  };

  // A message leaves when both its ends are there and the sender's link is free; it arrives a latency later, and no
  // sooner than the receiver's link can have taken it.
  void match(int from, int to, int tag) {
    auto& [sends, rooms] = channels_[{from, to, tag}];
    if (sends.empty() || rooms.empty()) return;
    const End sent = sends.front(), room = rooms.front();
    sends.pop_front();
    rooms.pop_front();
    NodeWire &sender = *wires_[static_cast<size_t>(from)], &receiver = *wires_[static_cast<size_t>(to)];
    const double time_s = static_cast<double>(sent.bytes) / link_.bytes_per_s;
    const double begin_s = std::max(clock_.now_s(), sender.free_to_send_s);
    sender.free_to_send_s = begin_s + time_s;
    const double arrived_s = std::max(sender.free_to_send_s + link_.latency_s, receiver.free_to_receive_s + time_s);
    receiver.free_to_receive_s = arrived_s;
    clock_.at(arrived_s, [=, this, &receiver] {
      std::memcpy(room.data, sent.data, static_cast<size_t>(sent.bytes));
      if (damage) damage(from, to, static_cast<std::byte*>(room.data), sent.bytes);
      clock_.at(clock_.now_s() + link_.late_s * drawn_(draw_), [=, this, &receiver] {
        receiver.over.push_back({room.token, sent.bytes, from});
        touched(to);
      });
    });
    clock_.at(arrived_s, [=, this, &sender] {
      sender.over.push_back({sent.token, sent.bytes, to});
      touched(from);
    });
  }

  VirtualClock& clock_;
  const VirtualLink link_;
  std::minstd_rand draw_{1};
  std::uniform_real_distribution<double> drawn_{0, 1};
  std::vector<std::unique_ptr<NodeWire>> wires_;
  std::map<std::tuple<int, int, int>, std::pair<std::deque<End>, std::deque<End>>> channels_;
};

/// A disk of a bandwidth, or any work that takes a time for each byte.
class VirtualDisk : public ChunkWork {
 public:
  VirtualDisk(VirtualClock& clock, double bytes_per_s, std::function<void(ChunkBuffer&)> work,
              std::function<void()> touched)
      : clock_(clock), bytes_per_s_(bytes_per_s), work_(std::move(work)), touched_(std::move(touched)) {}
  void start(ChunkBuffer& buffer) override {
    queue_.push_back(&buffer);
    if (queue_.size() == 1) begin();
  }
  ChunkBuffer* take_done() override {
    if (done_.empty()) return nullptr;
    ChunkBuffer* buffer = done_.front();
    done_.pop_front();
    return buffer;
  }

 private:
  void begin() {
    work_(*queue_.front());
    const double time_s = static_cast<double>(queue_.front()->header().bytes) / bytes_per_s_;
    clock_.at(clock_.now_s() + time_s, [this] {
      done_.push_back(queue_.front());
      queue_.pop_front();
      if (!queue_.empty()) begin();
      touched_();
    });
  }

  VirtualClock& clock_;
  const double bytes_per_s_;
  std::function<void(ChunkBuffer&)> work_;
  std::function<void()> touched_;
  std::deque<ChunkBuffer*> queue_, done_;
};

}  // namespace athanor::staging
