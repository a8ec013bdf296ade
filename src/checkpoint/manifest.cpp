#include "checkpoint/manifest.h"

#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/strict_json.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "athanor-checkpoint";
constexpr std::string_view kHashStart = "{\"hash\": \"";
constexpr std::string_view kHashEnd = "\",\n";
constexpr size_t kHashDigits = 32;

void check_finite(const Json& value, const std::string& where) {
  if (value.is_number_float()) {
    ATHANOR_CHECK_CHECKPOINT(std::isfinite(value.get<double>()), "cannot write a checkpoint: {} is not finite", where);
  } else if (value.is_structured()) {
    for (const auto& [key, item] : value.items()) check_finite(item, where + "." + key);
  }
}

std::string piece_text(const Piece& piece) {
  const auto& slice = piece.slice;
  return Json{{"tensor", piece.tensor},           {"offset", slice.offset},     {"extent", slice.extent},
              {"flat_begin", slice.flat_begin},   {"flat_end", slice.flat_end}, {"file", piece.file},
              {"byte_offset", piece.byte_offset}, {"hash", piece.hash}}
      .dump();
}

/// "key": value on a line of its own, so that people can read it and diff it.
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

bool is_plain_file_name(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos && !name.starts_with('.') &&
         name.find('\0') == std::string::npos;
}

/// The text after the first line, once its hash is found to be right.
std::string_view checked_body(std::string_view text, const std::string& where) {
  const size_t head = kHashStart.size() + kHashDigits + kHashEnd.size();
  const bool shaped = text.size() > head && text.starts_with(kHashStart) &&
                      text.substr(kHashStart.size() + kHashDigits).starts_with(kHashEnd);
  ATHANOR_CHECK_CHECKPOINT(shaped, "{}: not a manifest of a checkpoint: it must start with {}...", where, kHashStart);
  const auto expected = text.substr(kHashStart.size(), kHashDigits);
  const auto found = hash_hex(text.substr(head));
  ATHANOR_CHECK_CHECKPOINT(expected == found, "{}: damaged: its hash should be {} and is {}; use another checkpoint",
                           where, expected, found);
  return text.substr(head);
}

Piece parse_piece(const Json& json, const Manifest& manifest, const std::string& file, size_t number) {
  std::string where = file + ": piece " + std::to_string(number);
  Piece piece;
  piece.tensor = json_string(json, "tensor", where);
  where += " (" + piece.tensor + ")";
  const auto tensor = manifest.tensors.find(piece.tensor);
  ATHANOR_CHECK_CHECKPOINT(tensor != manifest.tensors.end(), "{}: there is no such tensor in \"tensors\"", where);
  piece.slice = {tensor->second, json_sizes(json, "offset", where), json_sizes(json, "extent", where),
                 json_size(json, "flat_begin", where), json_size(json, "flat_end", where)};
  check_slice(piece.slice, where);
  piece.file = json_string(json, "file", where);
  piece.byte_offset = static_cast<uint64_t>(json_size(json, "byte_offset", where));
  piece.hash = json_string(json, "hash", where);
  const auto holder = manifest.files.find(piece.file);
  ATHANOR_CHECK_CHECKPOINT(holder != manifest.files.end(), "{}: there is no file {} in \"files\"", where, piece.file);
  ATHANOR_CHECK_CHECKPOINT(piece.slice.num_elements() <= INT64_MAX / 4 && piece.num_bytes() <= holder->second &&
                               piece.byte_offset <= holder->second - piece.num_bytes(),
                           "{}: {} elements from byte {} on do not fit into {} of {} bytes", where,
                           piece.slice.num_elements(), piece.byte_offset, piece.file, holder->second);
  return piece;
}

void check_counts(const Manifest& manifest, const std::string& where) {
  std::map<std::string_view, int64_t> held;
  for (const auto& piece : manifest.pieces) {
    auto& count = held[piece.tensor];
    const int64_t all = *num_elements(manifest.tensors.at(piece.tensor));
    ATHANOR_CHECK_CHECKPOINT(piece.slice.num_elements() <= all - count,
                             "{}: the pieces of tensor {} hold more than its {} elements", where, piece.tensor, all);
    count += piece.slice.num_elements();
  }
  for (const auto& [name, shape] : manifest.tensors) {
    const int64_t all = *num_elements(shape);
    ATHANOR_CHECK_CHECKPOINT(held[name] == all, "{}: the pieces of tensor {} hold {} of its {} elements", where, name,
                             held[name], all);
  }
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  check_finite(manifest.model, "model");
  check_finite(manifest.state, "state");
  std::string body = std::string("\"format\": \"") + kFormat +
                     "\", \"version\": " + std::to_string(kCheckpointVersion) +
                     ",\n\"model\": " + manifest.model.dump() + ",\n\"state\": " + manifest.state.dump() + ",\n";
  append_lines(body, "tensors", manifest.tensors);
  append_lines(body, "files", manifest.files);
  body += "\"pieces\": [";
  const char* separator = "\n";
  for (const auto& piece : manifest.pieces) {
    body += separator + piece_text(piece);
    separator = ",\n";
  }
  body += "]}\n";
  return std::string(kHashStart) + hash_hex(body) + std::string(kHashEnd) + body;
}

Manifest parse_manifest_part(std::string_view text, const std::string& where) {
  const auto body = checked_body(text, where);
  const auto json = parse_strict_json("{" + std::string(body), where, text.size() - body.size() - 1);
  const auto format = json_string(json, "format", where);
  ATHANOR_CHECK_CHECKPOINT(format == kFormat, "{}: format is \"{}\", expected \"{}\"", where, format, kFormat);
  const auto version = json_size(json, "version", where);
  ATHANOR_CHECK_CHECKPOINT(version == kCheckpointVersion,
                           "{}: version {} was written by another athanor; this one reads version {}", where, version,
                           kCheckpointVersion);
  Manifest manifest;
  manifest.model = json_member(json, "model", where);
  manifest.state = json_member(json, "state", where);
  const auto& tensors = json_member(json, "tensors", where);
  const auto& files = json_member(json, "files", where);
  const auto& pieces = json_member(json, "pieces", where);
  ATHANOR_CHECK_CHECKPOINT(manifest.model.is_object() && manifest.state.is_object() && tensors.is_object() &&
                               files.is_object() && pieces.is_array(),
                           "{}: model, state, tensors and files must be objects, pieces a list", where);
  for (const auto& [name, unused] : tensors.items()) {
    const auto shape = json_sizes(tensors, name.c_str(), where);
    ATHANOR_CHECK_CHECKPOINT(num_elements(shape).has_value(), "{}: tensor {}: shape {} is impossible", where, name,
                             shape_text(shape));
    manifest.tensors[name] = shape;
  }
  for (const auto& [name, unused] : files.items()) {
    ATHANOR_CHECK_CHECKPOINT(is_plain_file_name(name), "{}: \"{}\" is not the name of a safetensors file", where, name);
    manifest.files[name] = static_cast<uint64_t>(json_size(files, name.c_str(), where));
  }
  for (size_t i = 0; i < pieces.size(); ++i) manifest.pieces.push_back(parse_piece(pieces[i], manifest, where, i));
  return manifest;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  Manifest manifest = parse_manifest_part(text, where);
  check_counts(manifest, where);
  return manifest;
}

void join_manifests(Manifest& whole, Manifest part) {
  for (auto& [name, shape] : part.tensors) {
    const auto [known, added] = whole.tensors.emplace(name, shape);
    ATHANOR_CHECK_CHECKPOINT(known->second == shape, "cannot write tensor {} with shape {} and again with shape {}",
                             name, shape_text(known->second), shape_text(shape));
  }
  for (const auto& [name, size] : part.files)
    ATHANOR_CHECK_CHECKPOINT(whole.files.emplace(name, size).second, "two writers wrote a file {}", name);
  std::move(part.pieces.begin(), part.pieces.end(), std::back_inserter(whole.pieces));
}

}  // namespace athanor
