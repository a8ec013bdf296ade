#include "base/torchrun_variables.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/environment_number.h"
#include "base/error.h"

namespace athanor {
namespace {

// An empty variable is one that a script has set from another that does not exist.
bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text && *text;
}

std::string shown(const char* name) {
  const char* text = std::getenv(name);
  return text ? fmt::format("{} is \"{}\"", name, text) : fmt::format("{} is not set", name);
}

// Refuses if `rank` is no number below `size`, or `size` none from 1.
void require_pair(const char* rank_name, const char* size_name, const char* of_what) {
  const auto rank = number_in_environment(rank_name), size = number_in_environment(size_name);
  ATHANOR_CHECK(size && *size > 0,
                "{} and {}: {} has to be the number of processes {}, 1 or more, and {} a number from 0 to below it; if "
                "this process is to be alone, unset both",
                shown(rank_name), shown(size_name), size_name, of_what, rank_name);
  ATHANOR_CHECK(rank && *rank < *size,
                "{} and {}: {} has to be a number from 0 to below {}, in each process {} another one (under Slurm, "
                "SLURM_PROCID and SLURM_LOCALID are empty outside of srun); if this process is to be alone, unset both",
                shown(rank_name), shown(size_name), rank_name, size_name, of_what);
}

}  // namespace

void refuse_wrong_torchrun_numbers() {
  if (is_set("RANK") || is_set("WORLD_SIZE")) require_pair("RANK", "WORLD_SIZE", "of the job");
  if (!is_set("LOCAL_WORLD_SIZE")) {  // job scripts set LOCAL_RANK alone
    ATHANOR_CHECK(!is_set("LOCAL_RANK") || number_in_environment("LOCAL_RANK"),
                  "{}: it has to be the number of this process on its host, from 0; set it so, or unset it",
                  shown("LOCAL_RANK"));
    return;
  }
  require_pair("LOCAL_RANK", "LOCAL_WORLD_SIZE", "of this host");
  const auto local = number_in_environment("LOCAL_WORLD_SIZE"), all = number_in_environment("WORLD_SIZE");
  ATHANOR_CHECK(!all || *local <= *all,
                "{}, which is more than the {} processes of the whole job (WORLD_SIZE): set it to the number of "
                "processes on this host, or unset it",
                shown("LOCAL_WORLD_SIZE"), *all);
}

std::string contradiction_to_srun() {
  const auto task = number_in_environment("SLURM_PROCID"), tasks = number_in_environment("SLURM_STEP_NUM_TASKS");
  const auto rank = number_in_environment("RANK"), size = number_in_environment("WORLD_SIZE");
  if (!task || !tasks || *tasks < 2 || !rank || !size || *size < 2) return "";
  // torchrun numbers nodes as they come, and a job of several steps numbers its ranks across them.
  if (is_set("TORCHELASTIC_RUN_ID") || is_set("SLURM_HET_SIZE")) return "";
  // Where tasks start several processes each, ranks have other numbers than tasks. A rank above 0 with the number of
  // its task is not of such a job, unless LOCAL_WORLD_SIZE is set.
  const bool starts_several = *size > *tasks && (*rank != *task || *rank == 0 || is_set("LOCAL_WORLD_SIZE"));
  if (starts_several || (*size == *tasks && *rank == *task)) return "";
  return fmt::format(
      "RANK={} and WORLD_SIZE={} contradict srun, which started this process as SLURM_PROCID={} of "
      "SLURM_STEP_NUM_TASKS={}: set them in each task, as in srun bash -c 'RANK=$SLURM_PROCID "
      "WORLD_SIZE=$SLURM_STEP_NUM_TASKS exec athanor ...' (set in the batch script, they would be the same for all "
      "tasks), or start as many tasks as WORLD_SIZE",
      *rank, *size, *task, *tasks);
}

void refuse_other_numbers_than_sruns() {
  const std::string said = contradiction_to_srun();
  if (said.empty()) return;
  // One task after the other: srun --kill-on-bad-exit ends the others when the first has reported it.
  std::this_thread::sleep_for(std::min(*number_in_environment("SLURM_PROCID"), 10) * std::chrono::milliseconds(200));
  fail<ConfigError>("{}", said);
}

}  // namespace athanor
