#pragma once
// What a run of prepare has done so far: which chunks of which files are tokens in the spill, which buckets and shards
// are written. A run that begins with an earlier one's journal does the rest.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/documents/document_error.h"
#include "data/prepare/journal.h"

namespace athanor {

/// An input file as it was found: another size or time of change makes it another file.
struct InputFile {
  std::filesystem::path path;
  int64_t bytes = -1;  ///< -1: not known beforehand (a pipe)
  std::string key;     ///< hash of path, size and time
};
InputFile look_at_input(const std::filesystem::path& path);

/// What came of some documents.
struct DocumentCounts {
  int64_t documents = 0, tokens = 0, text_bytes = 0;
  SkipCounts skipped;
  void add(const DocumentCounts& other);
};

/// A chunk of a file in the spill.
struct SpilledChunk {
  uint32_t chunk = 0, num_tokens = 0;
  uint64_t offset = 0, hash = 0;
};

/// What is done of a file.
struct FileProgress {
  DocumentCounts counts;
  std::vector<SpilledChunk> chunks;    ///< in the order in which they were finished
  std::optional<uint32_t> num_chunks;  ///< known once the file was cut to its end
  std::string fingerprint;             ///< see file_fingerprint
  bool finished() const { return num_chunks && chunks.size() == *num_chunks; }
};

/// What is done of gathering a stream's instances into shards.
struct GatherProgress {
  std::string stream;  ///< digest of the stream of tokens
  int64_t rows_per_bucket = 0, buckets_per_pass = 0;
  std::set<int64_t> scattered;                ///< passes whose bucket files are complete
  std::map<std::string, std::string> shards;  ///< file: hash
};

class PrepareJournal {
 public:
  /// @param options  all that decides the bytes of the result but the inputs, each under the name of its flag.
  /// @param is_whole  whether a chunk that was written before a crash of the machine is in the spill; asked for those
  ///                  chunks only of which nobody has waited for the disk.
  /// @throws ConfigError if the earlier run had other options and has done something.
  PrepareJournal(std::filesystem::path path, const nlohmann::json& options,
                 const std::function<bool(const SpilledChunk&)>& is_whole);

  /// The hash of the manifest that the run at `path` was about to put in place.
  static std::optional<std::string> committed(const std::filesystem::path& path);

  /// What the journal said when it was opened, of a file that is still the same; or null.
  const FileProgress* file(const std::string& key) const;
  const GatherProgress& gathering() const { return gather_; }
  /// How much text is in the spill, this run's too: what would be lost without the journal.
  int64_t text_bytes() const { return text_bytes_; }

  // Each returns once the kernel has the line. Thread-safe.
  void begin_file(const InputFile& file, const std::string& fingerprint);
  void add_chunk(const std::string& key, const SpilledChunk& chunk, const DocumentCounts& counts);
  void end_file(const std::string& key, uint32_t num_chunks);
  /// `sync_spill` waits until the disk has all chunks added so far.
  void sync(const std::function<void()>& sync_spill);
  /// Forgets which passes were scattered before, and of another stream the shards too.
  void begin_gather(const std::string& stream, int64_t rows_per_bucket, int64_t buckets_per_pass);
  void add_scattered(int64_t pass);
  void add_shard(const std::string& file, const std::string& hash);
  void commit(const std::string& manifest_hash);

 private:
  using IsWhole = std::function<bool(const SpilledChunk&)>;
  void replay(const std::filesystem::path& path, const IsWhole& is_whole);
  bool apply(const nlohmann::json& line, const IsWhole& is_whole);
  void set_gather(const std::string& stream, int64_t rows_per_bucket, int64_t buckets_per_pass);
  bool apply_chunk(const nlohmann::json& line, const IsWhole& is_whole);

  std::mutex mutex_;
  std::optional<Journal> journal_;
  std::unordered_map<std::string, FileProgress> files_;  // as they were when the journal was opened
  std::unordered_map<std::string, uint64_t> ids_;        // of a file's lines, by its key
  std::vector<std::string> keys_;                        // by id
  uint64_t num_chunks_ = 0, num_synced_ = 0;             // chunk lines, and how many of them the disk has for sure
  int64_t text_bytes_ = 0;
  GatherProgress gather_;
};

/// A file's size and a hash of its beginning and end: cheap, and the same wherever the file lies. Empty for what is no
/// regular file.
std::string file_fingerprint(const std::filesystem::path& path);

}  // namespace athanor
