#pragma once
// Processes that write or verify one checkpoint together, as this room sees them; who carries their words is the
// caller's affair. Alone by default.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace athanor {

/// Takes how many bytes or pieces of long work are done, which others may wait for. Called from any thread.
using Worked = std::function<void(int64_t amount)>;

struct Team {
  int index = 0, size = 1;
  /// Collective: every member's text on the first one, by index; nothing on the others.
  std::function<std::vector<std::string>(const std::string& own)> tell_first = {};
  /// Collective: the first one's text, on all.
  std::function<std::string(const std::string& of_first)> hear_first = {};
  /// Of this member's work.
  Worked worked = {};

  bool is_first() const { return index == 0; }

  /// Collective. Runs `act` on the first member; where it throws, every member throws an Error with its message, and an
  /// IoError that tells the errno wherever the system refused something (a file, or memory) that is not ours to throw:
  /// what costs one member's part costs the whole, on all, and nobody waits for a member that has left.
  void on_first(const std::function<void()>& act) const;
  /// Collective. Runs `act` on every member; where some throw, every member throws the error of the first that did.
  void on_all(const std::function<void()>& act) const;
};

}  // namespace athanor
