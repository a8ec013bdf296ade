#pragma once
// The form of manifest.json's first line, for the writer and the parser (manifest.h).

#include <cstddef>
#include <string_view>

namespace athanor::inline checkpoint {

inline constexpr const char* kManifestFormat = "athanor-checkpoint";
inline constexpr std::string_view kManifestHashStart = "{\"hash\": \"";
inline constexpr std::string_view kManifestHashEnd = "\",\n";
inline constexpr size_t kManifestHashDigits = 32;

}  // namespace athanor::inline checkpoint
