#include "verify/verify.h"

#include <fmt/core.h>

#include "base/fault_announcement.h"
#include "base/launched.h"
#include "base/shell_words.h"
#include "base/text.h"
#include "checkpoint/model_identity.h"
#include "cli/core.h"
#include "config/dump.h"
#include "config/precision.h"
#include "config/toml_reader.h"
#include "config/training_stages.h"
#include "layout/fitted_batch.h"
#include "layout/layout.h"
#include "memory/preflight.h"
#include "ops/cpu_allocator.h"
#include "ops/device_choice.h"
#include "ops/device_traits.h"
#include "parallel/share.h"
#include "run/dry_run.h"
#include "run/in_world.h"
#include "run/rank_devices.h"
#include "run/same_settings.h"
#include "run/start.h"

namespace {

using namespace athanor;

// Runs the small run in one type, and the layout that resumes it, if one was asked for.
TypedRun typed_run(const RunConfig& config, int ranks, const VerifyArguments& given, const std::string& dtype) {
  TypedRun run{make_small_run(config, ranks, {given.steps, dtype, given.keep_size, given.keep_depth}), {}};
  if (given.then.empty()) return run;
  run.then = parse_run_config(dump_run_config(run.small, false), "--then", given.then,
                              [&](RunConfig& read) { return fit_to_ranks(read, ranks); });
  return run;
}

// "auto" is one type in a run, chosen by its first rank; `verify` must use that type on all ranks.
void refuse_differing_types(const RunConfig& config, comm::World& world) {
  const std::string first = broadcast_text(world.all(), config.train.dtype);
  ATHANOR_CHECK(first == config.train.dtype,
                "train.dtype = \"auto\" is {} on the first rank's host and {} on {}; set it to the type that the run "
                "will have",
                first, config.train.dtype, world.host());
}

// What decides which collectives a rank calls. The folder of traces is the first rank's.
Options compared_options(const VerifyArguments& given) {
  return {{"--steps", std::to_string(given.steps)},
          {"--dtype", given.dtype},
          {"--draws", std::to_string(given.draws)},
          {"--keep-size", given.keep_size ? "yes" : "no"},
          {"--keep-depth", given.keep_depth ? "yes" : "no"},
          {"--then", join(given.then, " ")},
          {"--twice", given.twice ? "yes" : "no"},
          {"--plant", given.plant},
          {"--reference", given.reference}};
}

}  // namespace

ATHANOR_CORE_ENTRY(verify) {
  const auto& given = *static_cast<const VerifyArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  const Reference reference = parse_reference(given.reference);
  if (!given.as_reference.empty()) {
    run_reference(given.as_reference, given.of_ranks, given.draw, static_cast<uint64_t>(given.draws), reference);
    return 0;
  }
  // Contradictions are reported before any communication.
  const int ranks = launched().size;
  RunConfig config =
      load_run_config(given.config_file, given.overrides, [&](RunConfig& read) { return fit_to_ranks(read, ranks); });
  require_layout_fits(config, ranks);
  ATHANOR_CHECK(ranks > 1 || reference == Reference::kPortable ||
                    ops::choose_device(config.train.device.word()) != kReferenceDevice,
                "verify: this is one rank on the CPU, and one rank is what a layout is compared with; there is nothing "
                "to compare. Start it as the job will be started, or smaller: mpirun -n 4 athanor verify {0}; or "
                "compare one rank with portable forms: athanor verify {0} --reference portable",
                shell_word(given.config_file));
  ATHANOR_CHECK(given.then.empty() || given.plant.empty(),
                "verify: --plant and --then cannot be combined; leave one out");
  return in_world(world_options(config), [&](comm::World& world, RunContext&) {
    require_same_settings(config, world);
    require_same_options(compared_options(given), world);
    const at::Device device = agree_on_devices(config, world);
    choose_type(config.train, ops::traits_of(device).usual_type);  // as a run there has it
    refuse_differing_types(config, world);
    std::vector<TypedRun> runs;
    for (const std::string& dtype : types_to_verify(config, given.dtype, reference))
      runs.push_back(typed_run(config, ranks, given, dtype));
    announce_armed_faults();
    return run_verify(runs, {reference, given.twice, given.draws, given.keep, given.plant, device}, world);
  });
}

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
  if (planned_place(config, given.ranks).on_device()) choose_type_of_devices(config.train);
  require_layout_fits(config, given.ranks);
  take_seq_len_of_data(config);
  ATHANOR_CHECK(given.rank < given.ranks, "rank {} is not among {} ranks", given.rank, given.ranks);
  announce_armed_faults();
  const DryRun run = dry_run(config, given.ranks, given.rank);
  fmt::print("{}", given.json ? to_json(run, config, given.ranks) : report(run, config, given.ranks));
  return 0;
}
