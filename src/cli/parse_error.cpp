#include "cli/parse_error.h"

#include <fmt/core.h>

#include "base/text.h"

namespace athanor {
namespace {

std::string unknown_option(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const auto& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "--") break;  // what follows are no options
    if (name.starts_with("--") && std::ranges::find(known, name) == known.end())
      return fmt::format("unknown option {}{}", name, did_you_mean(name, known));
  }
  return "";
}

}  // namespace

std::string describe_parse_error(const CLI::App& app, const CLI::Error& error, const std::vector<std::string>& words) {
  std::string name = "athanor";
  const CLI::App* command = &app;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
    command = chosen.front();
    name += " " + command->get_name();
  }
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const bool may_be_unknown = code == CLI::ExitCodes::RequiredError || code == CLI::ExitCodes::ExtrasError;
  std::string what = may_be_unknown ? unknown_option(*command, words) : "";
  if (what.empty()) what = error.what();
  return fmt::format("{0}: {1}; see {0} --help\n", name, what);
}

}  // namespace athanor
