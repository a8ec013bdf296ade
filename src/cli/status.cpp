// athanor status RUN shows what the ranks of a run are doing, and which of them the others wait for. It reads what the
// collectors of the nodes tell (board/run_status.h), and nothing of the run notices.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/wall_clock.h"
#include "board/place.h"
#include "board/run_status.h"
#include "board/shown_stacks.h"
#include "cli/commands.h"
#include "cli/run_progress.h"
#include "launch/attempts.h"
#include "record/run_folder.h"

namespace athanor::inline cli {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds kWatchInterval{2};
constexpr const char* kBehind = "behind";

struct StatusArguments {
  std::string run;
  bool watch = false, json = false, probe = false;
  std::string stacks;  // "behind", or numbers of ranks; "": none
};

board::RunStatus read_status(const std::string& run) {
  ATHANOR_CHECK(fs::is_directory(run), "{} is no folder; give the run's folder, which train.run_dir names", run);
  const auto reports = board::collect_reports(run);
  const auto end = board::end_of_run(run);
  const bool is_run = fs::exists(fs::path(run) / "config.toml") || fs::exists(fs::path(run) / "events.jsonl");
  ATHANOR_CHECK(
      is_run || !reports.empty(),
      "{} is no run folder: it has neither config.toml nor events.jsonl; name the folder of a run (train.run_dir)",
      run);
  ATHANOR_CHECK(
      end || !reports.empty(),
      "{} has no board, and its history has no end of its last attempt: the run was started with "
      "ATHANOR_BOARD=off or by a version without boards, its nodes cannot keep one (see RUN/log), or it began "
      "a moment ago",
      run);
  return board::status_of(reports, end, unix_time_s());
}

void check_stacks(const std::string& stacks) {
  if (stacks.empty() || stacks == kBehind) return;
  const bool are_numbers = stacks.find_first_not_of("0123456789,") == std::string::npos && stacks.front() != ',' &&
                           stacks.back() != ',' && stacks.find(",,") == std::string::npos;
  ATHANOR_CHECK(are_numbers, "--stacks={}: expected numbers of ranks such as 3,7; --stacks alone for those behind",
                stacks);
}

// The ranks that --stacks names.
std::vector<int> chosen_ranks(const std::string& stacks, const board::RunStatus& status) {
  std::vector<int> ranks;
  if (stacks == kBehind) {
    for (const auto& behind : status.behind.ranks) ranks.push_back(status.ranks[behind.index].rank.rank);
    for (const size_t index : status.behind.in_a_circle) ranks.push_back(status.ranks[index].rank.rank);
    return ranks;
  }
  std::istringstream words(stacks);
  for (std::string word; std::getline(words, word, ',');) {
    const auto found =
        std::ranges::find(status.ranks, word, [](const auto& seen) { return std::to_string(seen.rank.rank); });
    ATHANOR_CHECK(found != status.ranks.end(), "--stacks={}: there is no rank {} among the {} of this run", stacks,
                  word, std::ssize(status.ranks));
    ranks.push_back(found->rank.rank);
  }
  ATHANOR_CHECK(ranks.size() <= board::kMostStacks, "--stacks={}: at most {} ranks at a time", stacks,
                board::kMostStacks);
  return ranks;
}

// What is known of each chosen rank: its calls from the board, and its stack.
board::ShownStacks read_stacks(const StatusArguments& arguments, const board::RunStatus& status) {
  std::vector<int> ranks = chosen_ranks(arguments.stacks, status);
  if (ranks.size() > board::kMostStacks) ranks.resize(board::kMostStacks);
  return board::ask_for_shown_stacks(arguments.run, status, ranks);
}

void ask_for_probe(const std::string& run, bool as_json) {
  const board::RunStatus status = read_status(run);
  ATHANOR_CHECK(!status.has_ended(), "{} does not run: a probe is made by its ranks", run);
  const fs::path request = RunFolder{run}.probe_request();
  write_file_atomically(request, "");
  if (as_json) {
    const nlohmann::ordered_json asked{
        {"format", 1}, {"run", run}, {"asked", "probe"}, {"answer", run + "/probes.jsonl"}};
    return fmt::print("{}\n", asked.dump());
  }
  fmt::print("asked: within 5 s and a step the ranks are measured, and {}/probes.jsonl gets a line\n", run);
}

void show_status(const StatusArguments& arguments) {
  RunProgress progress(arguments.run);
  const bool redraws = arguments.watch && !arguments.json && ::isatty(STDOUT_FILENO) == 1;
  const fs::path attempts = fs::path(arguments.run) / "attempts";
  while (true) {
    const board::RunStatus status = read_status(arguments.run);
    const bool shows_stacks = !arguments.stacks.empty() && !status.has_ended();
    const auto stacks = shows_stacks ? read_stacks(arguments, status) : board::ShownStacks();
    if (redraws) fmt::print("\033[H\033[2J");
    if (arguments.json) {
      auto json = board::status_json(arguments.run, status);
      if (shows_stacks) json["stacks"] = board::stacks_json(stacks.ranks);
      if (!stacks.unanswered.empty()) json["unanswered"] = stacks.unanswered;
      if (auto history = launch::attempts_json(attempts); !history.empty()) json["attempts"] = std::move(history);
      fmt::print("{}\n", json.dump());
    } else {
      const std::string text =
          board::status_text(arguments.run, status) + board::stacks_text(stacks) + launch::attempts_text(attempts);
      fmt::print("{}{}", text, arguments.watch ? progress.text(std::ranges::count(text, '\n')) : "");
    }
    if (!arguments.watch || status.has_ended()) return;
    if (!redraws && !arguments.json) fmt::print("\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(kWatchInterval);
  }
}

}  // namespace

void add_status_command(CLI::App& app) {
  const auto arguments = std::make_shared<StatusArguments>();
  auto* command =
      app.add_subcommand("status", "Show what the ranks of a run are doing, and which of them the others wait for");
  command->add_option("RUN", arguments->run, "The run's folder")->required();
  command->add_flag("--watch", arguments->watch,
                    "Show it again every 2 seconds, with the loss, the loads of experts and the last events, until the "
                    "run has ended");
  command->add_flag("--json", arguments->json, "Print a JSON object; with --watch, one on each line");
  command->add_flag("--stacks{behind}", arguments->stacks,
                    "Also show the calls and the stacks of the ranks that are behind, or of chosen ones: --stacks=3,7. "
                    "Other nodes are asked through RUN/board, and have 5 s more than the interval of their reports");
  command->add_flag("--probe", arguments->probe,
                    "Ask the run to measure its ranks and nodes: products, memory, messages, disk");
  command->footer(
      "On a node of the run it shows the present moment of that node. Other nodes are shown as they were up to 5 s "
      "ago\n"
      "(10 s in jobs of a thousand nodes), from RUN/board. See docs/board.md.");
  command->callback([arguments] {
    check_stacks(arguments->stacks);
    if (arguments->probe)
      ask_for_probe(arguments->run, arguments->json);
    else
      show_status(*arguments);
  });
}

}  // namespace athanor::inline cli
