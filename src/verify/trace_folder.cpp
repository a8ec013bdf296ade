#include "verify/trace_folder.h"

#include <algorithm>

#include "parallel/share.h"

namespace athanor::inline verify {
namespace fs = std::filesystem;
namespace {

// A folder that all ranks see.
fs::path folder_prefix(const comm::World& world) {
  const bool one_host = std::ranges::all_of(world.hosts(), [&](const auto& host) { return host == world.host(); });
  return (one_host ? fs::temp_directory_path() : fs::current_path()) / "athanor-verify";
}

}  // namespace

std::string draw_folder(int draw) { return "draw-" + std::to_string(draw); }

TraceFolder::TraceFolder(comm::World& world, const fs::path& keep) {
  if (world.rank() == 0 && keep.empty()) temporary_.emplace(folder_prefix(world));
  path_ = broadcast_text(world.all(), temporary_ ? temporary_->path().string() : keep.string());
}

}  // namespace athanor::inline verify
