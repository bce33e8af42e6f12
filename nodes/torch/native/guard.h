// No C++ exception may reach a Rust frame: every exported function is a `guarded` body that returns null, or a malloc'd
// message which the caller frees.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <exception>

using Tensor = at::Tensor;  // what tch calls C_tensor

namespace rlpipe {
template <class Body>
char *guarded(Body &&body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const c10::Error &error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception &error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("unknown C++ exception");
  }
}
}  // namespace rlpipe
