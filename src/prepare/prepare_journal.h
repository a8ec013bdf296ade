#pragma once
// The journal of `athanor prepare`: which chunks of which files have been tokenized into the spill (token_stream.h),
// and which buckets and shards have been written. A call that finds the journal of an earlier one does only the rest.

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

#include "documents/document_error.h"
#include "prepare/journal.h"
#include "prepare/shards.h"

namespace athanor::inline preparation {

/// An input file as it was found. A file whose size or time of change differs counts as another file.
struct InputFile {
  std::filesystem::path path;
  int64_t bytes = -1;  ///< -1: not known in advance (a pipe)
  std::string key;     ///< hash of path, size and time; of standard input another one at each look
};
/// @throws IoError if there is no such file.
InputFile look_at_input(const std::filesystem::path& path);

/// Counts of documents and of the tokens and bytes that they yielded.
struct DocumentCounts {
  int64_t documents = 0, tokens = 0, text_bytes = 0;
  SkipCounts skipped;
  int64_t with_special_tokens = 0;  ///< documents with the text of a special token, which became that token
  void add(const DocumentCounts& other);
};

/// A tokenized chunk of a file, and its position in the spill.
struct SpilledChunk {
  uint32_t chunk = 0, num_tokens = 0;  ///< index of the chunk in its file, from 0
  uint64_t offset = 0, hash = 0;       ///< TokenStream::Place
};

/// The part of a file that is finished.
struct FileProgress {
  DocumentCounts counts;
  std::vector<SpilledChunk> chunks;    ///< in the order in which they were finished
  std::optional<uint32_t> num_chunks;  ///< known once the file has been cut to its end
  std::string fingerprint;             ///< see file_fingerprint
  bool finished() const { return num_chunks && chunks.size() == *num_chunks; }
};

/// The finished part of gathering a stream's instances into shards.
struct GatherProgress {
  std::string stream;  ///< digest of the token stream
  int64_t rows_per_bucket = 0, buckets_per_pass = 0;
  std::set<int64_t> scattered;                  ///< passes whose bucket files are complete
  std::map<std::string, FinishedShard> shards;  ///< by file name; without blocks if an older program finished it
};

class PrepareJournal {
 public:
  /// @param options  all settings that determine the bytes of the result, except the inputs; each under the name of its
  ///                 flag.
  /// @param is_whole  returns true if the spill holds the chunk. It is called only for chunks that no sync() covers,
  ///                  which a crash of the machine may have lost.
  /// @throws ConfigError if the earlier call had other options and has finished some work.
  PrepareJournal(std::filesystem::path path, const nlohmann::json& options,
                 const std::function<bool(const SpilledChunk&)>& is_whole);

  /// Returns the hash of the manifest that the call with the journal at `path` was about to put in place, or had put in
  /// place; none if it had not come that far, or if there is no journal.
  static std::optional<std::string> committed(const std::filesystem::path& path);

  /// Returns what the journal held when it was opened about a file that has not changed since; null if nothing.
  const FileProgress* file(const std::string& key) const;
  const GatherProgress& gathering() const { return gather_; }
  /// Bytes of text whose tokens are in the spill, those of this call included: the work that would be lost without the
  /// journal.
  int64_t text_bytes() const { return text_bytes_; }

  // The functions below are thread-safe. Each adds a line, and returns once the kernel has it. `key` is InputFile::key.
  void begin_file(const InputFile& file, const std::string& fingerprint);
  void add_chunk(const std::string& key, const SpilledChunk& chunk, const DocumentCounts& counts);
  void end_file(const std::string& key, uint32_t num_chunks);
  /// Waits until the disk has the journal. `sync_spill` must wait until the disk has all chunks added so far.
  void sync(const std::function<void()>& sync_spill);
  /// Forgets which passes were scattered before; if `stream` is another stream than before, forgets the shards too.
  void begin_gather(const std::string& stream, int64_t rows_per_bucket, int64_t buckets_per_pass);
  /// This and commit() also wait for the disk.
  void add_scattered(int64_t pass);
  void add_shard(const std::string& file, const FinishedShard& shard);
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
  std::unordered_map<std::string, uint64_t> ids_;        // by a file's key: the id that its lines use
  std::vector<std::string> keys_;                        // by id
  uint64_t num_chunks_ = 0, num_synced_ = 0;  // number of chunk lines, and how many of them are surely on disk
  int64_t text_bytes_ = 0;
  GatherProgress gather_;
};

/// Returns a file's size together with a hash of its beginning and end. It is cheap and does not depend on the file's
/// path. Empty if the file is not a regular file.
std::string file_fingerprint(const std::filesystem::path& path);

}  // namespace athanor::inline preparation
