#pragma once
// The results of an evaluation on disk, in the shape of lm_eval's results_*.json with a member `athanor` in addition;
// and the identity by which a second call knows what it finds there.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluation.h"
#include "eval/loaded_model.h"

namespace athanor::inline eval {

/// What an evaluation depends on in addition to its model and tasks.
struct EvaluationSettings {
  tasks::TaskSelection selection;
  EvaluationOptions options;
  std::string dtype, device;
  int data_ranks = 1;  ///< for the record: no bit depends on it
};

/// Returns a hash of what the answers depend on: the model's files, the task files, the files of rows that the tasks
/// read, the settings. Other files in the same folders do not count.
std::string evaluation_identity(const ModelSource& source, const tasks::TaskSet& tasks,
                                const EvaluationSettings& settings);

/// The model, as the results describe it.
struct EvaluatedModel {
  std::string name;  ///< a path
  const ModelConfig& config;
  int64_t step = -1, tokens = -1;  ///< −1: not known
};

/// Adds to the results what lm_eval states of the model and its settings, and in `athanor` what only we know: the step
/// and its tokens, the counts, the identity.
/// @param identity  of evaluation_identity; "": of a run's own evaluation, which has none.
nlohmann::ordered_json results_document(nlohmann::ordered_json results, const EvaluatedModel& model,
                                        const EvaluationSettings& settings, const EvaluationCounts& counts,
                                        const std::string& identity, double seconds);

/// Returns the results in a file, of this program or of lm_eval. @throws DataError if it is none; IoError.
nlohmann::ordered_json read_results(const std::filesystem::path& file);
/// The same of a file that may hold something else: nothing then. @throws IoError.
std::optional<nlohmann::ordered_json> find_results(const std::filesystem::path& file);

}  // namespace athanor::inline eval
