// guarded_layout CONFIG RANKS: trains a layout on ranks that are threads, on CPUs and on a device for each that the
// host plays: in the earliest, the latest and a drawn order of the streams, and with sums along the tree
// (parallelism.device_sums), as the library of the guarded devices adds, too. In the latest order the collectives of a
// device run one at a time, so that ranks which entered groups in different orders would block. Prints as one line of
// JSON what differs, and what copies and waits there were; test_drawn_on_devices.py compares.

#include <fmt/core.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "config/toml_reader.h"
#include "verify/testing/device_layouts.h"

namespace athanor {
namespace {

nlohmann::ordered_json json_of(const ops::TransferCounts& counts) {
  return {{"to_device", counts.copies_to_device}, {"to_host", counts.copies_to_host}, {"waits", counts.waits}};
}

// The number that differs most, relatively: its index, how many there are, and its value on CPUs and on
// devices.
nlohmann::ordered_json worst_number(const LayoutTrace& a, const LayoutTrace& b) {
  size_t worst = 0;
  const auto difference = [&](size_t i) { return std::abs(a.numbers[i] - b.numbers[i]) / std::abs(a.numbers[i]); };
  for (size_t i = 0; i < std::min(a.numbers.size(), b.numbers.size()); ++i)
    if (difference(i) > difference(worst)) worst = i;
  return {worst, a.numbers.size(), a.numbers[worst], b.numbers[worst]};
}

nlohmann::ordered_json compare(const RunConfig& config, int ranks) {
  using Kind = guarded::Order::Kind;
  const LayoutTrace on_cpus = train_on_cpus(config, ranks);
  const LayoutRounding rounding = rounding_of(on_cpus, config, ranks);
  const LayoutTrace earliest = train_on_devices(config, ranks, {});
  nlohmann::ordered_json result = {{"rounding", rounding.difference},
                                   {"cpus_choose_alike", rounding.same_choices},
                                   {"difference", largest_difference(on_cpus, earliest)},
                                   {"worst", worst_number(on_cpus, earliest)},
                                   {"same_targets", on_cpus.targets == earliest.targets},
                                   {"same_choices", on_cpus.choices == earliest.choices},
                                   {"transfers", json_of(earliest.transfers)},
                                   {"promised", json_of(promised_transfers(config, ranks, earliest.dispatch))}};
  for (const auto& [name, order] : {std::pair{"latest", guarded::Order{Kind::kLatest}}, {"drawn", {Kind::kDrawn, 1}}}) {
    comm::guarded_ways().one_at_a_time = order.kind == Kind::kLatest;
    result["same_bits"][name] = earliest.same_bits(train_on_devices(config, ranks, {.order = order}));
  }
  RunConfig along_tree = config;
  along_tree.parallelism.device_sums = "tree";  // as the library of the guarded devices adds, too
  result["same_bits"]["tree"] = earliest.same_bits(train_on_devices(along_tree, ranks, {.order = {Kind::kDrawn, 2}}));
  return result;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  using namespace athanor;
  if (argc != 3) return fmt::print(stderr, "usage: guarded_layout CONFIG RANKS\n"), 2;
  const int ranks = std::atoi(argv[2]);
  at::set_num_threads(1);
  try {
    const RunConfig config =
        make_small_run(load_run_config(argv[1]), ranks, {.steps = 3, .dtype = "float32", .keep_size = true});
    fmt::print("{}\n", compare(config, ranks).dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
