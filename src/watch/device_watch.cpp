#include "watch/device_watch.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace athanor::inline watch {

DeviceWatch::DeviceWatch(const Mesh& mesh, at::Device device, double timeout_s)
    : mesh_(mesh), device_(device), timeout_s_(timeout_s), word_(at::zeros({1}, at::kLong)),
      watch_([this](double seconds) { look(seconds); }) {}

void DeviceWatch::step_is_queued() {
  all_have_queued_.wait();  // that of the step before, which is complete
  all_have_queued_ = mesh_.group(GroupKind::kWorld).all_reduce(word_);
}

std::string DeviceWatch::oldest_incomplete() const {
  std::string oldest;
  for (const auto& [kind, group] : mesh_.groups()) {
    const std::string call = group->oldest_incomplete();
    if (oldest.empty()) oldest = call;
  }
  return oldest;
}

void DeviceWatch::look(double seconds) {
  const std::string call = oldest_incomplete();  // throws if the library of the device reports an error
  all_have_queued_.wait();                       // throws with the names of those that have not come in time
  if (seconds < timeout_s_) return;
  fail<CommError>(
      "{} has not completed {} after {:.3g} s, although all ranks have queued the step: a device, or the network "
      "between "
      "devices, is stuck; see what nvidia-smi and the logs of the nodes tell, or raise the timeout",
      device_.str(), call.empty() ? "the step" : call, seconds);
}

}  // namespace athanor::inline watch
