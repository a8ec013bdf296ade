#pragma once
// The folder of a verification's traces, visible to all ranks: a folder for each data set ("draw"), in it a folder for
// each run.

#include <filesystem>
#include <optional>
#include <string>

#include "base/temporary_folder.h"
#include "comm/world.h"

namespace athanor::inline verify {

// Files of the folder of a type: the configuration that the reference's process runs, and the same in fp32, if noise is
// measured.
inline constexpr const char* kReferenceFile = "one_rank.toml";
inline constexpr const char* kTruthFile = "truth.toml";
// Folders of a data set, one for the traces of each run. The last is that of VerifyRequest::twice.
inline constexpr const char* kReferenceFolder = "one_rank";
inline constexpr const char* kTruthFolder = "truth";
inline constexpr const char* kLayoutFolder = "layout";
inline constexpr const char* kSecondFolder = "layout_again";

/// Returns the name of a data set's folder: "draw-1".
std::string draw_folder(int draw);

/// The folder, which goes with the first rank's object unless it is to be kept.
class TraceFolder {
 public:
  /// Collective over the world.
  /// @param keep  its path, where it stays; empty: the first rank makes a temporary folder, in the working directory if
  ///        there are several hosts, which must share it.
  /// @throws IoError on the first rank.
  TraceFolder(comm::World& world, const std::filesystem::path& keep);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<TemporaryFolder> temporary_;  // on the first rank
  std::filesystem::path path_;
};

}  // namespace athanor::inline verify
