#include "base/temporary_folder.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/file_moves.h"

namespace athanor {

TemporaryFolder::TemporaryFolder(const std::filesystem::path& prefix) {
  std::string name = prefix.string() + "-XXXXXX";
  if (!::mkdtemp(name.data())) fail_errno("cannot make", name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() { try_remove_tree(path_); }

}  // namespace athanor
