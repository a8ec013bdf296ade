// The framework's host time in a step: what a rank's main thread computes that is not the model's arithmetic.
//
// A rank of the layout runs alone, in a world whose collectives have no peers and do nothing (comm/fake). So it waits
// for no other rank, and the processor time of the thread is arithmetic and framework. The step is composed of the
// pieces of train/train_step.cpp. Arithmetic is the time inside the stages' forward and backward, the gradient's norm
// and the update. The framework is the rest: cutting the batch, the schedule, messages between stages, the reducer, the
// sums of losses, the gatherer. The collectives of tensor ranks and norms are inside the arithmetic; their calls are
// counted, and each is charged with the measured time of one call.

#include "bench/overhead_ranks.h"

#include <fmt/core.h>
#include <time.h>

#include "bench/random_batch.h"
#include "comm/thread_ranks.h"
#include "config/toml_reader.h"
#include "memory/preflight.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "optim/gradient_norm.h"
#include "parallel/loss_sum.h"
#include "run/start.h"
#include "train/microbatch.h"

namespace athanor::bench {
namespace {

constexpr int kWarmUps = 2, kCalls = 1000;

// Processor time of this thread. Time in which it was kept from the processor does not count.
double thread_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Seconds {
  double arithmetic = 0, left_out = 0;
};

class Clock {
 public:
  explicit Clock(double& sum) : sum_(sum), began_(thread_s()) {}
  ~Clock() { sum_ += thread_s() - began_; }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

 private:
  double& sum_;
  double began_;
};

// There is no sender, so the input from other stages is uninitialised memory. Numbers are written into it while the
// clock is stopped.
class TimedStage : public Stage {
 public:
  TimedStage(Stage& stage, Seconds& seconds) : stage_(stage), seconds_(seconds) { copy_specs(); }

  void expect(int64_t batch, int64_t seq_len) override {
    stage_.expect(batch, seq_len);
    copy_specs();
  }
  Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
    fill(x);
    const Clock clock(seconds_.arithmetic);
    return stage_.forward(microbatch, std::move(x), labels);
  }
  Tensor backward(int microbatch, Tensor dy, GradientReducer* sums) override {
    fill(dy);
    const Clock clock(seconds_.arithmetic);
    return stage_.backward(microbatch, std::move(dy), sums);
  }
  LossParts take_parts(int microbatch) override { return stage_.take_parts(microbatch); }
  Tensor forward_only(Tensor x, const Labels* labels) override { return stage_.forward_only(std::move(x), labels); }
  TokenScores score(Tensor x, const Labels* labels) override { return stage_.score(std::move(x), labels); }

 private:
  void copy_specs() { in = stage_.in, out = stage_.out; }
  void fill(Tensor& received) {
    const Clock clock(seconds_.left_out);
    if (received.defined() && received.is_floating_point()) received.normal_();
  }

  Stage& stage_;
  Seconds& seconds_;
};

// Processor time of the thread that calls a collective, until the call returns. Two threads are ranks.
double time_of_asking() {
  std::vector<double> seconds;
  comm::run_ranks(2, [&](comm::World& world) {
    const auto both = world.make_group({{0, 1}}, "both");
    const Tensor few = at::zeros({64});
    for (int i = 0; i < kCalls; ++i) {
      const double began = thread_s();
      auto pending = both->all_reduce(few);
      const double asked = thread_s();
      pending.wait();
      if (world.rank() == 0) seconds.push_back(asked - began);
    }
  });
  return median(seconds);
}

class Rank {
 public:
  Rank(const RunConfig& config, int rank, int num_ranks)
      : world_(open(config, rank, num_ranks)), mesh_(Layout(config, num_ranks), *world_), state_(config, {}, mesh_),
        timed_(timed_stages()), pipeline_(pointers(), mesh_.group(GroupKind::kPipeline)), batch_(random_batch(config)) {
    initialize_parameters(config.model, static_cast<uint64_t>(config.train.seed), state_.model.parameters);
    const auto& p = config.parallelism;
    pipeline_.set_schedule(make_schedule(p.pipeline_schedule.word(), state_.model.mesh.layout().pipeline(),
                                         static_cast<int>(p.virtual_stages),
                                         static_cast<int>(state_.model.mesh.layout().microbatches())));
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  struct Step {
    double total_s = 0, framework_s = 0;
    int64_t calls = 0;
  };

  Step step() {
    seconds_ = {};
    Step step;
    const int64_t calls = num_calls();
    const double began = thread_s();
    compute_gradients();
    update();
    step.total_s = thread_s() - began - seconds_.left_out;
    step.framework_s = step.total_s - seconds_.arithmetic;
    step.calls = num_calls() - calls;
    return step;
  }

 private:
  static std::unique_ptr<comm::World> open(const RunConfig& config, int rank, int num_ranks) {
    comm::WorldOptions options = world_options(config);
    options.fake_rank = rank, options.fake_size = num_ranks;
    return comm::World::open(options);
  }

  std::vector<std::unique_ptr<TimedStage>> timed_stages() {
    std::vector<std::unique_ptr<TimedStage>> stages;
    for (const auto& chunk : state_.model.chunks) stages.push_back(std::make_unique<TimedStage>(*chunk, seconds_));
    return stages;
  }
  std::vector<Stage*> pointers() const {
    std::vector<Stage*> stages;
    for (const auto& stage : timed_) stages.push_back(stage.get());
    return stages;
  }

  int64_t num_calls() const {
    int64_t calls = 0;
    for (const auto& [kind, group] : mesh_.groups()) {
      if (group->size() > 1) calls += group->traffic().calls;
    }
    return calls;
  }

  void compute_gradients() {
    const auto microbatches = split_batch(batch_, state_.config, state_.data.eos_id, state_.position.step + 1,
                                          state_.model.mesh.layout(), mesh_.data_rank());
    LossTotals totals = totals_of(pipeline_.forward_backward(microbatches), state_.model.device());
    state_.optimizer.reducer.finish();
    sum_over_ranks(mesh_.group(GroupKind::kPipeline), totals);
    sum_over_ranks(mesh_.group(GroupKind::kData), totals);
    const Clock clock(seconds_.arithmetic);
    gradient_squares(state_.model.parameters, state_.model.plan);
  }

  void update() {
    const double lr = state_.config.optimizer.lr;
    int64_t changed = 0;
    for (const Bucket& bucket : state_.model.parameters.buckets()) {
      {
        const Clock clock(seconds_.arithmetic);
        changed += state_.optimizer.set.apply({state_.position.step + 1, lr, 1.0}, bucket.range);
      }
      state_.model.gatherer.start(bucket);
    }
    const Tensor all = at::tensor({changed, changed}, at::kLong);
    mesh_.group(GroupKind::kModel).all_reduce(all).wait();
    mesh_.group(GroupKind::kData).all_reduce(all).wait();
    state_.model.gatherer.wait_all();
    ++state_.position.step;
  }

  std::unique_ptr<comm::World> world_;
  Mesh mesh_;
  TrainState state_;
  Seconds seconds_;
  std::vector<std::unique_ptr<TimedStage>> timed_;
  Pipeline pipeline_;
  Batch batch_;
};

}  // namespace

void measure_overhead_of_ranks(const BenchOverheadArguments& given, Report& report) {
  RunConfig config = load_run_config(given.config_file, given.overrides);
  config.train.batch_ramp.clear();  // most steps have train.global_batch_size
  take_seq_len_of_data(config);
  at::set_num_threads(1);  // the time of other threads would not be counted
  ops::install_caching_cpu_allocator();
  const Layout layout(config, given.ranks);
  report.begin(
      fmt::format("overhead in a step of {} ranks: pipeline {}, tensor {}, {} data ranks; processor time of the main "
                  "thread, without waiting",
                  given.ranks, layout.pipeline(), layout.tensor(), layout.data()));
  const double asking_s = time_of_asking();
  for (const int number : layout.group_of(GroupKind::kModel, 0)) {
    Rank rank(config, number, given.ranks);
    for (int i = 0; i < kWarmUps; ++i) rank.step();
    std::vector<double> total, framework, share;
    int64_t calls = 0;
    for (int i = 0; i < given.rounds; ++i) {
      auto step = rank.step();
      const double asked_s = static_cast<double>(step.calls) * asking_s;
      calls = step.calls, step.framework_s += asked_s, step.total_s += asked_s;
      total.push_back(step.total_s), framework.push_back(step.framework_s);
      share.push_back(step.framework_s / step.total_s);
    }
    const nlohmann::json fields{{"rank", number}, {"ranks", given.ranks}, {"calls", calls}, {"share", median(share)}};
    report.add({fmt::format("rank {}: step", number), fields, total, 0, {}});
    Result result{fmt::format("rank {}: framework", number), fields, framework, 0, {}};
    result.note = fmt::format("{:.2f}% of the step, {} calls of {:.1f} us", 100 * median(share), calls, asking_s * 1e6);
    report.add(std::move(result));
  }
}

}  // namespace athanor::bench
