#include "verify/small_buckets.h"

#include <set>

#include "layout/shards.h"
#include "model/decoder.h"

namespace athanor::inline verify {
namespace {

RunConfig with_bucket_elements(RunConfig config, int64_t elements) {
  // Adds half an element, so that the size is read back whole (bucket_elements rounds down).
  config.parallelism.bucket_mb = (static_cast<double>(elements) + 0.5) * sizeof(float) / 1e6;
  return config;
}

}  // namespace

int64_t count_buckets(const RunConfig& config, const Layout& layout) {
  std::set<int> seen;  // pipeline ranks
  size_t most = 0;
  for (int rank = 0; rank < layout.world_size() && std::cmp_less(seen.size(), layout.pipeline()); ++rank) {
    if (!seen.insert(layout.coordinate(rank, Axis::kPipeline)).second) continue;
    auto entries = make_bucket_entries(held_parameters(config.model, config.parallelism, layout, rank));
    most = std::max(most, lay_out_buckets(entries, {.bucket_elements = bucket_elements(config)}).size());
  }
  return static_cast<int64_t>(most);
}

double bucket_mb_for_as_many(const RunConfig& small, const RunConfig& whole, const Layout& layout) {
  const int64_t wanted = count_buckets(whole, layout);
  // Smaller buckets are never fewer. This finds the largest that are enough; with one element, each parameter has a
  // bucket.
  int64_t enough = 1, too_large = 64 * count_parameters(small.model);  // with all padding, no bucket has more
  while (too_large - enough > 1) {
    const int64_t middle = enough + (too_large - enough) / 2;
    (count_buckets(with_bucket_elements(small, middle), layout) >= wanted ? enough : too_large) = middle;
  }
  return with_bucket_elements(small, enough).parallelism.bucket_mb;
}

}  // namespace athanor::inline verify
