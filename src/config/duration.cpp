#include "config/duration.h"

#include <array>
#include <charconv>

namespace athanor::inline config {
namespace {

struct Unit {
  char letter;
  double seconds;
};
constexpr std::array<Unit, 4> kUnits = {{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};
constexpr double kMaxSeconds = 1000 * 86400.0;

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  if (text == "0") return 0;
  if (text.empty()) return {};
  double seconds = 0;
  auto unit = kUnits.begin();
  while (!text.empty()) {
    unsigned count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end == text.data() + text.size()) return {};
    while (unit != kUnits.end() && unit->letter != *end) ++unit;
    if (unit == kUnits.end()) return {};
    seconds += count * unit->seconds;
    ++unit;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  }
  return seconds <= kMaxSeconds ? std::optional(seconds) : std::nullopt;
}

}  // namespace athanor::inline config
