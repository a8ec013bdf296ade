// athanor probe measures each rank and node of a job; watch/probe.h has what is measured. `athanor launch` probes spare
// nodes with it before it uses them.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"

namespace athanor::inline cli {

void add_probe_command(CLI::App& app) {
  const auto arguments = std::make_shared<ProbeArguments>();
  auto* command = app.add_subcommand(
      "probe",
      "Measure products, memory, messages and the disk of each rank and node, and name the slow ones; start it on all "
      "nodes: athanor launch -- athanor probe");
  command->add_option("--folder", arguments->folder,
                      "A folder whose disk is measured; by default the one that it is started in");
  add_device_option(*command, arguments->device, "What is measured, one device for each rank");
  command->add_flag("--json", arguments->json, "Print a line as in RUN/probes.jsonl (docs/failures.md)");
  command->callback([arguments] {
    std::error_code ignored;
    ATHANOR_CHECK(std::filesystem::is_directory(arguments->folder, ignored), "--folder {}: there is no such folder",
                  arguments->folder);
    call_core("probe", arguments.get());
  });
}

}  // namespace athanor::inline cli
