#include "wire/thread_wire.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace athanor::comm {

namespace {

struct Message {
  const void* data;
  int64_t bytes;
  uint64_t token;
  int polls_left;
};

struct Room {
  void* data;
  int64_t bytes;
  uint64_t token;
};

/// The table in which sends and receives are matched. A message's bytes move when both its ends are there: as in a
/// rendezvous, a sender's memory is read late.
class MatchTable {
 public:
  MatchTable(int size, ThreadNetwork network) : network_(std::move(network)), ends_(static_cast<size_t>(size)) {}

  struct Key {
    int peer, tag;
    auto operator<=>(const Key&) const = default;
  };
  struct Channel {
    std::deque<Message> messages;
    std::deque<Room> rooms;
  };
  struct Late {
    Wire::Finished what;
    int polls_left;
  };
  struct End {
    std::map<Key, Channel> from;
    std::deque<std::pair<int, Message>> notes;  ///< messages with the control tag, by sender
    std::deque<Room> note_rooms;
    std::vector<Late> over;
  };

  int max_tag() const { return network_.max_tag; }

  int draw_delay() {
    if (network_.max_delay_polls == 0) return 0;
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state_ >> 33) % static_cast<uint64_t>(network_.max_delay_polls + 1));
  }

  void send(int from, int to, int tag, Message message) {
    std::lock_guard lock(mutex_);
    if (network_.delivers && !network_.delivers(from, to, tag)) return;
    message.polls_left = draw_delay();
    if (tag == Wire::kControlTag) return end(to).notes.push_back({from, message});
    end(to).from[{from, tag}].messages.push_back(message);
  }

  void receive(int at, int from, int tag, Room room) {
    std::lock_guard lock(mutex_);
    if (tag == Wire::kControlTag) return end(at).note_rooms.push_back(room);
    end(at).from[{from, tag}].rooms.push_back(room);
  }

  /// Discards the rank's messages in flight, because their memory is about to be freed.
  void leave(int rank) {
    std::lock_guard lock(mutex_);
    end(rank) = {};
    for (End& other : ends_) {
      std::erase_if(other.notes, [&](const auto& note) { return note.first == rank; });
      std::erase_if(other.from, [&](const auto& one) { return one.first.peer == rank; });
    }
  }

  void poll(int at, std::vector<Wire::Finished>& finished) {
    std::lock_guard lock(mutex_);
    End& own = end(at);
    for (auto& [key, channel] : own.from) match(at, key, channel);
    while (!own.notes.empty() && !own.note_rooms.empty()) {
      const auto [from, note] = own.notes.front();
      join(at, from, note, own.note_rooms.front());
      own.notes.pop_front();
      own.note_rooms.pop_front();
    }
    std::erase_if(own.from, [](const auto& one) { return one.second.messages.empty() && one.second.rooms.empty(); });
    std::erase_if(own.over, [&](Late& late) {
      if (late.polls_left-- > 0) return false;
      finished.push_back(late.what);
      return true;
    });
  }

 private:
  End& end(int rank) { return ends_[static_cast<size_t>(rank)]; }

  void match(int at, const Key& key, Channel& channel) {
    while (!channel.messages.empty() && !channel.rooms.empty()) {
      Message& message = channel.messages.front();
      if (message.polls_left-- > 0) return;
      join(at, key.peer, message, channel.rooms.front());
      channel.messages.pop_front();
      channel.rooms.pop_front();
    }
  }

  void join(int at, int from, const Message& message, const Room& room) {
    const bool fits = message.bytes <= room.bytes;
    if (fits) std::memcpy(room.data, message.data, static_cast<size_t>(message.bytes));
    end(at).over.push_back({{room.token, fits ? message.bytes : Wire::kTooMuch, from}, draw_delay()});
    end(from).over.push_back({{message.token, message.bytes, at}, draw_delay()});
  }

  ThreadNetwork network_;
  std::mutex mutex_;
  std::vector<End> ends_;
  uint64_t state_ = 1;
};

class ThreadWire : public Wire {
 public:
  ThreadWire(std::shared_ptr<MatchTable> all, int rank, int size) : all_(std::move(all)), rank_(rank), size_(size) {}

  ~ThreadWire() override { all_->leave(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return all_->max_tag(); }
  std::string library() const override { return "threads of one process"; }
  void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) override {
    all_->send(rank_, peer, tag, {data, bytes, token, 0});
  }
  void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) override {
    all_->receive(rank_, peer, tag, {data, bytes, token});
  }
  void poll(std::vector<Finished>& finished) override { all_->poll(rank_, finished); }
  void close() override {}
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }

 private:
  std::shared_ptr<MatchTable> all_;
  int rank_, size_;
};

}  // namespace

std::vector<std::unique_ptr<Wire>> thread_wires(int size, const ThreadNetwork& network) {
  auto all = std::make_shared<MatchTable>(size, network);
  std::vector<std::unique_ptr<Wire>> wires;
  for (int r = 0; r < size; ++r) wires.push_back(std::make_unique<ThreadWire>(all, r, size));
  return wires;
}

}  // namespace athanor::comm
