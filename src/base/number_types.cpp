#include "base/number_types.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace athanor {

std::string canonical_type_name(const std::string& name) {
  return name == "bf16" ? "bfloat16" : name == "fp32" ? "float32" : name;
}

NumberType number_type(const std::string& name, const std::string& what) {
  const std::string canonical = canonical_type_name(name);
  ATHANOR_CHECK(canonical == "float32" || canonical == "bfloat16", "{} ({}) must be bfloat16 or float32", what, name);
  return canonical == "float32" ? NumberType::kFloat32 : NumberType::kBFloat16;
}

const char* name_of(NumberType type) { return type == NumberType::kFloat32 ? "float32" : "bfloat16"; }

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
