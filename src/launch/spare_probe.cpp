#include "launch/spare_probe.h"

#include "base/error.h"
#include "base/log.h"
#include "launch/process.h"
#include "launch/programs.h"

namespace athanor::launch {
namespace fs = std::filesystem;

LaunchPlan probe_plan(const LaunchPlan& plan, const std::string& own_program, const std::string& host,
                      const fs::path& folder) {
  LaunchPlan probe = plan;
  probe.allocation.hosts = {{host, plan.allocation.has_slots() ? plan.ranks.most() : 0}};
  probe.ranks.of_host = {plan.ranks.most()};
  probe.is_one_machine = probe.has_spares_in_use = probe.is_training = false;
  probe.command = {own_program, "probe", "--folder", fs::absolute(folder).string()};
  return probe;
}

bool passes_probe(const LaunchPlan& plan, const Surroundings& here, const std::string& own_program,
                  const std::string& host, const fs::path& folder, const std::function<bool()>& gives_up) {
  const LaunchPlan probe = probe_plan(plan, own_program, host, folder);
  const fs::path file = folder / fmt::format("probe-{}.txt", host);
  const Programs programs(probe, build_command(probe, here));
  std::optional<int> code;
  try {
    code = run_into_file(programs.all().front(), file, kProbeLimit, gives_up);
  } catch (const Error& error) {
    log::warn("the probe of {} could not be started: {}", host, error.what());
    return false;
  }
  if (code == 0) return true;
  log::warn("{} did not pass the probe ({}; {}), and is used no more", host,
            code ? fmt::format("code {}", *code) : std::string("it did not end"), file.string());
  return false;
}

}  // namespace athanor::launch
