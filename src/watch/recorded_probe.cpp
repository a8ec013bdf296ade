#include "watch/recorded_probe.h"

#include <filesystem>

#include "base/append_file.h"
#include "base/error.h"
#include "base/log.h"
#include "record/run_folder.h"
#include "watch/probe.h"

namespace athanor::inline watch {

void probe_and_record(const Mesh& mesh, const RunContext& at, const ProbedRun& run, const std::string& why) {
  const auto& hosts = mesh.world().hosts();
  const Probe found = measure_probe(mesh, run.device, run.run_dir);
  if (!mesh.is_first()) return;
  const RunFolder folder{run.run_dir};
  std::error_code failed;
  std::filesystem::remove(folder.probe_request(), failed);
  const auto slow = find_slow_parts(found);
  try {
    AppendFile(folder.probes()).append(probe_json(found, slow, hosts, at.attempt, run.step, why) + "\n");
  } catch (const IoError& error) {
    log::warn("the probe is not recorded: {}", error.what());
  }
  const std::string line = describe_slow_parts(slow, hosts);
  if (!line.empty() && !run.shares_cores) log::warn("{}", line);
  if (why != "start")
    log::info("probed the ranks in {:.2f} s; {} has what they measured", found.seconds, folder.probes().string());
}

}  // namespace athanor::inline watch
