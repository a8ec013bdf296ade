#pragma once
// Gives the small run as many gradient buckets as the real run has, so that as many collectives are in flight at once.

#include "layout/layout.h"

namespace athanor::inline verify {

/// Returns the number of gradient buckets of the rank that has most of them. (Ranks with the same pipeline coordinate
/// have the same number.)
int64_t count_buckets(const RunConfig& config, const Layout& layout);

/// Returns the parallelism.bucket_mb with which `small`, which has all layers of `whole`, has as many buckets as
/// `whole`, or a few more if its tensors' other sizes allow no equal number.
/// @param layout  of both runs.
double bucket_mb_for_as_many(const RunConfig& small, const RunConfig& whole, const Layout& layout);

}  // namespace athanor::inline verify
