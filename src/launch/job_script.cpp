#include "launch/job_script.h"

#include <algorithm>

#include "base/error.h"
#include "base/shell_words.h"
#include "launch/launcher_command.h"

namespace athanor::launch {
namespace {

constexpr const char* kSlurmName = "athanor.sbatch";
constexpr const char* kPbsName = "athanor.pbs";

/// The lines of an example, and their changes. A change of a line that is not there is a bug: the example has changed.
class EditedScript {
 public:
  explicit EditedScript(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      lines_.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  // Replaces the line that begins with `start` by `lines`.
  void replace(std::string_view start, const std::vector<std::string>& lines) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (!lines_[i].starts_with(start)) continue;
      const auto at = lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(i));
      lines_.insert(at, lines.begin(), lines.end());
      return;
    }
    ATHANOR_ASSERT(!"an example has no such line");
  }
  // Returns the line that begins with `start`.
  std::string line(std::string_view start) const {
    return *std::ranges::find_if(lines_, [&](const auto& line) { return line.starts_with(start); });
  }
  void remove(std::string_view start) { replace(start, {}); }
  // Removes the lines from the one that begins with `first` to the one that begins with `last`.
  void remove_from(std::string_view first, std::string_view last) {
    const auto begin = std::ranges::find_if(lines_, [&](const auto& line) { return line.starts_with(first); });
    const auto end = std::find_if(begin, lines_.end(), [&](const auto& line) { return line.starts_with(last); });
    ATHANOR_ASSERT(end != lines_.end());
    lines_.erase(begin, end + 1);
  }

  std::string text() const {
    std::string text;
    for (const auto& line : lines_) text += line + "\n";
    return text;
  }

 private:
  std::vector<std::string> lines_;
};

// What both scripts have in common: variables that choose the program make place for the words of a command.
void put_launch(EditedScript& script, const JobScriptRequest& request) {
  script.replace("ATHANOR=",
                 {"# What starts the ranks, and what each of them runs.", "launch=(" + shell_line(request.launch) + ")",
                  "command=(" + shell_line(request.command) + ")"});
  for (const char* start : {"CONFIG=", "LAUNCH=", "read -ra options", "# shellcheck disable=SC2086"})
    script.remove(start);
  script.replace("$LAUNCH ", {R"("${launch[@]}" -- "${command[@]}")"});
  if (request.launch_submits) script.remove_from("case $code in", "esac");
}

std::string slurm_script(const JobScriptRequest& request) {
  EditedScript script(example_job_script(Scheduler::kSlurm));
  script.replace(
      "# Trains on CPUs",
      {"# Runs its command under Slurm until the run is complete. Submit it once, from the folder that relative "
       "paths start at:"});
  script.replace("##SBATCH --account=", {"##SBATCH --account=PROJECT         # <- remove one # to use it; likewise "
                                         "--partition, --qos, --mem"});
  script.replace("#   CONFIG=", {fmt::format("#   sbatch {}", kSlurmName)});
  if (request.nodes) script.replace("#SBATCH --nodes=", {fmt::format("#SBATCH --nodes={}", *request.nodes)});
  if (request.per_node)
    script.replace("#SBATCH --ntasks-per-node=", {fmt::format("#SBATCH --ntasks-per-node={}", *request.per_node)});
  else
    script.remove("#SBATCH --ntasks-per-node=");
  script.replace("#SBATCH --cpus-per-task=",
                 {"#SBATCH --exclusive                # whole nodes: launch finds devices and cores, and divides them",
                  "##SBATCH --gpus-per-node=4         # <- on nodes with GPUs: remove one #, and write their number"});
  put_launch(script, request);
  script.remove("export SRUN_CPUS_PER_TASK=");
  script.replace("export SLURM_WAIT=",
                 {"export SLURM_WAIT=${SLURM_WAIT:-60}                          # of a command that is no "
                  "training: after a killed rank the others end a minute later"});
  return script.text();
}

std::string pbs_script(const JobScriptRequest& request) {
  EditedScript script(example_job_script(Scheduler::kPbs));
  script.replace("# Trains on CPUs",
                 {"# Runs its command under PBS until the run is complete: a job that runs out of time submits the "
                  "next one. Submit the first"});
  script.replace("#   qsub -v CONFIG=", {fmt::format("#   qsub {}", kPbsName)});
  std::string select = fmt::format("#PBS -l select={}:ncpus=104", request.nodes.value_or(2));
  if (request.per_node) select += fmt::format(":mpiprocs={}", *request.per_node);
  script.replace("#PBS -l select=", {select});
  script.replace("# <- The lines above: the nodes; the cores, ranks",
                 {"# <- The lines above: the nodes, with their cores (on nodes with GPUs also :ngpus=4); the time of"});
  script.replace("SCRIPT=",
                 {fmt::format("SCRIPT=${{SCRIPT:-{}}}     # <- this file, which PBS runs as a copy", kPbsName)});
  put_launch(script, request);
  script.replace("export SCRIPT", {"export SCRIPT"});
  if (request.launch_submits)
    script.replace("command=(", {"launch+=(--job-script \"$SCRIPT\")", script.line("command=(")});
  if (!request.launch_submits) script.replace("    qsub -v SCRIPT,", {R"(    qsub -v SCRIPT "$SCRIPT" ||)"});
  return script.text();
}

}  // namespace

std::string job_script(Scheduler scheduler, const JobScriptRequest& request) {
  ATHANOR_ASSERT(scheduler == Scheduler::kSlurm || scheduler == Scheduler::kPbs);
  return scheduler == Scheduler::kSlurm ? slurm_script(request) : pbs_script(request);
}

}  // namespace athanor::launch
