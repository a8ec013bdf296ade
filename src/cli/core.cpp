#include "cli/core.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/library_bits.h"
#include "base/own_folder.h"
#include "base/start_processors.h"
#include "base/thread_waits.h"
#include "cli/commands.h"

namespace athanor::inline cli {

void call_core(const char* name, const void* arguments) {
  const auto library = own_folder() / "libathanor_core.so";
  start_processors();
  set_thread_waits();
  ask_for_reproducible_library();
  // The symbols are global, so that exceptions of both libraries have the same type.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) fail<Error>("cannot open {}: {}; build it with `make build`", library.string(), ::dlerror());
  const std::string symbol = std::string("athanor_core_") + name;
  auto* function = reinterpret_cast<int (*)(const void*)>(::dlsym(handle, symbol.c_str()));
  if (!function) fail<Error>("{} has no {}: it is of another version; build again", library.string(), symbol);
  if (const int code = function(arguments)) throw ExitCode{code};
}

}  // namespace athanor::inline cli
