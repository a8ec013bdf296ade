#include "staging/prediction.h"

#include <algorithm>
#include <limits>

#include "staging/two_trees.h"

namespace athanor::staging {
namespace {

double or_infinite(double bytes_per_s) {
  return bytes_per_s > 0 ? bytes_per_s : std::numeric_limits<double>::infinity();
}

}  // namespace

double predict_s(const PredictionInput& input, int num_nodes) {
  const double chunk = std::min(input.chunk_bytes, input.bytes);
  const double source = or_infinite(input.source_bytes_per_s), disk = or_infinite(input.disk_bytes_per_s);
  if (num_nodes < 2) return chunk / source + (input.bytes - chunk) / std::min(source, disk) + chunk / disk;
  const double link = or_infinite(input.link_bytes_per_s);
  const double slowest = std::min({source, link, disk});
  const DeepestPath path = deepest_path(num_nodes);
  return chunk / source + path.sends * chunk / link + path.hops * input.latency_s + chunk / disk +
         (input.bytes - chunk) / slowest;
}

double predict_chain_s(const PredictionInput& input, int num_nodes) {
  const double chunk = std::min(input.chunk_bytes, input.bytes);
  const double source = or_infinite(input.source_bytes_per_s), disk = or_infinite(input.disk_bytes_per_s);
  const double link = or_infinite(input.link_bytes_per_s);
  const double hops = num_nodes - 1;
  return chunk / source + hops * (chunk / link + input.latency_s) + chunk / disk +
         (input.bytes - chunk) / std::min({source, link, disk});
}

std::span<const PublishedBroadcast> published_broadcasts() {
  static constexpr PublishedBroadcast kPublished[] = {
      {8, 69.7, 29.3},    {16, 89.7, 31.6},   {32, 89.2, 20.9},    {64, 91.2, 34.6},    {128, 110.4, 30.5},
      {256, 132.9, 37.6}, {512, 174.5, 44.5}, {1024, 255.4, 60.8}, {2048, 421.4, 94.8}, {4096, 750.6, 194.0}};
  return kPublished;
}

}  // namespace athanor::staging
