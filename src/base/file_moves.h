#pragma once
// How files and folders get their names, change them, and lose them. Each function states what a process finds if this
// one is killed at any moment, or if the machine crashes.
//
// Every failure throws IoError with the path and the system's reason.

#include <filesystem>
#include <string>

namespace athanor {

/// Returns the folder that `path` is in: "." for a name alone.
std::filesystem::path parent_folder(const std::filesystem::path& path);

/// Returns ".NAME.tmp" next to `path`: the name of what is not whole yet, or is being removed. Nothing trusts what a
/// killed process has left under it.
std::filesystem::path temporary_name(const std::filesystem::path& path);

/// Makes a folder and those above it that are missing. A kill can leave some of them.
void create_folders(const std::filesystem::path& path);

/// Gives a file or a folder another name on the same file system, in place of a file or an empty folder that has it.
/// After a kill it has one of the two names, and whoever looks at `to` finds either what was there or all of what was
/// at `from`. A crash of the machine may undo it, until the folder is synced.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// Renames as rename_path does, and then syncs the folder of `to`: what this has returned from, no crash undoes. The
/// content of `from` must be synced already, or a crash may leave an empty file under the new name.
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a file, or a folder and all that is in it; does nothing if nothing is there. A kill leaves a part of the
/// folder under its name: what others would take for whole is renamed first.
void remove_tree(const std::filesystem::path& path);

/// Removes as remove_tree does what may stay if it has to.
/// @return why it is still there: "cannot remove PATH: reason"; empty if it is gone.
std::string try_remove_tree(const std::filesystem::path& path);

/// Replaces a folder by a new one where no rename can: keeps the old one under another name until its successor exists.
/// At every moment one of the two is whole. After a kill between move_now() and the new name, `path` is absent and the
/// old folder is at `aside`: the next start puts it back, or gives the new one its name.
class MovedAside {
 public:
  /// @param aside  on the file system of `path`; what is there is removed.
  MovedAside(std::filesystem::path path, std::filesystem::path aside);
  /// Keeps it as ".NAME.replaced" next to `path`.
  explicit MovedAside(const std::filesystem::path& path);
  /// If move_now() renamed the folder: removes it if `path` exists again, and puts it back if not. The new name should
  /// be synced by then.
  ~MovedAside();
  MovedAside(const MovedAside&) = delete;
  MovedAside& operator=(const MovedAside&) = delete;

  /// Renames the folder, if it exists.
  void move_now();

 private:
  std::filesystem::path path_, aside_;
  bool moved_ = false;
};

}  // namespace athanor
