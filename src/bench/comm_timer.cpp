#include "bench/comm_timer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/timer.h"
#include "ops/transfer.h"

namespace athanor::bench {
namespace {

double seconds_of(comm::Communicator& all, const Joint& subject, int64_t calls, at::Device device) {
  using Clock = std::chrono::steady_clock;
  ops::wait_for(device);
  all.barrier();
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) subject.call();
  ops::wait_for(device);
  return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(calls);
}

double slowest(comm::Communicator& all, double seconds) {
  const at::Tensor most = at::full({1}, seconds, at::kDouble);
  all.all_reduce(most, comm::Reduction::kMax).wait();
  return most.item<double>();
}

}  // namespace

std::vector<double> time_jointly(comm::Communicator& all, const std::vector<Joint>& subjects, int rounds,
                                 at::Device device) {
  constexpr double kRound_s = 0.02, kMost = 1000;
  std::vector<int64_t> calls;
  for (const Joint& subject : subjects) {
    seconds_of(all, subject, 1, device);  // allocates memory
    const double once_s = slowest(all, seconds_of(all, subject, 1, device));
    calls.push_back(static_cast<int64_t>(std::clamp(std::ceil(kRound_s / std::max(once_s, 1e-9)), 1.0, kMost)));
  }
  std::vector<std::vector<double>> seconds(subjects.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < subjects.size(); ++i) {
      seconds[i].push_back(slowest(all, seconds_of(all, subjects[i], calls[i], device)));
    }
  }
  std::vector<double> medians;
  for (const auto& of_subject : seconds) medians.push_back(median(of_subject));
  return medians;
}

}  // namespace athanor::bench
