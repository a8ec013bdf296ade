#include "wire/mpi_plugin.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/own_folder.h"

namespace athanor::comm {

std::unique_ptr<Wire> open_mpi_wire(const std::string& launcher) {
  const bool open_mpi = launcher == "Open MPI";
  const std::string library = own_folder() / (open_mpi ? "libathanor_mpi_openmpi.so" : "libathanor_mpi_mpich.so");
  // MPI opens parts of itself later, which expect its symbols to be global.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    fail<ConfigError>("{} started this process, but its plugin cannot be opened: {}; install {} and build again",
                      launcher, ::dlerror(), open_mpi ? "libopenmpi-dev" : "libmpich-dev");
  }
  const auto open = reinterpret_cast<OpenWire>(::dlsym(handle, kOpenWire));
  if (open == nullptr) fail<ConfigError>("{} has no {}: it is of another build; build again", library, kOpenWire);
  try {
    return std::unique_ptr<Wire>(open());
  } catch (const std::exception& error) {
    fail<CommError>("{} cannot be started: {}", launcher, error.what());
  }
}

}  // namespace athanor::comm
