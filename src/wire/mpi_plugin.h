#pragma once
// Opens the plugin of the MPI that started this process.

#include <memory>
#include <string>

#include "wire/wire.h"

namespace athanor::comm {

/// Opens libathanor_mpi_openmpi.so (if `launcher` is "Open MPI") or libathanor_mpi_mpich.so, which is in the folder of
/// the library or program that holds this code, and starts MPI.
/// @throws ConfigError if the plugin is missing or of another build; CommError if MPI cannot be started.
std::unique_ptr<Wire> open_mpi_wire(const std::string& launcher);

}  // namespace athanor::comm
