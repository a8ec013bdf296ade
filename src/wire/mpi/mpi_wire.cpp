// A Wire over MPI. It is compiled once for each MPI that is found, into a plugin that needs nothing but that MPI.

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "wire/wire.h"

namespace athanor::comm {
namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(what) + ": " + std::string(text, static_cast<size_t>(length)));
}

class MpiWire : public Wire {
 public:
  MpiWire() {
    // Open MPI has nothing to add to the line with which a job ends.
    ::setenv("OMPI_MCA_orte_execute_quiet", "1", /*overwrite=*/0);
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
    // Open MPI 5 complains on a host without a network that its ranks do not reach each other by TCP, which it leaves
    // out on the loopback interface. On one host they use shared memory.
    if (is_on_one_host() && !std::getenv("OMPI_MCA_btl_tcp_if_exclude"))
      ::setenv("OMPI_MCA_btl_tcp_if_include", "lo", /*overwrite=*/0);
#endif
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_MULTIPLE) {
      throw std::runtime_error(
          "this MPI was built without MPI_THREAD_MULTIPLE, which communication during computation needs");
    }
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    for (MPI_Comm comm : {comm_, control_}) {
      check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    int* limit = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, &limit, &found);
    max_tag_ = found ? *limit : 32767;  // the minimum of the standard
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return max_tag_; }

  std::string library() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
    // "Open MPI v4.1.4, package: …", or lines of which the first is "MPICH Version:      4.0.2".
    std::string name(text, std::strcspn(text, ",\n"));
    std::replace(name.begin(), name.end(), '\t', ' ');
    return name;
  }

  void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) override {
    MPI_Request request;
    const bool control = tag == kControlTag;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, control ? 0 : tag, control ? control_ : comm_,
                    &request),
          "MPI_Isend");
    requests_.push_back(request);
    tokens_.push_back(token);
  }

  void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) override {
    MPI_Request request;
    const bool control = tag == kControlTag;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer == kAnyPeer ? MPI_ANY_SOURCE : peer,
                    control ? 0 : tag, control ? control_ : comm_, &request),
          "MPI_Irecv");
    requests_.push_back(request);
    tokens_.push_back(token);
  }

  void poll(std::vector<Finished>& finished) override {
    const size_t count = requests_.size();
    if (count == 0) return;
    indices_.resize(count);
    statuses_.resize(count);
    int num_over = 0;
    const int code =
        MPI_Testsome(static_cast<int>(count), requests_.data(), &num_over, indices_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
    if (num_over == 0 || num_over == MPI_UNDEFINED) return;
    for (int i = 0; i < num_over; ++i) {
      const size_t index = static_cast<size_t>(indices_[static_cast<size_t>(i)]);
      const MPI_Status& status = statuses_[static_cast<size_t>(i)];
      finished.push_back({tokens_[index], bytes_of(status, code == MPI_ERR_IN_STATUS), status.MPI_SOURCE});
    }
    drop_finished(count);
  }

  void close() override {
    check(MPI_Barrier(comm_), "MPI_Barrier");
    for (MPI_Request& request : requests_) {
      check(MPI_Cancel(&request), "MPI_Cancel");
      check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    }
    requests_.clear();
    check(MPI_Comm_free(&control_), "MPI_Comm_free");
    check(MPI_Comm_free(&comm_), "MPI_Comm_free");
    check(MPI_Finalize(), "MPI_Finalize");
  }

  [[noreturn]] void abort(int exit_code) override {
    // The error has been printed, and must be the last line: MPICH would print here, through our standard error.
    std::fflush(nullptr);
    if (const int nowhere = ::open("/dev/null", O_WRONLY); nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
    // When a launcher is told to abort, it may drop output that it has not passed on, and on a busy machine it reads
    // late.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
  }

 private:
  /// By the variables of mpirun.
  static bool is_on_one_host() {
    const char *here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = std::getenv("OMPI_COMM_WORLD_SIZE");
    return here && all && std::strcmp(here, all) == 0;
  }

  static int64_t bytes_of(const MPI_Status& status, bool look_for_errors) {
    if (look_for_errors && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) {
      int kind = 0;
      MPI_Error_class(status.MPI_ERROR, &kind);
      if (kind == MPI_ERR_TRUNCATE) return kTooMuch;
      check(status.MPI_ERROR, "a message failed");
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    return bytes;
  }

  /// Completed requests have become null; the rest move together, in order.
  void drop_finished(size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      tokens_[kept++] = tokens_[i];
    }
    requests_.resize(kept);
    tokens_.resize(kept);
  }

  MPI_Comm comm_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, max_tag_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<uint64_t> tokens_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace
}  // namespace athanor::comm

extern "C" athanor::comm::Wire* athanor_open_wire() { return new athanor::comm::MpiWire(); }
