// athanor classify LOG shows why a job ended, by what its log tells and by its exit code (launch/classify.h).

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "launch/classify.h"

namespace athanor {
namespace {

struct ClassifyArguments {
  std::string log, hostfile;
  std::optional<int> exit_code;
  std::vector<std::string> signatures;
  bool json = false;
};

void check_file(const std::string& name, const std::string& path, const std::string& needed) {
  ATHANOR_CHECK(std::filesystem::exists(path), "{} {}: there is no such file; give {}", name, path, needed);
  ATHANOR_CHECK(!std::filesystem::is_directory(path), "{} {} is a folder; give {}", name, path, needed);
}

void check_files(const ClassifyArguments& arguments) {
  check_file("LOG", arguments.log, "the file that has the job's output");
  if (!arguments.hostfile.empty()) check_file("--hostfile", arguments.hostfile, "a file with the job's hosts");
  for (const std::string& file : arguments.signatures)
    check_file("--signatures", file, "a TOML file with [[signature]] entries");
}

void classify(const ClassifyArguments& arguments) {
  check_files(arguments);
  const auto signatures = launch::SignatureSet::load(arguments.signatures);
  launch::JobHosts hosts;
  if (!arguments.hostfile.empty())
    hosts = launch::JobHosts(
        launch::parse_host_file(read_file(arguments.hostfile), arguments.hostfile, launch::RepeatedHost::kSlots));
  const auto found = launch::classify_log(arguments.log, arguments.exit_code, hosts, signatures);
  ATHANOR_CHECK(found.num_bytes > 0, "LOG {} is empty: the cause is unknown; give the file that has the job's output",
                arguments.log);
  if (arguments.json)
    fmt::print("{}\n", launch::classification_json(found, arguments.exit_code)
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", launch::classification_text(found));
}

}  // namespace

void add_classify_command(CLI::App& app) {
  const auto arguments = std::make_shared<ClassifyArguments>();
  auto* command = app.add_subcommand("classify", "Show why a job ended, and which hosts are at fault, from its log");
  command->add_option("LOG", arguments->log, "The file that has the output of the job")->required();
  command
      ->add_option("--exit-code", arguments->exit_code,
                   "What the job's launcher ended with; codes below 0 and above 255 are those of PBS")
      ->check(CLI::Range(-1024, 1023));
  command->add_option("--hostfile", arguments->hostfile, "The hosts of the job; only these are named");
  command->add_option(
      "--signatures", arguments->signatures,
      "A file with more signatures, which come before those of the program; may be given several times");
  command->add_flag("--json", arguments->json, "Print a JSON object");
  command->footer(
      "The log is read once, within a few MiB of memory. docs/launch.md lists causes, verdicts and actions, and\n"
      "describes files of signatures.");
  command->callback([arguments] { classify(*arguments); });
}

}  // namespace athanor
