#include "saves/background_save.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/process.h"
#include "base/rate_limit.h"
#include "base/wall_clock.h"
#include "checkpoint/model_identity.h"
#include "memory/rank_share.h"
#include "parallel/share.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "saves/staging_pool.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Thrown in the thread when the run gives its checkpoint up. It is no std::exception: nothing may take it for an error
/// of the checkpoint.
struct GivenUp {};

std::vector<Tensor> router_tensors(const TrainState& state) {
  return {state.model.previous_share, state.model.router_bias};
}

struct Job {
  SaveOutcome outcome;
  Clock::time_point begin = Clock::now();
  StagingPool::Copy copy;
  std::filesystem::path folder;
  nlohmann::json model, state;
  RotationOptions options;
  std::shared_ptr<SpanLog> spans;  // null: none
  size_t span = SpanLog::kNone;
};

}  // namespace

struct BackgroundSave::Worker {
  StagingPool pool;
  Tell tell;
  std::optional<LocalPlace> local;
  RateLimit rate;
  int64_t most_writers = 0;  // 0: all
  std::unique_ptr<comm::Communicator> group;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::optional<Job> job;
  std::optional<SaveOutcome> outcome;
  bool leave = false, left = false;
  std::shared_ptr<SpanLog> spans;
  std::atomic<bool> given_up = false;

  Worker(const TrainState& state, Tell on_disk, std::optional<LocalPlace> place)
      : pool(state_pieces(state), router_tensors(state), state.model.device()), tell(std::move(on_disk)),
        local(std::move(place)),
        rate(state.config.checkpoint.write_mb_s * 1e6 / count_ranks_of_host(state.model.mesh.world())),
        most_writers(state.config.checkpoint.concurrent_writers) {
    comm::World& world = state.model.mesh.world();
    std::vector<int> everyone;
    for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
    group = world.make_group({everyone}, "checkpoint");
  }

  void run();
  void write(Job& now);
  void write_to_nodes(Job& now);
  void in_turn(const std::function<void()>& write);
  Team team();
  void wait_until(const std::function<bool()>& over) const;
  void wait(comm::Pending& pending) const;
};

// Nothing that this thread waits for has a limit of time; it looks rarely, since a checkpoint takes seconds.
void BackgroundSave::Worker::wait_until(const std::function<bool()>& over) const {
  for (auto nap = 100us; !over(); nap = std::min(nap * 2, std::chrono::microseconds(10ms))) {
    if (given_up) throw GivenUp();
    std::this_thread::sleep_for(nap);
  }
}

void BackgroundSave::Worker::wait(comm::Pending& pending) const {
  wait_until([&] { return pending.done(); });
  pending.wait();
}

Team BackgroundSave::Worker::team() {
  const auto waits = [this](comm::Pending& pending) { wait(pending); };
  return {group->rank(), group->size(),
          [this, waits](const std::string& own) { return gather_texts(*group, own, waits); },
          [this, waits](const std::string& of_first) { return broadcast_text(*group, of_first, waits); }};
}

// The rank that is most_writers before this one in the order of ranks lets it begin.
void BackgroundSave::Worker::in_turn(const std::function<void()>& write) {
  const int64_t rank = group->rank(), before = rank - most_writers, after = rank + most_writers;
  const Tensor token = at::zeros({1}, at::kLong);
  const auto pass_on = [&] {
    if (after >= group->size()) return;
    comm::Pending sent = group->send(token, static_cast<int>(after));
    wait(sent);
  };
  if (before >= 0) {
    comm::Pending came = group->receive(token, static_cast<int>(before));
    wait(came);
  }
  try {
    write();
  } catch (const std::exception&) {
    pass_on();
    throw;
  }
  pass_on();
}

void BackgroundSave::Worker::write(Job& now) {
  wait_until([&] { return pool.done(); });
  add_router_rows(now.state, now.copy.values[0], now.copy.values[1]);
  if (now.outcome.to == SaveTo::kNodes) return write_to_nodes(now);
  now.options.team = team();
  now.options.write.num_threads = 1;  // the others belong to the run
  now.options.write.worked = [this](int64_t num_bytes) {
    if (given_up) throw GivenUp();
    rate.take(static_cast<double>(num_bytes));
  };
  if (most_writers > 0 && most_writers < group->size())
    now.options.write.in_turn = [this](const auto& write) { in_turn(write); };
  save_rotating(now.folder, now.outcome.step, now.copy.pieces, now.model, now.state, now.options);
}

// The limits of shared storage do not apply.
void BackgroundSave::Worker::write_to_nodes(Job& now) {
  WriteOptions options;
  options.num_threads = 1;
  options.must_be_finite = true;
  options.worked = [this](int64_t) {
    if (given_up) throw GivenUp();
  };
  write_local_checkpoint(
      *local, now.outcome.step, now.copy.pieces, now.model, now.state, team(), *group,
      [this](comm::Pending& pending) { wait(pending); }, options);
}

void BackgroundSave::Worker::run() {
  lower_thread_priority();
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return leave || job; });
    if (!job) break;
    lock.unlock();
    SaveOutcome& result = job->outcome;
    try {
      write(*job);
    } catch (const GivenUp&) {
      lock.lock();
      break;  // the outcome is that of the run
    } catch (...) {
      result.failure = std::current_exception();
    }
    if (job->spans) job->spans->close(job->span);
    result.seconds = seconds_since(job->begin);
    if (!result.failure && result.to == SaveTo::kRunFolder && group->rank() == 0 && !given_up) tell(result);
    lock.lock();
    outcome = result;
    job.reset();
    changed.notify_all();
  }
  left = true;
  changed.notify_all();
}

BackgroundSave::BackgroundSave(const TrainState& state, Tell tell, std::optional<LocalPlace> local)
    : worker_(std::make_shared<Worker>(state, std::move(tell), std::move(local))),
      thread_([worker = worker_] { worker->run(); }) {}

// The thread holds all that it needs, so it can be left behind if it hangs in the file system: the process ends soon.
BackgroundSave::~BackgroundSave() {
  if (std::uncaught_exceptions() > 0) worker_->given_up = true;
  std::unique_lock lock(worker_->mutex);
  worker_->leave = true;
  worker_->changed.notify_all();
  const auto has_left = [&] { return worker_->left; };
  const bool hangs = worker_->given_up && !worker_->changed.wait_for(lock, 5s, has_left);
  lock.unlock();
  hangs ? thread_.detach() : thread_.join();
}

int64_t BackgroundSave::pool_bytes() const { return worker_->pool.num_bytes(); }

void BackgroundSave::record_spans(std::shared_ptr<SpanLog> spans) {
  const std::lock_guard lock(worker_->mutex);
  worker_->spans = std::move(spans);
}

bool BackgroundSave::is_writing() const {
  const std::lock_guard lock(worker_->mutex);
  return worker_->job.has_value();
}

void BackgroundSave::before_update() const { worker_->pool.follow(); }

void BackgroundSave::start(TrainState& state, SaveTo to) {
  ATHANOR_ASSERT(!pending_);
  state.model.gatherer.wait_all();
  Job job;
  const std::vector<PieceView> pieces = state_pieces(state);
  job.outcome.to = to;
  job.outcome.step = state.position.step;
  job.outcome.num_bytes = total_bytes(pieces);
  job.copy = worker_->pool.copy(pieces, router_tensors(state));
  job.folder = RunFolder{state.config.train.run_dir}.checkpoints();
  job.model = model_identity(state.config.model);
  job.state = numbers_json(state);
  job.options = rotation_options(state.config.checkpoint);
  job.outcome.copy_s = seconds_since(job.begin);
  const std::lock_guard lock(worker_->mutex);
  job.spans = worker_->spans;
  if (job.spans) job.span = job.spans->open({Span::Row::kSaving, "write a checkpoint", "saving"});
  worker_->job = std::move(job);
  pending_ = to;
  worker_->changed.notify_all();
}

void BackgroundSave::wait_together(comm::Communicator& world) {
  const Tensor writing = at::empty({1}, at::kLong);
  for (auto nap = 100ms; true; nap = std::min(2 * nap, 400ms)) {
    bool is_done = false;
    {
      std::unique_lock lock(worker_->mutex);
      is_done = worker_->changed.wait_for(lock, nap, [&] { return worker_->outcome.has_value(); });
    }
    writing.fill_(is_done ? 0 : 1);
    world.all_reduce(writing, comm::Reduction::kMax).wait();
    if (writing.item<int64_t>() == 0) return;
  }
}

SaveOutcome BackgroundSave::take() {
  ATHANOR_ASSERT(pending_);
  std::unique_lock lock(worker_->mutex);
  worker_->changed.wait(lock, [&] { return worker_->outcome.has_value(); });
  pending_.reset();
  SaveOutcome outcome = *worker_->outcome;
  worker_->outcome.reset();
  return outcome;
}

}  // namespace athanor::inline saves
