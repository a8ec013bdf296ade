#include "plot/run_name.h"

#include <filesystem>

namespace athanor {

namespace fs = std::filesystem;

std::string name_of_run(const std::string& given) {
  fs::path path = fs::path(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path == "." || path.empty() ? fs::absolute(given).lexically_normal().parent_path().filename().string()
                                     : path.string();
}

}  // namespace athanor
