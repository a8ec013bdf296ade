#include <algorithm>

#include "base/launched.h"
#include "base/log.h"
#include "base/signals.h"
#include "board/board.h"
#include "cli/core.h"
#include "config/toml_reader.h"
#include "eval/gate_evaluation.h"
#include "layout/fitted_batch.h"
#include "ops/cpu_allocator.h"
#include "run/in_world.h"
#include "run/refused_places.h"
#include "run/run.h"
#include "run/start.h"

ATHANOR_CORE_ENTRY(train) {
  using namespace athanor;
  const BrokenPipeGuard pipes;
  const auto& given = *static_cast<const TrainArguments*>(arguments);
  const RunConfig config = load_run_config(given.config_file, given.overrides,
                                           [](RunConfig& read) { return fit_to_ranks(read, launched().size); });
  const bool names_folder =
      std::ranges::any_of(given.overrides, [](const std::string& each) { return each.starts_with("train.run_dir"); });
  if (!names_folder) refuse_moved_run(given.config_file, config);
  require_layout_fits(config, launched().size);
  ops::install_caching_cpu_allocator();
  // The collector must not have what an MPI opens.
  const Launched me = launched();
  const board::OpenedBoard board = board::open_board(config.train.run_dir, me.rank, me.size);
  comm::WorldOptions options = world_options(config);
  options.board = board.publisher();
  return in_world(options, [&](comm::World& world, RunContext& context) {
    if (!board.warning.empty()) log::warn_on_all("{}", board.warning);
    GateEvaluation evaluation;
    return run_training(config, world, context, &evaluation);
  });
}
