#include "cli/option_list.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace athanor::inline cli {
namespace {

void print_options(const CLI::App& command, const std::string& name) {
  for (const auto* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_group().empty()) continue;  // hidden ones are for programs
    const nlohmann::ordered_json row{{"command", name},
                                     {"option", option->get_name()},
                                     {"argument", option->get_positional()},
                                     {"takes_value", option->get_items_expected_max() > 0},
                                     {"type", option->get_type_name()}};
    fmt::print("{}\n", row.dump());
  }
  for (const auto* inner : command.get_subcommands([](const CLI::App*) { return true; }))
    print_options(*inner, name.empty() ? inner->get_name() : name + " " + inner->get_name());
}

}  // namespace

void print_option_list(const CLI::App& app) { print_options(app, ""); }

}  // namespace athanor::inline cli
