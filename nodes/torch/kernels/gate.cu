// The gated unit of Llama's feed-forward (Shazeer, "GLU Variants Improve Transformer", equation 6): silu(gate) * up,
// with both [rows, 2 * width], gate before up. Width: a multiple of 8. A thread takes 8 columns. Blocks of 256 threads
// over rows * width / 8 threads, below 2^32.

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1 + power(-LOG2_E * x)); }

// out [rows, width].
extern "C" __global__ void gate(const narrow* both, narrow* out, long long rows, int width) {
  settle();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x, pieces = width / 8;
  const unsigned row = at / pieces, piece = at % pieces;
  if (row >= rows) return;
  const narrow* from = both + (size_t)row * 2 * width + piece * 8;
  float gates[8], ups[8];
  unpack(load(from), gates);
  unpack(load(from + width), ups);
#pragma unroll
  for (int i = 0; i < 8; ++i) gates[i] = gates[i] * sigmoid(gates[i]) * ups[i];
  store(out + (size_t)at * 8, packed(gates));
}

// d_both [rows, 2 * width], which may be both, from d_out [rows, width]; out, unless null, is computed again.
extern "C" __global__ void gate_backward(const narrow* d_out, const narrow* both, narrow* d_both, narrow* out,
                                         long long rows, int width) {
  settle();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x, pieces = width / 8;
  const unsigned row = at / pieces, piece = at % pieces;
  if (row >= rows) return;
  const size_t from = (size_t)row * 2 * width + piece * 8;
  float gates[8], ups[8], gradients[8], results[8];
  unpack(load(both + from), gates);
  unpack(load(both + from + width), ups);
  unpack(load(d_out + (size_t)at * 8), gradients);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float share = sigmoid(gates[i]), silu = gates[i] * share;
    results[i] = silu * ups[i];
    gates[i] = gradients[i] * ups[i] * (share + silu * (1 - share));
    ups[i] = gradients[i] * silu;
  }
  store(d_both + from, packed(gates));
  store(d_both + from + width, packed(ups));
  if (out) store(out + (size_t)at * 8, packed(results));
}
