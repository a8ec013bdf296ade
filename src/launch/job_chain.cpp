#include "launch/job_chain.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/append_file.h"
#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "launch/process.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFile = "jobs.jsonl";
constexpr std::chrono::seconds kPatience{60};  // for a scheduler that is busy
// Signals within this time before the end of a job are the scheduler's warning: scripts ask for it some minutes before.
constexpr double kWarning_s = 15 * 60;

std::optional<std::string> ask_scheduler(const std::vector<std::string>& words, Surroundings here) {
  here.tool_limit = kPatience;
  return ask_tool(words, here);
}

// Returns the value of NAME=… in the one line that Slurm prints; "" if it has none.
std::string field_of(const std::string& details, const std::string& name) {
  for (size_t at = details.find(name + "="); at != details.npos; at = details.find(name + "=", at + 1)) {
    if (at > 0 && details[at - 1] != ' ') continue;
    const size_t begin = at + name.size() + 1;
    const std::string value = details.substr(begin, details.find_first_of(" \n", begin) - begin);
    return value == "(null)" || value == "UNLIMITED" ? "" : value;
  }
  return "";
}

// Variables that Slurm has set for this job. They reach the next one, whose srun would take those for wishes that Slurm
// does not set again.
bool is_of_job(const std::string& variable) {
  constexpr std::string_view kStarts[] = {"SLURM_JOB",  "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES",
                                          "SLURM_NODE", "SLURM_TASK",   "SLURM_CPUS",   "SLURM_MEM",
                                          "SLURM_GPUS", "SLURM_GTIDS",  "SLURM_PROCID", "SLURM_LOCALID"};
  return std::ranges::any_of(kStarts, [&](std::string_view start) { return variable.starts_with(start); });
}

std::vector<std::string> slurm_words(const std::string& job, const std::string& details, const std::string& script,
                                     const Surroundings& here) {
  std::vector<std::string> words{"env"};
  for (const auto& [name, value] : here.variables)
    if (is_of_job(name)) words.insert(words.end(), {"-u", name});
  const auto sbatch = here.find_program("sbatch");
  words.insert(words.end(), {sbatch ? sbatch->string() : "sbatch", "--parsable", "--dependency=afterany:" + job});
  constexpr std::pair<const char*, const char*> kFields[] = {
      {"NumNodes", "nodes"}, {"TimeLimit", "time"},   {"Partition", "partition"}, {"Account", "account"},
      {"QOS", "qos"},        {"JobName", "job-name"}, {"WorkDir", "chdir"}};
  for (const auto& [field, option] : kFields)
    if (const std::string value = field_of(details, field); !value.empty())
      words.push_back(fmt::format("--{}={}", option, value));
  words.push_back(script);
  return words;
}

// Returns the job that an answer names; "" if there is none. Messages of a site stand around it ("sbatch: charged to
// x\n124"), and Slurm may add a cluster ("124;c1").
std::string job_of(const std::string& answer) {
  std::istringstream lines(answer);
  std::string job;
  for (std::string line; std::getline(lines, line);) {
    const std::string id = line.substr(0, line.find_first_of(" \r;"));
    const bool is_alone = id.size() == line.size() || line[id.size()] != ' ';
    if (is_alone && is_job_id(id) && id[0] >= '0' && id[0] <= '9') job = id;
  }
  return job;
}

}  // namespace

ChainPlace place_in_chain(const std::string& lines, const std::string& job, std::optional<int64_t> start_step) {
  ChainPlace place;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const json line = read_json(std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
    if (!line.is_object() || !line.contains("job") || !line["job"].is_string() || !line.contains("next") ||
        !line["next"].is_string())
      continue;
    if (line["job"] == job) place.next = line.contains("cancelled") ? "" : line["next"];
    if (line["next"] != job) continue;
    place.number = line.contains("number") && line["number"].is_number_integer() ? line["number"].get<int>() + 1 : 2;
    const bool has_step = line.contains("step") && line["step"].is_number_integer();
    place.was_idle = start_step && has_step && line["step"].get<int64_t>() >= *start_step;
  }
  return place;
}

std::vector<std::string> submit_words(Scheduler scheduler, const std::string& job, const std::string& details,
                                      const std::string& script, const Surroundings& here) {
  if (scheduler == Scheduler::kSlurm) return slurm_words(job, details, script, here);
  return {"qsub", "-W", "depend=afterany:" + job, script};
}

bool continues_in_next_job(const JobEnding& ending) {
  const CauseRow& row = row_of(ending.cause);
  if (row.verdict == Verdict::kSuccess) return false;
  if (ending.had_limit || row.verdict == Verdict::kWalltime) return true;
  if (ending.was_told_to_stop || row.verdict == Verdict::kStopped)
    return ending.cause != Cause::kSuccess && ending.left_s && *ending.left_s < kWarning_s;
  return row.time != Cure::kNo || row.swap != Cure::kNo;
}

JobChain::JobChain(const Allocation& allocation, const Surroundings& here, ChainRequest request)
    : scheduler_(allocation.scheduler), job_(allocation.job), here_(here), request_(std::move(request)),
      limit_(find_job_limit()) {
  ATHANOR_CHECK((scheduler_ == Scheduler::kSlurm || scheduler_ == Scheduler::kPbs) && is_job_id(job_),
                "--resubmit needs a job of Slurm or PBS, whose successor it submits, but this is none ({}); write a "
                "script with --print-script slurm or pbs, and submit it",
                allocation.scheduler_from);
  if (!request_.job_script.empty()) return;
  ATHANOR_CHECK(scheduler_ == Scheduler::kSlurm,
                "--resubmit needs --job-script FILE, since PBS keeps no script of a job that could be submitted again");
  script_ = ask_scheduler({"scontrol", "write", "batch_script", job_, "-"}, here_).value_or("");
  ATHANOR_CHECK(script_.starts_with("#!"),
                "--resubmit: Slurm has no script of job {}, which sbatch would submit again; start it with sbatch, or "
                "give --job-script FILE",
                job_);
}

void JobChain::look(const fs::path& attempts, std::optional<int64_t> start_step, bool has_stepped,
                    const std::function<bool()>& gives_up) {
  if (!next_.empty() || is_last_) return;
  if (!std::exchange(has_looked_, true)) {
    std::error_code none;
    const fs::path file = attempts / kFile;
    const ChainPlace place = place_in_chain(fs::exists(file, none) ? read_file(file) : std::string(), job_, start_step);
    number_ = place.number, was_idle_ = place.was_idle, next_ = place.next;
    if (!next_.empty()) return;
    if (was_idle_) log::warn("the job before this one took no step: the next one is submitted after the first step");
  }
  if (number_ >= request_.max_jobs) {
    is_last_ = true;
    return log::warn("this is job {} of --max-jobs {}: no further one is submitted", number_, request_.max_jobs);
  }
  if (was_idle_ && !has_stepped) return;
  const auto next = submit(attempts, gives_up);
  is_last_ = !next;
  if (!next) return;
  next_ = *next;
  const ordered_json line{{"job", job_},
                          {"number", number_},
                          {"step", start_step ? ordered_json(*start_step) : ordered_json()},
                          {"next", next_},
                          {"time", unix_time_s()}};
  note(attempts, line.dump());
  log::info("job {} is submitted: it continues the run when this job has ended (--resubmit)", next_);
}

// A disk that is full is no reason to end the run.
void JobChain::note(const fs::path& attempts, const std::string& line) const {
  try {
    AppendFile(attempts / kFile).append(line + "\n");
  } catch (const IoError& error) {
    log::warn("{}; the jobs after this one will not know it", error.what());
  }
}

fs::path JobChain::kept_script(const fs::path& attempts) const {
  if (!request_.job_script.empty()) return request_.job_script;
  const fs::path file = attempts / "job-script";
  write_file_atomically(file, script_);
  return file;
}

std::optional<std::string> JobChain::submit(const fs::path& attempts, const std::function<bool()>& gives_up) const {
  const fs::path file = attempts / "submitted";
  std::string script = request_.job_script, answer;
  // A scheduler that does not answer must not keep a signal from the run, which saves by it.
  const auto said_by = [&](const std::vector<std::string>& words) {
    return run_into_file({words}, file, kPatience, gives_up) == 0 ? read_file(file) : std::string();
  };
  try {
    script = fs::absolute(kept_script(attempts)).string();
    std::string details;
    if (const auto scontrol = here_.find_program("scontrol"); scontrol && scheduler_ == Scheduler::kSlurm)
      details = said_by({scontrol->string(), "-o", "show", "job", job_});
    if (!gives_up || !gives_up()) answer = job_of(said_by(submit_words(scheduler_, job_, details, script, here_)));
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
  if (!answer.empty()) return answer;
  log::warn("the next job could not be submitted ({} has the reason): submit {} yourself when this one has ended",
            file.string(), script);
  return std::nullopt;
}

std::optional<double> JobChain::left_s() const {
  return limit_ ? std::optional(limit_->ends_at_s - unix_time_s()) : std::nullopt;
}

void JobChain::end(const fs::path& attempts, bool continues, const std::string& why) {
  if (next_.empty()) {
    if (continues) log::warn("no job continues the run: none was submitted; submit the script again");
    return;
  }
  if (continues) return log::info("job {} continues the run: {}", next_, why);
  const bool is_cancelled =
      ask_scheduler({scheduler_ == Scheduler::kSlurm ? "scancel" : "qdel", next_}, here_).has_value();
  if (!is_cancelled)
    return log::warn("job {} could not be cancelled; cancel it, as none should follow: {}", next_, why);
  const ordered_json line{{"job", job_}, {"next", next_}, {"cancelled", true}, {"time", unix_time_s()}};
  note(attempts, line.dump());
  log::info("job {}, which would have continued, is cancelled: {}", std::exchange(next_, ""), why);
  is_last_ = true;
}

}  // namespace athanor::launch
