#pragma once
// Reads the beginning of manifest.json: everything before its tables. In a large checkpoint this is a small part of
// the file, and the pieces are 250 MB.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace athanor::inline checkpoint {

struct ManifestSummary {
  std::string version, commit;  ///< those of the program that wrote it; empty if the manifest names none
  nlohmann::json model, state;  ///< as in Manifest (manifest.h)
};

/// Reads the manifest's members before "tensors". Compares no hash, since that would take the whole file; reads as few
/// blocks as they need, and keeps no file open or mapped, so that a run may delete it in the meantime.
/// @throws CheckpointError if this is not the beginning of a manifest that this program reads; IoError.
ManifestSummary read_manifest_summary(const std::filesystem::path& file);

}  // namespace athanor::inline checkpoint
