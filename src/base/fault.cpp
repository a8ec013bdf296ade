#include "base/fault.h"

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/fault_announcement.h"
#include "base/launched.h"
#include "base/text.h"

namespace athanor {
namespace {

struct Action {
  const char* name;
  int signal = 0;        // the signal that the process raises, or
  int error_number = 0;  // the error number that the point returns, or
  int stall_s = 0;       // the seconds for which the thread stops
};
constexpr Action kActions[] = {
    {"kill", SIGKILL}, {"term", SIGTERM}, {"int", SIGINT}, {"enospc", 0, ENOSPC}, {"eio", 0, EIO},
};

constexpr std::string_view kStall = "stall";

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

Action find_action(std::string_view name, std::string_view item) {
  for (const Action& action : kActions) {
    if (action.name == name) return action;
  }
  if (name.starts_with(kStall)) {
    const std::string_view seconds = name.substr(kStall.size());
    Action stall{kStall.data()};
    const auto [end, error] = std::from_chars(seconds.data(), seconds.data() + seconds.size(), stall.stall_s);
    ATHANOR_CHECK(error == std::errc{} && end == seconds.data() + seconds.size() && stall.stall_s > 0,
                  "ATHANOR_FAULT: \"{}\": after stall comes the number of seconds: stall60", item);
    return stall;
  }
  auto known = names_of(kActions);
  known.emplace_back("stallN");
  fail<ConfigError>("ATHANOR_FAULT: \"{}\": there is no action \"{}\"{}; there are {}", item, name,
                    did_you_mean(name, known), join(known));
}

// Parses an item such as "checkpoint.piece:kill@3+".
ArmedFault parse_item(std::string_view item) {
  const auto colon = item.find(':');
  ATHANOR_CHECK(colon != std::string_view::npos,
                "ATHANOR_FAULT: \"{}\" is not NAME:ACTION or NAME:ACTION@COUNT; unset it, or see base/fault.h", item);
  ArmedFault fault;
  fault.point = item.substr(0, colon);
  const auto point = find_fault_point(fault.point);
  const auto known = names_of(kFaultPoints);
  ATHANOR_CHECK(point, "ATHANOR_FAULT: no fault point is called \"{}\"{}; there are {}", fault.point,
                did_you_mean(fault.point, known), join(known));
  const std::string_view act = item.substr(colon + 1);
  const auto at = act.find('@');
  fault.action = act.substr(0, at);
  ATHANOR_CHECK(find_action(fault.action, item).error_number == 0 || point->answers_errno,
                "ATHANOR_FAULT: \"{}\": {} answers no error; it plays signals (kill, term, int) and stallN alone", item,
                fault.point);
  if (at == std::string_view::npos) return fault;
  std::string_view count = act.substr(at + 1);
  fault.onwards = count.ends_with('+');
  if (fault.onwards) count.remove_suffix(1);
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), fault.from);
  ATHANOR_CHECK(error == std::errc{} && end == count.data() + count.size() && fault.from > 0,
                "ATHANOR_FAULT: \"{}\": after @ comes the number of the pass at which it acts, 1 or more, and + if it "
                "also acts at all later passes",
                item);
  return fault;
}

struct Counted : ArmedFault {
  int64_t passed = 0;
  bool is_planned = false;  // by arm_fault, whose caller announces it

  /// Counts a pass. Returns whether the fault acts at this one.
  bool pass() { return ++passed == from || (onwards && passed > from); }
};

std::vector<Counted> armed_by_environment() {
  const char* text = std::getenv("ATHANOR_FAULT");
  std::vector<Counted> all;
  for (ArmedFault& fault : parse_faults(text ? text : "")) all.push_back({std::move(fault)});
  return all;
}

std::vector<Counted>& armed_faults() {
  static std::vector<Counted> armed = armed_by_environment();
  return armed;
}

std::mutex& faults_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::atomic<bool>& any_armed() {
  static std::atomic<bool> any = !armed_faults().empty();
  return any;
}

// Returns the errno to simulate, or 0. Raises the signal if one is armed for this pass.
int pass(std::string_view name) {
  if (!any_armed()) return 0;
  std::vector<Action> actions;
  bool announces = false;
  {
    const std::lock_guard lock(faults_mutex());
    for (Counted& fault : armed_faults()) {
      if (fault.point != name || !fault.pass()) continue;
      actions.push_back(find_action(fault.action, name));
      announces = announces || !fault.is_planned;
    }
  }
  if (announces) announce_armed_faults();
  int stall_s = 0;
  for (const Action& action : actions) {
    if (action.signal != 0) std::raise(action.signal);
    if (action.error_number != 0) return action.error_number;
    stall_s += action.stall_s;
  }
  if (stall_s > 0) std::this_thread::sleep_for(std::chrono::seconds(stall_s));
  return 0;
}

}  // namespace

std::vector<ArmedFault> parse_faults(std::string_view text) {
  std::vector<ArmedFault> all;
  while (!text.empty()) {
    const auto comma = text.find(',');
    all.push_back(parse_item(text.substr(0, comma)));
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return all;
}

void arm_fault(std::string_view item) {
  const std::lock_guard lock(faults_mutex());
  armed_faults().push_back({parse_item(item), 0, true});
  any_armed() = true;
}

void disarm_fault(std::string_view point) {
  const std::lock_guard lock(faults_mutex());
  std::erase_if(armed_faults(), [&](const Counted& fault) { return fault.is_planned && fault.point == point; });
}

std::string describe_armed_faults() {
  std::string text;
  const std::lock_guard lock(faults_mutex());
  for (const Counted& fault : armed_faults()) {
    if (fault.is_planned) continue;
    text += fmt::format("{}{}:{}@{}{}, which plays {}", text.empty() ? "" : "; ", fault.point, fault.action, fault.from,
                        fault.onwards ? "+" : "", find_fault_point(fault.point)->plays);
  }
  return text.empty() ? text : "THIS PROCESS WILL FAIL ON PURPOSE, since ATHANOR_FAULT is set: " + text;
}

void announce_armed_faults() {
  static std::once_flag announced;
  std::call_once(announced, [] {
    const std::string armed = describe_armed_faults();
    if (!armed.empty() && launched().rank == 0) fmt::print(stderr, "athanor: {}\n", armed);
  });
}

void fault_point(detail::PointName name) { pass(name.text); }

int fault_errno(detail::ErrnoPointName name) { return pass(name.text); }

}  // namespace athanor
