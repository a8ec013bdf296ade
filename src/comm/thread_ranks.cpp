#include "comm/thread_ranks.h"

#include <exception>
#include <thread>

#include "comm/wire_world.h"

namespace athanor::comm {

void run_ranks(int size, const std::function<void(World&)>& rank, const WorldOptions& options,
               const ThreadNetwork& network) {
  if (size == 1) return rank(*World::open(options));
  std::vector<std::unique_ptr<Wire>> wires = thread_wires(size, network);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < wires.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        WireWorld world(std::move(wires[r]), options);
        rank(world);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace athanor::comm
