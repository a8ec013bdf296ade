#include "cli/copies.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "base/launched.h"

namespace athanor {
namespace {

constexpr const char* kJobs[] = {"train", "verify", "bench comm", "bench checkpoint"};
// These commands write nothing: copies of them are a nuisance at worst.
constexpr const char* kReaders[] = {"config",      "data info",        "data show",
                                    "data verify", "tokenizer encode", "tokenizer decode",
                                    "plot",        "checkpoint ls",    "checkpoint diff"};

bool among(const auto& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

void refuse_several_processes(const CLI::App& app) {
  std::string command;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = chosen[0]->get_subcommands()) {
    command += (command.empty() ? "" : " ") + chosen[0]->get_name();
  }
  if (among(kJobs, command)) return refuse_unseen_launcher();
  if (!among(kReaders, command)) refuse_copies(command);
}

}  // namespace athanor
