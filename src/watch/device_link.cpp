#include "watch/device_link.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/transfer.h"

namespace athanor::inline watch {
namespace {

constexpr int64_t kMessageFloats = int64_t{1} << 22;  // 16 MiB, which the fastest link takes tens of microseconds for
constexpr int kTimes = 5;                             // the first of which opens the connection

// One message each way, timed on the device.
class TimedExchange {
 public:
  explicit TimedExchange(at::Device device)
      : device_(device), begin_(device.type(), kWithTime), end_(device.type(), kWithTime) {}

  void queue(comm::Communicator& group, const Tensor& out, const Tensor& in, std::span<const int64_t> rows) {
    const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    begin_.record(stream);
    group.all_to_all(out, in, rows, rows).wait();
    end_.record(stream);
  }
  double seconds() const { return 1e-3 * begin_.elapsedTime(end_); }

 private:
  static constexpr auto kWithTime = c10::EventFlag::BACKEND_DEFAULT;
  at::Device device_;
  c10::Event begin_, end_;
};

}  // namespace

GroupKind device_link_group(const Mesh& mesh) {
  const auto size = [&](GroupKind kind) { return mesh.group(kind).size(); };
  return size(GroupKind::kModel) > size(GroupKind::kData) ? GroupKind::kModel : GroupKind::kData;
}

// All ranks make the same calls; in each of them a rank exchanges rows with one neighbour or with none.
double measure_device_link(const Mesh& mesh, at::Device device) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  comm::Communicator& group = mesh.group(device_link_group(mesh));
  if (!mesh.has_device_groups() || group.size() == 1) return kNone;
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const Tensor message = at::zeros({1, kMessageFloats}, options), room = at::empty_like(message);
  std::vector<TimedExchange> own;
  for (int wave = 0; wave < kNumWaves; ++wave) {
    const auto [with, begins] = neighbour_in(wave, group.rank(), group.size());
    std::vector<int64_t> rows(static_cast<size_t>(group.size()));
    if (with >= 0) rows[static_cast<size_t>(with)] = 1;
    for (int i = 0; i < kTimes; ++i) {
      TimedExchange exchange(device);
      exchange.queue(group, room.narrow(0, 0, with >= 0), message.narrow(0, 0, with >= 0), rows);
      if (begins && i > 0) own.push_back(std::move(exchange));
    }
  }
  ops::wait_for(device);
  try {
    double least = std::numeric_limits<double>::infinity();
    for (const TimedExchange& exchange : own) least = std::min(least, exchange.seconds());
    return least > 0 ? 1e-6 * static_cast<double>(message.nbytes()) / least : kNone;
  } catch (const c10::Error&) {
    return kNone;  // the device's library compares no times
  }
}

}  // namespace athanor::inline watch
