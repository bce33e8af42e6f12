// Operators that tch does not bind, on any device: linked into the programs, against libtorch_cpu alone.
// `native/operators.rs` has the other side and says what each does. None is recorded for autograd.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>

#include "guard.h"

namespace {
template <class Body>
char *guarded(Body &&body) {
  return rlpipe::guarded([&] {
    at::NoGradGuard no_grad;
    body();
  });
}

std::vector<Tensor> list(Tensor *const *tensors, size_t count) {
  std::vector<Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(*tensors[i]);
  return out;
}

std::optional<Tensor> maybe(const Tensor *tensor) { return tensor ? std::optional<Tensor>(*tensor) : std::nullopt; }
}  // namespace

extern "C" {

void rlpipe_free(void *message) { free(message); }

char *rlpipe_flash_attention(const Tensor *q, const Tensor *k, const Tensor *v, const Tensor *starts, int64_t longest,
                             double scale, Tensor **out, Tensor **lse) {
  return guarded([&] {
    auto result = at::_flash_attention_forward(*q, *k, *v, *starts, *starts, longest, longest, /*dropout_p=*/0.0,
                                               /*is_causal=*/true, /*return_debug_mask=*/false, scale);
    *out = new Tensor(std::get<0>(result));
    *lse = new Tensor(std::get<1>(result));
  });
}

char *rlpipe_fused_adamw(Tensor *const *parameters, Tensor *const *gradients, Tensor *const *means,
                         Tensor *const *squares, size_t count, double step, double learning_rate, double beta1,
                         double beta2, double weight_decay, double eps, const Tensor *divisor, const Tensor *skip) {
  return guarded([&] {
    if (count == 0) return;
    // The kernels only read the counter, so all parameters share one.
    auto counter = at::full({}, step, parameters[0]->options().dtype(at::kFloat).requires_grad(false));
    at::_fused_adamw_(list(parameters, count), list(gradients, count), list(means, count), list(squares, count), {},
                      std::vector<Tensor>(count, counter), learning_rate, beta1, beta2, weight_decay, eps,
                      /*amsgrad=*/false, /*maximize=*/false, maybe(divisor), maybe(skip));
  });
}

char *rlpipe_total_norm(Tensor *const *tensors, size_t count, Tensor **out) {
  return guarded([&] {
    *out = new Tensor(at::stack(at::_foreach_norm(list(tensors, count), 2)).to(at::kDouble).norm());
  });
}

char *rlpipe_foreach_mul(Tensor *const *tensors, size_t count, const Tensor *factor) {
  return guarded([&] { at::_foreach_mul_(list(tensors, count), *factor); });
}

char *rlpipe_foreach_copy(Tensor *const *into, Tensor *const *from, size_t count) {
  return guarded([&] { at::_foreach_copy_(list(into, count), list(from, count)); });
}

char *rlpipe_foreach_zero(Tensor *const *tensors, size_t count) {
  return guarded([&] { at::_foreach_zero_(list(tensors, count)); });
}

char *rlpipe_copy_later(Tensor *into, const Tensor *from) {
  return guarded([&] { into->copy_(*from, /*non_blocking=*/true); });
}

// For the test that no exception passes.
char *rlpipe_throw(int kind) {
  return guarded([&] {
    if (kind == 0) TORCH_CHECK(false, "an error of torch");
    if (kind == 1) throw std::runtime_error("an error of the standard library");
    throw 42;
  });
}
}
