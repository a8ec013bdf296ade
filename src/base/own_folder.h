#pragma once
// The folder in which Athanor's libraries are: libathanor, the core that needs libtorch, and the plugins for MPI and
// Parquet. It is lib/ of an installation and the build folder before that. And the program that runs.

#include <filesystem>

namespace athanor {

/// Returns the folder of the library that holds this code, or of the program if the code was linked into it.
std::filesystem::path own_folder();

/// Returns the program of this process; empty if the system does not tell.
std::filesystem::path running_program();

}  // namespace athanor
