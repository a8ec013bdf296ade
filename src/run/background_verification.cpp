#include "run/background_verification.h"

#include "base/log.h"
#include "base/text.h"

namespace athanor::inline run {
namespace {

struct Stopped {};

}  // namespace

BackgroundVerification::BackgroundVerification(std::vector<UnverifiedFile> files) {
  if (!files.empty()) thread_ = std::thread([this, files = std::move(files)] { verify(files); });
}

BackgroundVerification::~BackgroundVerification() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

std::exception_ptr BackgroundVerification::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void BackgroundVerification::verify(const std::vector<UnverifiedFile>& files) try {
  double num_bytes = 0;
  for (const auto& [dataset, index] : files) {
    dataset.verify_file(index, [this](int64_t) {
      if (stopping_) throw Stopped();
    });
    num_bytes += static_cast<double>(dataset.files()[index].num_bytes);
  }
  log::info("data: {} in {} files of this rank match their checksums", format_bytes(num_bytes), files.size());
} catch (const Stopped&) {
} catch (...) {
  const std::lock_guard lock(mutex_);
  failure_ = std::current_exception();
}

}  // namespace athanor::inline run
