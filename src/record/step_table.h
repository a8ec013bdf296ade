#pragma once
// Reads numbers of a run's steps from its metrics.jsonl, also while the run writes it.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::inline record {

/// Some fields of the steps of a run, in the order of the steps. A missing value is NaN. One that was not finite when
/// it was written (null in the file) is infinity.
struct StepTable {
  std::vector<double> steps;                 ///< the field "step"; increasing
  std::vector<std::vector<double>> columns;  ///< for each field that was asked for, its value in each step
  size_t num_damaged = 0;                    ///< lines that are not the JSON of a step; they are left out
};

/// Reads the fields from `path`, a metrics.jsonl. A member of a field is named with dots, an item of a list by its
/// index: "tokens_per_dest_rank.max", "dead_experts.3".
///
/// A last line without its end is still being written, and is not read. If a step occurs again, the lines from its
/// first occurrence on are superseded. The file may be shortened meanwhile. The memory used is that of the result.
/// @throws IoError if the file cannot be read.
StepTable read_step_table(const std::filesystem::path& path, const std::vector<std::string>& fields);

/// Returns the names of all fields of `path` that are numbers in some step, in the order of their occurrence; the items
/// of a list as one text, "dead_experts.0 to dead_experts.15".
/// @throws IoError if the file cannot be read.
std::vector<std::string> list_numeric_fields(const std::filesystem::path& path);

}  // namespace athanor::inline record
