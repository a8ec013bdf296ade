// The program athanor on devices that the host plays: its own files, and before its main this, which opens the library
// that plays them as the program opens its core (cli/core.cpp).

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "base/library_bits.h"
#include "base/own_folder.h"
#include "base/start_processors.h"
#include "base/thread_waits.h"

namespace athanor {
namespace {

const bool kOpened = [] {
  start_processors();
  set_thread_waits();
  ask_for_reproducible_library();
  const auto library = own_folder() / "libathanor_guarded_devices.so";
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) return true;
  std::fprintf(stderr, "cannot open %s: %s\n", library.c_str(), ::dlerror());
  std::exit(1);
}();

}  // namespace
}  // namespace athanor
