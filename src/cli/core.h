#pragma once
// The interface between the front end and libathanor_core.so, which holds everything that needs libtorch.
//
// The front end parses the command line into one of these structs and calls the library. Both sides are built together,
// so plain C++ types may pass; the function is found by name.

#include <cstdint>
#include <string>
#include <vector>

#include "base/core_entry.h"
#include "config/run_config.h"
#include "layout/memory.h"
#include "layout/traffic.h"

namespace athanor::inline cli {

struct TrainArguments {
  std::string config_file;             ///< path of a TOML file
  std::vector<std::string> overrides;  ///< "table.key=value", from --set
};

struct ExportArguments {
  std::string run;                           ///< a run folder, a checkpoint or a model-only folder
  std::string out;                           ///< the folder to write
  std::string dtype = "bfloat16";            ///< type of the weights: bfloat16 or float32
  uint64_t max_shard_bytes = 5'000'000'000;  ///< most bytes of weights in a file
  bool overwrite = false;                    ///< replace a folder that exists
};

struct ImportArguments {
  std::string folder;  ///< a `transformers` folder
  std::string out;     ///< the run folder to write
};

struct GenerateArguments {
  std::string model;                   ///< a run folder, a checkpoint, or a `transformers` folder
  std::vector<std::string> prompts;    ///< "-": all of standard input; at most one of them
  std::string prompts_file;            ///< in place of `prompts`: a file of them; "-": lines of standard input
  std::vector<std::string> stops;      ///< none empty
  int64_t batch_size = 16;             ///< texts that a data rank continues at the same time
  std::vector<std::string> overrides;  ///< "parallelism.key=value", from --set
  int64_t max_new_tokens = 64;
  double temperature = 1.0;  ///< 0: greedy
  double top_p = 1.0;        ///< sample from the likeliest tokens that together have this share of the probability
  int64_t seed = 0;          ///< seed of the sampling; not negative
  std::string dtype = "bfloat16";
  std::string device = "auto";  ///< as train.device
  bool json = false;            ///< print a JSON object for each prompt, with token ids
  bool special_tokens = true;   ///< put around each prompt what the tokenizer, or the training data, have there
};

struct EvalArguments {
  std::vector<std::string> models;           ///< run folders, checkpoints, `transformers` folders
  std::vector<std::string> tasks;            ///< names of tasks, groups and tags, or paths of .yaml files
  std::vector<std::string> include_paths;    ///< folders of users' task files
  std::string data;                          ///< folder of rows
  double limit = 0;                          ///< documents of each task; below 1: a share of them; 0: all
  int64_t num_fewshot = -1;                  ///< examples; −1: each task's own number
  int64_t fewshot_seed = 1234;               ///< seed of the examples' choice
  int64_t batch_tokens = 8192;               ///< tokens that a data rank computes at once
  int64_t window_tokens = int64_t{1} << 18;  ///< tokens of the requests that are prepared at once
  bool no_truncation = false;                ///< refuse a request that is too long for the model
  bool every = false;                        ///< every checkpoint of each run
  std::string figure;                        ///< with `every`: the file of a picture of the progression; empty: none
  std::string metric;                        ///< in the progression; empty: each task's headline metric
  std::string out;                           ///< a file for one model, a folder for several; empty: the run's evals/
  bool samples = false;                      ///< also write each document with its answers
  std::vector<std::string> compare;          ///< files of results that the table also shows
  std::vector<std::string> overrides;        ///< fields of the layout, as in --set
  std::string dtype = "float32";
  std::string device = "auto";  ///< as train.device
  bool json = false;            ///< print the results as JSON
};

struct SmokeArguments {
  std::string golden_dir;  ///< folder of golden files; empty: that of the installation, or tests/golden of the sources
  bool update = false;     ///< write this machine's golden file
  std::string device = "cpu";  ///< as train.device; on a device: only the built-in checks
  std::string trace;           ///< file of the trace (smoke/smoke_trace.h); empty: none
  std::string trace_tensor;    ///< MODEL:STEP:PHASE:NAME, the only tensor of the trace; empty: all
  std::string against;         ///< another build's program or folder, to compare with; empty: none
  int64_t timeout_s = 600;     ///< how long each run of the other build may take
};

struct ProbeArguments {
  std::string folder = ".";     ///< one whose disk is measured
  std::string device = "auto";  ///< as train.device
  bool json = false;            ///< print JSON
};

struct VerifyArguments {
  std::string config_file;             ///< as in TrainArguments
  std::vector<std::string> overrides;  ///< as in TrainArguments
  int64_t steps = 3;                   ///< optimizer steps to compare
  std::string dtype;                   ///< the type to compare in; empty: float32, and also the run's type
  int draws = 3;                       ///< number of data sets in bfloat16
  bool keep_size = false;              ///< use the model and the batch as configured, not a small version
  bool keep_depth = false;             ///< a small version with all layers and buckets
  std::vector<std::string> then;       ///< overrides of the layout that resumes the run; empty: it is not resumed
  bool twice = false;                  ///< run the layout twice, and compare all bits
  std::string keep;                    ///< folder for the traces of all runs; empty: traces are removed
  std::string plant;                   ///< a fault to plant into the layout's run; empty: none
  std::string reference = "one_rank";  ///< what the layout is compared with: one_rank or portable
  std::string as_reference;            ///< set in the reference's process: its folder; empty in any other process
  int of_ranks = 1;                    ///< for the reference's process: the number of the layout's ranks
  uint64_t draw = 1;                   ///< for the reference's process: the first of its data sets
};

struct LrFindArguments {
  std::string config_file;              ///< as in TrainArguments
  std::vector<std::string> overrides;   ///< as in TrainArguments
  std::vector<std::string> optimizers;  ///< values of optimizer.name; empty: the configuration's
  int64_t steps = 0;            ///< how long a range test is, or each run with `widths`; 0: a tenth of the run's
  double from = 1e-6, to = 10;  ///< the range of rates
  std::vector<int64_t> widths;  ///< hidden sizes whose best rates are compared; empty: range tests
  std::vector<double> rates;    ///< with `widths`: the grid; empty: around what a range test finds
  std::string out;              ///< file for the JSON; empty: none
  std::string figure;           ///< file for the picture; empty: none
  bool json = false;            ///< print the JSON in place of the table
};

struct DryRunArguments {
  std::string config_file;             ///< as in TrainArguments
  std::vector<std::string> overrides;  ///< as in TrainArguments
  bool asked = false;                  ///< the user asked for a dry run in place of a run
  int ranks = 1, rank = -1;  ///< size of the job, and a rank of it from 0; −1: the one that needs most memory
  bool json = false;         ///< print JSON
};

/// Asks for the memory and the traffic of a rank of each stage (plan/rank_memory.h), in the place that the
/// configuration names.
struct PlanArguments {
  const RunConfig& config;  ///< resolved, with data.seq_len
  const Layout& layout;
  std::vector<MemoryNeed>& needs;               ///< set to one for each pipeline rank, and so is
  std::vector<std::vector<RankTraffic>>& sent;  ///< what it sends in a step
};

/// Calls `athanor_core_<name>` in libathanor_core.so next to libathanor. `arguments` points to the struct of this
/// command above, or in bench/arguments.h.
/// @throws ExitCode (cli/commands.h) if the function returns another code than 0; Error if the library cannot be
/// opened.
///         What the function throws passes through.
void call_core(const char* name, const void* arguments);

}  // namespace athanor::inline cli
