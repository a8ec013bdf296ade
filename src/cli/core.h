#pragma once
// The interface between the front end and libathanor_core.so, which holds everything that needs libtorch.
//
// The front end parses the command line into one of these structs and calls the library. Both sides are built together,
// so plain C++ types may pass; the function is found by name.

#include <cstdint>
#include <string>
#include <vector>

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

/// Arguments that every benchmark of the core has.
struct BenchArguments {
  std::string json;
  int rounds = 7;
  int num_threads = 0;  ///< 0: one for each core
  bool paced = false;   ///< make one round for each line on standard input, for bench/peers
};

struct BenchCommArguments : BenchArguments {
  int64_t least_bytes = 1024, most_bytes = int64_t{1} << 26;
  std::string dtype = "float32";
  int inner = 0;  ///< size of the inner groups of the two-level forms; 0: without these forms
  int64_t hidden = 2048, topk = 8;
  std::vector<int64_t> tokens = {256, 1024, 4096};
};

struct BenchGemmArguments : BenchArguments {
  bool any_shape = false;
  int64_t experts = 64, rows = 512, k = 2048, n = 1024;
  std::string dtype;  ///< empty: both types
};

struct BenchMoeArguments : BenchArguments {
  bool any_shape = false;  ///< one of the five sizes was given; otherwise the shapes of docs/performance.md are used
  int64_t tokens = 4096, hidden = 2048, ffn = 1024, experts = 64, topk = 8;
  std::string dtype;     ///< empty: both types
  bool uniform = false;  ///< each expert gets the same number of tokens
};

struct BenchOptimizerArguments : BenchArguments {
  int64_t parameters = int64_t{1} << 26;
  std::string dtype;  ///< empty: both types
};

struct BenchOverheadArguments : BenchArguments {
  int64_t hidden = 64, tokens = 16;
  std::string dtype;        ///< empty: both types
  std::string config_file;  ///< empty: a model of one layer
  std::vector<std::string> overrides;
  int ranks = 8;
};

struct BenchPipelineArguments : BenchArguments {
  std::string schedule;  ///< empty: all schedules
  int ranks = 4, microbatches = 8;
  int virtual_stages = 2;  ///< for interleaved_1f1b
  double forward_ms = 10;  ///< time for all of a rank's stages together; a backward takes twice that
  int64_t activation_kib = 64;
  bool actions = false;  ///< print the actions
  std::string pictures;  ///< folder for pictures; empty: none
};

struct BenchStepArguments : BenchArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  bool recompute = true;  ///< also measure each kind of recomputation
};

/// Calls `athanor_core_<name>` in libathanor_core.so next to the program and returns the exit code.
/// @throws Error if the library cannot be opened; what the function throws passes through.
int call_core(const char* name, const void* arguments);

/// Declares the function that the library exports for a struct above: int(const void* arguments).
#define ATHANOR_CORE_ENTRY(name) \
  extern "C" __attribute__((visibility("default"))) int athanor_core_##name(const void* arguments)

}  // namespace athanor
