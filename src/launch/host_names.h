#pragma once
// One host has many spellings in a log: n12, N12.cluster.org, n12-ib0, n12.hsn.cluster.org. Only the part that names
// the machine is compared.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launch/host_list.h"

namespace athanor::launch {

/// True for an IPv4 or IPv6 address in figures.
bool is_address(std::string_view name);

/// True if `name` may be the name of a machine of a job: letters, figures, dots, hyphens and underscores, and neither a
/// number nor localhost.
bool may_be_host(std::string_view name);

/// Returns the part of a name that identifies the machine: in small letters, without its domain, and without the suffix
/// of an interface (-ib0, -hsn1, -eth0, -opa, -bond0, -mgmt, -roce0). An address is returned as it is.
std::string machine_name(std::string_view name);

/// Returns the names of a list as Slurm's messages write it (launch/host_list.h); one that is not well formed is one
/// name.
std::vector<std::string> names_of_list(std::string_view list);

/// The hosts of a job, from its host file, in their order.
class JobHosts {
 public:
  JobHosts() = default;
  /// @param hosts  each once, with its ranks if these are told (launch/host_list.h).
  explicit JobHosts(const std::vector<Host>& hosts);

  bool empty() const { return hosts_.empty(); }
  const std::vector<std::string>& names() const { return hosts_; }
  size_t size() const { return hosts_.size(); }
  /// Returns the spelling of the host file, or nothing if the machine is not in it.
  std::optional<std::string> find(std::string_view name) const;
  /// Returns the host of a rank, if ranks fill the hosts in the order of the file. It is known only if the file has
  /// more than one slot for a host: files that list each host once do not tell how many ranks it has.
  std::optional<std::string> host_of_rank(int64_t rank) const;

 private:
  std::vector<std::string> hosts_;                 // each once
  std::unordered_map<std::string, size_t> index_;  // by machine_name
  std::vector<size_t> host_of_slot_;               // by rank
};

}  // namespace athanor::launch
