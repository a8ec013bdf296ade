// athanor classify LOG shows why a job ended, by what its log tells and by its exit code (launch/classify.h).

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/log_file.h"
#include "documents/standard_input.h"
#include "launch/classify.h"

namespace athanor::inline cli {
namespace {

struct ClassifyArguments {
  std::vector<std::string> logs;
  std::string hostfile;
  std::optional<int> exit_code;
  std::vector<std::string> signatures;
  bool json = false;
};

void check_file(const std::string& name, const std::string& path, const std::string& needed) {
  ATHANOR_CHECK(std::filesystem::exists(path), "{} {}: there is no such file; give {}", name, path, needed);
  ATHANOR_CHECK(!std::filesystem::is_directory(path), "{} {} is a folder; give {}", name, path, needed);
}

void check_files(const ClassifyArguments& arguments) {
  for (const std::string& log : arguments.logs)
    if (!is_standard_input(log)) check_file("LOG", log, "the file that has the job's output");
  ATHANOR_CHECK(std::ranges::count_if(arguments.logs, [](const auto& log) { return is_standard_input(log); }) <= 1,
                "- (standard input) is named several times, and can be read only once");
  if (!arguments.hostfile.empty()) check_file("--hostfile", arguments.hostfile, "a file with the job's hosts");
  for (const std::string& file : arguments.signatures)
    check_file("--signatures", file, "a TOML file with [[signature]] entries");
}

void print(const std::string& name, const launch::Classification& found, const ClassifyArguments& arguments) {
  if (arguments.json) {
    auto json = launch::classification_json(found, arguments.exit_code);
    json["log"] = name;
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  const bool is_first = name == shown_name(arguments.logs.front());
  if (arguments.logs.size() > 1) fmt::print("{}log: {}\n", is_first ? "" : "\n", printable(name));
  fmt::print("{}", launch::classification_text(found));
}

// Returns why there is no answer; "": it was printed.
std::string classify_one(const std::string& log, const ClassifyArguments& arguments, const launch::JobHosts& hosts,
                         const launch::SignatureSet& signatures) {
  const std::string name = shown_name(log);
  const auto bytes = open_log(log);
  const auto read = [&](char* out, size_t capacity) { return bytes->read(out, capacity); };
  const auto found = launch::classify_log(read, arguments.exit_code, hosts, signatures);
  if (found.num_bytes == 0) return fmt::format("LOG {} is empty", name);
  if (found.is_binary) return fmt::format("LOG {} is binary, and no text", name);
  print(name, found, arguments);
  return "";
}

void classify(const ClassifyArguments& arguments) {
  check_files(arguments);
  const auto signatures = launch::SignatureSet::load(arguments.signatures);
  launch::JobHosts hosts;
  if (!arguments.hostfile.empty())
    hosts = launch::JobHosts(
        launch::parse_host_file(read_file(arguments.hostfile), arguments.hostfile, launch::RepeatedHost::kSlots));
  std::vector<std::string> unread;
  for (const std::string& log : arguments.logs) {
    std::string reason = classify_one(log, arguments, hosts, signatures);
    if (!reason.empty()) unread.push_back(std::move(reason));
  }
  ATHANOR_CHECK(unread.empty(), "{}: the cause is unknown; give the file that has the job's output",
                join(unread, "; "));
}

}  // namespace

void add_classify_command(CLI::App& app) {
  const auto arguments = std::make_shared<ClassifyArguments>();
  auto* command = app.add_subcommand("classify", "Show why a job ended, and which hosts are at fault, from its log");
  command
      ->add_option("LOG", arguments->logs,
                   "The file that has the output of the job, also compressed (gzip, zstd); -: standard input. Each of "
                   "several has its own answer")
      ->required();
  command
      ->add_option("--exit-code", arguments->exit_code,
                   "What the job's launcher ended with; codes below 0 and above 255 are those of PBS")
      ->check(CLI::Range(-1024, 1023));
  command->add_option("--hostfile", arguments->hostfile, "The hosts of the job; only these are named");
  command
      ->add_option("--signatures", arguments->signatures,
                   "A file with more signatures, which come before those of the program; may be given several times")
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "Print a JSON object");
  command->footer(
      "The log is read once, within a few MiB of memory. docs/launch.md lists causes, verdicts and actions, and\n"
      "describes files of signatures.");
  command->callback([arguments] { classify(*arguments); });
}

}  // namespace athanor::inline cli
