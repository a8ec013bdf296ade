#include "ops/device/delay.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cmath>

#include "base/wall_clock.h"
#include "ops/transfer.h"

namespace athanor::ops::device {
namespace {

// Ten times what a launch costs the host, which so stays ahead; and a product that takes as long on any device.
constexpr double kLeast_s = 1e-4;
constexpr int64_t kSmallest = 64, kLargest = 8192;
constexpr int kTrial = 8;

}  // namespace

Delay::Delay(at::Device device) {
  for (int64_t n = kSmallest; n <= kLargest && product_s_ < kLeast_s; n *= 2) {
    factor_ = at::full({n, n}, 1 / static_cast<double>(n), at::TensorOptions(at::kFloat).device(device));
    product_ = at::empty_like(factor_);
    product_s_ = measure();
  }
}

double Delay::measure() const {
  const at::Device device = factor_.device();
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT), end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  Tensor out = product_;
  at::mm_out(out, factor_, factor_);  // the first one loads what the others use
  ops::wait_for(device);
  const auto began = std::chrono::steady_clock::now();
  begin.record(stream);
  for (int i = 0; i < kTrial; ++i) at::mm_out(out, factor_, factor_);
  end.record(stream);
  ops::wait_for(device);
  const double by_host_s = seconds_since(began);
  try {
    return 1e-3 * begin.elapsedTime(end) / kTrial;
  } catch (const c10::Error&) {
    return by_host_s / kTrial;
  }
}

std::optional<Delay> Delay::on(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return Delay(device);
}

void Delay::queue(double seconds) const {
  const at::NoGradGuard no_grad;
  const auto products = std::llround(seconds / product_s_);
  Tensor out = product_;
  for (int64_t i = 0; i < products; ++i) at::mm_out(out, factor_, factor_);
}

}  // namespace athanor::ops::device
