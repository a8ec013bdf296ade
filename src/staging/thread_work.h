#pragma once
// Work on chunks in threads: several read, or write, at the same time, since a file system answers one request late and
// many in the same time.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "staging/chunk.h"

namespace athanor::staging {

class ThreadWork : public ChunkWork {
 public:
  /// @param work  gets a buffer; what it throws becomes the buffer's failure.
  ThreadWork(int num_threads, std::function<void(ChunkBuffer&)> work);
  /// Waits for the work that has begun, and drops what has not.
  ~ThreadWork() override;
  ThreadWork(const ThreadWork&) = delete;
  ThreadWork& operator=(const ThreadWork&) = delete;

  void start(ChunkBuffer& buffer) override;
  ChunkBuffer* take_done() override;

 private:
  void run();

  const std::function<void(ChunkBuffer&)> work_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<ChunkBuffer*> waiting_, done_;
  bool leaving_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace athanor::staging
