#pragma once
// Results of evaluations as a table for people: a row for each task and metric, a column for each model, and chance.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace athanor::inline eval {

struct NamedResults {
  std::string name;                ///< heads its column
  nlohmann::ordered_json results;  ///< in lm_eval's shape
};

/// Returns the table, with a line end after each row. Groups come first among their tasks; tasks of a group are left
/// out if they are more than `most_of_group`.
/// @param chance  task → the score of guessing, as far as it is known.
std::string results_table(const std::vector<NamedResults>& models, const nlohmann::ordered_json& chance,
                          size_t most_of_group = 8);

}  // namespace athanor::inline eval
