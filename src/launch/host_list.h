#pragma once
// Hosts as schedulers and files name them: Slurm's compressed lists, host files, and what a name of a host may be.
//
// Everything here comes from outside and becomes an argument of a launcher, so each name is checked: no name begins
// with a dash or has a blank, a quote or another character that a shell or an option parser would read.
// Errors: ConfigError with the place (file and line, or variable), the name, and the remedy.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::launch {

struct Host {
  std::string name;
  int slots = 0;  ///< number of ranks that it has room for; 0 if that is not told
  bool operator==(const Host&) const = default;
};

/// The most hosts of a list: the largest machines have 160,000 nodes. A list such as n[0-9][0-9][0-9]... would
/// otherwise fill the memory.
inline constexpr size_t kMostHosts = 1 << 18;
/// The most slots of a host.
inline constexpr int kMostSlots = 1 << 16;

/// True for a name of letters, digits, dots, dashes and underscores that begins with a letter or digit, and for an
/// IPv4 or IPv6 address.
bool is_host_name(std::string_view text);

/// Expands Slurm's list: "nid[000001-000003,000007],x[1-2]c0" → nid000001, nid000002, nid000003, nid000007, x1c0, x2c0.
/// Numbers keep their zeros, and a name may have several brackets, of which the last counts fastest.
/// @param from  the origin of the list, for messages: "SLURM_JOB_NODELIST".
std::vector<std::string> expand_node_list(std::string_view list, const std::string& from);

/// Expands Slurm's counts: "4,2,1(x2)" → 4, 2, 1, 1.
std::vector<int> expand_counts(std::string_view counts, const std::string& from);

/// What a host that has several lines in a file means.
enum class RepeatedHost {
  kRefused,  ///< a mistake: in files of users
  kSlots,    ///< one slot for each line: in the file of PBS and in LSB_HOSTS
};
/// Reads lines "NAME", "NAME:SLOTS" and "NAME slots=SLOTS"; # begins a comment. Hosts keep the order of their first
/// line. @throws ConfigError also if there is no host.
std::vector<Host> parse_host_file(std::string_view text, const std::string& from, RepeatedHost repeated);

/// True if both names mean one host: they are equal, or one is the other without its domain.
bool is_same_host(std::string_view a, std::string_view b);

/// "3 hosts: x1, x2, x3"; of more than eight, the first seven and the last.
std::string shown_hosts(const std::vector<Host>& hosts);

/// "1 core", "2 cores".
std::string counted(int64_t number, const std::string& what);

}  // namespace athanor::launch
