#pragma once
// The border between the front and libathanor_core.so, which holds what needs libtorch.
//
// The front parses the command line into one of these structs and calls across. Both sides are built together, so that
// plain C++ types may pass; the function is found by name.

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
  std::string model;  ///< a run folder, a checkpoint, or a folder of transformers
  std::vector<std::string> prompts;
  int64_t max_new_tokens = 64;
  double temperature = 1.0;  ///< 0: greedy
  double top_p = 1.0;
  int64_t seed = 0;
  std::string dtype = "bfloat16";
  bool json = false;  ///< a JSON object for each prompt, with token ids
};

struct SmokeArguments {
  std::string golden_dir;  ///< empty: beside the program, or in the sources it was built from
  bool update = false;
};

struct VerifyArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  int64_t steps = 3;
  std::string dtype;  ///< empty: float32, and the run's own
  int draws = 3;      ///< data sets in bfloat16
  bool keep_size = false;
  bool keep_depth = false;
  std::vector<std::string> then;  ///< overrides of the layout that resumes the run; empty: it is not resumed
  bool twice = false;
  std::string keep;                    ///< empty: traces are removed
  std::string plant;                   ///< a fault to put into the layout's run; empty: none
  std::string reference = "one_rank";  ///< what the layout is held against; or portable
  std::string as_reference;            ///< the folder in which this is the reference's process; empty: it is not
  int of_ranks = 1;                    ///< of the reference's process: the layout's
  uint64_t draw = 1;                   ///< likewise: the first of its data sets
};

struct DryRunArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  bool asked = false;        ///< for this instead of a run
  int ranks = 1, rank = -1;  ///< −1: the rank that needs most
  bool json = false;
};

/// Of every benchmark in the core.
struct BenchArguments {
  std::string json;
  int rounds = 7;
  int num_threads = 0;  ///< 0: one for each core
  bool paced = false;   ///< a round for each line on standard input, for bench/peers
};

struct BenchCommArguments : BenchArguments {
  int64_t least_bytes = 1024, most_bytes = int64_t{1} << 26;
  std::string dtype = "float32";
  int inner = 0;  ///< ranks inside, of the two-level forms; 0: without them
  int64_t hidden = 2048, topk = 8;
  std::vector<int64_t> tokens = {256, 1024, 4096};
};

struct BenchGemmArguments : BenchArguments {
  bool any_shape = false;
  int64_t experts = 64, rows = 512, k = 2048, n = 1024;
  std::string dtype;  ///< empty: both
};

struct BenchMoeArguments : BenchArguments {
  bool any_shape = false;  ///< one of the five was given; else the shapes of docs/performance.md
  int64_t tokens = 4096, hidden = 2048, ffn = 1024, experts = 64, topk = 8;
  std::string dtype;     ///< empty: both
  bool uniform = false;  ///< the same number of tokens for each expert
};

struct BenchOptimizerArguments : BenchArguments {
  int64_t parameters = int64_t{1} << 26;
  std::string dtype;  ///< empty: both
};

struct BenchOverheadArguments : BenchArguments {
  int64_t hidden = 64, tokens = 16;
  std::string dtype;        ///< empty: both
  std::string config_file;  ///< empty: of one layer
  std::vector<std::string> overrides;
  int ranks = 8;
};

struct BenchPipelineArguments : BenchArguments {
  std::string schedule;  ///< empty: all of them
  int ranks = 4, microbatches = 8;
  int virtual_stages = 2;  ///< of interleaved_1f1b
  double forward_ms = 10;  ///< of a rank's stages together; a backward takes twice that
  int64_t activation_kib = 64;
  bool actions = false;  ///< print them
  std::string pictures;  ///< a folder; empty: none
};

struct BenchStepArguments : BenchArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  bool recompute = true;  ///< also each kind of recomputation
};

/// Calls `athanor_core_<name>` in libathanor_core.so beside the program and answers the exit code.
/// @throws Error if the library cannot be opened; what the function throws comes through.
int call_core(const char* name, const void* arguments);

/// What the library exports for each of the above: int(const void* arguments).
#define ATHANOR_CORE_ENTRY(name) \
  extern "C" __attribute__((visibility("default"))) int athanor_core_##name(const void* arguments)

}  // namespace athanor
