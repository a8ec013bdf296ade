#pragma once
// What this program was built from: `athanor --version` prints it, and manifests and run folders record it.

#include <string>

namespace athanor {

struct BuildInfo {
  std::string version;   ///< "0.1.0"
  std::string commit;    ///< 12 hexadecimal digits, with "+changes" if files differed; "unknown" without a git checkout
  std::string compiler;  ///< "GNU 12.2.0, Release"
  std::string libtorch;  ///< version of the libtorch that the core was built with; empty: built without the core
  std::string libtorch_folder;  ///< the folder of that libtorch
  std::string libtorch_cuda;    ///< "13.0": the CUDA that it was built for; "unknown version"; empty: none
  std::string why_no_cuda;      ///< why libtorch_cuda is empty, with the remedy: "libtorch has no CUDA"; else empty
  std::string nvcc;             ///< "13.0.88 for 80-real 90-real 90-virtual": compiled the kernels; empty: nothing did
  std::string mpi;              ///< "Open MPI 4.1.4, MPICH 4.0.2": the MPIs that plugins were built for; may be empty
};

/// Returns the facts of this build. libathanor has them. In a program that links the rooms statically, as tests do,
/// version, commit and compiler are "unknown" and the others "", so that a commit does not change the program.
const BuildInfo& build_info();

}  // namespace athanor
