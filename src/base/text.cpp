#include "base/text.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace athanor {

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}B", bytes) : fmt::format("{:.2f}{}", bytes, kUnits[unit]);
}

std::string format_thousands(double value) {
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return value < 0 ? "-" + digits : digits;
}

std::string format_digits(double value) {
  const double size = std::abs(value);
  if (!(size > 0 && size < 1)) return fmt::format("{:.2f}", value);
  return fmt::format("{:.{}f}", value, std::min(12, std::max(2, 2 - static_cast<int>(std::floor(std::log10(size))))));
}

std::string format_flop_rate(double flops_per_second) {
  static constexpr const char* kUnits[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"};
  int unit = 0;
  while (flops_per_second >= 1000 && unit < 6) {
    flops_per_second /= 1000;
    ++unit;
  }
  return fmt::format("{:.2f} {}", flops_per_second, kUnits[unit]);
}

std::string format_duration(double seconds) {
  const auto total = std::llround(seconds);
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

namespace {

// Computes the Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;  // a word that is farther away is another word, not
                                                                    // a slip
  for (const auto& candidate : candidates) {
    // A distance is at least that of the lengths, and takes the time of their product.
    if (std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size()) >= best_distance) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best ? std::optional(*best) : std::nullopt;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const auto nearest = nearest_name(name, candidates);
  return nearest ? fmt::format(" (did you mean \"{}\"?)", *nearest) : "";
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

std::string join_first(const std::vector<std::string>& parts, size_t most, std::string_view separator) {
  std::vector<std::string> shown(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(std::min(parts.size(), most)));
  if (parts.size() > most) shown.push_back(fmt::format("and {} more", parts.size() - most));
  return join(shown, separator);
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text)) return std::nullopt;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const size_t size = text.size();
  const auto continues = [&](size_t at, unsigned char low = 0x80, unsigned char high = 0xBF) {
    return at < size && bytes[at] >= low && bytes[at] <= high;
  };
  for (size_t i = 0; i < size;) {
    const unsigned char lead = bytes[i];
    if (lead < 0x80) {
      ++i;
    } else if (lead >= 0xC2 && lead <= 0xDF) {
      if (!continues(i + 1)) return i;
      i += 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      // E0 would be overlong below A0; ED above 9F would be a surrogate.
      if (!continues(i + 1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) || !continues(i + 2)) return i;
      i += 3;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      if (!continues(i + 1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) || !continues(i + 2) ||
          !continues(i + 3)) {
        return i;
      }
      i += 4;
    } else {
      return i;
    }
  }
  return std::nullopt;
}

void append_utf8(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    out += static_cast<char>(0x80 | ((code_point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      shown += "\\n";
    } else if (c == '\t') {
      shown += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

bool matches_wildcard(std::string_view pattern, std::string_view text) {
  // The match is greedy with one point to return to: the last `*` seen.
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Lists the divisors of any value. If they are too many to read, the text describes them instead.
std::string divisors_of(int64_t value) {
  constexpr int64_t kLongList = 1 << 16;
  if (value > kLongList) return fmt::format("the divisors of {}", value);
  std::vector<std::string> divisors;
  for (int64_t d = 1; d <= value; ++d) {
    if (value % d == 0) divisors.push_back(std::to_string(d));
  }
  return join(divisors);
}

}  // namespace athanor
