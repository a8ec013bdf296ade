#include "saves/branch.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "config/changes.h"
#include "record/run_folder.h"

namespace athanor::inline saves {
namespace {

// Beginnings of names of fields.
constexpr std::array<std::string_view, 16> kSameBranch = {"train.steps ",
                                                          "train.run_dir ",
                                                          "train.num_threads ",
                                                          "train.micro_batch_size ",
                                                          "train.loss_chunk_tokens ",
                                                          "train.validation_",
                                                          "train.stop_",
                                                          "train.on_sigusr",
                                                          "checkpoint.",
                                                          "metrics.",
                                                          "eval.",
                                                          "parallelism.",
                                                          "topology.",
                                                          "data.num_threads ",
                                                          "data.verify ",
                                                          "moe.dispatch"};
constexpr std::array<std::string_view, 3> kOfCheckpoint = {"checkpoint.fresh_moments ", "checkpoint.fresh_groups ",
                                                           "checkpoint.allow_model_change "};

template <size_t N>
bool begins_with_one_of(std::string_view line, const std::array<std::string_view, N>& names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return line.starts_with(name); });
}

bool is_filled_in_later(std::string_view line, const RunConfig& config) {
  if (line.starts_with("optimizer.warmup_steps ")) return config.optimizer.warmup_not_set;
  if (line.starts_with("train.dtype ")) return config.train.dtype_was_auto;
  return line.find("seq_len was ") != std::string_view::npos && line.ends_with(", is 0");
}

}  // namespace

std::vector<std::string> changes_of_branch(const RunConfig& config) {
  const RunFolder folder{config.train.run_dir};
  std::vector<std::string> changes;
  try {
    changes = describe_config_changes(read_file(folder.config()), config);
  } catch (const IoError&) {
    return {};
  }
  std::erase_if(changes, [&](const std::string& line) {
    return line.find(" was ") == std::string::npos || is_filled_in_later(line, config) ||
           (begins_with_one_of(line, kSameBranch) && !begins_with_one_of(line, kOfCheckpoint));
  });
  return changes;
}

}  // namespace athanor::inline saves
