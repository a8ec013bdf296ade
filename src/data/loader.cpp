#include "data/loader.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/random.h"

namespace athanor {

DataCursor advance(DataCursor cursor, int64_t count, int64_t num_instances) {
  const int64_t next = cursor.next + count;
  return {cursor.epoch + next / num_instances, next % num_instances};
}

void document_lengths(const int32_t* tokens, int64_t seq_len, uint32_t eos_id, std::vector<int32_t>& out) {
  int64_t begin = 0;
  for (int64_t t = 0; t < seq_len; ++t) {
    if (static_cast<uint32_t>(tokens[t]) != eos_id && t + 1 < seq_len) continue;
    out.push_back(static_cast<int32_t>(t + 1 - begin));
    begin = t + 1;
  }
}

struct Loader::Impl {
  Impl(const Dataset& data, uint64_t data_seed, DataCursor first, int64_t batch_size, int prefetch)
      : dataset(data), seed(data_seed), start(first), global_batch_size(batch_size), max_ahead(prefetch) {}

  // Batch number `index` from the start on. Called without the lock.
  Batch read(int64_t index) const {
    const int64_t seq_len = dataset.seq_len();
    Batch batch{global_batch_size, seq_len, std::vector<int32_t>(static_cast<size_t>(global_batch_size * seq_len)), {}};
    DataCursor cursor = advance(start, index * global_batch_size, dataset.num_instances());
    std::optional<Permutation> order;
    for (int64_t b = 0; b < global_batch_size; ++b) {
      if (!order || cursor.next == 0) {
        order.emplace(static_cast<uint64_t>(dataset.num_instances()), seed, fmt::format("data epoch {}", cursor.epoch));
      }
      const auto row = static_cast<int64_t>((*order)(static_cast<uint64_t>(cursor.next)));
      dataset.read(row, batch.tokens.data() + b * seq_len);
      cursor = advance(cursor, 1, dataset.num_instances());
    }
    batch.next = cursor;
    return batch;
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || to_start - to_give < max_ahead; });
      if (stopping) return;
      const int64_t index = to_start++;
      lock.unlock();
      Outcome outcome;
      try {
        outcome.batch = read(index);
      } catch (...) {
        outcome.error = std::current_exception();
      }
      lock.lock();
      ready.emplace(index, std::move(outcome));
      changed.notify_all();
    }
  }

  struct Outcome {
    Batch batch;
    std::exception_ptr error;
  };

  const Dataset dataset;
  const uint64_t seed;
  const DataCursor start;
  const int64_t global_batch_size, max_ahead;

  std::mutex mutex;
  std::condition_variable changed;
  int64_t to_start = 0, to_give = 0;  // batch numbers
  std::map<int64_t, Outcome> ready;
  bool stopping = false;
  std::vector<std::thread> threads;
};

Loader::Loader(const Dataset& dataset, uint64_t seed, DataCursor start, int64_t global_batch_size, int num_threads,
               int prefetch) {
  ATHANOR_CHECK(global_batch_size >= 1, "global_batch_size ({}) must be at least 1", global_batch_size);
  ATHANOR_CHECK(num_threads >= 1 && prefetch >= 1, "data threads ({}) and prefetch ({}) must be at least 1",
                num_threads, prefetch);
  ATHANOR_CHECK_DATA(start.epoch >= 0 && start.next >= 0 && start.next < dataset.num_instances(),
                     "{}: no place (epoch {}, instance {}) in {} instances; is it the data of this run?",
                     dataset.folder().string(), start.epoch, start.next, dataset.num_instances());
  impl_ = std::make_unique<Impl>(dataset, seed, start, global_batch_size, prefetch);
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

Batch Loader::next() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->ready.contains(impl_->to_give); });
  auto& outcome = impl_->ready.at(impl_->to_give);
  if (outcome.error) std::rethrow_exception(outcome.error);
  Batch batch = std::move(outcome.batch);
  impl_->ready.erase(impl_->to_give++);
  lock.unlock();
  impl_->changed.notify_all();
  return batch;
}

}  // namespace athanor
