#include "launch/host_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"

namespace athanor::launch {
namespace {

constexpr size_t kLongestName = 253;  // as in the domain name system
constexpr size_t kMostDigits = 9;     // a number fits into 32 bits

bool is_ascii_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_ipv6(std::string_view text) {
  in6_addr address{};
  return text.find(':') != text.npos && ::inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

// A number of digits alone, from 0.
std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  if (text.empty() || text.size() > kMostDigits || text.find_first_not_of("0123456789") != text.npos) return {};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void check_name(std::string_view name, const std::string& from) {
  ATHANOR_CHECK(is_host_name(name),
                "{}: \"{}\" is no name of a host: expected letters, digits, dots, dashes and underscores, or an "
                "address, with :SLOTS if need be",
                from, printable(name.substr(0, 80)));
}

// One item of a list, cut into texts and sets of numbers.
class NodePattern {
 public:
  NodePattern(std::string_view item, const std::string& from) : item_(item), from_(from) {
    size_t at = 0;
    while (at < item.size()) {
      const size_t open = std::min(item.find('[', at), item.size());
      check(item.substr(at, open - at).find(']') == item.npos, "a bracket is closed that was not opened");
      if (open > at) parts_.push_back({std::string(item.substr(at, open - at))});
      if (open == item.size()) break;
      const size_t close = item.find(']', open);
      check(close != item.npos, "a bracket is not closed");
      parts_.push_back(numbers_of(item.substr(open + 1, close - open - 1)));
      at = close + 1;
    }
    check(!parts_.empty(), "a name is empty");
  }

  void append_to(std::vector<std::string>& names) const {
    size_t num_names = 1;
    for (const auto& part : parts_) {
      num_names *= part.size();
      check_size(num_names + names.size());
    }
    for (size_t i = 0; i < num_names; ++i) {
      std::string name;
      size_t rest = i, block = num_names;
      for (const auto& part : parts_) {
        block /= part.size();
        name += part[rest / block];
        rest %= block;
      }
      check_name(name, from_);
      names.push_back(std::move(name));
    }
  }

 private:
  void check(bool holds, const char* what) const {
    ATHANOR_CHECK(holds, "{}: {} in \"{}\"; expected a list such as nid[000001-000003,000007],x[1-2]c0", from_, what,
                  printable(item_.substr(0, 80)));
  }
  void check_size(size_t num_names) const {
    ATHANOR_CHECK(num_names <= kMostHosts, "{}: \"{}\" names more than {} hosts; name fewer", from_,
                  printable(item_.substr(0, 80)), kMostHosts);
  }

  // "000001-000003,000007" → 000001, 000002, 000003, 000007.
  std::vector<std::string> numbers_of(std::string_view ranges) const {
    std::vector<std::string> numbers;
    while (true) {
      const size_t comma = std::min(ranges.find(','), ranges.size());
      const std::string_view range = ranges.substr(0, comma);
      const size_t dash = std::min(range.find('-'), range.size());
      const std::string_view low = range.substr(0, dash), high = dash < range.size() ? range.substr(dash + 1) : low;
      const auto first = whole_number(low), last = whole_number(high);
      check(first && last && *first <= *last && low.size() <= high.size(), "a range is none");
      check_size(numbers.size() + static_cast<size_t>(*last - *first) + 1);
      for (int number = *first; number <= *last; ++number) numbers.push_back(fmt::format("{:0{}}", number, low.size()));
      if (comma == ranges.size()) return numbers;
      ranges.remove_prefix(comma + 1);
    }
  }

  std::string_view item_;
  const std::string& from_;
  std::vector<std::vector<std::string>> parts_;
};

// The items between commas that are in no bracket.
std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && !inside)) {
      items.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else if (list[i] == '[' || list[i] == ']') {
      inside = list[i] == '[';
    }
  }
  return items;
}

int slots_of(std::string_view text, const std::string& from) {
  const auto slots = whole_number(text);
  ATHANOR_CHECK(slots && *slots > 0 && *slots <= kMostSlots, "{}: expected a number of slots from 1 to {}, got \"{}\"",
                from, kMostSlots, printable(text.substr(0, 80)));
  return *slots;
}

// One line of a host file, without its comment; nothing if it is empty.
std::optional<Host> host_of_line(const std::string& line, const std::string& from) {
  std::istringstream words(line);
  std::string word;
  if (!(words >> word)) return std::nullopt;
  Host host{word, 0};
  if (const size_t colon = word.rfind(':'); colon != word.npos && !is_ipv6(word)) {
    host = {word.substr(0, colon), slots_of(std::string_view(word).substr(colon + 1), from)};
  }
  check_name(host.name, from);
  while (words >> word) {
    if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;  // for schedulers
    ATHANOR_CHECK(word.starts_with("slots=") && host.slots == 0,
                  "{}: expected a host and its slots, as in {} slots=4, got \"{}\"", from, host.name,
                  printable(word.substr(0, 80)));
    host.slots = slots_of(std::string_view(word).substr(6), from);
  }
  return host;
}

// Lines of the hosts that were named, by all spellings in which is_same_host() would find them again.
class NamedHosts {
 public:
  // Returns the line that has named the host already, or 0.
  size_t add(std::string name, size_t line) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string label = name.substr(0, name.find('.'));
    const bool is_bare = label == name, is_number = label.find_first_not_of("0123456789") == label.npos;
    size_t& whole = lines_[name];
    size_t& other = lines_[label + (is_bare ? "." : "")];  // the name without its domain, or one with some domain
    const size_t before = whole != 0 ? whole : is_number ? 0 : other;
    whole = line;
    if (!is_bare) lines_[label + "."] = line;
    return before;
  }

 private:
  std::unordered_map<std::string, size_t> lines_;
};

}  // namespace

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName) return false;
  if (is_ipv6(text)) return true;
  return is_ascii_alnum(text[0]) &&
         std::ranges::all_of(text, [](char c) { return is_ascii_alnum(c) || c == '.' || c == '-' || c == '_'; });
}

std::vector<std::string> expand_node_list(std::string_view list, const std::string& from) {
  std::vector<std::string> names;
  for (const auto item : items_of(list)) NodePattern(item, from).append_to(names);
  return names;
}

std::vector<int> expand_counts(std::string_view counts, const std::string& from) {
  std::vector<int> expanded;
  for (std::string_view item : items_of(counts)) {
    size_t times = 1;
    if (const size_t open = item.find("(x"); open != item.npos && item.ends_with(')')) {
      times = static_cast<size_t>(slots_of(item.substr(open + 2, item.size() - open - 3), from));
      item = item.substr(0, open);
    }
    ATHANOR_CHECK(expanded.size() + times <= kMostHosts, "{}: more than {} hosts; name fewer", from, kMostHosts);
    expanded.insert(expanded.end(), times, slots_of(item, from));
  }
  return expanded;
}

std::vector<Host> parse_host_file(std::string_view text, const std::string& from, RepeatedHost repeated) {
  std::vector<Host> hosts;
  std::unordered_map<std::string, size_t> seen;  // name → its place in `hosts`
  NamedHosts named;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    const std::string place = fmt::format("{}:{}", from, number);
    auto host = host_of_line(line.substr(0, line.find('#')), place);
    if (!host) continue;
    const size_t before = named.add(host->name, number);
    ATHANOR_CHECK(before == 0 || repeated == RepeatedHost::kSlots,
                  "{}: {} has a line already ({}); name each host once, with slots=N for N ranks", place, host->name,
                  before);
    const auto [found, is_new] = seen.try_emplace(host->name, hosts.size());
    if (repeated == RepeatedHost::kSlots && host->slots == 0) host->slots = 1;
    if (is_new)
      hosts.push_back(*host);
    else
      hosts[found->second].slots += host->slots;
    ATHANOR_CHECK(hosts.size() <= kMostHosts, "{}: more than {} hosts; name fewer", from, kMostHosts);
  }
  ATHANOR_CHECK(!hosts.empty(), "{}: there is no host in it; write one on each line", from);
  return hosts;
}

bool is_same_host(std::string_view a, std::string_view b) {
  if (a == b) return true;
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && b[a.size()] == '.' && a.find_first_not_of("0123456789.") != a.npos;
}

std::string shown_hosts(const std::vector<Host>& hosts) {
  constexpr size_t kMostShown = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts.size() <= kMostShown || i + 1 < kMostShown) names.push_back(hosts[i].name);
  }
  std::string text = fmt::format("{}: {}", counted(std::ssize(hosts), "host"), join(names));
  return hosts.size() <= kMostShown ? text : text + " … " + hosts.back().name;
}

std::string counted(int64_t number, const std::string& what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

}  // namespace athanor::launch
