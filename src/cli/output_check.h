#pragma once
// Checks of the paths that a command is to write, before it works for hours.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace athanor::inline cli {

/// Returns the nearest of the path's parents that exists and is not a folder; empty if there is none.
inline std::filesystem::path file_above(const std::filesystem::path& path) {
  std::error_code ignored;
  for (auto parent = path.parent_path(); !parent.empty(); parent = parent.parent_path()) {
    if (std::filesystem::exists(parent, ignored)) return std::filesystem::is_directory(parent) ? "" : parent;
    if (parent == parent.root_path()) break;
  }
  return {};
}

/// Returns why nothing can be made in a folder that exists; "" if something can.
inline std::string why_not_writable(const std::string& text, const std::filesystem::path& folder) {
  if (text.empty()) return "expected a path, got nothing";
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return fmt::format("expected a path that can be written, got {}; the folder {} does not allow it ({})", text,
                     folder.string(), std::strerror(errno));
}

/// Accepts the path of a file in a folder that exists and that files can be made in; otherwise the message names what
/// is in the way.
inline CLI::Validator new_file() {
  const auto check = [](const std::string& text) -> std::string {
    std::error_code ignored;
    const std::filesystem::path path = text, folder = std::filesystem::absolute(path, ignored).parent_path();
    if (text.empty()) return "expected the name of a file to write, got none";
    if (text == "-") return "expected the name of a file to write, got -; this is not written to standard output";
    if (std::filesystem::is_directory(path, ignored))
      return fmt::format("expected a file to write, got {}, which is a folder", text);
    if (std::filesystem::is_directory(folder, ignored)) return why_not_writable(text, folder);
    if (const auto file = file_above(path); !file.empty())
      return fmt::format("expected a file in a folder, got {}, but {} is a file", text, file.string());
    return fmt::format("expected a file in a folder that exists, got {}; make the folder {}", text, folder.string());
  };
  return CLI::Validator(check, "");
}

/// Accepts the path of a folder that exists or can be made.
inline CLI::Validator new_folder() {
  const auto check = [](const std::string& text) -> std::string {
    std::error_code ignored;
    const std::filesystem::path path = text;
    if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored))
      return fmt::format("expected a folder, got {}, which is a file", text);
    const auto file = file_above(path);
    if (!file.empty()) return fmt::format("expected a folder, got {}, but {} is a file", text, file.string());
    std::filesystem::path existing = std::filesystem::absolute(path, ignored);
    while (!std::filesystem::exists(existing, ignored) && existing.has_relative_path())
      existing = existing.parent_path();
    return why_not_writable(text, existing);
  };
  return CLI::Validator(check, "");
}

/// Checks, before anything is computed, that a picture may be written there: a picture that is there may be replaced,
/// and nothing else.
/// @param option  the option that names it, for the message.
/// @throws ConfigError if the name has another ending, or the file is there and is no SVG.
inline void check_picture_file(const char* option, const std::string& path) {
  ATHANOR_CHECK(path.ends_with(".svg"), "{} {}: the picture is an SVG; give it a name that ends with .svg", option,
                path);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  std::string start(4, ' ');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  ATHANOR_CHECK(start == "<svg" || start == "<?xm" || std::filesystem::is_empty(path, ignored),
                "{} {} is there and is no picture; name another file, or move it away", option, path);
}

}  // namespace athanor::inline cli
