// athanor checkpoint lists, verifies, compares and removes the checkpoints of a run.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "checkpoint/listing.h"
#include "checkpoint/local_listing.h"
#include "checkpoint/manifest.h"
#include "checkpoint/removal.h"
#include "checkpoint/step_words.h"
#include "checkpoint/verification.h"
#include "cli/commands.h"

namespace athanor::inline cli {
namespace {

// ---- ls ------------------------------------------------------------------------------------------------------------

struct ListArguments {
  std::string path;
  bool json = false;
};

std::string shown_time(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm local{};
  std::array<char, 32> text{};
  if (unix_s == 0 || !::localtime_r(&time, &local)) return "-";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local);
  return text.data();
}

std::string shown_tokens(const std::optional<int64_t>& tokens) {
  return tokens ? format_thousands(static_cast<double>(*tokens)) : "-";
}

void print_row(const DescribedCheckpoint& row, const std::string& shown_path) {
  const auto program = row.version.empty() ? "-" : printable(row.version);
  fmt::print("{:>10}  {:<5}  {:<10}  {:>16}  {:>17}  {:>10}  {:>6}  {:>6}  {:<8}  {}\n",
             row.found.step < 0 ? "-" : std::to_string(row.found.step), name_of(row.found.kind),
             name_of(row.found.state), shown_time(row.written_s), shown_tokens(row.tokens_seen),
             format_bytes(static_cast<double>(row.num_bytes)), row.num_files,
             row.num_ranks == 0 ? "-" : std::to_string(row.num_ranks), program, printable(shown_path));
  if (!row.problem.empty()) fmt::print("{:>10}  cannot be read: {}\n", "", printable(row.problem));
}

void print_table(const std::vector<DescribedCheckpoint>& rows, const std::string& path) {
  fmt::print("{:>10}  {:<5}  {:<10}  {:>16}  {:>17}  {:>10}  {:>6}  {:>6}  {:<8}  {}\n", "step", "kind", "state",
             "written", "tokens seen", "size", "files", "ranks", "athanor", "folder");
  for (const auto& row : rows) {
    const auto below = row.found.path.lexically_relative(path).string();
    print_row(row, below.empty() || below == "." ? row.found.path.string() : below);
  }
}

nlohmann::ordered_json listed_json(const DescribedCheckpoint& row) {
  nlohmann::ordered_json json{{"path", row.found.path.string()}, {"step", row.found.step},
                              {"kind", name_of(row.found.kind)}, {"state", name_of(row.found.state)},
                              {"bytes", row.num_bytes},          {"files", row.num_files},
                              {"written", row.written_s},        {"tokens_seen", nullptr}};
  if (row.found.step < 0) json["step"] = nullptr;
  if (row.tokens_seen) json["tokens_seen"] = *row.tokens_seen;
  if (row.num_ranks > 0) json["ranks"] = row.num_ranks;
  if (!row.version.empty()) json["athanor"] = {{"version", row.version}, {"commit", row.commit}};
  if (!row.problem.empty()) json["problem"] = row.problem;
  return json;
}

nlohmann::ordered_json local_json(const LocalListing& local) {
  auto here = nlohmann::ordered_json::array();
  for (const auto& [step, attempt, writers, found] : local.here)
    here.push_back({{"step", step}, {"attempt", attempt}, {"ranks", writers}, {"ranks_here", found}});
  nlohmann::ordered_json json{{"path", local.folder.string()}, {"step", nullptr},      {"kind", "local"},
                              {"state", "recorded"},           {"nodes", local.nodes}, {"here", here}};
  if (!local.problem.empty()) json["problem"] = local.problem;
  return json;
}

void print_listing(const ListArguments& arguments) {
  std::vector<DescribedCheckpoint> rows;
  for (const auto& found : find_checkpoints(arguments.path))
    if (auto described = describe_checkpoint(found)) rows.push_back(std::move(*described));
  const auto local = list_local(arguments.path);
  if (arguments.json) {
    auto json = nlohmann::ordered_json::array();
    for (const auto& row : rows) json.push_back(listed_json(row));
    if (local) json.push_back(local_json(*local));
    fmt::print("{}\n", json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  if (rows.empty()) {
    fmt::print("{} holds no checkpoint and no model\n", arguments.path);
  } else {
    print_table(rows, arguments.path);
  }
  if (local) fmt::print("{}\n", printable(describe_local(*local)));
}

void add_listing(CLI::App& parent) {
  const auto arguments = std::make_shared<ListArguments>();
  auto* command = parent.add_subcommand(
      "ls", "List checkpoints and models with their size, tokens and time, newest first; compares no hashes");
  command
      ->add_option(
          "RUN", arguments->path,
          "A run folder, also of a run that is training; its folder of checkpoints; or one checkpoint or model")
      ->required();
  command->add_flag("--json", arguments->json, "A JSON list");
  command->callback([arguments] { print_listing(*arguments); });
}

// ---- verify --------------------------------------------------------------------------------------------------------

struct CheckArguments {
  std::string path;
  int64_t threads = 0;
};

// Counts what was verified, and keeps the first refusals.
struct Verdicts {
  int64_t whole = 0, damaged = 0, left_out = 0, unknown = 0;
  std::string first_damage, first_unknown;
  std::optional<IoError> unread;
};

void verify_one(const FoundCheckpoint& found, int threads, Verdicts& verdicts) {
  const std::string path = found.path.string();
  try {
    const bool full = found.kind == CheckpointKind::kFull;
    const auto verified = full ? verify_checkpoint(found.path, threads) : verify_model(found.path);
    fmt::print("{}: ok: {} tensors, {} in {} file{}{}\n", path, verified.num_tensors,
               format_bytes(static_cast<double>(verified.num_bytes)), verified.num_files,
               verified.num_files == 1 ? "" : "s",
               full ? "" : "; a model has no hashes: its headers, shapes and sizes were checked");
    ++verdicts.whole;
  } catch (const Error& error) {
    if (!std::filesystem::exists(found.path)) {
      fmt::print("{}: has disappeared: the run has deleted it in the meantime\n", path);
      return;
    }
    const auto* unread = dynamic_cast<const IoError*>(&error);
    const bool is_newer = dynamic_cast<const NewerFormatError*>(&error);
    fmt::print("{}: {}: {}\n", path,
               unread     ? "cannot be read"
               : is_newer ? "not known"
                          : "damaged",
               printable(error.what()));
    if (unread && !verdicts.unread) verdicts.unread = *unread;
    if (is_newer && verdicts.unknown++ == 0) verdicts.first_unknown = path;
    if (!unread && !is_newer && verdicts.damaged++ == 0) verdicts.first_damage = path;
  }
  std::fflush(stdout);  // the next one may take hours
}

void verify_all(const CheckArguments& arguments) {
  const int threads = thread_count("--threads", arguments.threads);
  const auto all = find_checkpoints(arguments.path);
  Verdicts verdicts;
  for (const auto& found : all) {
    if (all.size() > 1 && found.state != CheckpointState::kThere) {
      ++verdicts.left_out;
    } else {
      verify_one(found, threads, verdicts);
    }
  }
  if (verdicts.left_out > 0)
    fmt::print("left out: {} unfinished or moved aside; name one of them to verify it\n", verdicts.left_out);
  ATHANOR_CHECK_CHECKPOINT(
      verdicts.damaged == 0, "{} of {} are damaged, the first: {}; a run continues from the newest that is whole",
      verdicts.damaged, verdicts.damaged + verdicts.whole + verdicts.unknown, verdicts.first_damage);
  ATHANOR_CHECK_CHECKPOINT(verdicts.unknown == 0,
                           "{} of {} are of a newer format, the first: {}; verify them with "
                           "the program that wrote them",
                           verdicts.unknown, verdicts.whole + verdicts.unknown, verdicts.first_unknown);
  if (verdicts.unread) throw *verdicts.unread;
  ATHANOR_CHECK_CHECKPOINT(verdicts.whole > 0, "{} holds no checkpoint and no model: there is nothing to verify",
                           arguments.path);
}

void add_verifying_threads(CLI::App& command, int64_t& threads) {
  command.add_option("--threads", threads, "0: one for each core; the result does not depend on it")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void add_verifying(CLI::App& parent) {
  const auto arguments = std::make_shared<CheckArguments>();
  auto* command = parent.add_subcommand(
      "verify", "Read every checkpoint and compare it with its hashes; exits with 2 if one is damaged");
  command->add_option("RUN", arguments->path, "A run folder, its folder of checkpoints, or one checkpoint or model")
      ->required();
  add_verifying_threads(*command, arguments->threads);
  command->callback([arguments] { verify_all(*arguments); });
}

// ---- rm ------------------------------------------------------------------------------------------------------------

struct RemoveArguments {
  RemovalRequest request;
  std::string run;
  std::vector<std::string> steps;
  bool models = false;
  int64_t threads = 0;
};

void remove_chosen(RemoveArguments arguments) {
  RemovalRequest& request = arguments.request;
  request.run = arguments.run;
  request.kind = arguments.models ? CheckpointKind::kModel : CheckpointKind::kFull;
  for (const std::string& step : arguments.steps) request.steps.push_back(step_in_run(step, request.run, request.kind));
  arguments.request.num_threads = thread_count("--threads", arguments.threads);
  uint64_t freed = 0;
  for (const auto& removed : remove_checkpoints(arguments.request)) {
    fmt::print("removed {} ({})\n", removed.path.string(), format_bytes(static_cast<double>(removed.num_bytes)));
    freed += removed.num_bytes;
  }
  fmt::print("freed {}\n", format_bytes(static_cast<double>(freed)));
}

void add_removal(CLI::App& parent) {
  const auto arguments = std::make_shared<RemoveArguments>();
  auto* command = parent.add_subcommand(
      "rm", "Delete checkpoints of a run that is not training; refuses the newest one that is whole");
  command->add_option("RUN", arguments->run, "The run folder")->required();
  command
      ->add_option("STEP", arguments->steps,
                   "The checkpoints: 40, step-40, step-00000040, or a path such as RUN/checkpoints/step-00000040")
      ->required();
  command->add_flag("--models", arguments->models, "Delete model-only checkpoints of these steps instead");
  command->add_flag("--force", arguments->request.force, "Verify nothing, and delete also the newest one");
  add_verifying_threads(*command, arguments->threads);
  command->callback([arguments] { remove_chosen(*arguments); });
}

}  // namespace

void add_checkpoint_command(CLI::App& app) {
  auto* command = app.add_subcommand("checkpoint", "Look at checkpoints, and remove them: ls, verify, diff, rm");
  command->require_subcommand(1);
  add_listing(*command);
  add_verifying(*command);
  add_checkpoint_diff_command(*command);
  add_removal(*command);
}

}  // namespace athanor::inline cli
