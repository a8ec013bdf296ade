#include "launch/host_names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace athanor::launch {
namespace {

// Names of interfaces, which are followed by a number or by nothing.
constexpr std::string_view kInterfaces[] = {"ib",   "hsn", "eth",   "opa", "bond", "mgmt",
                                            "roce", "en",  "ipoib", "nmn", "cmn"};

bool is_figure(char c) { return c >= '0' && c <= '9'; }

bool is_name_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; }

bool are_figures(std::string_view text) { return std::ranges::all_of(text, is_figure); }

bool is_interface(std::string_view suffix) {
  return std::ranges::any_of(kInterfaces, [&](std::string_view word) {
    return suffix.starts_with(word) && are_figures(suffix.substr(word.size()));
  });
}

}  // namespace

bool is_address(std::string_view name) {
  const std::string text(name);
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

bool may_be_host(std::string_view name) {
  if (name.empty() || name.size() > 253 || !std::isalnum(static_cast<unsigned char>(name.front()))) return false;
  if (are_figures(name) || machine_name(name) == "localhost") return false;
  // Words with an underscore and no figure are names of events and settings.
  if (name.find('_') != name.npos && std::ranges::none_of(name, is_figure)) return false;
  return std::ranges::all_of(name, [](char c) { return is_name_byte(c) || c == '.'; });
}

std::string machine_name(std::string_view name) {
  if (is_address(name)) return std::string(name);
  std::string machine(name.substr(0, name.find('.')));
  std::ranges::transform(machine, machine.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t hyphen = machine.rfind('-');
  if (hyphen != machine.npos && hyphen > 0 && is_interface(std::string_view(machine).substr(hyphen + 1)))
    machine.resize(hyphen);
  return machine;
}

std::vector<std::string> names_of_list(std::string_view list) {
  try {
    return expand_node_list(list, "");
  } catch (const ConfigError&) {
    return {std::string(list)};
  }
}

JobHosts::JobHosts(const std::vector<Host>& hosts) {
  const bool tells_ranks = std::ranges::any_of(hosts, [](const Host& host) { return host.slots > 1; });
  for (const Host& host : hosts) {
    const auto [known, is_new] = index_.try_emplace(machine_name(host.name), hosts_.size());
    if (is_new) hosts_.push_back(host.name);
    if (tells_ranks)
      host_of_slot_.insert(host_of_slot_.end(), static_cast<size_t>(std::max(host.slots, 1)), known->second);
  }
}

std::optional<std::string> JobHosts::find(std::string_view name) const {
  const auto known = index_.find(machine_name(name));
  if (known == index_.end()) return std::nullopt;
  return hosts_[known->second];
}

std::optional<std::string> JobHosts::host_of_rank(int64_t rank) const {
  if (rank < 0 || rank >= std::ssize(host_of_slot_)) return std::nullopt;
  return hosts_[host_of_slot_[static_cast<size_t>(rank)]];
}

}  // namespace athanor::launch
