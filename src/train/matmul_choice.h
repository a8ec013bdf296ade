#pragma once
// How a run multiplies its matrices: measured where it begins, the same on all ranks, and kept by every resume, since
// the last bits of its numbers depend on it. matmul.json in its folder says what, and why.

#include <filesystem>
#include <string>

#include "checkpoint/team.h"
#include "config/run_config.h"
#include "ops/matmul_paths.h"
#include "train/beginning.h"

namespace athanor {

struct MatmulChoice {
  ops::MatmulPaths paths;
  std::string record;  ///< what matmul.json is to hold; empty: it stays
  std::string line;    ///< for the log
};

/// For one rank. What ATHANOR_MATMUL asks for; else what the run's folder holds (where it goes on and its folder tells
/// nothing: the default, as before there was a choice); else what measures fastest for the type that it trains in.
/// @throws ConfigError for a path that this CPU lacks.
MatmulChoice choose_matmul_paths(const RunConfig& config, const Beginning& begin);

/// Collective: the first rank chooses, all of them take it, or all refuse it where one lacks a path.
/// @return the first rank's choice, on the first rank; nothing but the paths elsewhere.
MatmulChoice settle_matmul_paths(const RunConfig& config, const Beginning& begin, const Team& team);

/// {"bfloat16": {"dense": "avx512", …}, "float32": …}
std::string text_of(const ops::MatmulPaths& paths);
/// @throws ConfigError with `name` where it is no such text.
ops::MatmulPaths paths_of(const std::string& text, const std::string& name);

}  // namespace athanor
