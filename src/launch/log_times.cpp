#include "launch/log_times.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <string>

#include "launch/log_lines.h"

namespace athanor::launch {
namespace {

constexpr size_t kAfterBytes = 64 << 10;  // in which the first time is looked for
constexpr size_t kLastBytes = 16 << 10;   // at the end of each piece, for the last time
constexpr int kFurtherLines = 32;         // after the first time, for other forms
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

// With the figures of a time, and of what stands around it, hidden.
std::string form_of(std::string_view text) {
  std::string form(text);
  std::ranges::replace_if(
      form, [](unsigned char c) { return std::isdigit(c) != 0; }, 'd');
  return form;
}

}  // namespace

std::optional<double> time_in(std::string_view text) {
  for (size_t at = text.find('-'); at != text.npos; at = text.find('-', at + 1))
    if (at >= 4)
      if (const auto time = time_at(text.substr(at - 4))) return time;
  return std::nullopt;
}

std::vector<LogTimes::Time> LogTimes::times_of(std::string_view line) {
  constexpr size_t kFront = 40;  // later ones may be those of other events
  std::vector<Time> times;
  std::string clean;
  if (line.find('\x1b') != line.npos) line = clean = without_escapes(line);
  peel(line.substr(0, kLongestLine), signatures_, scratch_, peeled_);
  for (const Prefix& prefix : peeled_.prefixes)
    if (const auto time = time_in(prefix.text)) times.push_back({form_of(prefix.text), *time});
  if (times.empty())
    if (const auto time = time_in(line.substr(0, kFront))) times.push_back({"", *time});
  return times;
}

void LogTimes::see(std::string_view piece, uint64_t offset, uint64_t from) {
  if (from > from_) first_.clear();
  from_ = std::max(from_, from);
  const uint64_t end = offset + piece.size();
  if (from_ < end && offset < from_ + kAfterBytes && first_.empty()) {
    const uint64_t begin = std::max(offset, from_);
    find_first(piece.substr(begin - offset, from_ + kAfterBytes - begin));
  }
  find_last(piece.substr(piece.size() - std::min(piece.size(), kLastBytes)));
}

void LogTimes::find_first(std::string_view text) {
  for (int left = kFurtherLines; !text.empty() && left > 0;) {
    for (const Time& time : times_of(next_line(text)))
      if (std::ranges::none_of(first_, [&](const Time& each) { return each.form == time.form; }))
        first_.push_back(time);
    if (!first_.empty()) --left;
  }
}

void LogTimes::find_last(std::string_view text) {
  while (!text.empty()) {
    const size_t break_at = text.substr(0, text.size() - 1).find_last_of("\n\r");
    const size_t begin = break_at == text.npos ? 0 : break_at + 1;
    std::string_view line = text.substr(begin);
    if (auto times = times_of(next_line(line)); !times.empty()) {
      last_ = std::move(times);
      return;
    }
    text = text.substr(0, begin);
  }
}

std::optional<double> LogTimes::seconds_after() const {
  for (auto last = last_.rbegin(); last != last_.rend(); ++last)
    for (const Time& first : first_)
      if (first.form == last->form) return last->seconds - first.seconds;
  return std::nullopt;
}

}  // namespace athanor::launch
