#pragma once
// A world whose groups have something around their backends, which may change what these compute.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>

#include "comm/world.h"

namespace athanor::comm {

/// Returns the backend that a group of several ranks has instead of `backend`; may return that one.
using WrapGroup = std::function<c10::intrusive_ptr<c10d::Backend>(const GroupOptions& options,
                                                                  c10::intrusive_ptr<c10d::Backend> backend)>;

/// Returns a world whose groups of make_group() are wrapped; World::all() stays as it is. `world` must outlive it.
std::unique_ptr<World> decorated_world(World& world, WrapGroup wrap);

}  // namespace athanor::comm
