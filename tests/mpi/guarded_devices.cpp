// A library for tests: in a process that opens it, the host plays devices (src/guarded/) that train.device = "auto"
// takes, and groups of ranks between them.
//
// ATHANOR_GUARDED_ORDER is the order in which a device runs what its streams and events allow: "earliest" (the
// default), "latest", or a number from which an order is drawn. With ATHANOR_GUARDED_LAUNCH_MS, a number, devices keep
// time, in which each launch takes so long (guarded/queues.h).

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "comm/testing/guarded_groups.h"

namespace athanor {
namespace {

guarded::Order order_of(const std::string& name) {
  using Kind = guarded::Order::Kind;
  if (name.empty() || name == "earliest") return {};
  if (name == "latest") return {Kind::kLatest};
  ATHANOR_CHECK(name.find_first_not_of("0123456789") == name.npos,
                "ATHANOR_GUARDED_ORDER is \"{}\"; it takes earliest, latest or a number", name);
  return {Kind::kDrawn, std::stoull(name)};
}

const bool kGuarded = [] {
  const char* order = std::getenv("ATHANOR_GUARDED_ORDER");
  const char* launch_ms = std::getenv("ATHANOR_GUARDED_LAUNCH_MS");
  guarded::begin_in(order_of(order ? order : ""), launch_ms ? std::stod(launch_ms) : 0);
  comm::play_groups();
  guarded::offer(true);
  return true;
}();

}  // namespace
}  // namespace athanor
