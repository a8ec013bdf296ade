#include "staging/thread_work.h"

#include <utility>

namespace athanor::staging {

ThreadWork::ThreadWork(int num_threads, std::function<void(ChunkBuffer&)> work) : work_(std::move(work)) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

ThreadWork::~ThreadWork() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

void ThreadWork::start(ChunkBuffer& buffer) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&buffer);
  }
  changed_.notify_one();
}

ChunkBuffer* ThreadWork::take_done() {
  const std::lock_guard lock(mutex_);
  if (done_.empty()) return nullptr;
  ChunkBuffer* buffer = done_.front();
  done_.pop_front();
  return buffer;
}

void ThreadWork::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return leaving_ || !waiting_.empty(); });
    if (leaving_) return;
    ChunkBuffer* buffer = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    try {
      work_(*buffer);
    } catch (...) {
      buffer->failure = std::current_exception();
    }
    lock.lock();
    done_.push_back(buffer);
  }
}

}  // namespace athanor::staging
