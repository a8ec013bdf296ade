#include "verify/trace_folder.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/share.h"

namespace athanor::inline verify {
namespace fs = std::filesystem;
namespace {

fs::path make_temporary(const comm::World& world) {
  const bool one_host = std::ranges::all_of(world.hosts(), [&](const auto& host) { return host == world.host(); });
  const fs::path parent = one_host ? fs::temp_directory_path() : fs::current_path();
  std::string name = (parent / "athanor-verify-XXXXXX").string();
  if (!::mkdtemp(name.data())) fail_errno("cannot make", name);
  return name;
}

}  // namespace

std::string draw_folder(int draw) { return "draw-" + std::to_string(draw); }

TraceFolder::TraceFolder(comm::World& world, const fs::path& keep) : kept_(!keep.empty()), first_(world.rank() == 0) {
  std::string name = keep.string();
  if (first_ && !kept_) name = make_temporary(world).string();
  path_ = broadcast_text(world.all(), name);
}

TraceFolder::~TraceFolder() {
  std::error_code ignored;
  if (first_ && !kept_) fs::remove_all(path_, ignored);
}

}  // namespace athanor::inline verify
