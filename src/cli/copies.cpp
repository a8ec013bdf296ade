#include "cli/copies.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "base/launched.h"

namespace athanor::inline cli {
namespace {

constexpr const char* kJobs[] = {"train", "lr-find",    "verify",          "eval", "probe", "generate",
                                 "yeet",  "bench comm", "bench checkpoint"};
constexpr const char* kConfigured[] = {"train", "lr-find", "verify", "config", "bench step", "bench checkpoint"};
// These commands write nothing: copies of them are a nuisance at worst.
constexpr const char* kReaders[] = {"config",           "data info", "data show", "data verify",   "tokenizer encode",
                                    "tokenizer decode", "plot",      "status",    "checkpoint ls", "checkpoint diff"};

bool among(const auto& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string chosen_command(const CLI::App& app) {
  std::string command;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = chosen[0]->get_subcommands()) {
    command += (command.empty() ? "" : " ") + chosen[0]->get_name();
  }
  return command;
}

}  // namespace

bool reads_configuration(const CLI::App& app) { return among(kConfigured, chosen_command(app)); }

void refuse_several_processes(const CLI::App& app) {
  const std::string command = chosen_command(app);
  if (among(kJobs, command)) return refuse_unseen_launcher();
  if (!among(kReaders, command)) refuse_copies(command);
}

}  // namespace athanor::inline cli
