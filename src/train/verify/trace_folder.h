#pragma once
// The folder of a verification's traces, visible to all ranks: a folder for each data set ("draw"), in it a folder for
// each run.

#include <filesystem>
#include <string>

#include "comm/world.h"

namespace athanor {

inline constexpr const char* kReferenceFile = "one_rank.toml";  // the configuration that the reference's process runs
inline constexpr const char* kTruthFile = "truth.toml";         // the same in fp32, if noise is measured
inline constexpr const char* kReferenceFolder = "one_rank";
inline constexpr const char* kTruthFolder = "truth";
inline constexpr const char* kLayoutFolder = "layout";
inline constexpr const char* kSecondFolder = "layout_again";

std::string draw_folder(int draw);

/// The folder. It is removed at the end unless it is to be kept. Collective.
class TraceFolder {
 public:
  /// @param keep  its path; empty: a temporary folder, or the working directory if hosts share the folder.
  TraceFolder(comm::World& world, const std::filesystem::path& keep);
  ~TraceFolder();
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool kept_, first_;
};

}  // namespace athanor
