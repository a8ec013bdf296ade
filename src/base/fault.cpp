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
    armed.action = action;
    all.push_back(std::move(armed));
  }
  return all;
}

}  // namespace

int fault_errno(std::string_view name) {
  static std::vector<Armed> armed = parse(std::getenv("ATHANOR_FAULT"));
  if (armed.empty()) return 0;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (auto& fault : armed) {
    if (fault.name != name) continue;
    ++fault.passed;
    if (fault.passed != fault.from && !(fault.onwards && fault.passed > fault.from)) continue;
    if (fault.action == "kill") std::raise(SIGKILL);
    if (fault.action == "term") std::raise(SIGTERM);
    if (fault.action == "int") std::raise(SIGINT);
    if (fault.action == "enospc") return ENOSPC;
    if (fault.action == "eio") return EIO;
  }
  return 0;
}

void fault_point(std::string_view name) { fault_errno(name); }

}  // namespace athanor
