#include "plot/run_metrics.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace athanor::inline plot {

namespace fs = std::filesystem;

fs::path find_metrics(const std::string& given) {
  return with_io_errors([&]() -> fs::path {
    ATHANOR_CHECK(fs::exists(given), "{} does not exist; name the folder of a run (train.run_dir)", given);
    if (!fs::is_directory(given)) return given;
    fs::path metrics = fs::path(given) / "metrics.jsonl";
    ATHANOR_CHECK(fs::exists(metrics),
                  "{} has no metrics.jsonl: it is no run folder, or its run has done no step yet; name a run folder, "
                  "or wait for its first step",
                  given);
    return metrics;
  });
}

void check_steps(const fs::path& metrics, const StepTable& table) {
  const std::string file = metrics.string();
  if (table.steps.empty()) {
    ATHANOR_CHECK(table.num_damaged == 0, "{} is no file of metrics: none of its {} lines is the JSON of a step", file,
                  table.num_damaged);
    fail<ConfigError>("{} has no whole line yet: no step of its run is complete; wait for the first one", file);
  }
  if (table.num_damaged > 0)
    log::warn("{} lines of {} are not the JSON of a step and are left out", table.num_damaged, file);
}

}  // namespace athanor::inline plot
