#include "base/fault.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace athanor {
namespace {

struct Armed {
  std::string name, action;
  long from = 1;
  bool onwards = false;
  long passed = 0;

  /// Counts a pass; is this one of those that were meant?
  bool pass() { return ++passed == from || (onwards && passed > from); }
};

std::vector<Armed> parse(const char* text) {
  std::vector<Armed> all;
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) continue;
    Armed armed;
    armed.name = item.substr(0, colon);
    auto action = item.substr(colon + 1);
    if (const auto at = action.find('@'); at != std::string_view::npos) {
      std::string count(action.substr(at + 1));
      if (!count.empty() && count.back() == '+') {
        armed.onwards = true;
        count.pop_back();
      }
      armed.from = std::strtol(count.c_str(), nullptr, 10);
      action = action.substr(0, at);
    }
    if (action == "plant" && armed.from == 1) armed.onwards = true;
    armed.action = action;
    all.push_back(std::move(armed));
  }
  return all;
}

std::vector<Armed>& armed_faults() {
  static std::vector<Armed> armed = parse(std::getenv("ATHANOR_FAULT"));
  return armed;
}

std::mutex& faults_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

int fault_errno(std::string_view name) {
  auto& armed = armed_faults();
  if (armed.empty()) return 0;
  const std::lock_guard lock(faults_mutex());
  for (auto& fault : armed) {
    if (fault.name != name || !fault.pass()) continue;
    if (fault.action == "kill") std::raise(SIGKILL);
    if (fault.action == "term") std::raise(SIGTERM);
    if (fault.action == "int") std::raise(SIGINT);
    if (fault.action == "enospc") return ENOSPC;
    if (fault.action == "eio") return EIO;
  }
  return 0;
}

void fault_point(std::string_view name) { fault_errno(name); }

bool fault_planted(std::string_view name) {
  auto& armed = armed_faults();
  if (armed.empty()) return false;
  const std::lock_guard lock(faults_mutex());
  for (auto& fault : armed)
    if (fault.name == name && fault.action == "plant" && fault.pass()) return true;
  return false;
}

}  // namespace athanor
