#pragma once
// Faults in numerics, planted into a run from outside when it is built: around its stages, around the backends of its
// groups, or as observers of its steps. The code that runs knows nothing of them.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>

#include "comm/world.h"
#include "train/train_state.h"

namespace athanor::inline verify::plants {

/// One rank's part of one fault. It outlives the states and groups that it is in. The wrap functions are called while a
/// run is built; a fault overrides those that it needs.
class Plant {
 public:
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  virtual ~Plant() = default;
  /// Wraps the backend of a group of several ranks; may return it as it is.
  virtual Backend wrap_group(const comm::GroupOptions& /*options*/, Backend backend) { return backend; }
  /// Wraps a stage; null: no wrapper.
  virtual std::unique_ptr<Stage> wrap_stage(Stage& /*stage*/, const StageLayers& /*layers*/, const Mesh& /*mesh*/) {
    return nullptr;
  }
  /// Adds observers to the state.
  virtual void watch(TrainState& /*state*/) {}

  /// Returns how often this rank computed something wrongly. 0 on every rank: the layout has nothing for this fault.
  int64_t times() const { return times_; }

 protected:
  void count(bool acted) { times_ += acted; }

 private:
  int64_t times_ = 0;
};

/// Makes a plant.
/// @param name  a name from plants/names.h. @throws ConfigError if there is none.
std::unique_ptr<Plant> make_plant(const std::string& name);

/// Returns options that put the plant around the stages. `plant` must outlive the state.
TrainStateOptions planted_options(Plant& plant);

/// Returns a world whose groups (of make_group) have the plant around their backends; World::all() stays as it is.
/// `world` and `plant` must outlive it.
std::unique_ptr<comm::World> planted_world(comm::World& world, Plant& plant);

}  // namespace athanor::inline verify::plants
