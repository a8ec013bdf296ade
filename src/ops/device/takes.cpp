#include "ops/device.h"

// This function has its own file: a test program that defines `takes` itself is linked without it.
namespace athanor::ops::device {
bool takes(const Tensor& x) { return !on_host(x); }
}  // namespace athanor::ops::device
