#pragma once
// A team: processes that write, verify or load one checkpoint together, as this directory's code uses them. The caller
// provides the communication. By default a team is one process.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_reader.h"

namespace athanor::inline checkpoint {

struct Team {
  int index = 0, size = 1;  ///< number of this member, from 0 (the first member), and number of members
  /// Collective: returns every member's text on the first member, by index; an empty list on the others. Not used if
  /// `size` is 1.
  std::function<std::vector<std::string>(const std::string& own)> gather = {};
  /// Collective: returns the first member's text on all members. Not used if `size` is 1.
  std::function<std::string(const std::string& of_first)> broadcast = {};
  /// Collective: replaces each number by the largest that a member has in its place; all have as many, none of them
  /// negative. Not used if `size` is 1.
  std::function<void(std::vector<int64_t>& numbers)> max = {};
  /// Called for this member's work.
  Worked worked = {};

  bool is_first() const { return index == 0; }

  /// Runs `act` on the first member. If it throws, every member throws that error: an Error with its message and exit
  /// code, or a NumbersError with its tensor. If the system refused something (a file, or memory), every member throws
  /// an IoError with the errno, even if the exception was not one of ours. So a failure of one member is a failure of
  /// all, and no member waits for one that has left. Collective.
  void on_first(const std::function<void()>& act) const;
  /// Returns on every member the text that `compute` returns on the first; its errors are those of on_first.
  /// Collective.
  std::string from_first(const std::function<std::string()>& compute) const;
  /// Returns every member's text on the first member, by index, also if it is the only one. Collective.
  std::vector<std::string> texts_on_first(const std::string& own) const;
  /// Runs `act` on every member; if some throw, every member throws the error of the first that did. Collective.
  void on_all(const std::function<void()>& act) const;
};

}  // namespace athanor::inline checkpoint
