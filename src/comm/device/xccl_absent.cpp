#include "base/error.h"
#include "comm/device/open.h"

namespace athanor::comm {

bool have_xccl() { return false; }
c10::intrusive_ptr<c10d::Backend> open_xccl(const DeviceGroupStart& /*start*/) {
  fail<CommError>(
      "this build has no XCCL: build against an XPU libtorch, with oneCCL's headers (-DATHANOR_XCCL_INCLUDE=FOLDER)");
}

}  // namespace athanor::comm
