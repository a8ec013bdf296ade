#include "layout/device_workspace.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace athanor::inline layout {
namespace {

constexpr double kBytesOfKiB = 1 << 10, kHopperWorkspace = 32 << 20;

// Takes ":" and a number off the front of `text`.
std::optional<double> take_number(std::string_view& text) {
  if (text.empty() || text.front() != ':') return {};
  uint64_t value = 0;
  const auto read = std::from_chars(text.data() + 1, text.data() + text.size(), value);
  if (read.ec != std::errc{}) return {};
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return static_cast<double>(value);
}

}  // namespace

double cublas_workspace_bytes() {
  const char* set = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  double bytes = 0;
  bool has_any = false;
  for (std::string_view text = set ? set : ""; !text.empty();) {
    std::string_view rest = text;
    const auto size = take_number(rest), count = size ? take_number(rest) : size;
    if (count) {
      bytes += *size * kBytesOfKiB * *count;
      has_any = true;
      text = rest;
    } else {
      text.remove_prefix(1);
    }
  }
  return has_any ? bytes : kHopperWorkspace;
}

int count_cublas_workspaces(bool records_graph) { return records_graph ? 4 : 2; }

}  // namespace athanor::inline layout
