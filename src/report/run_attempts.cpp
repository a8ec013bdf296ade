#include "report/run_attempts.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace athanor::inline report {
namespace {

namespace fs = std::filesystem;
using Verdict = nlohmann::json;

constexpr size_t kMostAttempts = 10'000;
constexpr uintmax_t kMostBytes = 4 << 20;

// "" if it is missing, as the verdict of an attempt that runs, or no file that a launch has written.
std::string text_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored) || fs::file_size(file, ignored) > kMostBytes) return "";
  try {
    return read_file(file);
  } catch (const IoError&) {
    return "";
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

double number_in(const Verdict& verdict, const char* name) {
  const auto found = verdict.find(name);
  return found != verdict.end() && found->is_number() ? found->get<double>() : 0;
}

std::string word_in(const Verdict& verdict, const char* name) {
  const auto found = verdict.find(name);
  return found != verdict.end() && found->is_string() ? found->get<std::string>() : "";
}

RunEvent event_of(const Verdict& verdict, const std::string& number) {
  RunEvent event;
  event.kind = "launch";
  event.time = number_in(verdict, "ended");
  event.step = static_cast<int64_t>(number_in(verdict, "last_step"));
  const auto code = static_cast<int>(number_in(verdict, "exit_code"));
  event.text = fmt::format("attempt {} of the launch ended with code {}: {}", number, code, word_in(verdict, "cause"));
  std::vector<std::string> hosts;
  for (const Verdict& host : verdict.value("hosts", Verdict::array()))
    if (host.is_string()) hosts.push_back(host.get<std::string>());
  if (!hosts.empty()) event.text += ", hosts at fault: " + join(hosts);
  event.is_shown = code != 0;
  return event;
}

// A host keeps its place, so another name in it is a swap.
std::string swaps_between(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  std::vector<std::string> swaps;
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i)
    if (before[i] != after[i]) swaps.push_back(fmt::format("{} for {}", after[i], before[i]));
  return join(swaps);
}

}  // namespace

std::vector<RunEvent> read_run_attempts(const fs::path& attempts) {
  std::vector<fs::path> folders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(attempts, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.empty() && name.find_first_not_of("0123456789") == name.npos) folders.push_back(entry.path());
  }
  std::ranges::sort(folders, {}, [](const fs::path& folder) {
    const std::string name = folder.filename();
    return std::pair(name.size(), name);  // 999, 1000
  });
  if (folders.size() > kMostAttempts) folders.erase(folders.begin(), folders.end() - kMostAttempts);
  std::vector<RunEvent> events;
  std::vector<std::string> hosts_before;
  RunEvent last;
  for (const fs::path& folder : folders) {
    std::vector<std::string> hosts = lines_of(text_of(folder / "hosts"));
    if (const std::string swaps = swaps_between(hosts_before, hosts); !swaps.empty()) {
      RunEvent swap{.kind = "swap", .step = last.step, .time = last.time, .text = swaps, .is_shown = true};
      events.push_back(std::move(swap));
    }
    if (!hosts.empty()) hosts_before = std::move(hosts);
    const Verdict verdict = Verdict::parse(text_of(folder / "verdict.json"), nullptr, /*allow_exceptions=*/false);
    if (!verdict.is_object()) continue;
    last = event_of(verdict, folder.filename());
    events.push_back(last);
  }
  return events;
}

}  // namespace athanor::inline report
