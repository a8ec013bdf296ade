// Encodes a corpus: reads the documents of files, as `athanor prepare` does, and turns them into token ids.
//
//   encode_corpus TOKENIZER OUT.npy INPUT...
//
// OUT.npy gets the ids of all documents, one after another, as a matrix [1, tokens] of uint32, which
// numpy.load("OUT.npy")[0] returns. The last line of the output counts documents and tokens.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "dataset/npy.h"
#include "documents/documents.h"
#include "tokenizer/tokenizer.h"

namespace {

void write_ids(const std::string& path, const std::vector<uint32_t>& ids) {
  std::ofstream file(path, std::ios::binary);
  file << athanor::npy_header(sizeof(uint32_t), 1, static_cast<int64_t>(ids.size()));
  file.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(uint32_t)));
  file.close();
  if (!file.good()) std::remove(path.c_str());  // half a file would look like a whole one
  ATHANOR_CHECK(file.good(), "cannot write {}", path);
}

int encode(const std::string& tokenizer_path, const std::string& out, const std::vector<std::string>& inputs) {
  const auto tokenizer = athanor::Tokenizer::load(tokenizer_path);
  std::vector<uint32_t> ids;
  size_t documents = 0;
  for (const auto& file : athanor::expand_inputs(inputs)) {
    athanor::read_documents(file, {}, [&](athanor::Document&& document) {
      tokenizer.encode_append(document.text, ids);
      ++documents;
    });
  }
  write_ids(out, ids);
  std::printf("%zu documents, %zu tokens\n", documents, ids.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) {
    std::fprintf(stderr, "usage: encode_corpus TOKENIZER OUT.npy INPUT...\n");
    return 2;
  }
  try {
    return encode(arguments[0], arguments[1], {arguments.begin() + 2, arguments.end()});
  } catch (const athanor::Error& error) {  // names the file, and the line or the byte
    std::fprintf(stderr, "encode_corpus: %s\n", error.what());
    return 1;
  }
}
