#pragma once
// Faults in numerics, put into a run from outside when it is built: around its stages, around the backends of its
// groups, or as observers of its steps. What is run knows nothing of them.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>

#include "comm/world.h"
#include "train/train_state.h"

namespace athanor::plants {

/// One rank's part of one fault. Outlives the states that it is in.
class Plant {
 public:
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  virtual ~Plant() = default;
  /// Around the backend of a group of several ranks.
  virtual Backend wrap_group(const comm::GroupOptions& /*options*/, Backend backend) { return backend; }
  /// Around a stage; null: nothing.
  virtual std::unique_ptr<Stage> wrap_stage(Stage& /*stage*/, const StageLayers& /*layers*/, const Mesh& /*mesh*/) {
    return nullptr;
  }
  /// Adds observers.
  virtual void watch(TrainState& /*state*/) {}

  /// How often something was computed wrongly here. 0 on every rank: the layout has nothing for this fault.
  int64_t times() const { return times_; }

 protected:
  void count(bool acted) { times_ += acted; }

 private:
  int64_t times_ = 0;
};

/// @param name  of plants/names.h. @throws ConfigError if there is none.
std::unique_ptr<Plant> make_plant(const std::string& name);

/// With the plant around its stages.
TrainStateOptions planted_options(Plant& plant);

/// A world whose groups have the plant around their backends. Both outlive it.
std::unique_ptr<comm::World> planted_world(comm::World& world, Plant& plant);

}  // namespace athanor::plants
