#pragma once
// What starts the ranks: srun, an mpiexec or mpirun of one of several kinds, or Athanor itself where there is no MPI.
//
// The name of a program does not tell its kind (five packages install an mpiexec), but what its --version prints does.

#include <optional>
#include <string>
#include <string_view>

#include "launch/allocation.h"
#include "launch/surroundings.h"

namespace athanor::launch {

enum class Flavour {
  kOpenMpi,   ///< mpirun of Open MPI up to 4
  kPrrte,     ///< mpirun of Open MPI 5 and newer
  kHydra,     ///< mpiexec of MPICH and of MVAPICH
  kIntelMpi,  ///< mpiexec of Intel MPI, Hydra with other words
  kPals,      ///< mpiexec of Cray's PALS
  kSrun,      ///< Slurm
  kSockets,   ///< no MPI: Athanor starts ranks that communicate over sockets, on one host
};

/// "Open MPI", "PALS".
const char* flavour_name(Flavour flavour);

struct MpiVersion {
  Flavour flavour;
  std::string version;  ///< "4.1.4"; may be empty
  bool operator==(const MpiVersion&) const = default;
};
/// Reads what `mpiexec --version` prints; nothing if that is of no known kind.
std::optional<MpiVersion> parse_mpi_version(std::string_view text);

struct Launcher {
  Flavour flavour = Flavour::kSockets;
  std::string path;      ///< the program; empty for sockets
  std::string version;   ///< may be empty
  std::string from;      ///< why this one
  std::string pmi;       ///< for srun: what --mpi is given ("pmix"); empty: the default of the cluster
  std::string pmi_from;  ///< why
};

/// @param wanted  "auto", "sockets", or the name or path of a program.
/// @throws ConfigError if the wanted one is not there or of no known kind, or if several hosts need an MPI that is not
///         there.
Launcher find_launcher(const std::string& wanted, const Allocation& allocation, const Surroundings& here);

/// Returns the signal to send to the launcher, so that the ranks get the request and can save: some launchers end at
/// once by some signals (docs/signals.md). 0: none would reach the ranks.
int passed_signal(Flavour flavour, int number);

}  // namespace athanor::launch
