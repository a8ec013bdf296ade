#pragma once
// Documents as a device reads them: numbers in its memory, whose shapes do not depend on the documents.

#include "ops/attention.h"

namespace athanor::ops {

/// Asserts that the documents fill these sequences.
void check_documents(const DocumentLengths& documents, int64_t num_sequences, int64_t seq_len);

/// Returns the number of documents that tables for these lengths have room for: one for each 128 tokens, and twice that
/// as often as the documents need it. So the tables of most batches have one shape.
///
/// Not more, since libtorch's flash attention spends 128 rows of workspace on each document, also on an empty one.
int64_t document_room(const DocumentLengths& documents, int64_t seq_len);

/// Returns the content of DocumentTables as int64 numbers of the host, so that it can be sent with other numbers. What
/// is left of the room are empty documents after the last one. There is at least `room` of it.
Tensor pack_tables(const DocumentLengths& documents, int64_t seq_len, int64_t room);

/// Returns the tables that such numbers hold, as views of them.
DocumentTables unpack_tables(const Tensor& numbers, int64_t num_sequences, int64_t seq_len);

/// Returns the documents with their tables on `device`, which are sent in one copy unless they are there. The CPU reads
/// the lengths, and whole sequences need no tables.
DocumentLengths with_tables(const DocumentLengths& documents, int64_t seq_len, at::Device device);

/// Returns the position of each token in its document, or without documents in its sequence: [batch, seq_len] int64 on
/// `device`, where the documents need their tables.
Tensor positions_of_tokens(int64_t batch, int64_t seq_len, const DocumentLengths& documents, at::Device device);

}  // namespace athanor::ops
