#include "dataset/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/span_log.h"

namespace athanor::inline dataset {

void document_lengths(const int32_t* tokens, int64_t seq_len, uint32_t eos_id, std::vector<int32_t>& out) {
  int64_t begin = 0;
  for (int64_t t = 0; t < seq_len; ++t) {
    if (static_cast<uint32_t>(tokens[t]) != eos_id && t + 1 < seq_len) continue;
    out.push_back(static_cast<int32_t>(t + 1 - begin));
    begin = t + 1;
  }
}

const int32_t* Batch::sequence(int64_t index) const {
  const auto found = std::ranges::lower_bound(held, index);
  ATHANOR_ASSERT(held.empty() ? index < num_sequences : found != held.end() && *found == index);
  return tokens.data() + (held.empty() ? index : found - held.begin()) * seq_len;
}

namespace {

// The inputs of one batch, and the state after it.
struct Plan {
  std::vector<Draw> draws;
  DataLedger next;
};

}  // namespace

struct Loader::Impl {
  Impl(const Mixture& data, uint64_t data_seed, const DataLedger& start, int64_t batch_size, int prefetch,
       std::vector<int64_t> held_sequences)
      : mixture(data), seed(data_seed), global_batch_size(batch_size), max_ahead(prefetch),
        held(std::move(held_sequences)), position(mixture, mixture.enter(start)) {}

  Plan plan() {
    Plan plan;
    auto next_held = held.begin();
    for (int64_t b = 0; b < global_batch_size; ++b) {
      const Draw draw = position.next();
      if (!held.empty() && (next_held == held.end() || *next_held != b)) continue;
      plan.draws.push_back(draw);
      if (!held.empty()) ++next_held;
    }
    plan.next = position.ledger();
    return plan;
  }

  // Called without the lock.
  Batch read(Plan plan) const {
    const int64_t seq_len = mixture.seq_len();
    Batch batch{global_batch_size, seq_len, std::vector<int32_t>(plan.draws.size() * static_cast<size_t>(seq_len)),
                std::move(plan.next), held};
    std::map<std::tuple<size_t, int64_t, int64_t>, std::unique_ptr<EpochOrder>> orders;  // by source, epoch and row
    int32_t* out = batch.tokens.data();
    for (const Draw& draw : plan.draws) {
      const auto& dataset = mixture.sources()[draw.source].dataset;
      auto& order = orders[{draw.source, draw.stretch.epoch, draw.stretch.first_row}];
      if (!order) order = EpochOrder::make(plan.next.order, dataset, draw.stretch, seed);
      dataset.read(order->row(draw.index), out);
      out += seq_len;
    }
    return batch;
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || to_start - to_give < max_ahead; });
      if (stopping) return;
      const int64_t index = to_start++;
      Plan planned = plan();  // planning is in order, since it holds the lock; reading is not
      const std::shared_ptr<SpanLog> log = spans;
      lock.unlock();
      const size_t span = log ? log->open({Span::Row::kReading, "read a batch", "reading"}) : SpanLog::kNone;
      Outcome outcome;
      try {
        outcome.batch = read(std::move(planned));
      } catch (...) {
        outcome.error = std::current_exception();
      }
      if (log) log->close(span);
      lock.lock();
      ready.emplace(index, std::move(outcome));
      changed.notify_all();
    }
  }

  struct Outcome {
    Batch batch;
    std::exception_ptr error;
  };

  Outcome& wait_for_next(std::unique_lock<std::mutex>& lock) {
    changed.wait(lock, [&] { return ready.contains(to_give); });
    return ready.at(to_give);
  }

  const Mixture mixture;
  const uint64_t seed;
  const int64_t global_batch_size, max_ahead;
  const std::vector<int64_t> held;

  std::mutex mutex;  // guards all members below
  std::condition_variable changed;
  MixturePosition position;
  int64_t to_start = 0, to_give = 0;  // batch numbers
  std::map<int64_t, Outcome> ready;
  bool stopping = false;
  std::shared_ptr<SpanLog> spans;
  std::vector<std::thread> threads;
};

Loader::Loader(const Mixture& mixture, uint64_t seed, const DataLedger& start, int64_t global_batch_size,
               int num_threads, int prefetch, std::vector<int64_t> held) {
  ATHANOR_CHECK(global_batch_size >= 1, "global_batch_size ({}) must be at least 1", global_batch_size);
  ATHANOR_CHECK(num_threads >= 1 && prefetch >= 1, "data threads ({}) and prefetch ({}) must be at least 1",
                num_threads, prefetch);
  ATHANOR_ASSERT(std::ranges::is_sorted(held) && (held.empty() || held.back() < global_batch_size));
  impl_ = std::make_unique<Impl>(mixture, seed, start, global_batch_size, prefetch, std::move(held));
  for (int i = 0; i < num_threads; ++i) impl_->threads.emplace_back([impl = impl_.get()] { impl->work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  for (auto& thread : impl_->threads) thread.join();
}

void Loader::record_spans(std::shared_ptr<SpanLog> spans) {
  const std::lock_guard lock(impl_->mutex);
  impl_->spans = std::move(spans);
}

std::exception_ptr Loader::failure() {
  std::unique_lock lock(impl_->mutex);
  return impl_->wait_for_next(lock).error;
}

bool Loader::has_next() const {
  const std::lock_guard lock(impl_->mutex);
  const auto next = impl_->ready.find(impl_->to_give);
  return next != impl_->ready.end() && !next->second.error;
}

Batch Loader::next() {
  std::unique_lock lock(impl_->mutex);
  auto& outcome = impl_->wait_for_next(lock);
  if (outcome.error) std::rethrow_exception(outcome.error);
  Batch batch = std::move(outcome.batch);
  impl_->ready.erase(impl_->to_give++);
  lock.unlock();
  impl_->changed.notify_all();
  return batch;
}

}  // namespace athanor::inline dataset
