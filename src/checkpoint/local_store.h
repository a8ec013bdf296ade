#pragma once
// What one node keeps of a run's local checkpoints: full checkpoints in a folder of the node's memory or disk
// (checkpoint.local_dir), which no other node sees.
//
//   LOCAL_DIR/athanor-ID/NODE/attempt-003/step-00000510/
//     pieces-00003-00000.safetensors   pieces that a rank of this node wrote,
//     pieces-00003.json                and the manifest's part that lists them
//     pieces-00007-…                   the same of ranks of another node, whose partner this node is
//     where.json                       what this node has (LocalPart)
//
// ID is the run's (where.json in the run's folder), so that several runs may share a folder. A checkpoint is complete
// on a node when its folder has its name; it was ".step-00000510.tmp" before. Only one process of a node changes a
// store.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::inline checkpoint {

inline constexpr const char* kWhereName = "where.json";

/// Identifies the run that local checkpoints are of.
struct LocalRun {
  std::string id;  ///< 16 hexadecimal digits
  std::filesystem::path run_dir, local_dir;

  bool operator==(const LocalRun&) const = default;
};

/// The contents of one local checkpoint on one node.
struct LocalPart {
  int64_t step = 0;
  int64_t attempt = 0;         ///< number of the start that wrote it: another's may have other pieces
  int writers = 0;             ///< ranks that wrote the checkpoint, on all nodes
  std::vector<int> kept = {};  ///< the writers whose pieces are here: those of this node, then the copies

  bool operator==(const LocalPart&) const = default;
};

/// Where the pieces of a part come from and go to, for people who look into where.json.
struct PartPlaces {
  struct Source {
    std::string node;
    std::vector<int> writers;
  };
  std::vector<Source> sources;  ///< the first is this node; the others have it as their partner
  std::string partner;          ///< the node that has copies of this one's pieces; empty: none
};

/// Returns the beginning of the names of a writer's files: "pieces-00003".
std::string prefix_of_writer(int writer);
/// Returns the name of the file with the manifest's part of a writer.
std::string part_name(int writer);
/// Returns the writer of a file of pieces, by its name.
/// @throws CheckpointError for a name of another form.
int writer_of_file(const std::string& file_name);

class LocalStore {
 public:
  /// @param node  the node's name, unique in the run. Nothing is read or made.
  LocalStore(LocalRun run, std::string node);

  const LocalRun& run() const { return run_; }
  const std::string& node() const { return node_; }
  /// Returns the folder of all that this node keeps.
  const std::filesystem::path& root() const { return root_; }
  /// Returns the folder of a checkpoint.
  std::filesystem::path path(int64_t attempt, int64_t step) const;
  /// Returns its folder while it is being written.
  std::filesystem::path staging(int64_t attempt, int64_t step) const;

  /// Returns the checkpoints that are complete on this node, newest first, and adds a line to `notes` for each whose
  /// where.json cannot be read, or is of another run. A folder without one is half removed, and is left out.
  std::vector<LocalPart> list(std::vector<std::string>& notes) const;

  /// Returns the bytes of the files that this node keeps.
  uint64_t num_bytes() const;

  /// Makes an empty staging folder. @throws IoError.
  void begin(int64_t attempt, int64_t step) const;
  /// Writes where.json, and gives the staging folder its name, which no folder has yet. Fault point:
  /// "checkpoint.local_commit", before and after.
  /// @throws IoError.
  void commit(const LocalPart& part, const PartPlaces& places) const;
  /// Removes the staging folder of a checkpoint that could not be written.
  void discard(int64_t attempt, int64_t step) const;
  /// Removes all checkpoints but this one, and what killed processes left. A folder that cannot be removed costs a
  /// warning.
  void keep_only(int64_t attempt, int64_t step) const;
  /// Removes from a checkpoint's folder what commit() did not put there: files that a load fetched.
  void drop_fetched(int64_t attempt, int64_t step) const;
  /// Removes all that this node keeps of the run, and the folders above it that are empty then.
  void remove_all() const;

 private:
  std::filesystem::path folder_of(int64_t attempt) const;
  void remove(const std::filesystem::path& path) const;
  void remove_others(const std::filesystem::path& folder, const std::filesystem::path& kept) const;

  LocalRun run_;
  std::string node_;
  std::filesystem::path root_;
};

/// Returns the stores of all nodes of a run that have a folder here, by name, whether or not the run has such nodes
/// now.
std::vector<LocalStore> list_stores(const LocalRun& run);

/// Returns the run that where.json in `run_dir`, an absolute path, describes; an empty id if there is none, or if it is
/// of a run in another folder, of which this one is a copy (`note` then tells). @throws CheckpointError for a file of
/// another form.
LocalRun read_local_run(const std::filesystem::path& run_dir, std::string& note);
/// Returns an id that no other run has.
std::string new_local_run_id();

/// A node of a run, as where.json in the run's folder shows it.
struct LocalNode {
  std::string name, host, partner;
  std::vector<int> ranks;
};
/// Writes where.json into the run's folder: whose pieces are on which node, with a copy on which. @throws IoError.
void write_local_run(const LocalRun& run, int64_t attempt, const std::vector<LocalNode>& nodes);

}  // namespace athanor::inline checkpoint
