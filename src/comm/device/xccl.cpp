#include <xccl/ProcessGroupXCCL.hpp>

#include "comm/device/open.h"

namespace athanor::comm {

bool have_xccl() { return true; }
c10::intrusive_ptr<c10d::Backend> open_xccl(const DeviceGroupStart& start) {
  return open_process_group<c10d::ProcessGroupXCCL>(start);
}

}  // namespace athanor::comm
