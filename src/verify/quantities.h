#pragma once
// The names of the quantities that `verify` compares, as its report shows them.

namespace athanor::inline verify {

inline constexpr const char *kFirstParameters = "initial parameters", *kNumbers = "loss and its parts",
                            *kCounts = "expert counts", *kFirstGradients = "gradients, step 1",
                            *kLaterGradients = "gradients, later";

}  // namespace athanor::inline verify
