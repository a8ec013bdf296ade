#include "data/tokenize.h"

#include <condition_variable>
#include <exception>
#include <limits>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"

namespace athanor {
namespace {

// Where a chunk stands among all: (file, chunk in the file).
using ChunkKey = std::pair<uint64_t, uint64_t>;

constexpr ChunkKey kNowhere{std::numeric_limits<uint64_t>::max(), 0};

struct Chunk {
  ChunkKey key;
  std::vector<Record> records;
  std::exception_ptr end;  // why the file could not be read on after these records
};

// A file that is being cut; `busy` while one thread does so.
struct OpenFile {
  explicit OpenFile(uint64_t file_idx) : index(file_idx) {}
  uint64_t index;
  std::optional<RecordReader> reader;
  uint64_t num_chunks = 0, progress = 0;
  bool busy = true, over = false;
};

// There is no queue: each thread takes the next chunk of the first file that nobody is cutting, or opens the next
// file, and then tokenizes what it took. So one large file keeps all threads busy, as do many small ones.
class Tokenizing {
 public:
  Tokenizing(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
             const TokenizeOptions& options, TokenStream& out, ProgressBar& progress)
      : files_(files), tokenizer_(tokenizer), options_(options), out_(out), progress_(progress),
        skips_(options.documents.on_error) {
    for (const auto& file : files) counts_.inputs.push_back({file.string(), 0, 0});
  }

  TokenizeCounts run() {
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.num_threads; ++i) threads.emplace_back([this] { work(); });
    work();
    for (auto& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    counts_.skipped = skips_.counts();
    return std::move(counts_);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (OpenFile* file = take_file(lock)) {
      Chunk chunk{{file->index, file->num_chunks++}, {}, nullptr};
      lock.unlock();
      cut(*file, chunk);
      lock.lock();
      file->busy = false;
      if (file->over) open_.remove_if([&](const OpenFile& other) { return &other == file; });
      changed_.notify_all();
      lock.unlock();
      tokenize(std::move(chunk));
      lock.lock();
    }
    changed_.notify_all();
  }

  // Waits for a file that this thread may cut; none when all is done, or everything before the first error is.
  OpenFile* take_file(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      open_.remove_if([&](const OpenFile& f) { return !f.busy && ChunkKey{f.index, f.num_chunks} > failed_at_; });
      for (auto& file : open_) {
        if (file.busy) continue;
        file.busy = true;
        return &file;
      }
      const bool more = next_file_ < files_.size() && ChunkKey{next_file_, 0} < failed_at_;
      if (more) return &open_.emplace_back(next_file_++);
      if (open_.empty()) return nullptr;
      changed_.wait(lock);
    }
  }

  // What goes wrong here is kept beside the records before it, which come first.
  void cut(OpenFile& file, Chunk& chunk) {
    try {
      if (!file.reader) file.reader.emplace(files_[file.index]);
      for (uint64_t num_bytes = 0; num_bytes < options_.chunk_bytes;) {
        Record record;
        if (file.over = !file.reader->next(record); file.over) break;
        num_bytes += record.bytes.size();
        chunk.records.push_back(std::move(record));
      }
    } catch (...) {
      chunk.end = std::current_exception();
      file.over = true;
    }
    const uint64_t position = file.reader ? file.reader->file_position() : 0;
    progress_.add(position - std::exchange(file.progress, position));
  }

  void tokenize(Chunk chunk) {
    std::vector<uint32_t> tokens;
    int64_t num_documents = 0, text_bytes = 0;
    try {
      for (auto& record : chunk.records) {
        const auto document = parse(std::move(record), chunk.key.first);
        if (!document) continue;
        encode(*document, tokens);
        ++num_documents;
        text_bytes += static_cast<int64_t>(document->text.size());
      }
      if (chunk.end) rethrow_unless_skipped(chunk.end);
      out_.append(chunk.key.first, chunk.key.second, tokens);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (chunk.key < failed_at_) {
        failed_at_ = chunk.key;
        error_ = std::current_exception();
      }
      return;
    }
    const std::lock_guard lock(mutex_);
    counts_.inputs[chunk.key.first].documents += num_documents;
    counts_.inputs[chunk.key.first].tokens += static_cast<int64_t>(tokens.size());
    counts_.text_bytes += text_bytes;
  }

  std::optional<Document> parse(Record&& record, uint64_t file) {
    try {
      return parse_document(std::move(record), files_[file], options_.documents.text_field);
    } catch (const DocumentError& error) {
      handle_document_error(error, files_[file], skips_);
      return std::nullopt;
    }
  }

  void encode(const Document& document, std::vector<uint32_t>& tokens) const {
    try {
      tokenizer_.encode_append(document.text, tokens);
    } catch (const DataError& error) {
      fail<DataError>("{}: {}", document.where, error.what());
    }
    tokens.push_back(options_.eos_id);
  }

  void rethrow_unless_skipped(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const DocumentError& document_error) {
      skips_.handle(document_error);
    }
  }

  const std::vector<std::filesystem::path>& files_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  TokenStream& out_;
  ProgressBar& progress_;
  SkipLog skips_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::list<OpenFile> open_;
  uint64_t next_file_ = 0;
  TokenizeCounts counts_;
  ChunkKey failed_at_ = kNowhere;  // chunks after it are not begun, those before it are finished
  std::exception_ptr error_;
};

}  // namespace

TokenizeCounts tokenize_files(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options, TokenStream& out, ProgressBar& progress) {
  return Tokenizing(files, tokenizer, options, out, progress).run();
}

}  // namespace athanor
