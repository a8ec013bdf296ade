#pragma once
// The interface between the front end and libathanor_core.so, which holds everything that needs libtorch.
//
// The front end parses the command line into one of these structs and calls the library. Both sides are built together,
// so plain C++ types may pass; the function is found by name.

#include <cstdint>
#include <string>
#include <vector>

#include "base/core_entry.h"

namespace athanor {

struct TrainArguments {
  std::string config_file;
  std::vector<std::string> overrides;
};

struct ExportArguments {
  std::string run;  ///< a run folder, a checkpoint or a model-only folder
  std::string out;
  std::string dtype = "bfloat16";
  uint64_t max_shard_bytes = 5'000'000'000;
  bool overwrite = false;
};

struct ImportArguments {
  std::string folder;
  std::string out;
};

struct GenerateArguments {
  std::string model;  ///< a run folder, a checkpoint, or a `transformers` folder
  std::vector<std::string> prompts;
  int64_t max_new_tokens = 64;
  double temperature = 1.0;  ///< 0: greedy
  double top_p = 1.0;
  int64_t seed = 0;
  std::string dtype = "bfloat16";
  bool json = false;  ///< print a JSON object for each prompt, with token ids
};

struct SmokeArguments {
  std::string golden_dir;  ///< empty: the folder next to the program, or in the sources that it was built from
  bool update = false;
};

struct VerifyArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  int64_t steps = 3;
  std::string dtype;  ///< empty: float32, and the run's own type
  int draws = 3;      ///< number of data sets in bfloat16
  bool keep_size = false;
  bool keep_depth = false;
  std::vector<std::string> then;  ///< overrides of the layout that resumes the run; empty: it is not resumed
  bool twice = false;
  std::string keep;                    ///< folder for the traces; empty: traces are removed
  std::string plant;                   ///< a fault to plant into the layout's run; empty: none
  std::string reference = "one_rank";  ///< what the layout is compared with: one_rank or portable
  std::string as_reference;            ///< set in the reference's process: its folder; empty in any other process
  int of_ranks = 1;                    ///< for the reference's process: the number of the layout's ranks
  uint64_t draw = 1;                   ///< for the reference's process: the first of its data sets
};

struct DryRunArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  bool asked = false;        ///< the user asked for a dry run in place of a run
  int ranks = 1, rank = -1;  ///< rank −1: the rank that needs most memory
  bool json = false;
};

/// Calls `athanor_core_<name>` in libathanor_core.so next to libathanor and returns the exit code.
/// @throws Error if the library cannot be opened; what the function throws passes through.
int call_core(const char* name, const void* arguments);

}  // namespace athanor
