#include "run/dry_run.h"

#include <fmt/core.h>

#include "base/fault_announcement.h"
#include "checkpoint/model_identity.h"
#include "cli/core.h"
#include "config/precision.h"
#include "config/toml_reader.h"
#include "config/training_stages.h"
#include "layout/fitted_batch.h"
#include "layout/layout.h"
#include "memory/preflight.h"
#include "run/start.h"

ATHANOR_CORE_ENTRY(dry_run) {
  using namespace athanor;
  const auto& given = *static_cast<const DryRunArguments*>(arguments);
  RunConfig config = load_run_config(given.config_file, given.overrides,
                                     [&](RunConfig& read) { return fit_to_ranks(read, given.ranks); });
  const auto stages = training_stages(config);
  // Most steps of a batch ramp have its last size.
  config = (stages.front().is_of_ramp ? stages.back() : stages.front()).config;
  resolve_model_from(config);
  config.model.from.clear();
  if (planned_multiplier(config).on_device) choose_type_of_devices(config.train);
  require_layout_fits(config, given.ranks);
  take_seq_len_of_data(config);
  ATHANOR_CHECK(given.rank < given.ranks, "rank {} is not among {} ranks", given.rank, given.ranks);
  announce_armed_faults();
  const DryRun run = dry_run(config, given.ranks, given.rank);
  fmt::print("{}", given.json ? to_json(run, config, given.ranks) : report(run, config, given.ranks));
  return 0;
}
