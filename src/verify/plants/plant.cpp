#include "verify/plants/plant.h"

#include <cstdlib>

#include "base/error.h"
#include "verify/plants/group_backend.h"
#include "verify/plants/rows.h"

namespace athanor::inline verify::plants {
namespace {

class PlantedWorld : public comm::World {
 public:
  PlantedWorld(comm::World& world, Plant& plant) : world_(world), plant_(plant) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  const std::vector<std::string>& hosts() const override { return world_.hosts(); }
  const std::vector<int>& supernodes() const override { return world_.supernodes(); }
  const std::string& network() const override { return world_.network(); }
  comm::Communicator& all() override { return world_.all(); }
  void note_work(int64_t amount) override { world_.note_work(amount); }
  [[noreturn]] void abort(int exit_code) override {
    world_.abort(exit_code);
    std::abort();  // the compiler does not know that the virtual function never returns
  }

  std::unique_ptr<comm::Communicator> make_group(const std::vector<std::vector<int>>& partition,
                                                 const std::string& name, at::Device device,
                                                 comm::SumTerms tree_sums) override {
    std::shared_ptr<comm::Communicator> group = world_.make_group(partition, name, device, tree_sums);
    comm::GroupOptions options = group->options();
    if (!device.is_cpu()) options.check = false;  // the group itself checks its calls, over one of the hosts
    const int rank = group->rank();
    Plant::Backend backend;
    if (group->size() > 1) backend = plant_.wrap_group(options, c10::make_intrusive<GroupBackend>(std::move(group)));
    return std::make_unique<comm::Communicator>(options, std::move(backend), rank);
  }

 private:
  comm::World& world_;
  Plant& plant_;
};

}  // namespace

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
  return std::make_unique<PlantedWorld>(world, plant);
}

}  // namespace athanor::inline verify::plants
