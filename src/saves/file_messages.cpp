#include "saves/file_messages.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr int64_t kBlockBytes = int64_t{4} << 20;

struct FileSize {
  std::string name;
  int64_t bytes;
};

// The files of a sender as one sequence of bytes.
class Outflow {
 public:
  // Remembers a failure to open a file, and has no bytes then.
  explicit Outflow(const OutgoingFiles& files) {
    try {
      for (const std::string& name : files.names) {
        mapped_.emplace_back(files.folder / name);
        total_ += static_cast<int64_t>(mapped_.back().size());
        head_.push_back({{"name", name}, {"bytes", mapped_.back().size()}});
      }
    } catch (const std::exception&) {
      failure_ = std::current_exception();
      total_ = 0;
    }
  }
  std::string head() const { return failure_ ? json().dump() : head_.dump(); }
  int64_t total() const { return total_; }
  std::exception_ptr failure() const { return failure_; }
  Tensor next_block() {
    const Tensor block = at::empty({std::min(kBlockBytes, total_ - sent_)}, at::kByte);
    auto* to = static_cast<std::byte*>(block.data_ptr());
    for (int64_t filled = 0; filled < block.numel();) {
      const MappedFile& file = mapped_[file_];
      const auto count = std::min(block.numel() - filled, static_cast<int64_t>(file.size()) - in_file_);
      if (count > 0) std::memcpy(to + filled, file.data() + in_file_, static_cast<size_t>(count));
      filled += count;
      in_file_ += count;
      if (in_file_ < static_cast<int64_t>(file.size())) continue;
      ++file_;
      in_file_ = 0;
    }
    sent_ += block.numel();
    return block;
  }

 private:
  std::deque<MappedFile> mapped_;
  json head_ = json::array();
  std::exception_ptr failure_;
  int64_t total_ = 0, sent_ = 0, in_file_ = 0;
  size_t file_ = 0;
};

// Writes the bytes that come from a sender into files. After a failure they are dropped.
class Inflow {
 public:
  Inflow(const IncomingFiles& from, const std::string& head) : folder_(from.folder) {
    const json files = read_json(head);
    keep_failure([&] {
      ATHANOR_CHECK_CHECKPOINT(files.is_array(), "rank {} could not read the files that it was to send", from.from);
      for (const json& each : files) {
        files_.push_back({each.at("name"), each.at("bytes")});
        total_ += files_.back().bytes;
      }
      for (const auto& [name, bytes] : files_)
        ATHANOR_CHECK_CHECKPOINT(fs::path(name).filename() == name && !name.starts_with('.') && bytes >= 0,
                                 "rank {} sent \"{}\", which is no plain file name", from.from, name);
      finish_files();
    });
  }
  int64_t total() const { return total_; }
  Tensor next_block() const { return at::empty({std::min(kBlockBytes, total_ - received_)}, at::kByte); }
  void write(const Tensor& block) {
    received_ += block.numel();
    if (failure_) return;
    keep_failure([&] {
      const auto* from = static_cast<const std::byte*>(block.const_data_ptr());
      for (int64_t taken = 0; taken < block.numel();) {
        const auto room = files_.front().bytes - static_cast<int64_t>(file_->size());
        const auto count = std::min(block.numel() - taken, room);
        file_->write(from + taken, static_cast<size_t>(count));
        taken += count;
        finish_files();
      }
    });
  }
  std::exception_ptr failure() const { return failure_; }

 private:
  // Gives the files their names that have all of their bytes, and opens the next.
  void finish_files() {
    while (!files_.empty()) {
      if (!file_) file_.emplace(folder_ / files_.front().name);
      if (static_cast<int64_t>(file_->size()) < files_.front().bytes) return;
      file_->commit();
      file_.reset();
      files_.pop_front();
    }
  }
  template <class Act>
  void keep_failure(Act act) {
    try {
      act();
    } catch (const std::exception&) {
      failure_ = std::current_exception();
      file_.reset();
    }
  }

  fs::path folder_;
  std::deque<FileSize> files_;  // the first one is being written
  std::optional<AtomicFile> file_;
  std::exception_ptr failure_;
  int64_t total_ = 0, received_ = 0;
};

void wait_for_all(std::vector<comm::Pending>& pending, const std::function<void(comm::Pending& pending)>& wait) {
  for (comm::Pending& each : pending) wait(each);
  pending.clear();
}

// Exchanges what tells the receivers which files will come.
std::vector<std::string> exchange_heads(comm::Communicator& group, const std::optional<OutgoingFiles>& out,
                                        const std::string& head, const std::vector<IncomingFiles>& in,
                                        const std::function<void(comm::Pending& pending)>& wait) {
  std::vector<comm::Pending> pending;
  const Tensor length = at::full({1}, static_cast<int64_t>(head.size()), at::kLong);
  std::vector<Tensor> lengths, texts;
  if (out) pending.push_back(group.send(length, out->to));
  for (const auto& from : in) {
    lengths.push_back(at::zeros({1}, at::kLong));
    pending.push_back(group.receive(lengths.back(), from.from));
  }
  wait_for_all(pending, wait);
  const Tensor text = at::empty({length.item<int64_t>()}, at::kByte);
  std::memcpy(text.data_ptr(), head.data(), head.size());
  if (out) pending.push_back(group.send(text, out->to));
  for (size_t i = 0; i < in.size(); ++i) {
    texts.push_back(at::empty({lengths[i].item<int64_t>()}, at::kByte));
    pending.push_back(group.receive(texts.back(), in[i].from));
  }
  wait_for_all(pending, wait);
  std::vector<std::string> heads;
  for (const Tensor& each : texts)
    heads.emplace_back(static_cast<const char*>(each.const_data_ptr()), static_cast<size_t>(each.numel()));
  return heads;
}

}  // namespace

void exchange_files(comm::Communicator& group, const std::optional<OutgoingFiles>& out,
                    const std::vector<IncomingFiles>& in, const std::function<void(comm::Pending& pending)>& wait,
                    const Worked& worked) {
  Outflow outflow(out.value_or(OutgoingFiles{}));
  const auto heads = exchange_heads(group, out, outflow.head(), in, wait);
  std::deque<Inflow> inflows;
  int64_t most = outflow.total();
  for (size_t i = 0; i < in.size(); ++i) {
    inflows.emplace_back(in[i], heads[i]);
    most = std::max(most, inflows.back().total());
  }
  for (int64_t at = 0; at < most; at += kBlockBytes) {
    std::vector<comm::Pending> pending;
    std::vector<Tensor> blocks(in.size());
    Tensor sent;
    if (at < outflow.total()) {
      sent = outflow.next_block();
      pending.push_back(group.send(sent, out->to));
    }
    for (size_t i = 0; i < in.size(); ++i) {
      if (at >= inflows[i].total()) continue;
      blocks[i] = inflows[i].next_block();
      pending.push_back(group.receive(blocks[i], in[i].from));
    }
    wait_for_all(pending, wait);
    for (size_t i = 0; i < in.size(); ++i)
      if (blocks[i].defined()) inflows[i].write(blocks[i]);
    if (worked) worked(std::min(kBlockBytes, most - at));
  }
  if (outflow.failure()) std::rethrow_exception(outflow.failure());
  for (const Inflow& each : inflows)
    if (each.failure()) std::rethrow_exception(each.failure());
}

}  // namespace athanor::inline saves
