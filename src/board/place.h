#pragma once
// Where the board of a run is, and its small files, which processes of several nodes write and read at once.
//
// A node has four files in /dev/shm, whose name is made of the run's folder, the node and the user. So ranks find them
// without a message, and nodes of a test that share a /dev/shm do not meet. The run has a file for each node in its
// folder, for where sockets do not reach.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace athanor::board {

struct Place {
  std::string run;               ///< hash of the absolute path of the run's folder, of the node and of the user
  std::filesystem::path memory;  ///< the records (record.h)
  std::filesystem::path lock;    ///< its lock is held by the node's collector as long as that lives
  std::filesystem::path socket;  ///< where the collector answers with its report
  std::filesystem::path stacks;  ///< where it answers with stacks (stacks.h)
};

/// Returns the folder for the files of a node: /dev/shm, or the one in the environment variable ATHANOR_BOARD. Empty if
/// the variable is "off". @throws ConfigError if it is neither "off" nor an absolute path.
std::filesystem::path board_folder();

/// @param folder  board_folder(). @param user  the owner of the processes that train.
Place place_of(const std::filesystem::path& folder, const std::filesystem::path& run_dir, const std::string& node,
               uid_t user);

/// Returns the places in which the board of a run may be on this node: that of the user who asks, and that of the owner
/// of the run's folder, as root may look at the run of another. @throws ConfigError as board_folder.
std::vector<Place> places_of_this_node(const std::filesystem::path& run_dir);

/// Returns the place whose records are in `memory`.
Place place_at(const std::filesystem::path& memory, const std::string& run);

/// Returns RUN/board, which has a file for each node: NODE.json (node_report.h).
std::filesystem::path reports_of(const std::filesystem::path& run_dir);

/// Returns RUN/board/requests, which has a folder for each request for stacks (stack_request.h).
std::filesystem::path requests_of(const std::filesystem::path& run_dir);

/// Returns a path that means the same in every working folder.
std::filesystem::path absolute_path(const std::filesystem::path& path);

/// Replaces a report, request or answer in the run's folder in one step, and does not sync it: a node that loses its
/// power has lost the processes of which it tells. Only one process at a time may write a path.
/// @return false, with errno, if that failed; the file is then as it was.
bool replace_unsynced(const std::filesystem::path& file, const std::string& text);

/// Returns the names in a folder, in any order; those that it has got if the file system fails, none if there is no
/// such folder. A network file system sends the list of the moment, though it may remember for a while that a file of
/// one name was not there.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace athanor::board
