#pragma once
// The first line of manifest.json, as it is written and read (manifest.h).

#include <cstddef>
#include <string_view>

namespace athanor {

inline constexpr const char* kManifestFormat = "athanor-checkpoint";
inline constexpr std::string_view kManifestHashStart = "{\"hash\": \"";
inline constexpr std::string_view kManifestHashEnd = "\",\n";
inline constexpr size_t kManifestHashDigits = 32;

}  // namespace athanor
