#include "run/rank_devices.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/text.h"
#include "comm/device_backend.h"
#include "comm/short_texts.h"
#include "ops/device_choice.h"

namespace athanor::inline run {
namespace {

// Returns "rank 3 (b)", or "ranks 0 (a), 1 (a) and 14 more".
std::string name_ranks(const std::vector<size_t>& ranks, const std::vector<std::string>& hosts) {
  constexpr size_t kShown = 4;
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i)
    text += fmt::format("{}{} ({})", i > 0 ? ", " : "", ranks[i], hosts[ranks[i]]);
  return ranks.size() > kShown ? fmt::format("{} and {} more", text, ranks.size() - kShown) : text;
}

using Groups = std::map<std::string, std::vector<size_t>>;

// The ranks by what they report; those for which it is empty are left out.
Groups ranks_by(const std::vector<RankDevice>& ranks, const std::function<std::string(size_t)>& report) {
  Groups groups;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (const std::string reported = report(r); !reported.empty()) groups[reported].push_back(r);
  return groups;
}

// Returns "what differs between ranks: a on rank 0 (x), b on rank 1 (y)", or "".
std::string difference(const std::string& what, const Groups& groups, const std::vector<std::string>& hosts) {
  if (groups.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [said, members] : groups) parts.push_back(said + " on " + name_ranks(members, hosts));
  return what + ": " + join(parts, "; ");
}

constexpr int64_t kTextRoom = 1024;  // most faults name a path or two

// The fault is cut to what there is room for: a text that the gather cuts cannot be read again.
std::string text_for_all(RankDevice own) {
  const auto json_of = [](const RankDevice& device) {
    return nlohmann::json{device.kind, device.name, device.id, device.build, device.fault}.dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  constexpr auto kRoom = static_cast<size_t>(kTextRoom) - 1;
  std::string text = json_of(own);
  while (text.size() > kRoom && !own.fault.empty()) {  // escaped characters take more than one byte
    own.fault.resize(std::min(own.fault.size() - 1, own.fault.size() * kRoom / text.size()));
    text = json_of(own);
  }
  return text;
}

RankDevice device_from(const std::string& text) {
  const auto said = nlohmann::json::parse(text).get<std::array<std::string, 5>>();
  return {said[0], said[1], said[2], said[3], said[4]};
}

ops::PlaceOnHost place_of(const comm::World& world) {
  const auto& hosts = world.hosts();
  return {comm::index_on_host(world), static_cast<int>(std::ranges::count(hosts, world.host()))};
}

// Returns how a setting chooses the CPU: "set train.device = \"cpu\"", "use --device cpu".
std::string choosing_cpu(const std::string& setting) {
  return setting.starts_with("--") ? "use " + setting + " cpu" : "set " + setting + " = \"cpu\"";
}

// Returns this rank's device, and notes it, or the fault, in `own`.
at::Device choose_own(const std::string& name, const std::string& setting, const comm::World& world, RankDevice& own) {
  const BuildInfo& build = build_info();
  own.build = fmt::format("athanor {} ({}), libtorch {}", build.version, build.commit, build.libtorch);
  try {
    const at::Device device = ops::choose_device(name, place_of(world), setting);
    if (world.size() > 1) {
      ATHANOR_CHECK(comm::have_device_backend(device.type()),
                    "this build has no collectives between {} devices; build against a libtorch that has them, or {}",
                    c10::DeviceTypeName(device.type(), /*lower_case=*/true), choosing_cpu(setting));
    }
    const auto facts = ops::facts_of(device).value_or(ops::DeviceFacts{});
    own.kind = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
    own.name = facts.name;
    own.id = facts.id;
    return device;
  } catch (const ConfigError& error) {
    own.fault = error.what();
    return at::kCPU;
  }
}

}  // namespace

std::vector<std::string> find_device_faults(const std::vector<RankDevice>& ranks, const std::vector<std::string>& hosts,
                                            const std::string& setting) {
  std::vector<std::string> faults;
  for (const auto& [fault, members] : ranks_by(ranks, [&](size_t r) { return ranks[r].fault; }))
    faults.push_back(ranks.size() > 1 ? name_ranks(members, hosts) + ": " + fault : fault);
  const auto differ = [&](const std::string& what, const std::function<std::string(size_t)>& report) {
    if (const std::string text = difference(what, ranks_by(ranks, report), hosts); !text.empty())
      faults.push_back(text);
  };
  differ("one job needs one build of the program on all ranks", [&](size_t r) { return ranks[r].build; });
  differ("the ranks of a job need devices of one kind; choose one with " + setting,
         [&](size_t r) { return ranks[r].kind; });
  differ("the ranks of a job need devices of one model; ask the scheduler for nodes of one kind",
         [&](size_t r) { return ranks[r].name; });
  const auto by_device =
      ranks_by(ranks, [&](size_t r) { return ranks[r].id.empty() ? "" : hosts[r] + "/" + ranks[r].id; });
  for (const auto& [device, members] : by_device) {
    if (members.size() > 1)
      faults.push_back(name_ranks(members, hosts) + " share one device; start one rank for each device, or " +
                       choosing_cpu(setting));
  }
  return faults;
}

at::Device agree_on_devices(const RunConfig& config, comm::World& world) {
  return agree_on_devices(config.train.device.word(), "train.device", world);
}

at::Device agree_on_devices(const std::string& name, const std::string& setting, comm::World& world) {
  RankDevice own;
  const at::Device device = choose_own(name, setting, world, own);
  std::vector<RankDevice> all;
  for (const std::string& text : comm::all_gather_texts(world.all(), text_for_all(own), kTextRoom))
    all.push_back(device_from(text));
  const auto faults = find_device_faults(all, world.hosts(), setting);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
  ops::make_current(device);
  return device;
}

}  // namespace athanor::inline run
