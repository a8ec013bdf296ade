#pragma once
// The messages that have come before their receives, and the receives that wait for messages, by sender and tag.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "wire/wire.h"

namespace athanor::comm {

class Mailbox {
 public:
  /// Where a message goes.
  struct Room {
    void* data = nullptr;
    int64_t bytes = 0;
    uint64_t token = 0;
  };
  /// A message that has come, or the offer of one.
  struct Letter {
    int peer = -1;
    int64_t bytes = 0;
    bool offered = false;
    uint64_t offer = 0;            ///< its number, if offered
    std::unique_ptr<char[]> kept;  ///< its bytes otherwise
  };

  /// Returns the oldest letter of this sender and tag, or, if there is none, keeps the room for the next one.
  std::optional<Letter> find_letter(int peer, int tag, const Room& room) {
    Channel& channel = channels_[key(peer, tag)];
    if (channel.letters.empty()) {
      channel.rooms.push_back(room);
      return {};
    }
    Letter letter = std::move(channel.letters.front());
    channel.letters.pop_front();
    drop_empty(peer, tag);
    return letter;
  }

  /// Takes the oldest room for this sender and tag, if there is one.
  std::optional<Room> take_room(int peer, int tag) {
    const auto found = channels_.find(key(peer, tag));
    if (found == channels_.end() || found->second.rooms.empty()) return {};
    const Room room = found->second.rooms.front();
    found->second.rooms.pop_front();
    drop_empty(peer, tag);
    return room;
  }

  /// Keeps a letter that no room waits for. To be called in the order in which a sender's letters come.
  void keep(int tag, Letter letter) { channels_[key(letter.peer, tag)].letters.push_back(std::move(letter)); }

 private:
  using Key = std::pair<int, int>;
  struct Channel {  // has letters or rooms, never both
    std::list<Letter> letters;
    std::list<Room> rooms;
  };

  // Any sender's control message goes into any room for one.
  static Key key(int peer, int tag) { return {tag == Wire::kControlTag ? Wire::kAnyPeer : peer, tag}; }
  void drop_empty(int peer, int tag) {
    const auto found = channels_.find(key(peer, tag));
    if (found->second.letters.empty() && found->second.rooms.empty()) channels_.erase(found);
  }

  std::map<Key, Channel> channels_;
};

}  // namespace athanor::comm
