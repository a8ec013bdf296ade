#pragma once
// Evaluates one model on a task set and writes its results: what `athanor eval` does for each model.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/results_file.h"
#include "eval/results_table.h"

namespace athanor::inline eval {

/// Where the results of a call's models go.
struct ResultsPlace {
  std::filesystem::path out;   ///< as the user gave it; empty: a run's evals/, and nothing for other folders
  bool is_folder = false;      ///< `out` is a folder with a file for each model
  bool samples = false;        ///< also write a folder with a file of samples for each task
  bool skips_damaged = false;  ///< pass over a model that cannot be opened, with a warning
};

/// Returns the place, after checks that need no model.
/// @throws ConfigError if several models are to go into one file, or a file is where a folder must be, or the reverse.
ResultsPlace plan_results(const std::string& out, size_t num_models, bool samples);

/// Evaluates the model in `path` on the ranks of a job. If its results are there already, nothing is computed; what an
/// earlier process has left unfinished is taken up. Collective.
/// @param tasks  on the first rank only.
/// @return on the first rank, the results under a name for their column; nothing if the model was passed over.
/// @throws ConfigError if the file for the results has those of another evaluation; otherwise as load_model and
/// evaluate.
std::optional<NamedResults> evaluate_model(const std::filesystem::path& path, comm::World& world,
                                           const LoadOptions& load, const tasks::TaskSet* tasks,
                                           const EvaluationSettings& settings, const ResultsPlace& place);

/// Returns the score of guessing for each task and group that states it.
nlohmann::ordered_json chances_of(const tasks::TaskSet& tasks);

}  // namespace athanor::inline eval
