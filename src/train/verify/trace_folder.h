#pragma once
// The folder of the traces of a verification, which all ranks see: of each data set ("draw") a folder, in it one for
// each run.

#include <filesystem>
#include <string>

#include "comm/world.h"

namespace athanor {

inline constexpr const char* kReferenceFile = "one_rank.toml";  // what the reference's process is to run
inline constexpr const char* kTruthFile = "truth.toml";         // likewise, in fp32, where noise is measured
inline constexpr const char* kReferenceFolder = "one_rank";
inline constexpr const char* kTruthFolder = "truth";
inline constexpr const char* kLayoutFolder = "layout";
inline constexpr const char* kSecondFolder = "layout_again";

std::string draw_folder(int draw);

/// It goes away again, unless it is to be kept. Collective.
class TraceFolder {
 public:
  /// @param keep  where it is to be; empty: in a temporary place, or in the working directory if hosts share it.
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
