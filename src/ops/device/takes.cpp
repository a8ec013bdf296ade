#include "ops/device.h"

// Alone in its file: a test program that defines `takes` itself is linked without this one.
namespace athanor::ops::device {
bool takes(const Tensor& x) { return !x.is_cpu(); }
}  // namespace athanor::ops::device
