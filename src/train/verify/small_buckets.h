#pragma once
// As many buckets as the real run has: with them as many collectives are under way at once.

#include "arch/layout.h"

namespace athanor {

/// Gradient buckets of the rank that has most of them; ranks of one pipeline rank have as many as each other.
int64_t count_buckets(const RunConfig& config, const Layout& layout);

/// parallelism.bucket_mb with which `small`, which has all layers of `whole`, has as many buckets as that, or a few
/// more where its tensors' other sizes allow no equal number.
double bucket_mb_for_as_many(const RunConfig& small, const RunConfig& whole, const Layout& layout);

}  // namespace athanor
