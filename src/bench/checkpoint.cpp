// athanor bench checkpoint measures saves and loads of a run's full checkpoints, with the code of the run, in turns
// with plain writes and reads of the same disk.
//
// A round has a save while steps run, a save alone, a load, and before or after each of the last two a plain file of
// the same bytes for each rank. Disks change their rate from minute to minute, so each ratio is that of one round.

#include <fmt/core.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "arch/inventory.h"
#include "base/core_entry.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/launched.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/temporary_folder.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "bench/arguments.h"
#include "bench/checkpoint_report.h"
#include "bench/disk.h"
#include "bench/random_batch.h"
#include "bench/timer.h"
#include "bench/verify.h"
#include "checkpoint/model_identity.h"
#include "config/precision.h"
#include "config/toml_reader.h"
#include "layout/fitted_batch.h"
#include "memory/preflight.h"
#include "memory/rank_share.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "ops/device_traits.h"
#include "ops/transfer.h"
#include "parallel/share.h"
#include "record/run_folder.h"
#include "run/in_world.h"
#include "run/rank_devices.h"
#include "run/same_settings.h"
#include "run/start.h"
#include "saves/background_save.h"
#include "saves/checkpointing.h"
#include "saves/requests.h"
#include "train/state_pieces.h"
#include "train/train_step.h"

namespace athanor::bench {
namespace {
namespace fs = std::filesystem;

using Moment = std::chrono::steady_clock;

constexpr int kLeastSteps = 3;  // a median needs some

/// Thrown on all ranks at the same step when a signal has reached one.
struct StoppedBySignal {
  int number;
};

double largest_of_ranks(comm::World& world, double value) {
  world.all().all_reduce(at::from_blob(&value, {1}, at::kDouble), comm::Reduction::kMax).wait();
  return value;
}
double total_of_ranks(comm::World& world, double value) {
  world.all().all_reduce(at::from_blob(&value, {1}, at::kDouble)).wait();
  return value;
}

// All ranks begin together; the slowest counts.
double time_jointly(comm::World& world, const std::function<void()>& act) {
  world.all().barrier();
  const auto begin = Moment::now();
  act();
  return largest_of_ranks(world, seconds_since(begin));
}

std::string hash_of(const TrainState& state) {
  Hasher hasher;
  std::vector<float> block;
  for (const PieceView& piece : state_pieces(state)) {
    block.resize(static_cast<size_t>(piece.slice.num_elements()));
    if (piece.data) std::copy_n(piece.data, block.size(), block.begin());
    if (!piece.data) piece.read(0, block);
    hasher.update(block.data(), block.size() * sizeof(float));
  }
  return hasher.hex();
}

class CheckpointBench {
 public:
  CheckpointBench(TrainState& state, const SignalGuard& signals, bool direct)
      : state_(state), world_(state.model.mesh.world()), signals_(signals), direct_(direct),
        batch_(random_batch(state.config)), save_(state, [](const SaveOutcome&) {}),
        plain_(fs::path(state.config.train.run_dir) / fmt::format("plain-{}", world_.rank())),
        checkpoints_(RunFolder{state.config.train.run_dir}.checkpoints()),
        own_bytes_(static_cast<int64_t>(total_bytes(state_pieces(state)))) {}
  CheckpointBench(const CheckpointBench&) = delete;
  CheckpointBench& operator=(const CheckpointBench&) = delete;

  // What is loaded has the bits of what was saved, although steps came between.
  void verify() {
    for (int i = 0; i < 2; ++i) step();
    before_bytes_ = static_cast<double>(resident_bytes());
    const std::string saved = hash_of(state_);
    save_alone();
    step();
    load();
    spoil_if_asked(state_.model.parameters.compute());
    const bool differs = largest_of_ranks(world_, hash_of(state_) != saved) > 0;
    ATHANOR_CHECK_AS(Error, !differs, "wrong, so not timed: what was loaded differs from what was saved at step {}",
                     state_.position.step);
    clean_up();
  }

  CheckpointRound round(int number) {
    CheckpointRound round;
    const bool plain_first = number % 2 == 0;  // what comes before may slow down the disk
    if (plain_first) round.plain_write_s = write_plainly();
    round.alone_s = save_alone();
    if (!plain_first) round.plain_write_s = write_plainly();
    save_during_steps(round);
    if (plain_first) round.plain_read_s = read_plainly();
    round.load_s = load();
    if (!plain_first) round.plain_read_s = read_plainly();
    clean_up();
    return round;
  }

  CheckpointFigures figures() {
    CheckpointFigures figures;
    figures.ranks = world_.size();
    figures.direct = direct_;
    figures.writers = state_.config.checkpoint.writers.word();
    figures.parameters = count_parameters(state_.config.model);
    figures.bytes = total_of_ranks(world_, static_cast<double>(own_bytes_));
    figures.pool_bytes = largest_of_ranks(world_, static_cast<double>(save_.pool_bytes()));
    figures.node_bytes = bytes_by_node();
    return figures;
  }

 private:
  // As in a run, the ranks agree after each step: here on whether one still writes.
  bool step() {
    Step step(state_, batch_);
    if (step.second_backward()) step.learn_from_second();
    step.compute_gradients();
    save_.before_update();
    step.update();
    step.finish();
    const Tensor numbers = at::tensor({int64_t{save_.is_writing()}, int64_t{signals_.stop_signal().value_or(0)}});
    world_.all().all_reduce(numbers, comm::Reduction::kMax).wait();
    const int64_t* number = numbers.const_data_ptr<int64_t>();
    if (number[1] != 0) throw StoppedBySignal{static_cast<int>(number[1])};
    return number[0] != 0;
  }

  SaveOutcome take() {
    SaveOutcome outcome = save_.take();
    if (outcome.failure) std::rethrow_exception(outcome.failure);
    return outcome;
  }

  double save_alone() {
    world_.all().barrier();
    save_.start(state_);
    const SaveOutcome outcome = take();
    return largest_of_ranks(world_, outcome.seconds - outcome.copy_s);
  }

  void save_during_steps(CheckpointRound& round) {
    for (int i = 0; i < steps_of_last_save_; ++i) {
      const auto begin = Moment::now();
      step();
      round.steps_s.push_back(seconds_since(begin));
    }
    const auto begin = Moment::now();
    save_.start(state_);
    round.stopped_s = largest_of_ranks(world_, seconds_since(begin));
    double most = 0;
    for (bool writes = true; writes;) {
      const auto step_begin = Moment::now();
      writes = step();
      round.saving_steps_s.push_back(seconds_since(step_begin));
      most = std::max(most, static_cast<double>(resident_bytes()));
    }
    round.commit_s = largest_of_ranks(world_, take().seconds);
    round.above_pool_bytes = largest_of_ranks(world_, most - before_bytes_);
    steps_of_last_save_ = std::max(kLeastSteps, static_cast<int>(round.saving_steps_s.size()));
  }

  double write_plainly() {
    return time_jointly(world_, [&] { write_plain_file(plain_, own_bytes_, direct_); });
  }
  double read_plainly() {
    drop_pages(plain_);
    return time_jointly(world_, [&] { read_plain_file(plain_, direct_); });
  }
  double load() {
    drop_pages(checkpoints_);
    return time_jointly(world_, [&] {
      const bool loaded = load_newest_checkpoint(state_, checkpoints_).has_value();
      ATHANOR_CHECK_AS(Error, loaded, "{} was damaged on its way to the disk or back", checkpoints_.string());
    });
  }

  // Disks keep what was removed for a while: what comes next begins with an empty folder.
  void clean_up() {
    world_.all().barrier();
    std::error_code ignored;
    if (world_.rank() == 0) fs::remove_all(checkpoints_, ignored);
    fs::remove(plain_, ignored);
    world_.all().barrier();
  }

  // Nodes are numbered in the order of their first ranks.
  std::vector<double> bytes_by_node() {
    std::vector<size_t> nodes;
    const auto per_node = static_cast<size_t>(state_.config.topology.ranks_per_node);
    std::map<std::string, size_t> numbers;
    for (const std::string& host : world_.hosts())
      nodes.push_back(per_node > 0 ? nodes.size() / per_node : numbers.emplace(host, numbers.size()).first->second);
    std::vector<double> bytes(*std::ranges::max_element(nodes) + 1);
    bytes[nodes[static_cast<size_t>(world_.rank())]] = static_cast<double>(own_bytes_);
    world_.all().all_reduce(at::from_blob(bytes.data(), {std::ssize(bytes)}, at::kDouble)).wait();
    return bytes;
  }

  TrainState& state_;
  comm::World& world_;
  const SignalGuard& signals_;
  bool direct_;
  Batch batch_;
  BackgroundSave save_;
  fs::path plain_, checkpoints_;
  int64_t own_bytes_;
  int steps_of_last_save_ = kLeastSteps;
  double before_bytes_ = 0;  // resident before the first save
};

// The folder that the files go into: the named one, or the nearest above the run's that exists.
fs::path parent_folder(const BenchCheckpointArguments& given, const RunConfig& config) {
  if (!given.folder.empty()) {
    ATHANOR_CHECK(fs::is_directory(given.folder), "--folder: there is no folder {}; make it, or name another",
                  given.folder);
    return fs::absolute(given.folder);
  }
  const fs::path folder = nearest_existing(fs::absolute(config.train.run_dir).parent_path());
  return fs::is_directory(folder) ? folder : folder.parent_path();
}

// Two checkpoints and the plain files.
void require_room(const fs::path& folder, double checkpoint_bytes) {
  const double free = static_cast<double>(free_disk_bytes(folder)), needed = 3 * checkpoint_bytes + 1e6;
  ATHANOR_CHECK(free > needed,
                "{} has {} free and this benchmark takes {} for as long as it runs; free some, or name "
                "a folder on another disk with --folder",
                folder.string(), format_bytes(free), format_bytes(needed));
}

RunConfig config_of_bench(RunConfig config) {
  take_seq_len_of_data(config);
  resolve_model_from(config);
  config.model.from.clear();
  config.train.batch_ramp.clear();  // most steps have train.global_batch_size
  config.checkpoint.async = true;
  config.checkpoint.interval = 1;
  config.checkpoint.keep = 1'000'000;  // removing is not what is measured
  return config;
}

void measure_checkpoint(comm::World& world, RunConfig config, const BenchCheckpointArguments& given) {
  require_same_settings(config, world);
  require_same_options({{"--saves", std::to_string(given.saves)}, {"--folder", given.folder}}, world);
  at::set_num_threads(threads_of_rank(world, config.train.num_threads).threads);
  Mesh mesh(Layout(config, world.size()), world);
  const at::Device device = agree_on_devices(config, world);
  if (!device.is_cpu() && world.size() > 1) mesh.use(device, config.parallelism.device_sums);
  choose_type(config.train, ops::traits_of(device).usual_type);
  check_memory(config, world, mesh.layout(), device);
  const fs::path parent = parent_folder(given, config);
  const SignalGuard signals("removing the files of the benchmark");
  std::optional<TemporaryFolder> own;  // on the first rank
  team_of(mesh).on_first([&] { own.emplace(parent / ".athanor-bench"); });
  const fs::path folder = broadcast_text(mesh.world().all(), own ? own->path().string() : "");
  config.train.run_dir = folder.string();
  at::manual_seed(static_cast<uint64_t>(config.train.seed));  // all ranks draw the same batch
  TrainState state(config, {}, mesh, {.device = device});
  initialize_parameters(config.model, static_cast<uint64_t>(config.train.seed), state.model.parameters);
  const double checkpoint_bytes = total_of_ranks(world, static_cast<double>(total_bytes(state_pieces(state))));
  team_of(mesh).on_first([&] { require_room(folder, checkpoint_bytes); });
  const bool direct = largest_of_ranks(world, mesh.is_first() && takes_direct_io(folder) ? 1 : 0) > 0;
  CheckpointBench bench(state, signals, direct);
  bench.verify();
  CheckpointFigures figures = bench.figures();
  figures.folder = parent.string();
  for (int i = 0; i < given.saves; ++i) figures.rounds.push_back(bench.round(i));
  if (!mesh.is_first()) return;
  fmt::print("{}", to_text(figures));
  if (!given.json.empty()) write_file_atomically(given.json, to_json(figures).dump(1) + "\n");
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_checkpoint) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchCheckpointArguments*>(arguments);
  const RunConfig config = bench::config_of_bench(load_run_config(
      given.config_file, given.overrides, [](RunConfig& read) { return fit_to_ranks(read, launched().size); }));
  require_layout_fits(config, launched().size);
  bench::parent_folder(given, config);
  ops::install_caching_cpu_allocator();
  return in_world(world_options(config), [&](comm::World& world, RunContext&) {
    try {
      bench::measure_checkpoint(world, config, given);
      return 0;
    } catch (const bench::StoppedBySignal& stop) {
      return exit_code_of_stop(stop.number);
    }
  });
}
