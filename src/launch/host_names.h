#pragma once
// One host has many spellings in a log: n12, N12.cluster.org, n12-ib0, n12.hsn.cluster.org. Only the part that names
// the machine is compared.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace athanor::launch {

/// True for an IPv4 or IPv6 address in figures.
bool is_address(std::string_view name);

/// True if `name` may be the name of a machine of a job: letters, figures, dots and hyphens, and neither a number nor
/// localhost.
bool may_be_host(std::string_view name);

/// Returns the part of a name that identifies the machine: in small letters, without its domain, and without the suffix
/// of an interface (-ib0, -hsn1, -eth0, -opa, -bond0, -mgmt, -roce0). An address is returned as it is.
std::string machine_name(std::string_view name);

/// Returns the names of a list as Slurm's messages write it: "n[1-3,07],login" has n1, n2, n3, n07 and login. A list
/// that is not well formed, or has more than 65,536 names, is returned as one name.
std::vector<std::string> names_of_list(std::string_view list);

/// The hosts of a job, from its host file, in their order.
class JobHosts {
 public:
  JobHosts() = default;
  /// @param text  the content of a host file: a host on each line, with slots (`n1:4`, `n1 slots=4`) or once for each
  ///              rank (PBS). What follows # is a comment.
  explicit JobHosts(std::string_view text);

  bool empty() const { return hosts_.empty(); }
  size_t size() const { return hosts_.size(); }
  /// Returns the spelling of the host file, or nothing if the machine is not in it.
  std::optional<std::string> find(std::string_view name) const;
  /// Returns the host of a rank if ranks fill the hosts in the order of the file, and the file tells how many ranks a
  /// host has.
  std::optional<std::string> host_of_rank(int64_t rank) const;

 private:
  std::vector<std::string> hosts_;                // each once
  std::unordered_map<std::string, size_t> index_;  // by machine_name
  std::vector<size_t> host_of_slot_;              // by rank, if the file has slots
};

}  // namespace athanor::launch
