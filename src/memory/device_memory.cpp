#include "memory/device_memory.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "memory/memory_remedies.h"
#include "ops/device_choice.h"

namespace athanor::inline memory {
namespace {

// Returns "rank 3 (b) needs 12.00GiB and has 10.50GiB; …".
std::string describe_others(const std::vector<DeviceMemory>& ranks, const std::vector<std::string>& hosts,
                            size_t except) {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown;
  size_t num_others = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r == except || ranks[r].lack() <= 0) continue;
    if (++num_others <= kShown)
      shown.push_back(fmt::format("rank {} ({}) needs {} and has {}", r, hosts[r], format_bytes(ranks[r].need),
                                  format_bytes(ranks[r].free)));
  }
  if (num_others == 0) return "";
  return "\nother devices have too little memory, too: " + join(shown, "; ") +
         (num_others > kShown ? fmt::format("; and {} more ranks", num_others - kShown) : "");
}

std::vector<DeviceMemory> gather(comm::World& world, const DeviceMemory& own) {
  const Tensor mine = at::tensor({own.need, own.free}, at::kDouble), all = at::empty({world.size(), 2}, at::kDouble);
  world.all().all_gather(all, mine).wait();
  std::vector<DeviceMemory> ranks;
  for (int64_t r = 0; r < world.size(); ++r) ranks.push_back({all[r][0].item<double>(), all[r][1].item<double>()});
  return ranks;
}

}  // namespace

std::vector<int> number_hosts(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  std::vector<int> numbered;
  for (const std::string& host : hosts)
    numbered.push_back(numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second);
  return numbered;
}

std::string find_lacking_memory(const RunConfig& config, const std::vector<DeviceMemory>& ranks,
                                const std::vector<std::string>& hosts, at::Device own) {
  const auto worst = std::ranges::max_element(ranks, {}, &DeviceMemory::lack);
  if (worst->lack() <= 0) return "";
  const auto worst_rank = static_cast<size_t>(worst - ranks.begin());
  const DeviceRank of{static_cast<int>(worst_rank), static_cast<int>(ranks.size()), number_hosts(hosts)};
  const std::string where =
      ranks.size() > 1 ? fmt::format("the device of rank {} ({})", worst_rank, hosts[worst_rank]) : own.str();
  return fmt::format("this run needs about {} of memory on {} ({}), and {} are free there; {}{}",
                     format_bytes(worst->need), where, describe_need(config, of, need_of_device(config, of)),
                     format_bytes(worst->free), what_would_fit(config, worst->free, of),
                     describe_others(ranks, hosts, worst_rank));
}

void check_device_memory(const RunConfig& config, comm::World& world, at::Device device) {
  const DeviceRank of{world.rank(), world.size(), number_hosts(world.hosts())};
  const MemoryNeed need = need_of_device(config, of);
  const DeviceMemory own{need.total(), static_cast<double>(ops::facts_of(device)->free_bytes)};
  const std::string lacking = find_lacking_memory(config, gather(world, own), world.hosts(), device);
  ATHANOR_CHECK(lacking.empty(), "{}", lacking);
  log::info("memory: about {} needed on {} ({}){}", format_bytes(own.need), device.str(),
            describe_need(config, of, need), own.free < 0 ? "" : fmt::format(", {} free", format_bytes(own.free)));
}

}  // namespace athanor::inline memory
