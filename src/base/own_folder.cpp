#include "base/own_folder.h"

#include <dlfcn.h>
#include <link.h>

namespace athanor {
namespace fs = std::filesystem;

fs::path own_folder() {
  Dl_info info{};
  link_map* library = nullptr;
  const int found =
      ::dladdr1(reinterpret_cast<const void*>(&own_folder), &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP);
  // The loader has no name for the program itself, and the one in argv[0] may lack the folder.
  const bool in_program = found == 0 || library->l_name[0] == '\0';
  return in_program ? fs::read_symlink("/proc/self/exe").parent_path()
                    : fs::weakly_canonical(library->l_name).parent_path();
}

fs::path running_program() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/exe", failed);
}

}  // namespace athanor
