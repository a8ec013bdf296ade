#include "plot/run_name.h"

#include <algorithm>
#include <filesystem>

namespace athanor::inline plot {

namespace fs = std::filesystem;

std::string name_of_run(const std::string& given) {
  fs::path path = fs::path(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path == "." || path.empty() ? fs::absolute(given).lexically_normal().parent_path().filename().string()
                                     : path.string();
}

std::vector<std::string> without_common_folders(std::vector<std::string> names) {
  if (names.size() < 2) return names;
  const auto first_folder = [](const std::string& name) { return name.substr(0, name.find('/') + 1); };
  for (std::string folder = first_folder(names[0]); !folder.empty(); folder = first_folder(names[0])) {
    if (!std::ranges::all_of(names, [&](const std::string& name) { return name.starts_with(folder); })) break;
    for (std::string& name : names) name.erase(0, folder.size());
  }
  return names;
}

}  // namespace athanor::inline plot
