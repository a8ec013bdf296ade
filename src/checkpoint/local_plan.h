#pragma once
// Which local checkpoint a start takes, and which files have to move between nodes for it. It follows from what each
// node has (LocalPart); nothing is read or sent here.
//
// A local checkpoint is whole if the pieces of each of its writers are on some node, as originals or as copies.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/local_store.h"

namespace athanor::inline checkpoint {

struct LocalChoice {
  int64_t step = 0, attempt = 0;
  /// for each writer: the nodes that have its pieces, at least one; a node that has two copies is there twice
  std::vector<std::vector<int>> holders = {};

  std::string to_text() const;
  static LocalChoice from_text(const std::string& text);
  bool operator==(const LocalChoice&) const = default;
};

/// Returns the newest local checkpoint that is whole, of those with a step above `above` and of attempts from `attempt`
/// on; none if there is none.
/// @param parts  for each node.
/// @param notes  gets a line for each newer one that is not whole, which names a writer that is missing.
std::optional<LocalChoice> choose_local(const std::vector<std::vector<LocalPart>>& parts, int64_t above,
                                        int64_t attempt, std::vector<std::string>& notes);

/// Files that one node sends to another.
struct FileMove {
  int from = 0, to = 0;  ///< nodes
  std::vector<std::string> files = {};

  bool operator==(const FileMove&) const = default;
};

/// Copies that were found to be of no use: node and file → how many of the copies that the node has.
using UselessCopies = std::map<std::pair<int, std::string>, int>;

/// Returns how many copies of a file a node has that may be in order.
int copies_left(const LocalChoice& choice, const UselessCopies& useless, int node, const std::string& file);

/// Returns the moves that give each node the files that it needs and does not have, each from another node with a
/// usable copy. They are in an order in which all nodes may make them: moves between nodes that are equally far apart
/// (to − from) come at the same time. So no node waits for one that waits for it. @throws CheckpointError naming a file
/// that no other node has.
/// @param needed  for each node, files of the checkpoint that it lacks; several ranks may name one.
std::vector<FileMove> plan_moves(const LocalChoice& choice, const std::vector<std::vector<std::string>>& needed,
                                 const UselessCopies& useless = {});

/// Returns the moves as text, and moves of such a text.
std::string text_of_moves(const std::vector<FileMove>& moves);
std::vector<FileMove> moves_of_text(const std::string& text);

}  // namespace athanor::inline checkpoint
