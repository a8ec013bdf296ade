#pragma once
// The file of a picture: a picture that is there may be replaced, and nothing else.

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace athanor::inline cli {

/// Checks, before anything is computed, that a picture may be written there.
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
