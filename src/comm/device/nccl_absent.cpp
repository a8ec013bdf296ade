#include "base/error.h"
#include "comm/device/open.h"

namespace athanor::comm {

bool have_nccl() { return false; }
c10::intrusive_ptr<c10d::Backend> open_nccl(const DeviceGroupStart& /*start*/) {
  fail<CommError>("this build has no NCCL: build against a CUDA libtorch, with nccl.h (-DATHANOR_NCCL_INCLUDE=FOLDER)");
}

}  // namespace athanor::comm
