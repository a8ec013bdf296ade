#include "ops/document_tables.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "ops/transfer.h"

namespace athanor::ops {
namespace {

// Calls f(length) for each document that has tokens.
template <class F>
void for_each_document(const DocumentLengths& documents, F f) {
  for (const auto& lengths : documents) {
    for (const int32_t length : lengths)
      if (length > 0) f(length);
  }
}

}  // namespace

void check_documents(const DocumentLengths& documents, int64_t num_sequences, int64_t seq_len) {
  ATHANOR_ASSERT(static_cast<int64_t>(documents.size()) == num_sequences);
  for (const auto& lengths : documents) {
    ATHANOR_ASSERT(std::ranges::none_of(lengths, [](int32_t length) { return length < 0; }));
    ATHANOR_ASSERT(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == seq_len);
  }
}

int64_t document_room(const DocumentLengths& documents, int64_t seq_len) {
  constexpr int64_t kTokens = 128;
  const auto num_sequences = static_cast<int64_t>(documents.size());
  int64_t count = 0;
  for_each_document(documents, [&](int32_t) { ++count; });
  int64_t room = std::max({int64_t{1}, num_sequences, num_sequences * seq_len / kTokens});
  while (room < count) room *= 2;
  return room;
}

Tensor pack_tables(const DocumentLengths& documents, int64_t seq_len, int64_t room) {
  check_documents(documents, static_cast<int64_t>(documents.size()), seq_len);
  const int64_t tokens = static_cast<int64_t>(documents.size()) * seq_len;
  ATHANOR_CHECK(tokens <= std::numeric_limits<int32_t>::max(),
                "a microbatch has {} tokens, and its documents are cut by int32 numbers; lower train.micro_batch_size",
                tokens);
  const int64_t pairs = room / 2 + 1;  // two int32 each, so at least room + 1 offsets
  const Tensor numbers = at::empty({tokens + pairs}, at::kLong);
  auto* position = numbers.data_ptr<int64_t>();
  std::vector<int32_t> offsets(static_cast<size_t>(2 * pairs), static_cast<int32_t>(tokens));
  size_t document = 0;
  int32_t begin = 0;
  for_each_document(documents, [&](int32_t length) {
    offsets.at(document++) = begin;
    std::iota(position + begin, position + begin + length, int64_t{0});
    begin += length;
  });
  ATHANOR_ASSERT(document < offsets.size());
  std::memcpy(position + tokens, offsets.data(), offsets.size() * sizeof(int32_t));
  return numbers;
}

DocumentTables unpack_tables(const Tensor& numbers, int64_t num_sequences, int64_t seq_len) {
  const int64_t tokens = num_sequences * seq_len;
  return {numbers.narrow(0, tokens, numbers.numel() - tokens).view(at::kInt),
          numbers.narrow(0, 0, tokens).view({num_sequences, seq_len})};
}

DocumentLengths with_tables(const DocumentLengths& documents, int64_t seq_len, at::Device device) {
  if (on_host(device) || documents.empty() || documents.tables.offsets.defined()) return documents;
  DocumentLengths result = documents;
  const Tensor numbers = pack_tables(documents, seq_len, document_room(documents, seq_len));
  result.tables = unpack_tables(send(numbers, device), static_cast<int64_t>(documents.size()), seq_len);
  return result;
}

Tensor positions_of_tokens(int64_t batch, int64_t seq_len, const DocumentLengths& documents, at::Device device) {
  if (documents.empty())
    return at::arange(seq_len, at::TensorOptions(at::kLong).device(device)).expand({batch, seq_len});
  if (!on_host(device)) return documents.tables.positions;
  Tensor positions = at::empty({batch, seq_len}, at::kLong);
  auto* position = positions.data_ptr<int64_t>();
  for_each_document(documents, [&](int32_t length) {
    std::iota(position, position + length, int64_t{0});
    position += length;
  });
  return send(positions, device);
}

}  // namespace athanor::ops
