#include "verify/plants/plant.h"

#include "base/error.h"
#include "comm/derived_worlds.h"
#include "verify/plants/rows.h"

namespace athanor::inline verify::plants {

std::vector<Row> all_plants() {
  std::vector<Row> all;
  for (auto& rows :
       {gradient_plants(), stage_plants(), group_plants(), pipeline_plants(), optimizer_plants(), sophiag_plants()})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::unique_ptr<Plant> make_plant(const std::string& name) {
  for (const Row& row : all_plants()) {
    if (row.name == name) return row.make();
  }
  fail<ConfigError>("--plant {}: there is no such fault; see --plant list", name);
}

TrainStateOptions planted_options(Plant& plant) {
  TrainStateOptions options;
  options.wrap_stage = [&plant](Stage& stage, const StageLayers& layers, const Mesh& mesh) {
    return plant.wrap_stage(stage, layers, mesh);
  };
  return options;
}

std::unique_ptr<comm::World> planted_world(comm::World& world, Plant& plant) {
  return comm::decorated_world(world, [&plant](const comm::GroupOptions& options, Plant::Backend backend) {
    return plant.wrap_group(options, std::move(backend));
  });
}

}  // namespace athanor::inline verify::plants
