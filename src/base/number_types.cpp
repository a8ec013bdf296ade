#include "base/number_types.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace athanor {

std::string canonical_type_name(const std::string& name) {
  return name == "bf16" ? "bfloat16" : name == "fp32" ? "float32" : name;
}

bool has_fast_bf16(const std::filesystem::path& cpuinfo) {
  constexpr std::array<std::string_view, 3> kFlags = {"avx512_bf16", "amx_bf16", "bf16"};
  if (const char* told = std::getenv("ATHANOR_FAST_BF16")) return std::string_view(told) == "1";
  std::ifstream file(cpuinfo);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (std::ranges::find(kFlags, word) != kFlags.end()) return true;
    }
    return false;  // the flags of the first processor stand for all
  }
  return false;
}

}  // namespace athanor
