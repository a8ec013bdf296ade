#pragma once
// The arguments of the benchmarks that need libtorch. `cli/` fills them from the command line.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

/// Arguments that every benchmark of the core has.
struct BenchArguments {
  std::string json;     ///< file to write the results to; empty: none
  int rounds = 7;       ///< rounds that are measured
  int num_threads = 0;  ///< 0: one for each core
  bool paced = false;   ///< make one round for each line on standard input, for bench/peers
};

struct BenchCheckpointArguments : BenchArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  int saves = 6;       ///< rounds; an even number has as many that begin with the plain file as with ours
  std::string folder;  ///< folder on the disk to measure; empty: the one that the run's folder is in
};

struct BenchCommArguments : BenchArguments {
  int64_t least_bytes = 1024, most_bytes = int64_t{1} << 26;  ///< sizes of tensors; each is four times the one before
  std::string dtype = "float32";
  std::string device = "auto";      ///< as train.device
  int inner = 0;                    ///< size of the inner groups of the two-level forms; 0: without these forms
  int64_t hidden = 2048, topk = 8;  ///< sizes of the sparse layer whose dispatch is timed
  std::vector<int64_t> tokens = {256, 1024, 4096};  ///< tokens of a rank in this layer; each is measured
};

struct BenchGemmArguments : BenchArguments {
  bool any_shape = false;  ///< one of the four sizes was given; otherwise built-in shapes are used
  int64_t experts = 64, rows = 512, k = 2048, n = 1024;  ///< for each expert a product [rows, k] · [k, n]
  std::string dtype;                                     ///< empty: both types
  std::string device = "auto";                           ///< as train.device
};

struct BenchMoeArguments : BenchArguments {
  bool any_shape = false;  ///< one of the five sizes was given; otherwise the shapes of docs/performance.md are used
  int64_t tokens = 4096, hidden = 2048, ffn = 1024, experts = 64, topk = 8;
  std::string dtype;            ///< empty: both types
  std::string device = "auto";  ///< as train.device
  bool uniform = false;         ///< each expert gets the same number of tokens
};

struct BenchOptimizerArguments : BenchArguments {
  std::string name = "adamw";  ///< one of optimizer_names()
  int64_t parameters = int64_t{1} << 26;
  std::string dtype;            ///< empty: both types
  std::string device = "auto";  ///< as train.device
};

struct BenchOverheadArguments : BenchArguments {
  int64_t hidden = 64, tokens = 16;
  std::string dtype;                   ///< empty: both types
  std::string config_file;             ///< empty: a model of one layer
  std::vector<std::string> overrides;  ///< "key=value" settings that replace those of the file
  int ranks = 8;                       ///< ranks of the layout of config_file
};

struct BenchPipelineArguments : BenchArguments {
  std::string schedule;  ///< empty: all schedules
  int ranks = 4, microbatches = 8;
  int virtual_stages = 2;       ///< for interleaved_1f1b
  double forward_ms = 10;       ///< time for all of a rank's stages together; a backward takes twice that
  int64_t activation_kib = 64;  ///< KiB that are sent between stages for each microbatch
  bool actions = false;         ///< print the actions
  std::string pictures;         ///< folder for pictures; empty: none
};

struct BenchStepArguments : BenchArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  bool recompute = true;  ///< also measure each kind of recomputation
};

}  // namespace athanor
