#include "report/run_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "plot/evals_folder.h"
#include "plot/run_metrics.h"
#include "plot/run_name.h"
#include "plot/worked_time.h"
#include "record/step_lines.h"
#include "record/step_table.h"
#include "report/run_attempts.h"

namespace athanor::inline report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFields[] = {"tokens_seen",
                                   "time",
                                   "attempt",
                                   "step_s",
                                   "loss",
                                   "validation_loss",
                                   "lr",
                                   "grad_norm",
                                   "noise_scale",
                                   "changed_share",
                                   "clipped_share",
                                   "attention_logit_max",
                                   "clipped_heads",
                                   "aux_loss",
                                   "router_entropy",
                                   "tps",
                                   "mfu",
                                   "tflops",
                                   "data_s",
                                   "watch_s",
                                   "forward_s",
                                   "backward_s",
                                   "optimizer_s",
                                   "forward_comm_s",
                                   "backward_comm_s",
                                   "forward_compute_s",
                                   "backward_compute_s",
                                   "memory_bytes",
                                   "peak_memory_bytes",
                                   "device_memory_bytes",
                                   "peak_device_memory_bytes"};
constexpr size_t kMostLayers = 1024, kMostSources = 64;

StepRecord read_steps(const fs::path& metrics) {
  StepRecord record;
  const Json last = last_step_line(metrics);
  std::vector<std::string> names(std::begin(kFields), std::end(kFields));
  if (const auto drawn = last.find("tokens_drawn"); drawn != last.end() && drawn->is_object()) {
    for (const auto& [source, tokens] : drawn->items())
      if (record.sources.size() < kMostSources) record.sources.push_back(source);
  }
  for (const std::string& source : record.sources) names.push_back("tokens_drawn." + source);
  if (const auto loads = last.find("expert_load_max_over_mean"); loads != last.end() && loads->is_array())
    record.num_router_layers = std::min(loads->size(), kMostLayers);
  for (size_t layer = 0; layer < record.num_router_layers; ++layer)
    names.push_back(fmt::format("expert_load_max_over_mean.{}", layer));
  StepTable table = read_step_table(metrics, names);
  check_steps(metrics, table);
  record.steps = std::move(table.steps);
  for (size_t i = 0; i < names.size(); ++i) record.fields[names[i]] = std::move(table.columns[i]);
  record.tokens = record.fields["tokens_seen"];
  record.seconds = worked_seconds(record.fields["time"], record.fields["attempt"], record.fields["step_s"]);
  return record;
}

bool has_ended(const std::vector<RunEvent>& events) { return events.empty() || events.back().kind == "end"; }

}  // namespace

bool StepRecord::has(const std::string& name) const {
  const auto found = fields.find(name);
  return found != fields.end() && std::ranges::any_of(found->second, [](double value) { return std::isfinite(value); });
}

RunRecord read_run_record(const std::string& given) {
  RunRecord run;
  run.name = name_of_run(given);
  const fs::path path = given;
  const fs::path metrics = find_metrics(given);
  run.steps = read_steps(metrics);
  run.ranks = read_rank_record(metrics);
  if (!fs::is_directory(path)) return run;
  run.folder = path;
  run.settings = read_run_settings(path / "config.toml");
  run.earlier = read_earlier_settings(path / "configs");
  run.events = read_run_events(path / "events.jsonl");
  run.is_running = !has_ended(run.events);
  std::vector<RunEvent> launched = read_run_attempts(path / "attempts");
  if (!launched.empty()) {
    std::ranges::move(launched, std::back_inserter(run.events));
    std::ranges::stable_sort(run.events, {}, &RunEvent::time);
  }
  run.evaluations.name = run.name;
  std::error_code ignored;
  if (fs::is_directory(path / "evals", ignored) && !fs::is_empty(path / "evals", ignored)) {
    try {
      for (RunResults& results : read_evaluations({given})) run.evaluations = std::move(results);
    } catch (const ConfigError& error) {  // files of other kinds
      log::warn("{}", error.what());
    }
  }
  return run;
}

}  // namespace athanor::inline report
