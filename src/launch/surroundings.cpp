#include "launch/surroundings.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string_view>

#include "base/process.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

bool is_executable_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<std::string> Surroundings::variable(const std::string& name) const {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<fs::path> Surroundings::find_program(const std::string& name) const {
  if (name.find('/') != name.npos) return is_executable_file(name) ? std::optional<fs::path>(name) : std::nullopt;
  std::istringstream folders(variable("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path path = fs::path(folder.empty() ? "." : folder) / name;
    if (!name.empty() && is_executable_file(path)) return path;
  }
  return std::nullopt;
}

Surroundings own_surroundings() {
  Surroundings found;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != text.npos) found.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  found.host = host_name();
  return found;
}

std::optional<std::string> read_kernel_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  line.resize(line.find_last_not_of(" \t\r") + 1);
  return line;
}

}  // namespace athanor::launch
