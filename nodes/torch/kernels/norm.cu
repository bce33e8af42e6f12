// RMS norm (Zhang and Sennrich, "Root Mean Square Layer Normalization", equation 4) of a sum, and its backward pass.
//
// Width: a multiple of 8, at most 16384. A thread keeps up to NORM_VECTORS vectors of 8 of its row, so blockDim.x is
// the least power of two, from 32 to 512, with blockDim.x * 8 * NORM_VECTORS >= width. blockDim.y rows share a block: 4
// where blockDim.x is 32 (a warp a row), else 1.

constexpr int NORM_VECTORS = 4;

// sum = x + delta, out = sum / rms(sum) * weight, scale[row] = 1 / rms(sum). delta, sum and scale may be null; without
// delta sum is a copy of x. sum may be x. Grid: ceil(rows / blockDim.y).
extern "C" __global__ void __launch_bounds__(512)
    add_norm(const bf16* x, const bf16* delta, const bf16* weight, bf16* sum, bf16* out, float* scale, long long rows,
             int width, float eps) {
  const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const size_t base = (size_t)row * width;
  uint4 values[NORM_VECTORS], deltas[NORM_VECTORS], weights[NORM_VECTORS];
#pragma unroll
  for (int i = 0; i < NORM_VECTORS; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= width) break;
    values[i] = load(x + base + at);
    if (delta) deltas[i] = load(delta + base + at);
    weights[i] = load(weight + at);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < NORM_VECTORS; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= width) break;
    float value[8], more[8];
    unpack(values[i], value);
    if (delta) {
      unpack(deltas[i], more);
#pragma unroll
      for (int j = 0; j < 8; ++j) value[j] += more[j];
      values[i] = packed(value);
      unpack(values[i], value);
    }
    if (sum) store(sum + base + at, values[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += value[j] * value[j];
  }
  const float factor = rsqrtf(row_sum(squares) / width + eps);
  if (scale && threadIdx.x == 0) scale[row] = factor;
#pragma unroll
  for (int i = 0; i < NORM_VECTORS; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= width) break;
    float value[8], times[8];
    unpack(values[i], value);
    unpack(weights[i], times);
#pragma unroll
    for (int j = 0; j < 8; ++j) value[j] *= factor * times[j];
    store(out + base + at, packed(value));
  }
}

// With g = d_out * weight: d_x = scale * (g - x * scale^2 * mean(g * x)) + d_residual, and the block's part of
// d_weight = sum over rows of d_out * x * scale, written to d_weight[blockIdx.x]. d_residual may be null, or be d_x.
// The number of blocks is free (each takes rows in turn); shared memory: 4 * width bytes where blockDim.y > 1.
extern "C" __global__ void __launch_bounds__(512)
    norm_backward(const bf16* d_out, const bf16* x, const float* scale, const bf16* weight, const bf16* d_residual,
                  bf16* d_x, float* d_weight, long long rows, int width) {
  extern __shared__ float total[];
  float d_weights[NORM_VECTORS][8] = {};
  const long long step = (long long)gridDim.x * blockDim.y;
  for (long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += step) {
    const size_t base = (size_t)row * width;
    const float factor = scale[row];
    uint4 values[NORM_VECTORS], gradients[NORM_VECTORS], residuals[NORM_VECTORS];
#pragma unroll
    for (int i = 0; i < NORM_VECTORS; ++i) {
      const int at = (i * blockDim.x + threadIdx.x) * 8;
      if (at >= width) break;
      values[i] = load(x + base + at);
      gradients[i] = load(d_out + base + at);
      if (d_residual) residuals[i] = load(d_residual + base + at);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < NORM_VECTORS; ++i) {
      const int at = (i * blockDim.x + threadIdx.x) * 8;
      if (at >= width) break;
      float value[8], gradient[8], times[8];
      unpack(values[i], value);
      unpack(gradients[i], gradient);
      unpack(load(weight + at), times);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        dot += gradient[j] * times[j] * value[j];
        d_weights[i][j] += gradient[j] * value[j] * factor;
      }
    }
    const float pull = row_sum(dot) / width * factor * factor;
#pragma unroll
    for (int i = 0; i < NORM_VECTORS; ++i) {
      const int at = (i * blockDim.x + threadIdx.x) * 8;
      if (at >= width) break;
      float value[8], gradient[8], times[8], result[8];
      unpack(values[i], value);
      unpack(gradients[i], gradient);
      unpack(load(weight + at), times);
      if (d_residual) unpack(residuals[i], result);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        result[j] = (d_residual ? result[j] : 0) + factor * (gradient[j] * times[j] - value[j] * pull);
      store(d_x + base + at, packed(result));
    }
  }
  float* to = d_weight + (size_t)blockIdx.x * width;
  for (int turn = 0; turn < blockDim.y; ++turn) {
    if (threadIdx.y == turn) {
#pragma unroll
      for (int i = 0; i < NORM_VECTORS; ++i) {
        const int at = (i * blockDim.x + threadIdx.x) * 8;
        if (at >= width) break;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float sum = (turn ? total[at + j] : 0) + d_weights[i][j];
          if (turn + 1 < blockDim.y)
            total[at + j] = sum;
          else
            to[at + j] = sum;
        }
      }
    }
    if (blockDim.y > 1) __syncthreads();
  }
}
