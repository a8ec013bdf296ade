#include "run/start_lines.h"

#include "arch/inventory.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/short_texts.h"
#include "layout/optimizer_lines.h"
#include "memory/rank_share.h"
#include "run/start_facts.h"

namespace athanor::inline run {
namespace {

// Collective.
void say_threads(comm::World& world, const ThreadShare& own) {
  const auto threads = gather_threads(world, own.threads);
  const int64_t usual = usual_threads(threads);
  const std::string fewer = describe_fewer_threads(threads, world.hosts());
  log::info("{}", describe_threads(own, world.size() > 1 && fewer.empty()));
  if (fewer.empty()) return;
  log::warn_on_all("{}", fewer);
  if (own.threads < usual && world.rank() > 0)
    log::warn("this rank computes with {} of the usual {} threads ({}): each step waits for it", own.threads, usual,
              own.why);
}

}  // namespace

void say_where_it_runs(comm::World& world) {
  const std::vector<std::string> cpus = comm::all_gather_texts(world.all(), cpu_of_host());
  for (const auto& line : start_facts(world.hosts(), world.network(), cpus[0])) log::info("{}", line);
  if (const std::string others = describe_other_cpus(cpus, world.hosts()); !others.empty())
    log::warn_on_all("{}", others);
}

void say_what_starts(const TrainState& state, const ThreadShare& threads) {
  const RunConfig& config = state.config;
  comm::World& world = state.model.mesh.world();
  log::info("{}: {} parameters ({} active for a token)", config.train.run_dir,
            format_thousands(static_cast<double>(count_parameters(config.model))),
            format_thousands(static_cast<double>(count_active_parameters(config.model))));
  for (const std::string& line : describe_optimizers(state.run_config)) log::info("{}", line);
  say_threads(world, threads);
  if (world.size() > 1) log::info("{}", describe_layout(state));
  if (state.model.mesh.layout().microbatches() < state.model.mesh.layout().pipeline()) {
    log::warn_on_all(
        "{} microbatches do not fill {} pipeline ranks, which wait {:.0f}% of the time: raise "
        "train.global_batch_size, or lower train.micro_batch_size or parallelism.pipeline_parallel_degree",
        state.model.mesh.layout().microbatches(), state.model.mesh.layout().pipeline(),
        100 * check_schedule(state.model.pipeline.schedule()).bubble);
  }
}

}  // namespace athanor::inline run
