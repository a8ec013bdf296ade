// athanor yeet sends files, folders and archives to the local disks of all nodes of a job (staging/yeet.h).

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/console.h"
#include "base/environment_number.h"
#include "base/error.h"
#include "base/failure.h"
#include "base/launched.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands.h"
#include "launch/plan.h"
#include "launch/supervisor.h"
#include "staging/prediction.h"
#include "staging/tree_messages.h"
#include "staging/yeet.h"
#include "wire/mpi_plugin.h"

namespace athanor::inline cli {
namespace {

using staging::PredictionInput;

constexpr double kMega = 1e6;
constexpr int kMostNodes = 1 << 24;

struct YeetArguments {
  std::vector<std::string> sources;
  std::string target;
  bool no_unpack = false, checksum = false, json = false;
  int chunk_mib = 1;
  std::vector<int> predict;  // numbers of nodes; empty: sends
  double bytes = 0, link_mb_s = 0, disk_mb_s = 0, source_mb_s = 0, latency_us = 10;
};

// ---- the prediction ------------------------------------------------------------------------------------------------

const staging::PublishedBroadcast* published_for(int num_nodes) {
  const auto all = staging::published_broadcasts();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.num_nodes == num_nodes; });
  return found == all.end() ? nullptr : &*found;
}

void predict(const YeetArguments& arguments) {
  ATHANOR_CHECK(arguments.bytes > 0 && arguments.link_mb_s > 0,
                "--predict needs --bytes (what is sent) and --link (MB/s of a node); --disk, --source and --latency "
                "are optional");
  const PredictionInput input{arguments.bytes,
                              static_cast<double>(arguments.chunk_mib) * (1 << 20),
                              arguments.source_mb_s * kMega,
                              arguments.link_mb_s * kMega,
                              arguments.disk_mb_s * kMega,
                              arguments.latency_us * 1e-6};
  nlohmann::json rows = nlohmann::json::array();
  if (!arguments.json)
    fmt::print("{:>7}  {:>10}  {:>14}  {:>10}  {:>10}\n", "nodes", "seconds", "MB/s of a node", "chain", "published");
  for (const int nodes : arguments.predict) {
    const double seconds = predict_s(input, nodes), chain = predict_chain_s(input, nodes);
    const auto* published = published_for(nodes);
    rows.push_back({{"nodes", nodes}, {"seconds", seconds}, {"chain_seconds", chain}});
    if (published) rows.back()["published_seconds"] = published->broadcast_s;
    if (!arguments.json)
      fmt::print("{:>7}  {:>10.3f}  {:>14.0f}  {:>10.3f}  {:>10}\n", nodes, seconds, input.bytes / seconds / kMega,
                 chain, published ? fmt::format("{:.1f}", published->broadcast_s) : "");
  }
  if (arguments.json) return fmt::print("{}\n", nlohmann::json{{"format", 1}, {"prediction", rows}}.dump());
  fmt::print("published: AuroraGPT, ezpz yeet, a Python environment of a size that is not given there\n");
}

// ---- sending -------------------------------------------------------------------------------------------------------

/// Starts this command again with one rank on each host of the job. @return nothing if there is only this host.
std::optional<int> start_on_all_hosts(const YeetArguments& arguments) {
  const launch::Surroundings here = launch::own_surroundings();
  if (launch::find_allocation({}, here).hosts.size() < 2) return {};
  launch::LaunchRequest request;
  request.own_program = running_program().string();
  request.ranks.per_node = 1;
  request.command = {request.own_program, "yeet",        "--to",
                     arguments.target,    "--chunk-mib", std::to_string(arguments.chunk_mib)};
  if (arguments.no_unpack) request.command.emplace_back("--no-unpack");
  if (arguments.checksum) request.command.emplace_back("--checksum");
  if (arguments.json) request.command.emplace_back("--json");
  request.command.emplace_back("--");
  request.command.insert(request.command.end(), arguments.sources.begin(), arguments.sources.end());
  const launch::LaunchPlan plan = launch::make_plan(request, here);
  launch::Supervision supervision;  // no limit on its time, no further attempts
  supervision.own_program = request.own_program;
  return launch::supervise(plan, here, supervision);
}

std::unique_ptr<comm::Wire> open_wire(const Launched& me) {
  if (me.size == 1) return std::make_unique<staging::LoneWire>();
  if (me.launcher != "torchrun") return comm::open_mpi_wire(me.launcher);
  // Without MPI all ranks have to be on this machine, where the first one does what is to be done.
  const auto local = number_in_environment("LOCAL_WORLD_SIZE");
  ATHANOR_CHECK(local && *local == me.size,
                "athanor yeet needs an MPI to send to other hosts; start it with `mpirun` or `srun`");
  return me.rank == 0 ? std::make_unique<staging::LoneWire>() : nullptr;
}

std::string outcome_line(const staging::YeetOutcome& outcome) {
  const staging::Report& report = outcome.report;
  const staging::NodeLine& slowest = report.slowest().at(0);
  const std::string what = fmt::format("{} files, {}", format_thousands(static_cast<double>(outcome.num_files)),
                                       format_bytes(static_cast<double>(outcome.bytes)));
  const std::string where = fmt::format("{} node{}", report.num_nodes(), report.num_nodes() == 1 ? "" : "s");
  if (outcome.sent_bytes == 0)
    return fmt::format("{}: all is on {} already ({:.2f} s)", what, where, report.slowest_s());
  return fmt::format(
      "{} on {}: sent {} in {:.2f} s, {:.0f} MB/s a node; the slowest is {} ({:.2f} s, {:.0f} MB/s), the median {:.2f} "
      "s",
      what, where, format_bytes(static_cast<double>(outcome.sent_bytes)), report.slowest_s(),
      static_cast<double>(outcome.sent_bytes) / report.slowest_s() / kMega, slowest.host, slowest.seconds,
      slowest.mb_per_s(), report.median_s());
}

void tell(const YeetArguments& arguments, const staging::YeetOutcome& outcome) {
  for (const std::string& warning : outcome.warnings) log::warn("{}", warning);
  if (arguments.json && outcome.report.num_nodes() > 0)
    fmt::print("{}\n", outcome.report.to_json(outcome.bytes, outcome.sent_bytes, outcome.num_files)
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (outcome.exit_code != 0) return log::error("{}", outcome.failure);
  if (!arguments.json) fmt::print("{}\n", outcome_line(outcome));
}

int send_as_rank(const YeetArguments& arguments, const Launched& me, comm::Wire& wire) {
  std::unique_ptr<ProgressBar> bar;
  staging::YeetRequest request;
  request.sources = arguments.sources;
  request.target = arguments.target;
  request.unpack = !arguments.no_unpack;
  request.compares_bytes = arguments.checksum;
  request.lists_nodes = arguments.json;
  request.chunk_bytes = static_cast<uint64_t>(arguments.chunk_mib) << 20;
  request.will_send = [&](uint64_t total) { bar = std::make_unique<ProgressBar>("send", total, "B", kLongWork_s); };
  request.has_sent = [&](uint64_t bytes) { bar->add(bytes); };
  std::vector<std::shared_ptr<void>> keep_alive;
  const staging::YeetOutcome outcome = staging::yeet(wire, request, host_name(), keep_alive);
  bar.reset();
  if (me.rank == 0) tell(arguments, outcome);
  if (outcome.exit_code == 0 || me.size == 1) {
    wire.close();
    return outcome.exit_code;
  }
  // The first rank has printed the line: a launcher is told to end the job, so that it adds none of its own.
  if (me.rank == 0) wire.abort(outcome.exit_code);
  wire.close();
  return outcome.exit_code;
}

int send(const YeetArguments& arguments) {
  ATHANOR_CHECK(!arguments.sources.empty(), "SRC is missing: name the files, folders or archives to send");
  ATHANOR_CHECK(std::ranges::find(arguments.sources, "") == arguments.sources.end(),
                "SRC \"\" is no path: name files, folders or archives (is a variable empty?)");
  ATHANOR_CHECK(!arguments.target.empty(), "--to is missing: name a folder on the local disk of each node");
  const Launched me = launched();
  if (me.launcher.empty())
    if (const auto code = start_on_all_hosts(arguments)) return *code;
  const auto wire = open_wire(me);
  if (!wire) return 0;
  try {
    return send_as_rank(arguments, me, *wire);
  } catch (...) {
    if (me.size == 1) throw;
    const Failure failure = describe_failure(std::current_exception());
    log::error("{}", failure_line(failure, me, host_name(), 0));
    wire->abort(failure.exit_code);
    return failure.exit_code;  // the compiler does not know that the virtual function never returns
  }
}

}  // namespace

void add_yeet_command(CLI::App& app) {
  const auto arguments = std::make_shared<YeetArguments>();
  auto* command =
      app.add_subcommand("yeet", "Send files, folders and archives to the local disks of all nodes of a job");
  command->add_option("SRC", arguments->sources, "Files, folders and archives; only the first node reads them");
  command->add_option("--to", arguments->target,
                      "The folder on each node; {host} and {rank} in it become the node's name and the rank's number");
  command->add_flag("--no-unpack", arguments->no_unpack, "Send archives (.tar, .tar.gz, .tar.zst, …) as files");
  command->add_flag("--checksum", arguments->checksum,
                    "Compare the bytes of what is there already, in place of size and time of change");
  command->add_flag("--json", arguments->json, "Print a JSON object, with a line for each node");
  command->add_option("--chunk-mib", arguments->chunk_mib, "MiB that travel as one message")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      ->add_option("--predict", arguments->predict,
                   "Send nothing; print how long it would take to these numbers of nodes, such as 8,64,4096")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostNodes));
  const auto add_number = [command](const char* name, double& value, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(0.0, 1e18));
  };
  add_number("--bytes", arguments->bytes, "For --predict: bytes that are sent");
  add_number("--link", arguments->link_mb_s, "For --predict: MB/s of a node's link, in each direction");
  add_number("--disk", arguments->disk_mb_s, "For --predict: MB/s that a node writes; 0: no limit");
  add_number("--source", arguments->source_mb_s, "For --predict: MB/s that the first node reads; 0: no limit");
  add_number("--latency", arguments->latency_us, "For --predict: microseconds of a hop; 10 by default");
  command->footer(
      "athanor yeet env.tar.zst data/ --to /tmp/run        # in a job: one rank on each node is started\n"
      "athanor yeet --predict 8,4096 --bytes 5e9 --link 10000 --disk 2000\nSee docs/yeet.md.");
  command->callback([arguments] {
    if (!arguments->predict.empty()) return predict(*arguments);
    if (const int code = send(*arguments)) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
