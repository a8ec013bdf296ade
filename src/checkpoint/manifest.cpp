// The manifest: how parts of it are joined, and its text. manifest_reader.cpp reads it.

#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <string_view>
#include <unordered_map>

#include "base/build_info.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "base/hash.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

void check_finite(const Json& value, const std::string& where) {
  if (value.is_number_float()) {
    ATHANOR_CHECK_CHECKPOINT(std::isfinite(value.get<double>()), "cannot write a checkpoint: {} is not finite", where);
  } else if (value.is_structured()) {
    for (const auto& [key, item] : value.items()) check_finite(item, where + "." + key);
  }
}

void append_number(std::string& out, std::integral auto number) {
  const fmt::format_int digits(number);
  out.append(digits.data(), digits.size());
}

void append_list(std::string& out, std::span<const int64_t> numbers) {
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, numbers[i]);
  }
  out += ']';
}

/// The names in JSON form, each converted once.
class QuotedNames {
 public:
  template <class Row>
  const std::string& of(const Row* row) {
    auto& text = texts_[row];
    if (text.empty()) text = Json(row->first).dump();
    return text;
  }

 private:
  std::unordered_map<const void*, std::string> texts_;
};

/// Appends members in the order of their keys, as the parser's library writes objects.
void append_piece(std::string& out, const Piece& piece, QuotedNames& names) {
  const SliceRef slice = piece.slice_ref();
  out += "{\"byte_offset\":";
  append_number(out, piece.byte_offset);
  out += ",\"extent\":";
  append_list(out, slice.extent);
  out += ",\"file\":";
  out += names.of(piece.file);
  out += ",\"flat_begin\":";
  append_number(out, piece.flat_begin);
  out += ",\"flat_end\":";
  append_number(out, piece.flat_end);
  out += ",\"hash\":\"";
  out += piece.hash.text();
  out += "\",\"offset\":";
  append_list(out, slice.offset);
  out += ",\"tensor\":";
  out += names.of(piece.tensor);
  out += '}';
}

/// Appends "key": value on a separate line, so that people can read it and diff it.
template <class Map>
void append_lines(std::string& out, const char* title, const Map& map) {
  out += std::string("\"") + title + "\": {";
  const char* separator = "\n";
  for (const auto& [key, value] : map) {
    out += separator + Json(key).dump() + ": " + Json(value).dump();
    separator = ",\n";
  }
  out += "},\n";
}

}  // namespace

std::optional<PieceHash> PieceHash::parse(std::string_view hex) {
  PieceHash hash;
  if (hex.size() != 32) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    uint64_t& half = i < 16 ? hash.high : hash.low;
    half = half << 4 | static_cast<uint64_t>(digit);
  }
  return hash;
}

std::string PieceHash::text() const { return fmt::format("{:016x}{:016x}", high, low); }

Slice Piece::slice() const {
  const SliceRef ref = slice_ref();
  return {tensor->second, Shape(ref.offset.begin(), ref.offset.end()), Shape(ref.extent.begin(), ref.extent.end()),
          flat_begin, flat_end};
}

const TensorTable::value_type* Manifest::add_tensor(const std::string& name, const Shape& shape) {
  const auto [known, added] = tensors.emplace(name, shape);
  ATHANOR_CHECK_CHECKPOINT(known->second == shape, "cannot write tensor {} with shape {} and again with shape {}", name,
                           shape_text(known->second), shape_text(shape));
  return &*known;
}

void Manifest::add_piece(const TensorTable::value_type* tensor, const FileTable::value_type* file,
                         const SliceRef& slice, uint64_t byte_offset, PieceHash hash) {
  const size_t dims = slice.offset.size();
  ATHANOR_CHECK_CHECKPOINT(dims <= kMaxPieceDims, "tensor {} has {} dims, a checkpoint's have up to {}", tensor->first,
                           dims, kMaxPieceDims);
  Piece& piece = pieces.emplace_back();
  piece.tensor = tensor;
  piece.file = file;
  std::copy_n(slice.offset.begin(), dims, piece.offset.begin());
  std::copy_n(slice.extent.begin(), dims, piece.extent.begin());
  piece.flat_begin = slice.flat_begin;
  piece.flat_end = slice.flat_end;
  piece.byte_offset = byte_offset;
  piece.hash = hash;
}

std::string manifest_text(const Manifest& manifest) {
  check_finite(manifest.model, "model");
  check_finite(manifest.state, "state");
  std::string text =
      std::string(kManifestHashStart) + std::string(kManifestHashDigits, '0') + std::string(kManifestHashEnd);
  const size_t head = text.size();
  const Json program = {{"version", build_info().version}, {"commit", build_info().commit}};
  text += std::string("\"format\": \"") + kManifestFormat + "\", \"version\": " + std::to_string(kCheckpointVersion) +
          ",\n\"athanor\": " + program.dump() + ",\n\"model\": " + manifest.model.dump() +
          ",\n\"state\": " + manifest.state.dump() + ",\n";
  append_lines(text, "tensors", manifest.tensors);
  append_lines(text, "files", manifest.files);
  text += "\"pieces\": [";
  QuotedNames names;
  const char* separator = "\n";
  const size_t pieces_begin = text.size();
  for (size_t i = 0; i < manifest.pieces.size(); ++i) {
    text += separator;
    append_piece(text, manifest.pieces[i], names);
    separator = ",\n";
    constexpr size_t kSample = 1000;  // the first pieces are as long as the others, so the text is hardly ever
                                      // reallocated, which needs its memory twice
    if (i + 1 == kSample)
      text.reserve(text.size() + (text.size() - pieces_begin) / kSample * manifest.pieces.size() * 17 / 16);
  }
  text += "]}\n";
  text.replace(kManifestHashStart.size(), kManifestHashDigits, hash_hex(std::string_view(text).substr(head)));
  return text;
}

void join_manifests(Manifest& whole, Manifest part) {
  std::unordered_map<const void*, const TensorTable::value_type*> tensors;
  for (const auto& row : part.tensors) tensors[&row] = whole.add_tensor(row.first, row.second);
  std::unordered_map<const void*, const FileTable::value_type*> files;
  for (const auto& row : part.files) {
    const auto [known, added] = whole.files.insert(row);
    ATHANOR_CHECK_CHECKPOINT(added, "two writers wrote a file {}", row.first);
    files[&row] = &*known;
  }
  for (Piece& piece : part.pieces) {
    piece.tensor = tensors.at(piece.tensor);
    piece.file = files.at(piece.file);
    whole.pieces.push_back(piece);
  }
}

namespace {

// The writer begins each table on a new line, and a text in JSON contains no line break.
constexpr std::string_view kTables = "\n\"tensors\": ";
constexpr size_t kFirstBlock = 64 << 10;
// The configuration and a few numbers for each parameter and expert: 100 bytes for each of 100,000 take 10 MB.
constexpr size_t kMostBytes = 64 << 20;

/// Reads up to the tables, or returns a text without them.
std::string read_until_tables(const std::filesystem::path& path) {
  const FileReader file(path);
  std::string text;
  size_t searched = 0;
  for (size_t want = kFirstBlock; text.find(kTables, searched) == text.npos && want <= kMostBytes; want *= 2) {
    searched = text.size() > kTables.size() ? text.size() - kTables.size() : 0;
    const size_t before = text.size();
    text.resize(want);
    text.resize(before + file.read_up_to(before, text.data() + before, want - before));
    if (text.size() < want && text.find(kTables, searched) == text.npos) break;  // the file ends here
  }
  return text;
}

std::string text_member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

ManifestSummary read_manifest_summary(const std::filesystem::path& file) {
  const std::string where = file.string(), text = read_until_tables(file);
  ATHANOR_CHECK_CHECKPOINT(text.starts_with(kManifestHashStart),
                           "{}: not a manifest of a checkpoint: it must start with {}...", where, kManifestHashStart);
  const size_t end = text.find(kTables);
  ATHANOR_CHECK_CHECKPOINT(end != text.npos, "{}: damaged: its tables do not begin in the first {} bytes", where,
                           text.size());
  const size_t begin = text.find('\n') + 1;
  ATHANOR_CHECK_CHECKPOINT(begin < end && text[end - 1] == ',', "{}: damaged: no comma before its tables", where);
  const auto head = parse_strict_json("{" + text.substr(begin, end - 1 - begin) + "}", where, begin - 1);
  const auto version = json_size(head, "version", where);
  ATHANOR_CHECK_CHECKPOINT(head.value("format", nlohmann::json()) == kManifestFormat && version == kCheckpointVersion,
                           "{}: version {} was written by another athanor; this one reads version {}", where, version,
                           kCheckpointVersion);
  const auto& program = head.contains("athanor") ? head["athanor"] : nlohmann::json::object();
  return {text_member(program, "version"), text_member(program, "commit"), json_member(head, "model", where),
          json_member(head, "state", where)};
}

}  // namespace athanor::inline checkpoint
