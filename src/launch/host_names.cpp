#include "launch/host_names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace athanor::launch {
namespace {

constexpr size_t kMostNames = 65'536;
constexpr int64_t kMostSlots = 4'096;  // of one host

// Interfaces that have a name of their own: the words are followed by a number or by nothing.
constexpr std::string_view kInterfaces[] = {"ib", "hsn", "eth", "opa", "bond", "mgmt", "roce", "en", "ipoib", "nmn", "cmn"};

// Names of machines have no underscore; those of events and settings do.
bool is_name_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; }

bool are_figures(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_interface(std::string_view suffix) {
  return std::ranges::any_of(kInterfaces, [&](std::string_view word) {
    return suffix.starts_with(word) && are_figures(suffix.substr(word.size()));
  });
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Appends prefix + each number of "1-3,07" + suffix. Returns false if the ranges are not well formed.
bool append_ranges(std::string_view prefix, std::string_view ranges, std::string_view suffix,
                   std::vector<std::string>& names) {
  while (true) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    const size_t hyphen = range.find('-');
    const std::string_view first = range.substr(0, hyphen);
    const auto low = number_in(first);
    const auto high = hyphen == range.npos ? low : number_in(range.substr(hyphen + 1));
    if (!low || !high || *high < *low) return false;
    for (int64_t number = *low; number <= *high; ++number) {
      if (names.size() >= kMostNames) return false;
      std::string figures = std::to_string(number);
      if (figures.size() < first.size()) figures.insert(0, first.size() - figures.size(), '0');
      names.push_back(std::string(prefix) + figures + std::string(suffix));
    }
    if (range.size() == ranges.size()) return true;
    ranges.remove_prefix(range.size() + 1);
  }
}

// Appends the names of one element of a list.
bool append_element(std::string_view element, std::vector<std::string>& names) {
  const size_t open = element.find('['), close = element.find(']');
  if (open == element.npos && close == element.npos) {
    if (!element.empty()) names.emplace_back(element);
    return !element.empty();
  }
  if (open == element.npos || close == element.npos || close < open) return false;
  return append_ranges(element.substr(0, open), element.substr(open + 1, close - open - 1), element.substr(close + 1),
                       names);
}

// The slots that a line of a host file states after the name: "slots=4", ":4".
int64_t slots_of(std::string_view rest) {
  const size_t equals = rest.find("slots=");
  const std::string_view text = equals != rest.npos ? rest.substr(equals + 6) : rest.starts_with(':') ? rest.substr(1) : "";
  const auto end = std::ranges::find_if_not(text, [](char c) { return c >= '0' && c <= '9'; });
  const auto slots = number_in(text.substr(0, static_cast<size_t>(end - text.begin())));
  return slots && *slots <= kMostSlots ? *slots : 0;
}

}  // namespace

bool is_address(std::string_view name) {
  const std::string text(name);
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

bool may_be_host(std::string_view name) {
  if (name.empty() || name.size() > 253 || !std::isalnum(static_cast<unsigned char>(name.front()))) return false;
  if (are_figures(name) || machine_name(name) == "localhost") return false;
  return std::ranges::all_of(name, [](char c) { return is_name_byte(c) || c == '.'; });
}

std::string machine_name(std::string_view name) {
  if (is_address(name)) return std::string(name);
  std::string machine(name.substr(0, name.find('.')));
  std::ranges::transform(machine, machine.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t hyphen = machine.rfind('-');
  if (hyphen != machine.npos && hyphen > 0 && is_interface(std::string_view(machine).substr(hyphen + 1)))
    machine.resize(hyphen);
  return machine;
}

std::vector<std::string> names_of_list(std::string_view list) {
  std::vector<std::string> names;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= list.size(); ++at) {
    if (at < list.size() && list[at] == '[') ++depth;
    if (at < list.size() && list[at] == ']') --depth;
    if (at < list.size() && (list[at] != ',' || depth > 0)) continue;
    if (!append_element(list.substr(begin, at - begin), names)) return {std::string(list)};
    begin = at + 1;
  }
  return names;
}

JobHosts::JobHosts(std::string_view text) {
  bool has_slots = false;
  std::vector<std::pair<size_t, int64_t>> lines;  // the host and its slots
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) continue;
    line.remove_prefix(begin);
    size_t end = line.find_first_of(" \t\r");
    // A single colon is followed by slots; an IPv6 address has several.
    const size_t colon = line.find(':');
    if (colon != line.npos && colon < end && line.find(':', colon + 1) == line.npos) end = colon;
    const std::string name(line.substr(0, end));
    const int64_t slots = end == line.npos ? 0 : slots_of(line.substr(end));
    const auto [known, is_new] = index_.try_emplace(machine_name(name), hosts_.size());
    if (is_new) hosts_.push_back(name);
    has_slots = has_slots || slots > 0 || !is_new;
    lines.emplace_back(known->second, std::max<int64_t>(slots, 1));
  }
  if (!has_slots) return;
  for (const auto& [host, slots] : lines) host_of_slot_.insert(host_of_slot_.end(), static_cast<size_t>(slots), host);
}

std::optional<std::string> JobHosts::find(std::string_view name) const {
  const auto known = index_.find(machine_name(name));
  if (known == index_.end()) return std::nullopt;
  return hosts_[known->second];
}

std::optional<std::string> JobHosts::host_of_rank(int64_t rank) const {
  if (rank < 0 || rank >= std::ssize(host_of_slot_)) return std::nullopt;
  return hosts_[host_of_slot_[static_cast<size_t>(rank)]];
}

}  // namespace athanor::launch
