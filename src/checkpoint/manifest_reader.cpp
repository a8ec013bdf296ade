// Reads manifest.json: first the tables, then one piece after the other into the manifest.

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/json_records.h"
#include "checkpoint/manifest.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNameBytes = 1000;  // a tensor's name has some 60, a path of two names up to 511

// A manifest from elsewhere must not reach outside: a file is in the checkpoint's folder, or in a folder there.
bool is_plain_file_name(const std::string& name) {
  const auto slash = name.find('/');
  const bool in_folder = slash != std::string::npos && slash > 0 && name.find('/', slash + 1) == std::string::npos &&
                         name[slash + 1] != '.';
  return name.ends_with(".safetensors") && (slash == std::string::npos || in_folder) && !name.starts_with('.') &&
         name.find('\0') == std::string::npos;
}

/// Checks that the hash in the first line is that of all text after it. Returns how many lines that text has.
size_t check_hash(std::string_view text, const std::string& where, const ReadBehind& behind) {
  const size_t head = kManifestHashStart.size() + kManifestHashDigits + kManifestHashEnd.size();
  const bool shaped = text.size() > head && text.starts_with(kManifestHashStart) &&
                      text.substr(kManifestHashStart.size() + kManifestHashDigits).starts_with(kManifestHashEnd);
  ATHANOR_CHECK_CHECKPOINT(shaped, "{}: not a manifest of a checkpoint: it must start with {}...", where,
                           kManifestHashStart);
  constexpr size_t kBlock = 16 << 20;
  Hasher hasher;
  size_t num_lines = 0;
  for (size_t at = head; at < text.size(); at += kBlock) {
    const auto block = text.substr(at, kBlock);
    hasher.update(block.data(), block.size());
    num_lines += static_cast<size_t>(std::count(block.begin(), block.end(), '\n'));
    if (behind) behind(std::min(at + kBlock, text.size()));
  }
  const auto expected = text.substr(kManifestHashStart.size(), kManifestHashDigits);
  const auto found = hasher.hex();
  ATHANOR_CHECK_CHECKPOINT(expected == found, "{}: damaged: its hash should be {} and is {}; use another checkpoint",
                           where, expected, found);
  return num_lines;
}

/// The rows of a table by their names.
template <class Table>
class RowsByName {
 public:
  explicit RowsByName(const Table& table) {
    for (const auto& row : table) rows_.emplace(row.first, &row);
  }
  const typename Table::value_type* find(std::string_view name) const {
    const auto found = rows_.find(name);
    return found == rows_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<std::string_view, const typename Table::value_type*> rows_;
};

class ManifestTaker : public JsonTaker {
 public:
  enum class Pieces { kKeep, kForget };

  ManifestTaker(const std::string& where, Pieces pieces, size_t most_pieces)
      : where_(where), pieces_(pieces), most_pieces_(most_pieces) {}

  Form form_of(const std::string& key) override {
    seen_.insert(key);
    if (key != "pieces") return Form::kValue;
    for (const char* before : {"format", "version", "tensors", "files"})
      ATHANOR_CHECK_CHECKPOINT(seen_.contains(before), "{}: \"{}\" is missing, or comes after \"pieces\"", where_,
                               before);
    tensors_ = RowsByName(manifest_.tensors);
    files_ = RowsByName(manifest_.files);
    if (pieces_ == Pieces::kKeep) manifest_.pieces.reserve(most_pieces_);
    return Form::kRecords;
  }

  void take_value(const std::string& key, Json value) override {
    if (key == "format") {
      check_format(value);
    } else if (key == "version") {
      check_version(value);
    } else if (key == "model" || key == "state") {
      check_object(key, value);
      (key == "model" ? manifest_.model : manifest_.state) = std::move(value);
    } else if (key == "tensors") {
      take_tensors(value);
    } else if (key == "files") {
      take_files(value);
    } else if (key == "pieces") {
      fail<CheckpointError>("{}: pieces must be a list of objects, found {} in it", where_, value.type_name());
    }
  }

  void take_record(const std::string& /*key*/, const JsonRecord& record) override try {
    const auto* tensor = tensors_.find(record.text("tensor"));
    ATHANOR_CHECK_CHECKPOINT(tensor, "there is no such tensor in \"tensors\"");
    const SliceRef slice(tensor->second, record.sizes("offset"), record.sizes("extent"), record.size("flat_begin"),
                         record.size("flat_end"));
    check_slice(slice, "its slice");
    const auto* file = files_.find(record.text("file"));
    ATHANOR_CHECK_CHECKPOINT(file, "there is no file {} in \"files\"", shown_text(record.text("file")));
    const auto byte_offset = static_cast<uint64_t>(record.size("byte_offset"));
    const int64_t count = slice.flat_end - slice.flat_begin;
    ATHANOR_CHECK_CHECKPOINT(count <= INT64_MAX / 4 && static_cast<uint64_t>(count) * sizeof(float) <= file->second &&
                                 byte_offset <= file->second - static_cast<uint64_t>(count) * sizeof(float),
                             "{} elements from byte {} on do not fit into {} of {} bytes", count, byte_offset,
                             file->first, file->second);
    const auto hash = PieceHash::parse(record.text("hash"));
    ATHANOR_CHECK_CHECKPOINT(hash.has_value(), "\"{}\" is not a hash of 32 digits", shown_text(record.text("hash")));
    int64_t& held = held_[tensor];
    const int64_t all = *num_elements(tensor->second);
    ATHANOR_CHECK_CHECKPOINT(count <= all - held, "the pieces of tensor {} hold more than its {} elements",
                             tensor->first, all);
    held += count;
    if (pieces_ == Pieces::kKeep) manifest_.add_piece(tensor, file, slice, byte_offset, *hash);
    ++num_pieces_;
  } catch (const CheckpointError& error) {
    fail<CheckpointError>("{}: piece {}{}: {}", where_, num_pieces_, name_in(record), error.what());
  }

  Manifest finish() {
    for (const char* key : {"format", "version", "model", "state", "tensors", "files", "pieces"})
      ATHANOR_CHECK_CHECKPOINT(seen_.contains(key), "{}: \"{}\" is missing", where_, key);
    return std::move(manifest_);
  }
  /// Checks that the pieces of each tensor of the finished manifest have as many elements as the tensor.
  void check_counts(const Manifest& manifest) const {
    for (const auto& row : manifest.tensors) {
      const int64_t all = *num_elements(row.second);
      const auto found = held_.find(&row);
      const int64_t held = found == held_.end() ? 0 : found->second;
      ATHANOR_CHECK_CHECKPOINT(held == all, "{}: the pieces of tensor {} hold {} of its {} elements", where_, row.first,
                               held, all);
    }
  }

 private:
  static std::string name_in(const JsonRecord& record) try {
    return " (" + shown_text(record.text("tensor")) + ")";
  } catch (const CheckpointError&) {
    return "";
  }
  void check_object(const std::string& key, const Json& value) const {
    ATHANOR_CHECK_CHECKPOINT(value.is_object(), "{}: {} must be an object, found {}", where_, key, value.type_name());
  }
  void check_format(const Json& value) const {
    ATHANOR_CHECK_CHECKPOINT(value == kManifestFormat, "{}: format is {}, expected \"{}\"", where_,
                             shown_text(value.dump()), kManifestFormat);
  }
  void check_version(const Json& value) const {
    const auto version = as_json_size(value, "version", where_);
    if (version == kCheckpointVersion) return;
    const auto says = fmt::format(
        "{}: version {} was written by another athanor; this one reads version {}; use the program that wrote it",
        where_, version, kCheckpointVersion);
    if (version > kCheckpointVersion) throw NewerFormatError(says);
    throw CheckpointError(says);
  }
  // Messages name tensors and files on one line.
  void check_name(const std::string& name) const {
    ATHANOR_CHECK_CHECKPOINT(!name.empty() && name.size() <= kMaxNameBytes && printable(name) == name,
                             "{}: \"{}\" is not a name: it must have 1 to {} bytes and no control characters", where_,
                             shown_text(name), kMaxNameBytes);
  }
  void take_tensors(const Json& tensors) {
    check_object("tensors", tensors);
    for (const auto& [name, value] : tensors.items()) {
      check_name(name);
      const auto shape = as_json_sizes(value, name, where_);
      ATHANOR_CHECK_CHECKPOINT(shape.size() <= kMaxPieceDims, "{}: tensor {} has {} dims, a checkpoint's have up to {}",
                               where_, name, shape.size(), kMaxPieceDims);
      ATHANOR_CHECK_CHECKPOINT(num_elements(shape).has_value(), "{}: tensor {}: shape {} is impossible", where_, name,
                               shape_text(shape));
      manifest_.tensors.emplace_hint(manifest_.tensors.end(), name, shape);
    }
  }
  void take_files(const Json& files) {
    check_object("files", files);
    for (const auto& [name, value] : files.items()) {
      ATHANOR_CHECK_CHECKPOINT(is_plain_file_name(name),
                               "{}: \"{}\" is not the name of a safetensors file in its folder", where_,
                               shown_text(name));
      check_name(name);
      manifest_.files.emplace_hint(manifest_.files.end(), name,
                                   static_cast<uint64_t>(as_json_size(value, name, where_)));
    }
  }

  const std::string& where_;
  Pieces pieces_;
  size_t most_pieces_, num_pieces_ = 0;
  Manifest manifest_;
  std::set<std::string> seen_;
  RowsByName<TensorTable> tensors_{manifest_.tensors};
  RowsByName<FileTable> files_{manifest_.files};
  std::unordered_map<const TensorTable::value_type*, int64_t> held_;  // in elements
};

/// Checks that no two pieces share bytes of a file. A million pieces that all claim the same gigabyte would be hashed
/// forever. Takes 8 bytes for each piece while it works.
void check_shared_bytes(const Manifest& manifest, const std::string& where) {
  std::vector<const Piece*> pieces;
  pieces.reserve(manifest.pieces.size());
  for (const Piece& piece : manifest.pieces)
    if (piece.num_elements() > 0) pieces.push_back(&piece);
  const auto comes_before = [](const Piece* a, const Piece* b) {
    return a->file != b->file ? a->file_name() < b->file_name() : a->byte_offset < b->byte_offset;
  };
  if (!std::ranges::is_sorted(pieces, comes_before)) std::ranges::sort(pieces, comes_before);  // our writer sorts
  for (size_t i = 1; i < pieces.size(); ++i) {
    const Piece &a = *pieces[i - 1], &b = *pieces[i];
    ATHANOR_CHECK_CHECKPOINT(a.file != b.file || a.byte_offset + a.num_bytes() <= b.byte_offset,
                             "{}: pieces of the tensors {} and {} share bytes of {} from byte {} on; use another "
                             "checkpoint",
                             where, a.tensor_name(), b.tensor_name(), a.file_name(), b.byte_offset);
  }
}

Manifest read(std::string_view text, const std::string& where, bool whole, ManifestTaker::Pieces pieces,
              const ReadBehind& behind) {
  // Our writer puts each piece on a separate line, so that the table need not grow. For another text it grows, or is
  // larger than necessary.
  const size_t num_lines = check_hash(text, where, behind);
  ManifestTaker taker(where, pieces, std::min(num_lines, text.size() / 100));
  read_json_records(text, where, 0, taker, behind);
  Manifest manifest = taker.finish();
  if (whole) taker.check_counts(manifest);
  if (whole) check_shared_bytes(manifest, where);
  return manifest;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& where, const ReadBehind& behind) {
  return read(text, where, true, ManifestTaker::Pieces::kKeep, behind);
}

void check_manifest(std::string_view text, const std::string& where, const ReadBehind& behind) {
  read(text, where, true, ManifestTaker::Pieces::kForget, behind);
}

Manifest parse_manifest_part(std::string_view text, const std::string& where) {
  return read(text, where, false, ManifestTaker::Pieces::kKeep, {});
}

}  // namespace athanor::inline checkpoint
