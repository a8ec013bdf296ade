#pragma once
// A folder that no other process has, and that goes with its object. A process that is killed leaves it.

#include <filesystem>
#include <string>

namespace athanor {

class TemporaryFolder {
 public:
  /// Makes "PREFIX-XXXXXX", with letters and digits in place of the X, for this user alone. @throws IoError.
  explicit TemporaryFolder(const std::filesystem::path& prefix = std::filesystem::temp_directory_path() / "athanor");
  /// Removes it with all that is in it, as far as the system allows.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace athanor
