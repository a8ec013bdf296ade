// athanor launch finds the scheduler, the hosts and their devices, and starts a command on all of them (launch/plan.h).

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "base/shell_words.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "launch/job_script.h"
#include "launch/plan.h"
#include "launch/programs.h"
#include "launch/run_records.h"
#include "launch/staged_run.h"
#include "launch/supervisor.h"
#include "launch/training_command.h"

namespace athanor::inline cli {
namespace {

using namespace launch;

constexpr int kRetries = 5, kSwaps = 10;  // with --auto-retry
constexpr int kTimeout_s = 600, kMaxJobs = 100;
constexpr int kMostRetries = 1'000'000;
constexpr std::chrono::milliseconds kFirstStepLook{500};
constexpr int kMostRanks = 1 << 24;  // as many as verify --ranks takes

struct LaunchArguments {
  LaunchRequest request;
  int ranks = 0, per_node = 0, nodes = 0, min_nodes = 0;  // 0: not given
  bool dry_run = false;
  std::string print_script;  // a scheduler; "": none
  std::string attempts;      // a folder; "": that of the run
  std::string yeet;          // a folder on each node; "": nothing is sent there
  int timeout_s = kTimeout_s;
  std::optional<int> retries, swaps;
  bool auto_retry = false, resubmit = false;
  std::optional<int> max_jobs;
  std::string job_script;  // "": that of the job
  std::string spares = "auto", swap_suspects = "yes";
};

std::optional<int> if_given(int number) { return number > 0 ? std::optional(number) : std::nullopt; }

// The words of this call up to the command, for a job script: what depends on the machine is found in the job. A job
// may have another PATH.
std::vector<std::string> words_for_script(const LaunchArguments& arguments) {
  std::vector<std::string> words{running_program().string(), "launch"};
  const auto add = [&words](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
  const LaunchRequest& request = arguments.request;
  if (arguments.ranks > 0) add("-n", std::to_string(arguments.ranks));
  if (arguments.per_node > 0) add("--ppn", std::to_string(arguments.per_node));
  if (arguments.nodes > 0 && arguments.auto_retry)
    add("--nodes", std::to_string(arguments.nodes));  // others are spares
  if (request.launcher != "auto") add("--launcher", request.launcher);
  if (!request.exclude_cores.empty()) add("--exclude-cores", request.exclude_cores);
  if (request.reserve_cores > 0) add("--reserve-cores", std::to_string(request.reserve_cores));
  if (!arguments.attempts.empty()) add("--attempts", arguments.attempts);
  if (!arguments.yeet.empty()) add("--yeet", arguments.yeet);
  if (arguments.timeout_s != kTimeout_s) add("--timeout", std::to_string(arguments.timeout_s));
  if (arguments.retries) add("--retries", std::to_string(*arguments.retries));
  if (arguments.auto_retry) words.emplace_back("--auto-retry");
  if (arguments.spares != "auto") add("--spare-nodes", arguments.spares);
  if (arguments.swap_suspects != "yes") add("--swap-suspects", arguments.swap_suspects);
  if (arguments.swaps) add("--max-failover-retries", std::to_string(*arguments.swaps));
  if (arguments.resubmit) words.emplace_back("--resubmit");
  if (arguments.max_jobs) add("--max-jobs", std::to_string(*arguments.max_jobs));
  if (arguments.min_nodes > 0) add("--min-nodes", std::to_string(arguments.min_nodes));
  return words;
}

Supervision supervision_of(const LaunchArguments& arguments) {
  Supervision supervision{
      arguments.attempts, arguments.request.own_program, static_cast<double>(arguments.timeout_s), {}};
  if (arguments.spares != "auto") {
    const std::string& text = arguments.spares;
    const bool is_number = !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == text.npos;
    ATHANOR_CHECK(is_number, "--spare-nodes: expected auto, or a number of nodes, got {}", text);
    supervision.spares = std::stoi(text);
  }
  ATHANOR_CHECK(
      arguments.auto_retry || (arguments.spares == "auto" && !arguments.swaps && arguments.min_nodes == 0 &&
                               arguments.swap_suspects == "yes"),
      "--spare-nodes, --max-failover-retries, --min-nodes and --swap-suspects are for --auto-retry: add it, or leave "
      "them out");
  ATHANOR_CHECK(arguments.resubmit || (!arguments.max_jobs && arguments.job_script.empty()),
                "--max-jobs and --job-script are for --resubmit: add it, or leave them out");
  if (arguments.resubmit) supervision.chain = {arguments.max_jobs.value_or(kMaxJobs), arguments.job_script};
  supervision.limits = {arguments.retries.value_or(arguments.auto_retry ? kRetries : 0),
                        arguments.auto_retry,
                        arguments.swaps.value_or(kSwaps),
                        {},
                        arguments.swap_suspects == "yes"};
  return supervision;
}

void print_script(const LaunchArguments& arguments) {
  const auto scheduler = arguments.print_script == "slurm" ? Scheduler::kSlurm : Scheduler::kPbs;
  ATHANOR_CHECK(arguments.request.allocation.host_file.empty(),
                "--print-script {} and --hostfile contradict each other: the job gets its hosts from the scheduler; "
                "leave one of them out",
                arguments.print_script);
  std::optional<int> nodes = if_given(arguments.nodes);
  const Supervision supervision = supervision_of(arguments);
  if (nodes && arguments.auto_retry) *nodes += supervision.spares.value_or(automatic_spares(*nodes));
  fmt::print("{}", job_script(scheduler, {nodes, if_given(arguments.per_node), words_for_script(arguments),
                                          arguments.request.command, arguments.resubmit}));
}

// Spare nodes get the files as well: what takes the place of a node starts at once.
void stage_on_all_nodes(const StagedRun& staged, const LaunchArguments& arguments, const Surroundings& here) {
  if (!staged.left_out.empty()) log::info("--yeet: {}", staged.left_out);
  const auto begin = std::chrono::steady_clock::now();
  LaunchRequest request = arguments.request;
  if (arguments.auto_retry) {
    request.allocation.nodes.reset();
    request.ranks.has_nodes = false;
  }
  if (const int code = stage(staged, request, here)) throw ExitCode{code};
  log::info("the program and its data were on all nodes after {:.1f} s", seconds_since(begin));
}

void print_dry_run(const LaunchPlan& plan, const LaunchCommand& command, const Supervision& supervision,
                   const std::optional<StagedRun>& staged) {
  if (staged)
    for (const StagedFolder& folder : staged->folders)
      fmt::print("# first, on each node: athanor yeet --to {} -- {}\n", folder.folder.string(),
                 shell_line(folder.sources));
  const bool needs_port = plan.launcher.flavour == Flavour::kSockets && plan.ranks.total() > 1;
  const auto spares = supervision.limits.may_swap ? usable_spares(plan, supervision.spares) : std::vector<Host>();
  fmt::print("{}", dry_run_text(plan, command, needs_port ? free_port() : 0, spares));
}

// A word that is no subcommand would be refused by every rank.
void require_subcommand(const CLI::App& app, const LaunchRequest& request) {
  const auto& words = request.command;
  if (words.size() < 2 || words[1].starts_with('-') || !is_athanor(words, request.own_program)) return;
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  ATHANOR_CHECK(std::ranges::find(names, words[1]) != names.end(),
                "COMMAND: athanor has no command {}{}; see athanor "
                "--help",
                words[1], did_you_mean(words[1], names));
}

void launch_command(const CLI::App& app, LaunchArguments arguments) {
  const double begin_s = unix_time_s();
  if (!arguments.print_script.empty()) return print_script(arguments);
  LaunchRequest& request = arguments.request;
  request.ranks = {if_given(arguments.ranks), if_given(arguments.per_node), arguments.nodes > 0};
  request.allocation.nodes = if_given(arguments.nodes);
  std::error_code ignored;
  if (const auto& folder = arguments.attempts; !folder.empty())
    ATHANOR_CHECK(std::filesystem::is_directory(nearest_existing(std::filesystem::absolute(folder)), ignored),
                  "--attempts {} is or is in a file; expected a folder, or a path where nothing is", folder);
  ATHANOR_CHECK(arguments.job_script.empty() || std::filesystem::is_regular_file(arguments.job_script, ignored),
                "--job-script {}: there is no such file; give the script that sbatch or qsub has got",
                arguments.job_script);
  request.own_program = running_program().string();
  require_subcommand(app, request);
  const Surroundings here = own_surroundings();
  Supervision supervision = supervision_of(arguments);
  LaunchPlan plan = make_plan(request, here);
  if (arguments.min_nodes > 0)
    supervision.limits.fewer_hosts = hosts_that_fit(plan, request.own_program, arguments.min_nodes);
  std::optional<StagedRun> staged;
  if (!arguments.yeet.empty()) {
    staged = find_staged_run(request.command, request.own_program, arguments.yeet, here);
    plan.command = staged->command;
  }
  const LaunchCommand command = build_command(plan, here);
  if (arguments.dry_run) return print_dry_run(plan, command, supervision, staged);
  if (plan.is_node_known) require_training_config(request.command, request.own_program);  // else it may be elsewhere
  std::optional<FirstStepWatch> first_step;
  if (staged) {
    stage_on_all_nodes(*staged, arguments, here);
    if (const auto config = training_config(plan.command, request.own_program))
      first_step.emplace(config->train.run_dir, kFirstStepLook, [start = job_start(here, begin_s)](double time_s) {
        log::info("the first step was complete {:.1f} s after the start of {}", time_s - start.time_s, start.what);
      });
  }
  const int code = supervise(plan, here, supervision);
  if (code != exit_code::kComplete) throw ExitCode{code};
}

}  // namespace

void add_launch_command(CLI::App& app) {
  const auto arguments = std::make_shared<LaunchArguments>();
  LaunchRequest& request = arguments->request;
  auto* command =
      app.add_subcommand("launch", "Start a command on all hosts of a job, one rank for each device or socket");
  command->add_option("-n,--ranks", arguments->ranks, "Ranks of the job; by default one for each device, or socket")
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("--ppn", arguments->per_node, "Ranks of each node")->check(CLI::Range(1, kMostSlots));
  command->add_option("--nodes", arguments->nodes, "Nodes to use, the first of the job; by default all of them")
      ->check(CLI::Range(1, static_cast<int>(kMostHosts)));
  command->add_option(
      "--hostfile", request.allocation.host_file,
      "A file of hosts, one on each line as NAME, NAME:SLOTS or NAME slots=SLOTS; by default the job's");
  command
      ->add_option("--scheduler", request.allocation.scheduler,
                   "What has given the hosts; auto: what the environment names")
      ->check(CLI::IsMember({"auto", "slurm", "pbs", "lsf", "local"}))
      ->capture_default_str();
  command
      ->add_option(
          "--launcher", request.launcher,
          "What starts the ranks: auto, sockets (without MPI, on one host), or a program: mpirun, mpiexec, srun")
      ->capture_default_str();
  command
      ->add_option("--reserve-cores", request.reserve_cores,
                   "Cores of each rank that do not compute, for communication, loading and saving")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--exclude-cores", request.exclude_cores,
                      "Cores of each node that no rank runs on, such as 0,52; by default all are used");
  command->add_option("--attempts", arguments->attempts,
                      "A folder for the log, the hosts and the verdict of each attempt; by default RUN/attempts of "
                      "athanor train, and none for another command");
  command->add_option("--yeet", arguments->yeet,
                      "First send athanor, its libraries and the data (data.path) to this folder on the disk of each "
                      "node, and use them there");
  command
      ->add_option("--timeout", arguments->timeout_s,
                   "Seconds without progress (steps and phases of athanor train, else output) after which the command "
                   "is ended with code 124; also a duration such as 15m; 0: never")
      ->check(CLI::Range(0, 100'000'000))
      ->transform(duration_as_seconds())
      ->capture_default_str();
  command
      ->add_option("--retries", arguments->retries,
                   "Further attempts on the same hosts if the cause may pass; by default 0, with --auto-retry 5")
      ->check(CLI::Range(0, kMostRetries));
  command->add_flag("--auto-retry", arguments->auto_retry,
                    "Also run it again with spare nodes of the job in place of those at fault");
  command
      ->add_option("--spare-nodes", arguments->spares,
                   "How many nodes of the job beyond --nodes may be used as spares; auto: 2% of the nodes, at least 4")
      ->capture_default_str();
  command
      ->add_option("--max-failover-retries", arguments->swaps,
                   "Further attempts with spare nodes, or with fewer nodes; by default 10")
      ->check(CLI::Range(0, kMostRetries));
  command
      ->add_option("--swap-suspects", arguments->swap_suspects,
                   "Whether spares also take the place of hosts that may be at fault but are not known to be, such as "
                   "one where a rank was killed")
      ->check(CLI::IsMember({"yes", "no"}))
      ->capture_default_str();
  command
      ->add_option("--min-nodes", arguments->min_nodes,
                   "Without spares, continue on fewer nodes, down to this many, where the layout allows it; data and "
                   "batch stay as they are. By default never")
      ->check(CLI::Range(1, static_cast<int>(kMostHosts)));
  command->add_flag("--resubmit", arguments->resubmit,
                    "In a job of Slurm or PBS: submit the next one, which continues when this one has ended, until the "
                    "command is complete");
  command->add_option("--max-jobs", arguments->max_jobs, "Jobs of such a chain, this one included; by default 100")
      ->check(CLI::Range(1, kMostRetries));
  command->add_option("--job-script", arguments->job_script,
                      "The script that --resubmit submits; by default that of this job, which only Slurm keeps");
  command->add_flag("--dry-run", arguments->dry_run,
                    "Print the command, and what each part of it was derived from; start nothing");
  command->add_option("--print-script", arguments->print_script, "Print a job script for this command; start nothing")
      ->check(CLI::IsMember({"slurm", "pbs"}));
  command->add_option("COMMAND", request.command, "What each rank runs, with its arguments")->required();
  command->positionals_at_end();  // options after the first word of the command belong to it
  command->footer("athanor launch -- athanor train run.toml\nSee docs/launch.md.");
  command->callback([&app, arguments] { launch_command(app, *arguments); });
}

}  // namespace athanor::inline cli
