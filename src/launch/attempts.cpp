#include "launch/attempts.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;

// The numbers of the folders NNN, in order.
std::vector<int> numbers_in(const fs::path& attempts) {
  std::vector<int> numbers;
  std::error_code none;
  for (fs::directory_iterator each(attempts, none), end; !none && each != end; each.increment(none)) {
    const std::string name = each->path().filename().string();
    const bool is_number = name.size() >= 3 && name.size() <= 9 && name.find_first_not_of("0123456789") == name.npos;
    if (is_number) numbers.push_back(std::stoi(name));
  }
  std::ranges::sort(numbers);
  return numbers;
}

ordered_json or_null(const std::optional<int64_t>& number) { return number ? ordered_json(*number) : ordered_json(); }

std::string line_of(const ordered_json& attempt) {
  const int number = attempt.value("attempt", 0);
  if (!attempt.contains("exit_code"))
    return fmt::format("  {:>3}: no verdict: it runs, or its launch was killed", number);
  std::string text = fmt::format("  {:>3}: code {}, {}", number, attempt.value("exit_code", 0),
                                 printable(attempt.value("cause", "unknown")));
  std::vector<std::string> hosts;
  for (const auto& host : attempt.value("hosts", ordered_json::array()))
    if (host.is_string()) hosts.push_back(printable(host.get<std::string>()));
  if (!hosts.empty()) text += fmt::format(" of {}", join(hosts, " "));
  const auto step = attempt.find("last_step");
  if (step == attempt.end() || !step->is_number_integer()) return text + ", no step";
  return text + fmt::format(", steps {} to {}", attempt.value("first_step", int64_t{1}), step->get<int64_t>());
}

}  // namespace

int next_attempt(const fs::path& attempts) {
  const auto numbers = numbers_in(attempts);
  return numbers.empty() ? 1 : numbers.back() + 1;
}

fs::path folder_of_attempt(const fs::path& attempts, int number) { return attempts / fmt::format("{:03}", number); }

void make_attempt(const fs::path& attempts, int number, const std::vector<Host>& hosts) {
  const fs::path folder = folder_of_attempt(attempts, number);
  std::string text;
  for (const Host& host : hosts) text += host.name + "\n";
  create_folders(folder);
  write_file_atomically(folder / "hosts", text);
}

void write_verdict(const fs::path& attempts, const Attempt& attempt) {
  const CauseRow& row = row_of(attempt.cause);
  ordered_json evidence = ordered_json::array();
  for (const Evidence& each : attempt.evidence)
    evidence.push_back({{"line", each.line}, {"text", each.text}, {"signature", each.signature}});
  ordered_json suspects = ordered_json::array();
  for (const Suspect& each : attempt.suspects) suspects.push_back(each.host);
  const ordered_json json{{"format", 1},
                          {"attempt", attempt.number},
                          {"started", attempt.started},
                          {"ended", attempt.ended},
                          {"exit_code", attempt.exit_code},
                          {"cause", row.name},
                          {"kind", row.kind},
                          {"verdict", name_of(row.verdict)},
                          {"hosts", attempt.at_fault},
                          {"suspects", suspects},
                          {"evidence", evidence},
                          {"action", row.action},
                          {"first_step", or_null(attempt.first_step)},
                          {"last_step", or_null(attempt.last_step)}};
  write_file_atomically(folder_of_attempt(attempts, attempt.number) / "verdict.json",
                        json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

// The beginning of a line of a log, on one line of a terminal.
std::string shown_part(const std::string& text) {
  constexpr size_t kMost = 160;
  size_t end = std::min(text.size(), kMost);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  return printable(text.substr(0, end)) + (end < text.size() ? "…" : "");
}

std::string attempt_text(const Attempt& attempt) {
  const CauseRow& row = row_of(attempt.cause);
  std::string text = fmt::format("attempt {} ended with code {}", attempt.number, attempt.exit_code);
  text += attempt.last_step ? fmt::format(" after step {}", *attempt.last_step) : " without a step";
  text += fmt::format(": {}", row.kind);
  if (!attempt.at_fault.empty()) text += fmt::format(" of {}", join(attempt.at_fault, " "));
  for (const Suspect& each : attempt.suspects) text += fmt::format("; {} is a suspect: {}", each.host, each.reason);
  text += fmt::format("; {}", row.action);
  const auto said =
      std::ranges::find_if(attempt.evidence, [](const Evidence& one) { return one.signature != "exit_code"; });
  return said == attempt.evidence.end() ? text : fmt::format("{}; \"{}\"", text, shown_part(said->text));
}

ordered_json attempts_json(const fs::path& attempts) {
  ordered_json all = ordered_json::array();
  for (const int number : numbers_in(attempts)) {
    ordered_json attempt;
    try {
      attempt = read_ordered_json(read_file(folder_of_attempt(attempts, number) / "verdict.json"));
    } catch (const IoError&) {
      // it has none
    }
    if (!attempt.is_object()) attempt = ordered_json::object();
    attempt.erase("evidence");
    attempt["attempt"] = number;
    all.push_back(std::move(attempt));
  }
  return all;
}

std::string attempts_text(const fs::path& attempts, size_t at_most) {
  const ordered_json all = attempts_json(attempts);
  if (all.empty()) return "";
  const size_t skipped = all.size() - std::min(at_most, all.size());
  std::string text = fmt::format("{} of athanor launch", counted(static_cast<int64_t>(all.size()), "attempt"));
  text += skipped > 0 ? fmt::format(", the newest {}:\n", at_most) : ":\n";
  for (size_t i = skipped; i < all.size(); ++i) {
    try {
      text += line_of(all[i]) + "\n";
    } catch (const nlohmann::json::exception&) {
      text += fmt::format("  {:>3}: its verdict cannot be read\n", all[i].value("attempt", 0));
    }
  }
  return text;
}

}  // namespace athanor::launch
