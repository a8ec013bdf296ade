#pragma once
// Chooses how a run multiplies its matrices: measured when the run begins, the same on all ranks, and kept by every
// resume, since the last bits of the run's numbers depend on it. matmul.json in the run's folder records the choice and
// the reason.

#include <filesystem>
#include <string>

#include "checkpoint/team.h"
#include "config/run_config.h"
#include "ops/matmul_paths.h"
#include "saves/resume_point.h"

namespace athanor::inline run {

struct MatmulChoice {
  ops::MatmulPaths paths;
  std::string record;  ///< text for matmul.json; empty: the file stays as it is
  std::string line;    ///< line for the log
};

/// Chooses for one rank. The first of these that exists decides:
/// - the environment variable ATHANOR_MATMUL;
/// - the record in the run's folder, unless the run begins at step 0 again on a CPU that lacks one of its paths;
/// - in a run that continues, the default of this CPU, which runs used before there was a choice;
/// - a measurement of which paths are fastest for the type that the run trains in.
/// @param config  of the first training phase, with the length of its sequences (data.seq_len is not 0).
/// @throws ConfigError for a path that this CPU lacks.
MatmulChoice choose_matmul_paths(const RunConfig& config, const ResumePoint& begin);

/// Chooses for all ranks and puts the choice in force (ops::set_matmul_paths): the first rank chooses, and all take its
/// choice. Collective over `team`.
/// @return on the first rank its whole choice; elsewhere only the paths.
/// @throws ConfigError on every rank, if one lacks a path or has another ATHANOR_MATMUL.
MatmulChoice settle_matmul_paths(const RunConfig& config, const ResumePoint& begin, const Team& team);
/// The same without a run, and without a measurement, which may come out differently the next time: as ATHANOR_MATMUL
/// asks, else the default of the first rank's CPU.
void settle_matmul_paths(const Team& team);

/// Returns the paths as text, {"bfloat16": {"dense": "avx512", …}, "float32": …}.
std::string text_of(const ops::MatmulPaths& paths);
/// Parses the text of text_of. @throws ConfigError with `name` if the text is not in that form.
ops::MatmulPaths paths_of(const std::string& text, const std::string& name);

}  // namespace athanor::inline run
