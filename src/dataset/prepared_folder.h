#pragma once
// What tells a folder of prepared data from others that have a manifest.json too, such as checkpoints.

#include <filesystem>

namespace athanor::inline dataset {

/// The format that its manifest names.
inline constexpr const char* kDataFormatName = "athanor-data";

/// True if the folder has a manifest of this format, whether or not all of it can be read. @throws IoError.
bool holds_prepared_data(const std::filesystem::path& folder);

}  // namespace athanor::inline dataset
