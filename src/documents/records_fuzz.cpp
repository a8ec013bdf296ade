// Any bytes, as a file of any kind, are cut into records and parsed, or refused in one line; skipping never fails.

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "documents/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  if (size < 1) return 0;
  log::set_level(log::Level::kError);
  constexpr const char* kEndings[] = {".txt", ".jsonl", ".json", ".json.gz", ".jsonl.zst"};
  const auto name = "/tmp/athanor_records_fuzz_" + std::to_string(::getpid()) + kEndings[data[0] % 5];
  if (FILE* file = std::fopen(name.c_str(), "wb")) {
    std::fwrite(data + 1, 1, size - 1, file);
    std::fclose(file);
  }
  for (const auto on_error : {OnError::kFail, OnError::kSkip}) {
    try {
      read_documents(name, {.text_field = "text", .on_error = on_error}, [](Document&&) {});
    } catch (const DocumentError& error) {
      if (on_error == OnError::kSkip) __builtin_trap();
      if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
    }
  }
  std::remove(name.c_str());
  return 0;
}
