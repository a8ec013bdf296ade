#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_records.h"

namespace athanor::inline checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and are mapped as is");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

TensorEntry parse_entry(const JsonRecord& description, uint64_t data_begin, uint64_t file_size) {
  const auto& dtype_text = description.text("dtype");
  const auto dtype = dtype_from_name(dtype_text);
  ATHANOR_CHECK_CHECKPOINT(dtype.has_value(), "unknown dtype \"{}\"", dtype_text);

  TensorEntry entry{*dtype, description.sizes("shape"), 0, 0, 0};
  const auto count = num_elements(entry.shape);
  ATHANOR_CHECK_CHECKPOINT(count && static_cast<uint64_t>(*count) <= UINT64_MAX / 8,
                           "shape {} has more elements than can be counted", shape_text(entry.shape));
  entry.num_elements = *count;

  const auto& offsets = description.sizes("data_offsets");
  ATHANOR_CHECK_CHECKPOINT(offsets.size() == 2 && offsets[0] <= offsets[1],
                           "data_offsets must be two numbers, begin <= end");
  const uint64_t num_bytes = static_cast<uint64_t>(offsets[1] - offsets[0]);
  const uint64_t needed = static_cast<uint64_t>(*count) * dtype_size(*dtype);
  ATHANOR_CHECK_CHECKPOINT(num_bytes == needed, "dtype {} and shape {} need {} bytes, data_offsets hold {}", dtype_text,
                           shape_text(entry.shape), needed, num_bytes);
  const uint64_t available = file_size - data_begin;
  ATHANOR_CHECK_CHECKPOINT(static_cast<uint64_t>(offsets[1]) <= available,
                           "ends at byte {}, but the file has {} bytes; it is truncated or its header is damaged",
                           data_begin + static_cast<uint64_t>(offsets[1]), file_size);
  entry.begin = data_begin + static_cast<uint64_t>(offsets[0]);
  entry.end = data_begin + static_cast<uint64_t>(offsets[1]);
  return entry;
}

constexpr const char* kMetadata = "__metadata__";

/// Receives a header's tensors one by one.
class HeaderTaker : public JsonTaker {
 public:
  HeaderTaker(const std::string& where, uint64_t data_begin, uint64_t file_size,
              std::map<std::string, TensorEntry>& tensors, std::map<std::string, std::string>& metadata)
      : where_(where), data_begin_(data_begin), file_size_(file_size), tensors_(tensors), metadata_(metadata) {}

  Form form_of(const std::string& key) override { return key == kMetadata ? Form::kValue : Form::kRecord; }

  void take_record(const std::string& name, const JsonRecord& description) override try {
    tensors_.emplace(name, parse_entry(description, data_begin_, file_size_));
  } catch (const CheckpointError& error) {
    fail<CheckpointError>("{}: tensor \"{}\": {}", where_, name, error.what());
  }

  void take_value(const std::string& key, nlohmann::json value) override {
    ATHANOR_CHECK_CHECKPOINT(key == kMetadata, "{}: tensor \"{}\": expected an object with \"dtype\", found {}", where_,
                             key, value.type_name());
    ATHANOR_CHECK_CHECKPOINT(value.is_object(), "{}: {} must be an object of texts", where_, kMetadata);
    for (const auto& [name, text] : value.items()) {
      ATHANOR_CHECK_CHECKPOINT(text.is_string(), "{}: {} \"{}\" must be a text", where_, kMetadata, name);
      metadata_[name] = text.get<std::string>();
    }
  }

 private:
  const std::string& where_;
  uint64_t data_begin_, file_size_;
  std::map<std::string, TensorEntry>& tensors_;
  std::map<std::string, std::string>& metadata_;
};

/// Checks that there are no holes, no overlaps, and no bytes after the last tensor.
void check_tiling(const std::map<std::string, TensorEntry>& tensors, const std::string& file, uint64_t data_begin,
                  uint64_t file_size) {
  using Row = std::pair<const TensorEntry*, const std::string*>;
  std::vector<Row> rows;
  rows.reserve(tensors.size());
  for (const auto& [name, entry] : tensors) rows.emplace_back(&entry, &name);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t at = data_begin;
  for (const auto& [entry, name] : rows) {
    ATHANOR_CHECK_CHECKPOINT(entry->begin >= at, "{}: tensor \"{}\" at byte {} overlaps the tensor before it", file,
                             *name, entry->begin);
    ATHANOR_CHECK_CHECKPOINT(entry->begin == at, "{}: bytes {} to {} before tensor \"{}\" belong to no tensor", file,
                             at, entry->begin, *name);
    at = entry->end;
  }
  ATHANOR_CHECK_CHECKPOINT(at == file_size, "{}: {} bytes expected, {} found; bytes after the last tensor", file, at,
                           file_size);
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile opened;
  opened.where_ = path.string();
  opened.file_ = std::make_unique<MappedFile>(path);
  opened.bytes_ = {opened.file_->data(), opened.file_->size()};
  opened.parse_header();
  return opened;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string where) {
  SafetensorsFile opened;
  opened.where_ = std::move(where);
  opened.bytes_ = bytes;
  opened.parse_header();
  return opened;
}

void SafetensorsFile::parse_header() {
  ATHANOR_CHECK_CHECKPOINT(
      bytes_.size() >= kLengthBytes,
      "{}: {} bytes are too few for a safetensors file, which starts with 8 bytes of header length", where_,
      bytes_.size());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes_.data(), kLengthBytes);
  ATHANOR_CHECK_CHECKPOINT(header_bytes <= kMaxHeaderBytes,
                           "{}: not a safetensors file: its first 8 bytes give a header of {} bytes, {} is the limit",
                           where_, header_bytes, kMaxHeaderBytes);
  ATHANOR_CHECK_CHECKPOINT(header_bytes <= bytes_.size() - kLengthBytes,
                           "{}: truncated: the header needs {} bytes, the file has {}", where_,
                           kLengthBytes + header_bytes, bytes_.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, header_bytes);
  ATHANOR_CHECK_CHECKPOINT(text.starts_with('{'), "{}: byte 8 must be '{{', the start of the header", where_);
  const uint64_t data_begin = kLengthBytes + header_bytes;
  HeaderTaker taker(where_, data_begin, bytes_.size(), tensors_, metadata_);
  read_json_records(text, where_, kLengthBytes, taker);
  check_tiling(tensors_, where_, data_begin, bytes_.size());
}

const TensorEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = tensors_.find(name);
  ATHANOR_CHECK_CHECKPOINT(found != tensors_.end(), "{}: there is no tensor \"{}\"", where_, name);
  return found->second;
}

std::span<const std::byte> SafetensorsFile::data(const std::string& name) const {
  const auto& at = entry(name);
  return bytes_.subspan(at.begin, at.end - at.begin);
}

const std::byte* SafetensorsFile::find(const std::string& name, int64_t first, int64_t count) const {
  const auto& at = entry(name);
  ATHANOR_CHECK_CHECKPOINT(first >= 0 && count <= at.num_elements && first <= at.num_elements - count,
                           "{}: tensor \"{}\" has {} elements; {} from element {} on were asked for", where_, name,
                           at.num_elements, count, first);
  ATHANOR_CHECK_CHECKPOINT(widen_to_float(at.dtype, nullptr, 0, nullptr),
                           "{}: tensor \"{}\" is {}; expected F32, BF16, F16 or F64", where_, name,
                           dtype_name(at.dtype));
  return bytes_.data() + at.begin + static_cast<uint64_t>(first) * dtype_size(at.dtype);
}

void SafetensorsFile::read_floats(const std::string& name, int64_t first, std::span<float> out) const {
  read_runs(name, first, std::ssize(out), 1, std::ssize(out), out);
}

void SafetensorsFile::read_runs(const std::string& name, int64_t first, int64_t stride, int64_t count, int64_t length,
                                std::span<float> out) const {
  ATHANOR_ASSERT(count >= 1 && length >= 0 && stride >= length && std::ssize(out) == count * length);
  const int64_t all = (count - 1) * stride + length;
  const std::byte* source = find(name, first, all);
  const Dtype dtype = entry(name).dtype;
  const auto bytes = static_cast<int64_t>(dtype_size(dtype));
  for (int64_t run = 0; run < count; ++run)
    widen_to_float(dtype, source + run * stride * bytes, length, out.data() + run * length);
  if (file_) file_->release(source, static_cast<uint64_t>(all * bytes));
}

void SafetensorsFile::read_bytes(const std::string& name, int64_t first, std::span<uint8_t> out) const {
  const auto& at = entry(name);
  ATHANOR_CHECK_CHECKPOINT(at.dtype == Dtype::kU8 && first >= 0 && std::ssize(out) <= at.num_elements - first,
                           "{}: tensor \"{}\" has {} elements of {}; {} of U8 from element {} on were asked for",
                           where_, name, at.num_elements, dtype_name(at.dtype), out.size(), first);
  const std::byte* source = bytes_.data() + at.begin + first;
  std::memcpy(out.data(), source, out.size());
  if (file_) file_->release(source, out.size());
}

}  // namespace athanor::inline checkpoint
