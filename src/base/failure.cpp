#include "base/failure.h"

#include <fmt/core.h>

#include <new>

#include "base/error.h"

namespace athanor {

Failure describe_failure(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  } catch (const std::bad_alloc&) {
    return {"out of memory; a smaller train.micro_batch_size or model needs less", 1};
  } catch (const std::exception& error) {
    return {error.what(), 1};
  } catch (...) {
    return {"something that is no exception was thrown", 1};
  }
}

std::string failure_line(const Failure& failure, const Launched& me, const std::string& host, int64_t step) {
  std::string line = me.size > 1 ? fmt::format("rank {} ({}): ", me.rank, host) : "";
  const std::string at_step = fmt::format("step {}:", step);
  if (step > 0 && !failure.message.starts_with(at_step)) line += at_step + " ";
  return line + failure.message;
}

}  // namespace athanor
