#pragma once
// Whether the kernel can execute a file: a launcher would find out on every node, and describe it in other words.

#include <filesystem>

#include "launch/surroundings.h"

namespace athanor::launch {

/// Looks at the first bytes of a file that may be executed: an ELF program of this kind of processor, or a script whose
/// interpreter is there. Other formats, which a kernel may know (binfmt_misc), are accepted unless they are text, and
/// so is what cannot be read.
/// @throws ConfigError that names the file, what is wrong, and the remedy.
void require_executable(const std::filesystem::path& program, const Surroundings& here);

}  // namespace athanor::launch
