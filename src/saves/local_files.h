#pragma once
// The files of a local checkpoint while a start loads it. Each node gets those that its ranks need and it lacks. A file
// that is damaged is replaced by another copy of it, from another node or from a folder with another node's name.

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/team.h"
#include "comm/communicator.h"
#include "saves/local_start.h"

namespace athanor::inline saves {

class LocalFiles {
 public:
  /// @param local, team, world  outlive this object; `team` and `world` have all ranks of the run. Something was
  /// chosen.
  LocalFiles(const LocalStart& local, const Team& team, comm::Communicator& world);

  /// Returns the checkpoint's folder on this rank's node, where files come to.
  const std::filesystem::path& folder() const { return folder_; }
  /// Returns the folders of this rank's node that have pieces of a writer, in the order in which they are taken; none
  /// on a rank that is not its node's leader.
  std::vector<std::filesystem::path> folders_with(int writer) const;

  /// Makes what folders of other names on this node have readable in folder(). Collective.
  void link_left();
  /// Makes files readable in folder() that this rank reads. Collective.
  /// @throws CheckpointError on every rank, if no node has one of them; IoError.
  void fetch(const Manifest& manifest, const std::set<std::string>& files);
  /// Puts other copies in the place of files that this rank found damaged, with one warning for all. Collective.
  /// @return false on every rank, if none names a file.
  /// @throws CheckpointError on every rank, if there is no other copy of one of them; IoError.
  bool replace(const Manifest& manifest, const FileDamage& damage);

 private:
  struct Request;   // what all ranks ask for
  struct Decision;  // the first rank makes it for all

  bool is_leader() const { return local_.nodes.is_leader(team_.index); }
  int node() const { return local_.nodes.node_of(team_.index); }
  bool is_in_order(const Manifest& manifest, const std::string& file) const;
  bool take_next(const std::string& file);
  std::vector<std::string> lost_here(const Manifest& manifest);
  Request join_requests(const std::vector<std::string>& texts);
  Decision decide(const std::vector<std::string>& texts);
  Decision agree(const std::string& own);
  void make_moves(const std::vector<FileMove>& moves);
  void tell_moves(const std::vector<FileMove>& moves, const Manifest& manifest) const;

  const LocalStart& local_;
  const Team& team_;
  comm::Communicator& world_;
  std::filesystem::path folder_;
  struct Copies {
    std::filesystem::path folder;
    std::set<int> writers;
  };
  std::vector<Copies> copies_;           // on this node, its own first; on leaders
  std::map<std::string, size_t> taken_;  // file → number of the copy on this node that is in folder()
  // On the first rank:
  UselessCopies useless_;
  std::map<std::pair<int, std::string>, int> origin_;  // node and file → the node that sent it
};

}  // namespace athanor::inline saves
