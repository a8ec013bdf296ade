#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/device/open.h"

namespace athanor::comm {

bool have_nccl() { return true; }
c10::intrusive_ptr<c10d::Backend> open_nccl(const DeviceGroupStart& start) {
  return open_process_group<c10d::ProcessGroupNCCL>(start);
}

}  // namespace athanor::comm
