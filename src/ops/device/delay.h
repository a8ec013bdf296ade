#pragma once
// Work that keeps a device busy for about as long as is asked, to rehearse a slow one: a host that waits slows down a
// device only if it has nothing queued.

#include <optional>

#include "ops/tensor.h"

namespace athanor::ops::device {

class Delay {
 public:
  /// Measures a product of matrices on the device, for which the host waits a few times. Returns nothing for the CPU,
  /// where a host that waits is slow.
  static std::optional<Delay> on(at::Device device);

  /// Queues products on the current stream that together take about `seconds`. The host does not wait.
  void queue(double seconds) const;

 private:
  explicit Delay(at::Device device);
  // Returns the time of one product, by the device's events, or by the host's clock if they have no times.
  double measure() const;

  Tensor factor_, product_;  // [n, n] fp32
  double product_s_ = 0;
};

}  // namespace athanor::ops::device
