#include "launch/log_times.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <string>

#include "base/file_reader.h"

namespace athanor::launch {
namespace {

constexpr size_t kLookedAtBytes = 64 << 10;
constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";

bool has_shape(std::string_view text) {
  return text.size() >= kShape.size() && std::equal(kShape.begin(), kShape.end(), text.begin(), [](char kind, char c) {
           if (kind == 'd') return std::isdigit(static_cast<unsigned char>(c)) != 0;
           return kind == ' ' ? c == ' ' || c == 'T' : kind == c;
         });
}

int number_at(std::string_view text, size_t at, size_t figures) {
  return std::stoi(std::string(text.substr(at, figures)));
}

std::optional<double> time_at(std::string_view text) {
  if (!has_shape(text)) return std::nullopt;
  std::tm parts{};
  parts.tm_year = number_at(text, 0, 4) - 1900;
  parts.tm_mon = number_at(text, 5, 2) - 1;
  parts.tm_mday = number_at(text, 8, 2);
  parts.tm_hour = number_at(text, 11, 2);
  parts.tm_min = number_at(text, 14, 2);
  parts.tm_sec = number_at(text, 17, 2);
  return static_cast<double>(timegm(&parts));
}

// The last time that stands at the front of a line: later ones may be those of other events.
std::optional<double> last_line_time(std::string_view text) {
  constexpr size_t kFront = 40;
  for (size_t end = text.size(); end > 0;) {
    const size_t break_at = text.rfind('\n', end - 1);
    const size_t begin = break_at == text.npos ? 0 : break_at + 1;
    if (const auto time = time_in(text.substr(begin, std::min(end - begin, kFront)))) return time;
    end = break_at == text.npos ? 0 : break_at;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> time_in(std::string_view text) {
  for (size_t at = text.find('-'); at != text.npos; at = text.find('-', at + 1))
    if (at >= 4)
      if (const auto time = time_at(text.substr(at - 4))) return time;
  return std::nullopt;
}

std::optional<double> seconds_after(const std::filesystem::path& log, uint64_t from) {
  const FileReader file(log);
  std::string text(kLookedAtBytes, '\0');
  text.resize(file.read_up_to(from, text.data(), text.size()));
  const auto first = time_in(text);
  const uint64_t tail = std::max(from, file.size() - std::min<uint64_t>(file.size(), kLookedAtBytes));
  text.resize(kLookedAtBytes);
  text.resize(file.read_up_to(tail, text.data(), text.size()));
  const auto last = last_line_time(text);
  if (!first || !last) return std::nullopt;
  return *last - *first;
}

}  // namespace athanor::launch
